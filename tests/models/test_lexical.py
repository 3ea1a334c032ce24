"""Symbols that speak for themselves: what a decoder adds of the source symbols it looks at (Nguyen & Chiang 2018)."""

from __future__ import annotations

import pytest
import torch

import anaphora as an
from anaphora.errors import SettingsError
from anaphora.models.decoders import AttentionDecoder
from anaphora.models.encoders import RecurrentEncoder
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn import inside
from anaphora.tasks.translate.build import build_seq2seq

SOURCE = torch.tensor([[5, 6, 7, 4], [8, 4, 0, 0]])
LENGTHS = torch.tensor([4, 2])
TARGET = torch.tensor([[2, 5, 6], [2, 8, 4]])


def built(**settings: object) -> Seq2Seq:
    given = {"hidden": 6, "embedding": 5, "lexical": True, "dropout": 0.5} | settings
    torch.manual_seed(3)
    return build_seq2seq(an.Translator("lstm-attention", **given).settings_, 12, 12).eval()  # type: ignore[arg-type]


def parts(model: Seq2Seq) -> tuple[RecurrentEncoder, AttentionDecoder]:
    assert isinstance(model.encoder, RecurrentEncoder)
    assert isinstance(model.decoder, AttentionDecoder)
    return model.encoder, model.decoder


@pytest.mark.parametrize("reverse", [False, True])
def test_annotations_end_in_the_vectors_of_their_symbols_without_dropout(reverse: bool) -> None:
    model = built(reverse_source=reverse).train()
    encoder, _ = parts(model)
    annotations = model.encode(SOURCE, LENGTHS).annotations
    assert annotations.shape == (2, 4, 2 * 6 + 5)
    assert encoder.width == 17
    assert torch.equal(annotations[..., 12:], encoder.embedding(SOURCE))


@pytest.mark.parametrize("more", [{}, {"attention": "dot", "bidirectional": False}, {"input_feeding": True}])
def test_a_map_of_what_is_looked_at_is_added_to_the_readout(more: dict[str, object]) -> None:
    model = built(**more)
    encoder, decoder = parts(model)
    with inside.record() as notes:
        logits = model(SOURCE, LENGTHS, TARGET)
    weights = torch.cat([n.value for n in notes if n.name == "weights"], 1)  # (rows, T, S)
    vectors = torch.cat([n.value for n in notes if n.name == "vectors"], 1)
    assert decoder.lexical is not None
    said = weights @ encoder.embedding(SOURCE) @ decoder.lexical.weight.T
    rest = vectors - said
    assert rest.abs().max() < 1  # tanh of the readout
    torch.testing.assert_close(logits, decoder.output(vectors))
    decoder.lexical.weight.data.zero_()
    if not more.get("input_feeding"):
        torch.testing.assert_close(decoder.output(rest), model(SOURCE, LENGTHS, TARGET))


def test_with_shared_vectors_an_untrained_model_writes_what_it_looks_at() -> None:
    model = built(joint=True, embedding=32)
    encoder, decoder = parts(model)
    assert encoder.embedding is decoder.embedding
    with inside.record() as notes:
        logits = model(
            SOURCE[1:, :1], torch.tensor([1]), TARGET[1:, :1]
        )  # one symbol, so all of the attention
    assert [n.value.item() for n in notes if n.name == "weights"] == [1.0]
    assert int(logits[0, 0].argmax()) == 8


def test_without_it_nothing_is_added() -> None:
    plain = built(lexical=False)
    encoder, decoder = parts(plain)
    assert decoder.lexical is None
    assert encoder.width == 12
    assert not any("lexical" in name for name in plain.state_dict())


def test_an_encoder_of_ones_own_does_not_hand_its_symbols_on() -> None:
    with pytest.raises(SettingsError, match="lexical = true needs the vectors of the symbols read"):
        an.Translator("lstm-attention", lexical=True, encoder=torch.nn.Identity)
