"""Commands to sequences of actions: "hop twice after wave left" becomes "LEFT WAVE HOP HOP".

Made in the manner of SCAN (Lake & Baroni 2018), with a grammar of its own and longer runs of one action: a model that loses count is
wrong by exactly one symbol.
"""

from __future__ import annotations

from random import Random

from anaphora.data.corpora.corpus import Corpus, Example

VERBS = ("hop", "wave", "clap", "spin", "kneel")
SIDES = ("left", "right")
COUNTS = ("", "twice", *(f"{word} times" for word in ("three", "four", "five", "six", "seven", "eight")))
LONGEST = 16
"""Most actions of a clause, and of a training example of the variant ``length``."""


def clause(verb: str, manner: str, side: str, times: int) -> tuple[str, list[str]]:
    """One command and its actions.

    ``manner``: "" does it where one stands, "toward" turns to the ``side`` first, "behind" turns twice, "circling" turns and
    does it four times over.
    """
    action, turn = verb.upper(), side.upper()
    once = {
        "": [action],
        "toward": [turn, action],
        "behind": [turn, turn, action],
        "circling": [turn, action] * 4,
    }[manner]
    words = [verb, *((manner, side) if manner else ()), COUNTS[times - 1]]
    return " ".join(filter(None, words)), once * times


def draw(variant: str, random: Random) -> Example:
    """One clause, or two: *then* keeps their order, *after* swaps them. Single clauses are only in train."""
    parts = []
    for _ in range(1 + (random.randrange(8) > 0)):
        verb = VERBS[random.randrange(len(VERBS))]
        manner = ("", "", "toward", "toward", "behind", "behind", "circling")[random.randrange(7)]
        side = SIDES[random.randrange(len(SIDES))]
        most = LONGEST // len(clause(verb, manner, side, 1)[1])
        parts.append(clause(verb, manner, side, 1 + random.randrange(min(most, len(COUNTS)))))
    if len(parts) == 1:
        return Example(parts[0][0], " ".join(parts[0][1]), None)
    (first, does), (second, does_too) = parts
    if random.randrange(2):
        source, actions = f"{first} then {second}", does + does_too
    else:
        source, actions = f"{first} after {second}", does_too + does
    return Example(source, " ".join(actions), source)


def longer(example: Example) -> bool:
    """Whether an example has more actions than training with ``length`` shows."""
    return len(example.target.split(" ")) > LONGEST


CORPUS = Corpus(
    name="commands",
    summary="commands to sequences of actions with long runs of equal symbols; SCAN in kind",
    variants={
        "simple": "all lengths in every split",
        "length": f"at most {LONGEST} actions in train, more in dev and test",
    },
    sizes={"train": 20_000, "dev": 500, "test": 1_000},
    draw=draw,
    beyond={"length": longer},
    tasks=("translate",),
)
