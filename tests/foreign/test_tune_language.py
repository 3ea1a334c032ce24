"""Language models that go on from others, and mixtures of the layers of an encoder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from foreign_tiny import LINES, TRAINING, classifier, language, tagger

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError

ROWS = [(line, "ab"[i % 2]) for i, line in enumerate(LINES)]


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("go-on") / "gpt"
    language().export(folder, to="hf")
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("go-on") / "bert"
    language("masked", norm_first=False, embedding_norm=True, positions="learned").export(folder, to="hf")
    return folder


def test_a_public_model_goes_on_with_its_symbols_and_weights(gpt: Path, tmp_path: Path) -> None:
    public = an.load(gpt, device="cpu")
    few = {**TRAINING, "steps": 2, "lr": 1e-6}
    m = an.LanguageModel(init=str(gpt), lines=True, **few).fit(LINES, out=tmp_path / "run", verbose=False)
    assert (m.settings_.model, m.settings_.hidden) == ("transformer", 16)
    assert m.tokenizer_.spellings == public.tokenizer_.spellings
    before, after = (one.rank(LINES[:3]) for one in (public, m))
    assert [round(one.log_prob, 2) for one in after] == [round(one.log_prob, 2) for one in before]
    again = an.load(tmp_path / "run", device="cpu")
    assert again.sample("the", length=5, seed=3) == m.sample("the", length=5, seed=3)


@pytest.mark.parametrize("way", [{"lora": 2}, {"freeze": 1}, {"layer_decay": 0.5}, {"unfreeze": "gradual"}])
def test_every_way_works_where_nothing_is_new(gpt: Path, tmp_path: Path, way: dict[str, object]) -> None:
    m = an.LanguageModel(init=str(gpt), lines=True, **{**TRAINING, **way}).fit(
        LINES, out=tmp_path / "run", verbose=False
    )  # type: ignore[arg-type]
    again = an.load(tmp_path / "run", device="cpu")
    assert all(
        torch.equal(a, b) for a, b in zip(again.model_.parameters(), m.model_.parameters(), strict=True)
    )


def test_a_run_of_our_own_goes_on_recurrent_or_not(tmp_path: Path) -> None:
    first = an.LanguageModel("lstm", hidden=8, **TRAINING).fit(LINES, out=tmp_path / "lm", verbose=False)
    m = an.LanguageModel(init=str(tmp_path / "lm"), **TRAINING).fit(LINES, verbose=False)
    assert (m.settings_.model, m.settings_.hidden, m.tokenizer_.spellings) == (
        "lstm",
        8,
        first.tokenizer_.spellings,
    )
    assert m.settings_.lr == pytest.approx(0.3 * first.settings_.lr)
    masked = language("masked", tokens="word")
    masked.save(tmp_path / "masked")
    assert (
        an.LanguageModel(init=str(tmp_path / "masked"), **TRAINING).fit(LINES, verbose=False).settings_.model
        == "masked"
    )


def test_what_cannot_go_on_is_named(gpt: Path, tmp_path: Path) -> None:
    with pytest.raises(AnaphoraError, match="hidden = 32 differs from 16"):
        an.LanguageModel("transformer", init=str(gpt), hidden=32, **TRAINING).fit(LINES, verbose=False)
    with pytest.raises(AnaphoraError, match="leaves nothing to train"):
        an.LanguageModel("transformer", init=str(gpt), lines=True, freeze=True, **TRAINING).fit(
            LINES, verbose=False
        )
    with pytest.raises(AnaphoraError, match="must name one model"):
        an.LanguageModel(init=f"{gpt},{gpt}", **TRAINING).fit(LINES, verbose=False)
    classifier().save(tmp_path / "classes")
    with pytest.raises(AnaphoraError, match="is a Classifier of the preset transformer"):
        an.LanguageModel(init=str(tmp_path / "classes"), **TRAINING).fit(LINES, verbose=False)
    with pytest.raises(AnaphoraError, match="has no effect on the preset ngram"):
        an.LanguageModel("ngram", init=str(gpt))


def test_the_command_goes_on(gpt: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(LINES) + "\n")
    order = ["train", "language", str(tmp_path / "text.txt"), "--init", str(gpt), "--set", "lines=true"]
    assert main.run([*order, "--steps", "1", "-o", str(tmp_path / "run")]) == 0


def test_a_mixture_of_layers_is_learned_above_a_frozen_encoder(bert: Path, tmp_path: Path) -> None:
    few = {**TRAINING, "steps": 3, "lr": 1e-2}
    m = an.Classifier(init=str(bert), mix=True, freeze=True, **few).fit(
        ROWS, out=tmp_path / "run", verbose=False
    )
    mixture = m.model_.encoder.mix
    assert len(mixture.scores) == 3
    assert float(mixture.scores.detach().abs().max()) > 0
    public = an.load(bert, device="cpu").model_.body.state_dict()
    assert all(torch.equal(m.model_.encoder.state_dict()[name], value) for name, value in public.items())
    assert an.load(tmp_path / "run", device="cpu").predict(LINES) == m.predict(LINES)
    with torch.no_grad():  # of equal shares it is the mean of what enters and of both layers
        mixture.scores.zero_()
        mixture.scale.fill_(1.0)
        encoder, source, lengths = m.model_.encoder.eval(), torch.tensor([[5, 6, 7]]), torch.tensor([3])
        entered = encoder.enter(source)
        one = encoder.stack.layers[0](entered)
        two = encoder.stack.layers[1](one)
        torch.testing.assert_close(encoder(source, lengths).annotations, (entered + one + two) / 3)
    with pytest.raises(AnaphoraError, match="mixture of layers"):
        m.export(tmp_path / "hf", to="hf")


def test_a_mixture_is_refused_where_there_are_no_layers_to_mix(tmp_path: Path) -> None:
    with pytest.raises(AnaphoraError, match="mix = true is about the layers"):
        an.Classifier("transformer", mix=True)
    an.LanguageModel("lstm", hidden=8, tokens="word", lines=True, **TRAINING).fit(LINES, verbose=False).save(
        tmp_path / "lm"
    )
    with pytest.raises(AnaphoraError, match="mix = true is for a Transformer"):
        an.Classifier(init=str(tmp_path / "lm"), mix=True, **TRAINING).fit(ROWS, verbose=False)


def test_a_model_that_tags_pieces_opens_as_a_tagger_and_goes_back(bert: Path, tmp_path: Path) -> None:
    sentences = [(line.split(), ["B-X" if len(w) > 3 else "O" for w in line.split()]) for line in LINES]
    sentences[0][1][2] = "I-X"
    m = an.Tagger(init=str(bert), **TRAINING).fit(sentences, verbose=False)
    m.export(tmp_path / "hf", to="hf")
    public = an.load(tmp_path / "hf", device="cpu")
    assert (public.command, public.learnt_.tags, public.learnt_.scheme) == ("tag", m.learnt_.tags, "bio")
    for ours, theirs in zip(m.predict_proba(LINES), public.predict_proba(LINES), strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), atol=1e-6, rtol=0)
    assert set(public.score(sentences)) >= {"accuracy", "f1"}
    public.save(tmp_path / "run")
    assert an.load(tmp_path / "run", device="cpu").predict(LINES) == public.predict(LINES)
    tuned = an.Tagger(init=str(tmp_path / "hf"), **TRAINING).fit(sentences, verbose=False)
    assert tuned.learnt_.framing == "both"
    with pytest.raises(AnaphoraError, match="reads words in pieces"):
        m.export(tmp_path / "torch", to="torch")


def test_a_tagger_of_whole_words_still_exports(tmp_path: Path) -> None:
    tagger().export(tmp_path / "words", to="hf")
    assert (tmp_path / "words" / "tokenizer.json").is_file()
