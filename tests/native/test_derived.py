"""What is derived from a module is made once, and again when the module is another."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from anaphora.native import snapshot
from anaphora.native.derived import derived, entry, forget, table
from anaphora.native.snapshot import Snapshot, checksum

Reads = Literal["attributes", "place", "content"]


class Made:
    """A value that is another one whenever it is made."""


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.Linear(3, 2))


def of(module: nn.Module, reads: Reads = "content", **more: Any) -> object:
    return derived(module, Made, reads=reads, tensors=[*module.parameters()], **more)


def _write(work: Callable[[Tensor], object]) -> Callable[[Any], object]:
    def change(module: Any) -> None:
        with torch.no_grad():
            work(module[2].weight)

    return change


WRITES: dict[str, Callable[[Any], object]] = {
    "in place": _write(lambda w: w.mul_(2)),
    "signs alone": _write(lambda w: w.data.neg_()),
    "order alone": _write(lambda w: w.data.copy_(w.data.flip(0))),
    "NumPy": _write(lambda w: w.detach().numpy().__setitem__(0, 7.0)),
}
PLACES: dict[str, Callable[[Any], object]] = {
    "new data": lambda m: setattr(m[0].weight, "data", m[0].weight.data.clone()),
    "a new parameter": lambda m: setattr(m[0], "weight", nn.Parameter(m[0].weight.detach().clone())),
    "another part": lambda m: m.__setitem__(0, nn.Linear(2, 3)),
}
ATTRIBUTES: dict[str, Callable[[Any], object]] = {
    "a rate": lambda m: setattr(m[1], "p", 0.1),
    "a mode": lambda m: m[1].eval(),
    "a hook": lambda m: m[2].register_forward_hook(lambda *_: None),
    "a backward hook": lambda m: m[2].register_full_backward_hook(lambda *_: None),
    "a forward": lambda m: setattr(m[2], "forward", torch.relu),
    "a class": lambda m: setattr(m[2], "__class__", type("Own", (nn.Linear,), {})),
    "a part more": lambda m: m.append(nn.ReLU()),
}


@pytest.mark.parametrize("reads", ["attributes", "place", "content"])
def test_a_value_is_made_once(reads: Reads) -> None:
    module = network()
    first = of(module, reads)
    assert of(module, reads) is first
    with torch.no_grad():
        module(torch.ones(1, 2))
    assert of(module, reads) is first
    assert of(module, reads, key="other") is not first
    assert of(module, reads) is first
    forget(module)
    assert of(module, reads) is not first


@pytest.mark.parametrize("change", [*WRITES, *PLACES, *ATTRIBUTES])
def test_it_is_made_again_when_the_module_has_changed(change: str) -> None:
    module = network()
    before = {reads: of(module, reads) for reads in ("attributes", "place", "content")}
    {**WRITES, **PLACES, **ATTRIBUTES}[change](module)
    same = {reads for reads, value in before.items() if of(module, reads) is value}  # type: ignore[arg-type]
    if change in WRITES:
        assert same == {"attributes"}  # on a CPU a write moves what is watched
    elif change in PLACES:
        assert same <= {"attributes", "content"}
    else:
        assert not same


def test_attributes_that_come_back_bring_their_value_back() -> None:
    module: Any = network()
    first = of(module, "attributes")
    module[1].p = 0.25
    second = of(module, "attributes")
    module[1].p = 0.5
    assert of(module, "attributes") is first
    module[1].p = 0.25
    assert of(module, "attributes") is second


def test_that_nothing_can_be_made_is_remembered_too() -> None:
    module, asked = network(), []

    def nothing() -> None:
        asked.append(1)

    for _ in range(3):
        assert derived(module, nothing, reads="content", tensors=module.parameters()) is None
    assert len(asked) == 1
    module[1].eval()
    derived(module, nothing, reads="content", tensors=module.parameters())
    assert len(asked) == 2


def test_a_value_that_does_not_suit_is_made_again() -> None:
    module = network()

    def room(places: int) -> int:
        return derived(module, lambda: 2 * places, reads="place", suits=lambda made: made >= places)

    assert [room(2), room(4), room(5), room(1)] == [4, 4, 10, 10]


def test_copies_begin_without() -> None:
    module = network()
    first = of(module, "attributes")
    for other in (copy.copy(module), copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert of(other, "attributes") is not first
    assert of(module, "attributes") is first


def test_the_tensors_are_those_of_now() -> None:
    module: Any = network()
    assert entry(module, Made, reads="attributes").tensors["0.bias"] is module[0].bias
    module[0].bias = nn.Parameter(torch.ones(3))
    assert entry(module, Made, reads="attributes").tensors["0.bias"] is module[0].bias


@pytest.mark.parametrize("reads", ["place", "content"])
def test_a_module_dies_with_its_last_name(reads: Reads) -> None:
    gc.disable()
    try:
        module = network()
        of(module, reads)
        gone = weakref.ref(module)
        del module
        assert gone() is None
    finally:
        gc.enable()


def test_among_threads_one_makes_the_value() -> None:
    module, made, start = network(), [], threading.Barrier(4)

    def make() -> Made:
        made.append(Made())
        return made[-1]

    def run() -> None:
        start.wait()
        derived(module, make, reads="content", tensors=module.parameters())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


# ---------------------------------------------------------------------- checksums, as on a GPU
def test_a_checksum_weighs_words_by_their_places() -> None:
    assert int(checksum(torch.tensor([1, 2, 3], dtype=torch.int32))) == 1 * 1 + 2 * 3 + 3 * 5
    assert int(checksum(torch.tensor([-1], dtype=torch.int32))) == -1
    assert (
        int(checksum(torch.tensor([1, 0, 0, 0, 2], dtype=torch.uint8))) == 1 * 1 + 2 * 3
    )  # filled up with zeros
    assert int(checksum(torch.empty(0))) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.bool])
def test_a_checksum_sees_signs_order_and_single_bits(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 2, (37,)).to(dtype) if dtype == torch.bool else torch.randn(37).mul(20).to(dtype)
    whole = int(checksum(x))
    assert int(checksum(x.clone())) == whole
    others = [x.flip(0), x.roll(1)] + ([~x] if dtype == torch.bool else [-x])
    changed = x.clone()
    changed[5] = not x[5] if dtype == torch.bool else x[5] + 1
    assert whole not in [int(checksum(other)) for other in (*others, changed)]
    monkeypatch.setattr(snapshot, "_AT_ONCE", 4)
    assert int(checksum(x)) == whole


def test_where_tensors_must_not_move_their_checksum_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_elsewhere", lambda tensor: True)
    weights = [torch.arange(6.0).view(2, 3), torch.ones(3, dtype=torch.bfloat16)]
    places = [w.data_ptr() for w in weights]
    content = Snapshot(weights)
    assert content.unchanged()
    weights[1].data.neg_()
    assert not content.unchanged()
    weights[1].data.neg_()
    assert content.unchanged()
    weights[0][0] = weights[0][0].flip(0)
    assert not content.unchanged()
    assert [w.data_ptr() for w in weights] == places
    module = network()
    first = of(module)
    assert of(module) is first
    module[0].weight.data.neg_()
    assert of(module) is not first


def test_a_snapshot_keeps_no_tensor_alive() -> None:
    x = torch.ones(2)
    content, gone = Snapshot([x]), weakref.ref(x)
    del x
    assert gone() is None
    assert not content.unchanged()


def test_tables_serve_training_after_inference() -> None:
    module, x = nn.Module(), torch.ones(1)
    with torch.inference_mode():
        made = table(module, "_table", x, lambda: torch.arange(3.0))
    assert not made.is_inference()
    assert module._table is made
    with torch._subclasses.FakeTensorMode():
        assert table(module, "_table", torch.empty(1), lambda: torch.empty(5)).shape == (5,)
    assert module._table is made
