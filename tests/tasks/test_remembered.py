"""What a translator is compared with after training: the target of the most similar training pair, and the source itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import anaphora as an
from anaphora.tasks.suiting import remembered
from anaphora.tasks.suiting.remembered import Remembered, Rival, rival_of

SMALL = {"hidden": 8, "embedding": 8, "steps": 2, "threads": 1, "valid_examples": 5}
NOUNS = ["file", "page", "group", "user", "image", "folder", "task", "form"]
VERBS = {"Delete": "löschen", "Open": "öffnen", "Close": "schließen", "Save": "speichern"}
PAIRS = [
    (f"{verb} the {noun} {number}", f"{noun.title()} {number} {written}")
    for verb, written in VERBS.items()
    for noun in NOUNS
    for number in range(4)
]


def test_the_nearest_shares_the_rarest_runs_of_letters() -> None:
    memory = Remembered(["delete the file", "delete the page", "open the page"])
    assert [memory.nearest(text) for text in ("remove file", "Open pages", "delete the page")] == [0, 2, 1]
    assert memory.nearest("öüñ") is None
    assert Remembered(["a", "a"]).nearest("a") == 0


def test_a_memory_that_is_better_is_named(tmp_path: Path) -> None:
    m = an.Translator(**SMALL).fit(PAIRS[20:], valid=PAIRS[:20], out=tmp_path / "run", verbose=False)
    found = rival_of(m, tmp_path / "run")
    assert found is not None
    assert found.name == "nearest"
    assert found.reached > 30 > found.value
    assert found.pairs == 20
    assert m._advice(tmp_path / "run") == str(found)
    assert str(found).startswith("the target of the most similar training source has chrF ")


def test_copying_that_is_better_is_named(tmp_path: Path) -> None:
    words = [f"{noun}{number * 37 % 101}" for noun in NOUNS for number in range(20)]
    pairs = [(word, f"{word}s") for word in words]
    m = an.Translator(**SMALL).fit(pairs[40:], valid=pairs[:40], out=tmp_path / "run", verbose=False)
    found = rival_of(m, tmp_path / "run")
    assert found is not None
    assert str(found).startswith("the source itself, copied, has chrF ")


def test_within_two_standard_errors_nothing_is_said() -> None:
    assert not Rival("nearest", 52.0, 50.0, 20, 1.0).better
    assert Rival("nearest", 52.1, 50.0, 20, 1.0).better


@pytest.mark.usefixtures("small_corpora")
@pytest.mark.parametrize("left", ["corpus", "few", "many"])
def test_what_cannot_be_compared_is_not(tmp_path: Path, left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"corpus": "numbers", "few": PAIRS[20:]}.get(left, PAIRS[20:])
    valid = {"few": PAIRS[:9], "many": PAIRS[:20]}.get(left)
    if left == "many":
        monkeypatch.setattr(remembered, "MOST_TEXT", 100)
    m = an.Translator(**SMALL).fit(data, valid=valid, out=tmp_path / "run", verbose=False)
    assert rival_of(m, tmp_path / "run") is None


def test_inputs_with_unknown_characters_are_warned_of() -> None:
    m = an.Translator(**SMALL, tokens="char").fit(PAIRS, valid=PAIRS[:9], verbose=False)
    with pytest.warns(UserWarning, match=r"1 of 2 inputs hold characters .* has \('日file' in the first\)"):
        m.predict(["Save the file", "Save the 日file"])
