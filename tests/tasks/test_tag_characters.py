"""A tagger that reads the states of language models of characters (flair)."""

from __future__ import annotations

import pytest
import torch

import anaphora as an
from anaphora.errors import RunError, SettingsError

LINES = ["Ada saw Bob", "the dog saw Ada", "Bob ran", "a dog ran home", "Bob saw a dog", "Ada ran home"] * 6
TAGGED = [(x, " ".join("B-P" if w[0].isupper() else "O" for w in x.split())) for x in LINES]
TINY = {
    "steps": 4,
    "batch_tokens": 64,
    "valid_every": 4,
    "save_every": 4,
    "device": "cpu",
    "threads": 1,
    "film": 0,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letters")
    for name, more in {
        "forward": {"lines": True},
        "backward": {"lines": True, "backward": True},
        "running": {"lines": False},
    }.items():
        an.LanguageModel("lstm", tokens="char", embedding=4, hidden=6, **more, **TINY).fit(
            LINES, out=folder / name
        )
    return folder


def test_states_of_characters_stand_beside_the_words(runs, tmp_path):
    init = f"{runs / 'forward'},{runs / 'backward'}"
    tagger = an.Tagger(init=init, hidden=8, embedding=6, **TINY).fit(TAGGED, out=tmp_path / "run")
    words = tagger.model_.encoder.embedding
    assert words.width == 6 + 2 * 64 + 2 * 6
    for number, name in enumerate(("forward", "backward")):
        donor = an.load(runs / name)
        for key, value in donor.model_.body.state_dict().items():
            mine = tagger.model_.state_dict()[f"encoder.embedding.readers.{number}.{key}"]
            assert torch.equal(mine, value)  # they stay as they are, to the bit
        (symbol,) = donor.tokenizer_.encode("A")
        place = 4 + tagger.learnt_.letters.index("A")
        assert int(words.readers[number].table[place]) == symbol
    assert tagger.tokenizer_.encode("dog") != [1]  # the words are its own, not the donor's
    given = ["Ada saw a dog", "Zoë!", "Bob"]
    again = an.load(tmp_path / "run")
    assert again.predict(given) == tagger.predict(given)
    with pytest.raises(an.AnaphoraError, match="models of characters"):
        tagger.export(tmp_path / "out.onnx")


def test_one_model_gives_vectors_where_that_is_asked_for(runs):
    tagger = an.Tagger(init=str(runs / "forward"), init_as="vectors", hidden=8, embedding=6, **TINY).fit(
        TAGGED
    )
    assert len(tagger.model_.encoder.embedding.readers) == 1


def test_what_does_not_fit_is_said_in_a_sentence(runs):
    both = f"{runs / 'forward'},{runs / 'backward'}"
    with pytest.raises(SettingsError, match="leave characters out"):
        an.Tagger(init=both, characters="none", **TINY).fit(TAGGED)
    with pytest.raises(RunError, match="lines=true"):
        an.Tagger(init=str(runs / "running"), init_as="vectors", **TINY).fit(TAGGED)
    with pytest.raises(RunError, match="init_as=vectors"):
        an.Tagger(init=str(runs / "forward"), **TINY).fit(TAGGED)
