"""A packed model computes what the model does, step by step, with the weights it has now."""

from __future__ import annotations

import copy
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from test_seq2seq import BOS, MODELS, V, batch, transformers

from anaphora.errors import AnaphoraError
from anaphora.models.decoders.packed import PackedTransformer
from anaphora.models.packed import packed
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn.attention import MultiHead
from anaphora.nn.positions import Rotary
from anaphora.nn.transformer import SwiGLU
from anaphora.ops import packed as native
from anaphora.search import beam

pytestmark = pytest.mark.skipif(native.library.functions() is None, reason="no C compiler here")


def gated() -> Seq2Seq:
    """Other feed-forward networks are packed too."""
    model = transformers()
    for layer in (*model.encoder.stack.layers, *model.decoder.stack.layers):
        layer.feedforward = SwiGLU(layer.width, 16)
    return model


def turned() -> Seq2Seq:
    """Rotary positions rotate queries and keys between the packed maps and the past."""
    model = transformers()
    for layer in model.decoder.stack.layers:
        layer.attention = MultiHead(layer.width, 2, positions=Rotary())
    return model


ALL = {
    **{name: make for name, make in MODELS.items() if "hard" not in name},
    "gated": gated,
    "turned": turned,
}


@pytest.fixture(params=ALL)
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    return ALL[request.param]().eval()


@torch.no_grad()
def test_steps_equal_the_models_own(model: Seq2Seq) -> None:
    source, lengths, target = batch()
    rows = [
        torch.arange(4),
        torch.tensor([2, 0, 0, 3, 1, 2, 2]),
        torch.tensor([6, 6, 1, 2]),
        torch.tensor([0]),
    ]
    quick = packed(model)
    assert quick is not model
    state, other = model.start(model.encode(source, lengths)), quick.start(quick.encode(source, lengths))
    symbols = target[:, 0]
    for chosen in rows:  # rows are kept, repeated, moved and dropped
        state, other, symbols = state.select(chosen), other.select(chosen), symbols[chosen]
        expected, state = model.step(symbols, state)
        found, other = quick.step(symbols, other)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        symbols = expected.topk(3).indices[:, 2]


@torch.no_grad()
def test_a_state_may_be_continued_twice(model: Seq2Seq) -> None:
    source, lengths, target = batch()
    quick = packed(model)
    _, state = quick.step(target[:, 0], quick.start(quick.encode(source, lengths)))
    _, one = quick.step(target[:, 1], state)
    _, two = quick.step(target[:, 2], state)
    again = torch.log_softmax(model(source, lengths, target[:, [0, 1, 3]]), -1)[:, 2]
    torch.testing.assert_close(quick.step(target[:, 3], one)[0], again, rtol=0, atol=1e-5)
    again = torch.log_softmax(model(source, lengths, target[:, [0, 2, 3]]), -1)[:, 2]
    torch.testing.assert_close(quick.step(target[:, 3], two)[0], again, rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("int8", [False, True])
def test_a_row_does_not_depend_on_its_batch(model: Seq2Seq, int8: bool) -> None:
    source, lengths, target = batch()
    quick = packed(model, int8=int8)
    state = quick.start(quick.encode(source, lengths))
    one = quick.start(quick.encode(source[2:3, :2], lengths[2:3]))
    for symbols in target.unbind(1):
        together, state = quick.step(symbols, state)
        alone, one = quick.step(symbols[2:3], one)
        # Layers that are not packed round differently; with eight bits that may shift a number by one step of 127.
        torch.testing.assert_close(alone[0], together[2], rtol=0, atol=0.05 if int8 else 1e-5)


@torch.no_grad()
def test_eight_bits_are_near(model: Seq2Seq) -> None:
    source, lengths, target = batch()
    whole = torch.log_softmax(model(source, lengths, target), -1)
    quick = packed(model, int8=True)
    state = quick.start(quick.encode(source, lengths))
    worst = 0.0
    for t, symbols in enumerate(target.unbind(1)):
        found, state = quick.step(symbols, state)
        worst = max(worst, float((found - whole[:, t]).abs().max()))
    assert 1e-6 < worst < 0.1


def _fused(model: Seq2Seq) -> None:
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    torch.optim.Adam(model.parameters(), 0.05, fused=True).step()  # does not count as a new version


def _one_element(model: Seq2Seq) -> None:
    for weight in model.parameters():
        weight.data.view(-1)[-1] += 0.5


def _replaced(model: Seq2Seq) -> None:
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                setattr(module, name, torch.nn.Parameter(weight.detach() * 1.1))


def _attributes(model: Seq2Seq) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 0.5
    model.decoder.embedding.register_forward_hook(lambda module, given, found: 1.5 * found)


CHANGES = {
    "in place": lambda model: [weight.mul_(1.1) for weight in model.parameters()],
    "fused": _fused,
    "one element": _one_element,
    "replaced": _replaced,
    "attributes": _attributes,
    "state": lambda model: model.load_state_dict({k: 1.1 * v for k, v in model.state_dict().items()}),
    "types": lambda model: model.double().float() and [weight.mul_(1.1) for weight in model.parameters()],
    "array": lambda model: [np.multiply(a := w.numpy(), 1.1, out=a) for w in model.parameters()],
}


@torch.no_grad()
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("model", ["bahdanau", "gated", "turned"], indirect=True)
def test_what_changes_is_packed_again(model: Seq2Seq, change: str, int8: bool) -> None:
    source, lengths, target = batch()

    def step(model: Seq2Seq) -> torch.Tensor:
        return model.step(target[:, 0], model.start(model.encode(source, lengths)))[0]

    before = packed(model, int8=int8)
    first = step(before)
    assert packed(model, int8=int8) is before
    CHANGES[change](model)
    quick = packed(model, int8=int8)
    assert quick is not before
    assert packed(model, int8=int8) is quick
    assert not torch.equal(step(quick), first)
    torch.testing.assert_close(step(quick), step(model), rtol=0, atol=0.2 if int8 else 1e-4)
    copied = copy.deepcopy(model)
    assert torch.equal(step(packed(copied, int8=int8)), step(quick))


@torch.no_grad()
@pytest.mark.parametrize("model", ["bahdanau", "gated"], indirect=True)
def test_threads_decode_alike(model: Seq2Seq) -> None:
    source, lengths, target = batch()

    def decode(rows: int) -> torch.Tensor:
        with torch.no_grad():
            quick = packed(model)
            state, found = quick.start(quick.encode(source[:rows], lengths[:rows])), []
            for symbols in target[:rows].unbind(1):
                scores, state = quick.step(symbols, state)
                found.append(scores)
        return torch.stack(found)

    rows = [1 + number % len(source) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(decode, rows))
    assert all(map(torch.equal, together, map(decode, rows)))


@torch.no_grad()
def test_packed_weights_go_with_their_model() -> None:
    model = transformers().eval()
    kept = weakref.ref(packed(model))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    assert kept() is None


def test_a_model_in_training_or_in_double_precision_stays_as_it_is() -> None:
    model = transformers()
    assert packed(model.train()) is model
    assert packed(model.eval().double()) is model
    with pytest.raises(AnaphoraError, match=r"^int8 = true needs a model in single precision"):
        packed(model, int8=True)


def test_under_autocast_the_model_stays_as_it_is() -> None:
    model = transformers().eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert packed(model) is model


def test_without_a_compiler_the_model_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model = transformers().eval()
    monkeypatch.setattr(native.library, "functions", lambda *_: None)
    assert packed(model) is model
    with pytest.raises(AnaphoraError, match=r"needs a C compiler"):
        packed(model, int8=True)


@torch.no_grad()
@pytest.mark.parametrize(("norm_first", "rotary"), [(False, 0.0), (True, 0.0), (True, 1.0), (True, 0.7)])
def test_a_beam_finds_the_same_hypotheses(norm_first: bool, rotary: float) -> None:
    torch.manual_seed(3)
    model = transformers(norm_first=norm_first, layers=3).eval()
    for layer in model.decoder.stack.layers if rotary else ():
        layer.attention.positions = Rotary(share=rotary).eval()
    for weight in model.parameters():
        weight.mul_(1.5)  # less sure of one symbol whatever it reads
    source, lengths, _ = batch(8)
    quick = packed(model)
    assert isinstance(quick.decoder, PackedTransformer)
    options = {"start": torch.full((8,), BOS), "eos": 3, "width": 4, "max_length": 12, "n_best": 4}
    expected = beam(model.step, model.start(model.encode(source, lengths)), **options)
    state = quick.start(quick.encode(source, lengths))
    found = beam(quick.decoder.step, state, logits=True, **options)
    for mine, theirs in zip(found, expected, strict=True):
        assert [h.tokens for h in mine] == [h.tokens for h in theirs]
        assert [h.score for h in mine] == pytest.approx([h.score for h in theirs], abs=1e-5)
    assert len({tuple(nbest[0].tokens) for nbest in found}) > 1
    assert max(max(h.tokens, default=0) for nbest in found for h in nbest) < V


@torch.no_grad()
@pytest.mark.parametrize("name", ["lstm, bilinear, two layers", "bahdanau", "transformer"])
def test_watched_steps_tell_where_they_looked(name: str) -> None:
    model = MODELS[name]().eval()
    source, lengths, target = batch()
    expected, plain = model.alignment(source, lengths, target), model.start(model.encode(source, lengths))
    state = model.start_watched(model.encode(source, lengths))
    assert not state.attention.any()
    for t, symbols in enumerate(target.unbind(1)):
        log_probs, state = model.step_watched(symbols, state)
        same, plain = model.step(symbols, plain)
        torch.testing.assert_close(log_probs, same, rtol=0, atol=1e-5)
        torch.testing.assert_close(state.attention, expected[:, t], rtol=0, atol=1e-5)
    moved = state.select(torch.tensor([3, 3, 0]))
    assert torch.equal(moved.attention, state.attention[[3, 3, 0]])
    assert moved.places.sum(1).tolist() == [1, 1, 6]


@torch.no_grad()
def test_a_packed_transformer_tells_where_it_looked() -> None:
    model = transformers(layers=3).eval()
    source, lengths, target = batch()
    expected, quick = model.alignment(source, lengths, target), packed(model)
    state = quick.start(quick.encode(source, lengths))
    for t, symbols in enumerate(target.unbind(1)):
        _, state = quick.step(symbols, state)
        torch.testing.assert_close(state.attention, expected[:, t], rtol=0, atol=1e-5)
    moved = state.select(torch.tensor([3, 3, 0]))
    assert torch.equal(moved.attention, state.attention[[3, 3, 0]])
    assert moved.places.sum(1).tolist() == [1, 1, 6]


def test_a_model_without_attention_cannot_be_watched() -> None:
    model = MODELS["rnn"]().eval()
    with pytest.raises(AnaphoraError, match="no attention"):
        model.start_watched(model.encode(*batch()[:2]))
