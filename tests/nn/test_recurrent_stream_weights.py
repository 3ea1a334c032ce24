"""Steps keep packed weights: every way to write to a parameter must reach them, at once and to the last bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from anaphora import nn
from anaphora.native.snapshot import Snapshot
from anaphora.nn.recurrent_stream import Stream

INPUTS, HIDDEN = 2, 3
Layer = nn.Recurrent


def _layer(layers: int = 1) -> Layer:
    return nn.Recurrent(nn.LSTM(INPUTS, HIDDEN), layers=layers).eval()


def _step(layer: Layer, rows: int = 1) -> Tensor:
    x = torch.linspace(-1, 1, rows * INPUTS).view(rows, INPUTS)
    state = tuple(torch.full((layer.layers, rows, HIDDEN), 0.5) for _ in layer.state)
    with torch.no_grad():
        y, _ = layer.step(x, state)
    return y


def _afresh(layer: Layer, rows: int = 1) -> Tensor:
    """What a layer without a past computes with the same weights."""
    other = _layer(layer.layers)
    other.load_state_dict(layer.state_dict())
    return _step(other, rows)


def _optimize(**options: bool) -> Callable[[Layer], object]:
    def update(layer: Layer) -> None:
        for p in layer.parameters():
            p.grad = torch.ones_like(p)
        torch.optim.Adam(layer.parameters(), 0.1, **options).step()

    return update


def _by_storage(layer: Layer) -> None:
    weight = layer.cells[0].gates.weights[0]
    weight.untyped_storage().copy_(torch.ones_like(weight).untyped_storage())


def _in_inference(layer: Layer) -> None:
    with torch.inference_mode():
        layer.cells[0].gates.weights[1].mul_(2)


def _vector(layer: Layer) -> None:
    found = torch.nn.utils.parameters_to_vector(layer.parameters())
    torch.nn.utils.vector_to_parameters(found * 2, layer.parameters())


WRITES: dict[str, Callable[[Layer], object]] = {
    "fused": _optimize(fused=True),
    "foreach": _optimize(foreach=True),
    "one by one": _optimize(foreach=False),
    "data": lambda layer: layer.cells[0].gates.weights[1].data.mul_(2),
    "data of bias": lambda layer: layer.cells[0].gates.bias.data.fill_(1.0),
    "numpy": lambda layer: np.multiply(w := layer.cells[0].gates.weights[1].detach().numpy(), 2, out=w),
    "dlpack": lambda layer: torch.from_dlpack(layer.cells[0].gates.weights[1].detach()).mul_(2),
    "storage": _by_storage,
    "inference": _in_inference,
    "state": lambda layer: layer.load_state_dict(_layer().state_dict()),
    "state assigned": lambda layer: layer.load_state_dict(_layer().state_dict(), assign=True),
    "vector": _vector,
    "made again": lambda layer: layer.cells[0].gates.reset_parameters(),
    "cell": lambda layer: layer.cells.__setitem__(0, nn.LSTM(INPUTS, HIDDEN)),
    "zeros": lambda layer: layer.cells[0].gates.weights[0].data.mul_(-0.0),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("rows", [1, 2])
def test_a_write_reaches_the_next_step(write: str, rows: int) -> None:
    layer = _layer()
    for _ in range(2):
        before = _step(layer, rows)
        WRITES[write](layer)
        now = _step(layer, rows)
        assert torch.equal(now, _afresh(layer, rows))
    assert not torch.equal(now, before) or write in ("data of bias", "storage", "zeros")


def test_any_element_may_be_the_one_that_is_written() -> None:
    layer = _layer()
    x, state = torch.ones(1, INPUTS), tuple(torch.ones(1, 1, HIDDEN) for _ in layer.state)
    with torch.no_grad():
        for parameter in layer.parameters():
            for place in np.ndindex(parameter.shape):
                before, _ = layer.step(x, state)
                parameter.data[place] += 1.0
                after, _ = layer.step(x, state)
                assert not torch.equal(after, before), place


@pytest.mark.parametrize("rows", [1, 2])
def test_a_held_array_may_be_written_at_any_time(rows: int) -> None:
    """Its raw pointer cannot be watched, so the weights are compared at every step."""
    layer = _layer(2)
    _step(layer, rows)
    array = layer.cells[1].gates.weights[0].detach().numpy()
    for value in (1.0, 2.0, -0.0, 0.0, np.nan, 3.0):
        array[2, 1] = value
        assert torch.equal(_step(layer, rows).nan_to_num(9), _afresh(layer, rows).nan_to_num(9))


def test_memory_of_other_kinds_is_compared() -> None:
    layer = _layer()
    layer.share_memory()
    assert torch.equal(_step(layer), _afresh(layer))
    weight = layer.cells[0].gates.weights[0]
    address = weight.data_ptr()
    weight.data.mul_(2)
    assert torch.equal(_step(layer), _afresh(layer))
    assert weight.is_shared()
    assert weight.data_ptr() == address  # other processes must see what is written here


def test_reading_moves_nothing_and_packs_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, made = _layer(), []
    _step(layer)
    if not layer._streams[0].serves:
        pytest.skip("no C compiler, so that no weights are packed")
    plain = Stream._packed
    monkeypatch.setattr(Stream, "_packed", lambda self, alone: made.append(alone) or plain(self, alone))
    for _ in range(3):
        _step(layer)
        layer(torch.ones(1, 4, INPUTS))  # whole sequences read the same weights
        layer.state_dict()
    assert made == []
    _step(layer, 2)
    _step(layer, 2)
    _step(layer)
    assert made == [False]


def test_a_compiled_program_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = _layer()
    _step(layer)
    weight = layer.cells[0].gates.weights[1]

    def update(w: Tensor) -> None:
        w.mul_(2)

    torch.compile(update, backend="aot_eager")(weight.detach())
    assert torch.equal(_step(layer), _afresh(layer))


@pytest.mark.parametrize(
    "write", [lambda t: t.data.view(-1)[3:4].add_(1), lambda t: t.detach().numpy().fill(1)]
)
def test_a_snapshot_finds_writes_and_nothing_else(write: Callable[[Tensor], object]) -> None:
    tensors = [torch.randn(3, 2), torch.randn(5)]
    for changed in tensors:
        snapshot = Snapshot(tensors)
        _ = tensors[0].t() @ tensors[0], changed.clone(), changed.sum()
        assert snapshot.unchanged()
        write(changed)
        assert not snapshot.unchanged()


def test_a_snapshot_of_shared_views_compares_bytes() -> None:
    whole = torch.zeros(6)
    snapshot = Snapshot([whole[:3], whole[3:]])
    assert len(snapshot.compared) == 2
    whole[1] = -0.0
    assert not snapshot.unchanged()
    assert Snapshot([whole[:3], whole[3:]]).unchanged()
