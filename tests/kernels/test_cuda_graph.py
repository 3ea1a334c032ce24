"""Captured passes against the reference loop: on a GPU as CUDA graphs, elsewhere with a capture that runs again."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from recurrence_results import Run, inputs, reference, results
from torch import Tensor

from anaphora import nn
from anaphora.engine import dispatch, prepare
from anaphora.engine.backends import cuda_graph
from anaphora.engine.backends.cuda_graph import COPIES, Captures
from anaphora.engine.backends.reference import run_reference
from anaphora.engine.backends.torch_ops import passes
from anaphora.nn.recurrent_step import LayerStep

B, T, I, H = 5, 7, 3, 8
LENGTHS = torch.tensor([5, 7, 0, 1, 7])
CELLS: dict[str, Callable[[], nn.Cell]] = {
    "elman": lambda: nn.Elman(I, H),
    "lstm": lambda: nn.LSTM(I, H),
    "peephole": lambda: nn.LSTM(I, H, peephole=True),
    "layer norm": lambda: nn.LSTM(I, H, layer_norm=True),
    "gru before": lambda: nn.GRU(I, H),
    "gru after": lambda: nn.GRU(I, H, reset="after"),
    "mgu": lambda: nn.MGU(I, H),
    "shortcut": lambda: nn.Shortcut(I, H, cell=nn.GRU, by=3),
}


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [t for part in parts for t in _tensors(part)]


def _run_again(work: Callable[[], Any], pool: Any) -> tuple[Callable[[], None], Any]:
    """As a capture: the result's tensors are made once, and every replay writes to them."""
    result = work()
    places = [t.clone() for t in _tensors(result)]
    for place, t in zip(places, _tensors(result), strict=True):
        t.set_(place)

    def replay() -> None:
        fresh = [t.clone() for t in _tensors(work())]
        for place, t in zip(places, fresh, strict=True):
            place.copy_(t)

    return replay, result


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A machine whose recurrences are captured."""
    monkeypatch.setattr(cuda_graph, "CAPTURES", Captures(limit=1 << 30))
    if request.param == "cpu":
        monkeypatch.setattr(cuda_graph, "capture", _run_again)
        monkeypatch.setattr(cuda_graph, "can_capture", lambda _: True)
        monkeypatch.setattr(cuda_graph, "current_stream", lambda: 0)
        monkeypatch.setattr(cuda_graph, "graph_pool", lambda: None)
        monkeypatch.setattr(prepare, "CompiledPlan", lambda *_: None)
        monkeypatch.setattr(cuda_graph, "why_not", passes.why_not)  # captures anywhere
    elif "torch._inductor.cudagraph_trees" in sys.modules:  # see `can_capture`
        pytest.skip(
            "torch.compile has captured graphs of its own in this process, beside which none is captured"
        )
    return str(request.param)


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which passes were replayed, in order."""
    seen: list[str] = []
    for name in ("forward", "backward"):
        whole = getattr(cuda_graph.Captured, name)

        def watched(*args: Any, name: str = name, whole: Any = whole) -> Any:
            seen.append(name)
            return whole(*args)

        monkeypatch.setattr(cuda_graph.Captured, name, watched)
    return seen


def _loss(y: Tensor, last: tuple[Tensor, ...]) -> Tensor:
    total = (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype, device=y.device).view(y.shape)).sum()
    return total + sum((k + 1) * s.square().sum() for k, s in enumerate(last))


def _assert_equal(ours: list[Tensor], theirs: list[Tensor], tolerance: float) -> None:
    for a, b in zip(ours, theirs, strict=True):
        scale = max(1.0, float(b.detach().abs().max()))
        torch.testing.assert_close(a, b, atol=tolerance * scale, rtol=0)


@pytest.mark.parametrize("rest", [(None, False), (LENGTHS, False), (LENGTHS, True), (None, True)])
@pytest.mark.parametrize("name", CELLS)
def test_every_replay_equals_the_reference(
    name: str, rest: tuple[Tensor | None, bool], device: str, replays: list[str]
) -> None:
    """Other inputs, states and weights each time; the first call is the loop, all others are replays."""
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 2e-4)):
        cell = CELLS[name]().to(device, dtype)
        run = Run(LayerStep(cell))
        replays.clear()
        for _ in range(4):
            for p in cell.parameters():
                p.data += 0.1 * torch.randn_like(p)
            x, initial = inputs(cell, dtype, B, T, device)
            lengths = None if rest[0] is None else rest[0].roll(int(torch.randint(5, ())))
            theirs = results(reference(cell), cell, x, initial, lengths, rest[1])
            _assert_equal(results(run, cell, x, initial, lengths, rest[1]), theirs, tolerance)
        assert replays == ["forward", "backward"] * 3


def test_what_one_pass_has_kept_outlives_the_next(device: str) -> None:
    """Several forward passes before the backward passes, in any order, and one backward pass twice."""
    cell = nn.GRU(I, H).to(device).double()
    run, params = Run(LayerStep(cell)), dict(cell.named_parameters())
    pairs = [inputs(cell, torch.float64, B, T, device) for _ in range(COPIES + 3)]
    expected = []
    for x, s in pairs:
        leaves = [x, *s, *params.values()]
        expected.append(torch.autograd.grad(_loss(*reference(cell)(params, (x,), (), s)), leaves))
    runs = [run(params, (x,), (), s) for x, s in pairs]
    order = [3, 0, 6, 1, 5, 2, 4]
    for k in order:
        x, s = pairs[k]
        for again in (True, False):
            found = torch.autograd.grad(_loss(*runs[k]), [x, *s, *params.values()], retain_graph=again)
            _assert_equal(list(found), list(expected[k]), 1e-11)
    y, last = run(params, pairs[0][:1], (), pairs[0][1])
    first = torch.autograd.grad(_loss(y, last), list(params.values()), retain_graph=True)
    run(params, pairs[1][:1], (), pairs[1][1])  # takes the capture over
    second = torch.autograd.grad(_loss(y, last), list(params.values()))
    _assert_equal(list(second), list(first), 1e-11)


def test_without_gradients_and_in_inference_mode(device: str, replays: list[str]) -> None:
    cell = nn.LSTM(I, H, peephole=True).to(device)
    recurrent = nn.Recurrent(cell)
    for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode):
        for _ in range(2):
            x = torch.randn(B, T, I, device=device)
            zeros = tuple(torch.zeros(B, H, device=device) for _ in cell.state)
            with mode():
                y, _ = recurrent(x, LENGTHS)
            expected, _ = run_reference(
                LayerStep(cell), dict(cell.named_parameters()), (x,), (), zeros, LENGTHS
            )
            torch.testing.assert_close(y, expected, atol=1e-6, rtol=1e-5)
    assert replays == ["forward"] * 5
    x.requires_grad_()
    for _ in range(3):
        recurrent(x, LENGTHS)[0].sum().backward()
    assert replays.count("backward") == 2


@pytest.mark.parametrize(
    "options", [{"zoneout": (0.3, 0.2)}, {"recurrent_dropout": 0.4, "weight_dropout": 0.3}]
)
def test_noise_is_drawn_outside_and_new_each_time(
    device: str, options: dict[str, Any], replays: list[str]
) -> None:
    recurrent = nn.Recurrent(nn.LSTM(I, H, coupled=True), layers=2, bidirectional=True, **options).to(device)
    x = torch.randn(B, T, I, device=device, requires_grad=True)

    def run() -> list[Tensor]:
        y, last = recurrent(x, LENGTHS)
        leaves = [x, *recurrent.parameters()]
        return [y, *last, *torch.autograd.grad(_loss(y, last), leaves)]

    seen = []
    for seed in range(3):
        torch.manual_seed(seed)
        ours = run()
        with dispatch.force("reference"):
            torch.manual_seed(seed)
            theirs = run()
        _assert_equal(ours, theirs, 1e-5)
        seen.append(ours[0])
    assert replays.count("forward") == replays.count("backward") == 8
    assert not torch.allclose(seen[1], seen[2])


def test_second_derivatives(device: str) -> None:
    recurrent = nn.Recurrent(nn.MGU(2, 3)).to(device).double()
    x = torch.randn(2, 3, 2, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: recurrent(x, torch.tensor([3, 2]))[0], x, atol=1e-5)


def test_a_capture_that_fails_leaves_the_loop(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(cuda_graph, "capture", fails)
    cell = nn.MGU(I, H).to(device)
    run = Run(LayerStep(cell))
    for _ in range(3):
        x, initial = inputs(cell, torch.float32, B, T, device)
        _assert_equal(results(run, cell, x, initial), results(reference(cell), cell, x, initial), 1e-5)


def test_checkpointing_computes_again(device: str) -> None:
    from torch.utils.checkpoint import checkpoint

    recurrent = nn.Recurrent(nn.GRU(I, H)).to(device).double()
    x = torch.randn(B, T, I, dtype=torch.float64, device=device, requires_grad=True)
    (plain,) = torch.autograd.grad(recurrent(x)[0].square().sum(), x)
    for _ in range(4):
        y = checkpoint(lambda x: recurrent(x)[0], x, use_reentrant=False)
        (again,) = torch.autograd.grad(y.square().sum(), x)
        torch.testing.assert_close(again, plain)


@pytest.mark.cuda
def test_inside_somebody_elses_capture() -> None:
    recurrent = nn.Recurrent(nn.GRU(I, H)).cuda().eval()
    x = torch.randn(B, T, I, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            recurrent(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y, _ = recurrent(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.testing.assert_close(y, recurrent(x)[0])


@pytest.mark.cuda
def test_on_another_stream() -> None:
    recurrent = nn.Recurrent(nn.MGU(I, H)).cuda().eval()
    x = torch.randn(B, T, I, device="cuda")
    with torch.no_grad():
        expected, _ = recurrent(x)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        for _ in range(3):
            with torch.cuda.stream(stream):
                there, _ = recurrent(x)
            here, _ = recurrent(x)
        torch.cuda.synchronize()
    torch.testing.assert_close(there, expected)
    torch.testing.assert_close(here, expected)


# ---------------------------------------------------------------------- which captures are kept
class Item:
    def __init__(self, nbytes: int):
        self.nbytes = nbytes


class Owner:
    pass


def test_a_shape_is_captured_when_it_comes_again() -> None:
    kept: Captures[Item] = Captures(limit=100)
    owner = Owner()
    assert kept.take(("a",), owner, lambda: Item(1)) is None
    made = kept.take(("a",), owner, lambda: Item(1))
    assert made is not None
    kept.give_back(made)
    assert kept.take(("a",), owner, lambda: Item(2)) is made
    other = kept.take(("a",), owner, lambda: Item(2))  # the first one is in use
    assert other is not None
    assert other is not made
    assert kept.nbytes == 3


def test_the_longest_unused_go_and_must_come_more_often() -> None:
    kept: Captures[Item] = Captures(limit=25)
    owner = Owner()

    def use(key: str) -> bool:
        made = kept.take((key,), owner, lambda: Item(10))
        if made is not None:
            kept.give_back(made)
        return made is not None

    assert [use(key) for key in "aabb"] == [False, True, False, True]
    assert use("a")
    assert [use("c"), use("c")] == [False, True]  # b goes
    assert kept.nbytes == 20
    assert use("a")
    assert [use("b") for _ in range(8)] == [False] * 7 + [True]


def test_captures_go_with_their_owner() -> None:
    kept: Captures[Item] = Captures(limit=100)
    owner = Owner()
    taken = [kept.take(("a",), owner, lambda: Item(10)) for _ in range(3)]
    assert kept.nbytes == 20
    assert taken[1] is not None
    assert taken[2] is not None
    kept.give_back(taken[1])
    del owner
    gc.collect()
    assert kept.nbytes == 10  # one is still in use
    kept.give_back(taken[2])
    assert kept.nbytes == 0


def test_a_capture_never_serves_a_later_owner_at_the_same_address() -> None:
    kept: Captures[Item] = Captures(limit=100)
    owner = Owner()
    kept.take(("a",), owner, lambda: Item(1))
    stale = kept.take(("a",), owner, lambda: Item(1))
    assert stale is not None
    kept._forget(id(owner))  # as when it is collected; what follows is another one with the same id
    fresh = [kept.take(("a",), owner, lambda: Item(2)) for _ in range(2)][1]
    assert fresh is not None
    kept.give_back(stale)
    assert kept.take(("a",), owner, lambda: Item(3)) is not stale
    assert kept.nbytes == 5


def test_no_more_than_some_copies_at_once() -> None:
    kept: Captures[Item] = Captures(limit=100)
    owner = Owner()
    taken = [kept.take(("a",), owner, lambda: Item(1)) for _ in range(COPIES + 5)]
    assert sum(item is not None for item in taken) == COPIES
