"""The corpus of commands: examples by hand, a reader that carries commands out, and the split by length."""

from __future__ import annotations

import pytest

from anaphora.data.corpora import generate
from anaphora.data.corpora.sentences import COUNTS, LONGEST, clause


@pytest.mark.parametrize(
    ("asked", "words", "actions"),
    [
        (("hop", "", "left", 1), "hop", "HOP"),
        (("hop", "", "left", 3), "hop three times", "HOP HOP HOP"),
        (("wave", "toward", "right", 2), "wave toward right twice", "RIGHT WAVE RIGHT WAVE"),
        (("clap", "behind", "left", 1), "clap behind left", "LEFT LEFT CLAP"),
        (
            ("spin", "circling", "left", 1),
            "spin circling left",
            "LEFT SPIN LEFT SPIN LEFT SPIN LEFT SPIN",
        ),
    ],
)
def test_clauses_by_hand(asked, words, actions):
    assert clause(*asked) == (words, actions.split())


def carried_out(command: str) -> list[str]:
    """The actions of a command, read word by word."""
    for joint, swapped in ((" then ", False), (" after ", True)):
        if joint in command:
            parts = [carried_out(part) for part in command.split(joint)]
            return [action for part in (parts[::-1] if swapped else parts) for action in part]
    words = command.split()
    times = 1
    if words[-1] == "times":
        times = COUNTS.index(f"{words[-2]} times") + 1
        words = words[:-2]
    elif words[-1] == "twice":
        times, words = 2, words[:-1]
    verb = words[0].upper()
    if len(words) == 1:
        return [verb] * times
    turn = words[2].upper()
    turns = {"toward": [turn, verb], "behind": [turn, turn, verb], "circling": [turn, verb] * 4}
    return turns[words[1]] * times


@pytest.mark.parametrize("variant", ["simple", "length"])
def test_commands_can_be_carried_out(variant):
    for split in ("train", "dev", "test"):
        for command, actions in generate("commands", variant, split, size=400):
            assert carried_out(command) == actions.split()


def test_only_dev_and_test_of_length_are_long():
    found = {split: generate("commands", "length", split, size=500) for split in ("train", "dev", "test")}
    sizes = {split: [len(actions.split()) for _, actions in pairs] for split, pairs in found.items()}
    assert max(sizes["train"]) == LONGEST
    assert min(sizes["dev"] + sizes["test"]) == LONGEST + 1
    assert not set(found["dev"]) & set(found["test"])


def test_training_holds_every_single_clause_that_dev_is_made_of():
    shown = {command for command, _ in generate("commands", size=20_000)}
    for command, _ in generate("commands", split="dev", size=200):
        joint = " then " if " then " in command else " after "
        for part in command.split(joint):
            assert any(one.startswith(part) or one.endswith(part) for one in shown)
