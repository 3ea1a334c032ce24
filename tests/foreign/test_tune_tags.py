"""A tagger over word pieces: words of sentences, pieces of a public model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign_tiny import LINES, TRAINING, language

import anaphora as an
from anaphora.cli import main
from anaphora.data.symbols import PAD
from anaphora.errors import AnaphoraError
from anaphora.models.pieces import PieceEncoder
from anaphora.nn.attention import MultiHead
from anaphora.nn.embedding import Embedding
from anaphora.nn.positions import Learned
from anaphora.nn.transformer import EncoderLayer, FeedForward, TransformerEncoder

SENTENCES = [(line.split(), ["X" if len(word) > 3 else "O" for word in line.split()]) for line in LINES]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tags") / "bert"
    language("masked", norm_first=False, embedding_norm=True, positions="learned").export(folder, to="hf")
    return folder


def encoder(word: str = "first", places: int = 12, end: bool = True) -> PieceEncoder:
    torch.manual_seed(2)
    stack = TransformerEncoder(EncoderLayer(MultiHead(8, 2), FeedForward(8, 12)), 2)
    positions = Learned(8, places)
    made = PieceEncoder(Embedding(20, 8), stack, positions=positions, end=end, word=word).eval()  # type: ignore[arg-type]
    torch.nn.init.normal_(positions.weight)
    return made


def test_a_word_has_the_state_of_its_first_last_or_mean_piece() -> None:
    rows = torch.tensor([[[5, 6, PAD], [7, PAD, PAD], [8, 9, 10]], [[4, PAD, PAD], [11, 12, PAD], [PAD] * 3]])
    lengths = torch.tensor([3, 2])
    first = encoder()
    with torch.no_grad():
        whole = super(PieceEncoder, first).forward(  # <s> 5 6 7 8 9 10 </s>
            torch.tensor([[2, 5, 6, 7, 8, 9, 10, 3]]), torch.tensor([8])
        )
        states = whole.annotations[0]
        found = first(rows, lengths)
        torch.testing.assert_close(found.annotations[0], states[[1, 3, 4]])
        last = encoder("last")(rows, lengths).annotations[0]
        torch.testing.assert_close(last, states[[2, 3, 6]])
        mean = encoder("mean")(rows, lengths).annotations[0]
        torch.testing.assert_close(mean, torch.stack((states[1:3].mean(0), states[3], states[4:7].mean(0))))
        alone = first(rows[1:, :2], lengths[1:]).annotations[0]  # padding changes nothing
        torch.testing.assert_close(found.annotations[1, :2], alone)
    assert found.mask.tolist() == [[True, True, True], [True, True, False]]


def test_a_sentence_longer_than_the_positions_is_read_in_windows() -> None:
    model = encoder(places=10)  # 8 pieces at a time
    pieces = torch.arange(4, 18)
    with torch.no_grad():
        found = model(pieces.view(1, 14, 1), torch.tensor([14])).annotations[0]

        def read(part: slice) -> torch.Tensor:
            row = torch.cat((torch.tensor([2]), pieces[part], torch.tensor([3])))[None]
            return super(PieceEncoder, model).forward(row, torch.tensor([row.shape[1]])).annotations[0, 1:-1]

        torch.testing.assert_close(found[:6], read(slice(0, 8))[:6])
        torch.testing.assert_close(found[6:10], read(slice(4, 12))[2:6])
        torch.testing.assert_close(found[10:], read(slice(8, 14))[2:])
        both = torch.cat((pieces.view(1, 14, 1), torch.zeros(1, 14, 1, dtype=torch.long)))
        both[1, :7, 0] = torch.arange(5, 12)
        beside = model(both, torch.tensor([14, 7])).annotations
        torch.testing.assert_close(beside[0], found)
        alone = model(both[1:, :7], torch.tensor([7])).annotations[0]
        torch.testing.assert_close(beside[1, :7], alone)


def test_pieces_belong_to_the_word_they_end_in(bert: Path) -> None:
    m = an.Tagger(init=str(bert), **TRAINING).fit(SENTENCES, verbose=False)
    words = ["the", "zzqz", "mat", "", "a\u200bb"]
    (table,) = m._reader.read([words])
    assert len(table) == 5
    for row, word in zip(table[:3], words, strict=False):
        spelled = [i for i in row.tolist() if i != PAD]
        assert (
            spelled == m.tokenizer_.encode(f"the {word}")[len(m.tokenizer_.encode("the")) :] or word == "the"
        )
    assert (table[:, 0] != PAD).all()


def test_a_tagger_begins_with_a_public_encoder(bert: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    m = an.Tagger(init=str(bert), **{**TRAINING, "steps": 2}).fit(SENTENCES, out=run, verbose=False)
    s = m.settings_
    assert (s.model, s.characters, s.pieces, s.crf, m.learnt_.framing) == (
        "transformer",
        "none",
        "first",
        False,
        "both",
    )
    tags = m.predict(["the cat sat", ["again"]])
    assert [len(row) for row in tags] == [3, 1]
    again = an.load(run, device="cpu")
    assert again.predict(LINES) == m.predict(LINES)
    assert set(m.score(SENTENCES)) >= {"accuracy"}
    public = an.load(bert, device="cpu").model_.body.state_dict()
    now = m.model_.encoder.state_dict()
    assert public.keys() == now.keys()
    assert all(float((now[name] - value).abs().max()) < 1e-2 for name, value in public.items())


@pytest.mark.parametrize(
    "way",
    [
        {"crf": True},
        {"pieces": "mean"},
        {"lora": 2},
        {"freeze": True},
        {"characters": "conv", "freeze": True},
    ],
)
def test_heads_and_ways(bert: Path, tmp_path: Path, way: dict[str, Any]) -> None:
    m = an.Tagger(init=str(bert), **{**TRAINING, **way}).fit(SENTENCES, out=tmp_path / "run", verbose=False)
    assert (m.model_.crf is not None) == bool(way.get("crf"))
    assert (m.model_.encoder.spelling is not None) == ("characters" in way)
    m.probe("the cat sat")
    assert an.load(tmp_path / "run", device="cpu").predict(LINES) == m.predict(LINES)


def test_capitals_are_read_beside_the_pieces(bert: Path) -> None:
    m = an.Tagger(init=str(bert), characters="lstm", **TRAINING).fit(
        [*SENTENCES, *[(["The"], ["O"])] * 2], verbose=False
    )
    lower, upper = (np.asarray(row) for row in m.predict_proba([["the"], ["The"]]))
    assert m._reader.apart(m._reader.read([["cat"]])[0]).shape[1] < 10
    assert not np.array_equal(lower, upper)


def test_a_run_of_our_own_over_pieces_works_alike(tmp_path: Path) -> None:
    language("masked").save(tmp_path / "lm")
    m = an.Tagger(init=str(tmp_path / "lm"), **TRAINING).fit(SENTENCES, verbose=False)
    assert m.learnt_.framing == "begin"
    assert [len(row) for row in m.predict(LINES[:2])] == [6, 5]


def test_one_looks_into_the_pieces(bert: Path) -> None:
    m = an.Tagger(init=str(bert), **TRAINING).fit(SENTENCES, verbose=False)
    trace = m.probe("the cat sat", what=["gradients"])
    assert trace.tokens["time"][0] == "<s>"
    assert trace.tokens["time"][-1] == "</s>"
    places = len(trace.tokens["time"])
    assert trace.arrays["attention"].values.shape[-1] == places
    assert trace.arrays["probabilities"].values.shape == (places, 2)
    assert trace.arrays["input_gradients"].values.shape == (3, places)
    assert trace.facts["max_difference"] <= 1e-5
    of_words = np.asarray(m.predict_proba(["the cat sat"])[0])
    np.testing.assert_allclose(trace.arrays["probabilities"].values[1], of_words[0], atol=1e-6)


def test_the_command_trains_and_scores(
    bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = tmp_path / "train.conll", str(tmp_path / "run")
    data.write_text(
        "\n\n".join("\n".join(f"{w}\t{t}" for w, t in zip(*one, strict=True)) for one in SENTENCES) + "\n"
    )
    assert main.run(["train", "tag", str(data), "--init", str(bert), "--steps", "1", "-o", run]) == 0
    assert main.run(["score", run, str(data)]) == 0
    (tmp_path / "in.txt").write_text("the cat sat\n")
    assert main.run(["predict", run, str(tmp_path / "in.txt")]) == 0
    assert "the/" in capsys.readouterr().out
    assert main.run(["inspect", run, "--view", "heads", "--text", "the cat", "--json"]) == 0


def test_what_contradicts_the_pieces_is_named(bert: Path) -> None:
    with pytest.raises(AnaphoraError, match="hidden = 8 differs from 16"):
        an.Tagger("transformer", init=str(bert), hidden=8, **TRAINING).fit(SENTENCES, verbose=False)
    with pytest.raises(AnaphoraError, match="is about a model of init that cuts words"):
        an.Tagger("transformer", pieces="mean")
