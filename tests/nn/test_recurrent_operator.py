"""A recurrent layer as one operator: the same numbers, shapes known ahead, compiled without being unrolled."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from recurrent_peers import Drawing
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from anaphora import nn
from anaphora.engine.backends.base import LayerRun
from anaphora.nn import recurrent_operator
from anaphora.nn.recurrent_operator import number_of, recurrence, recurrence_backward, run_operator
from anaphora.nn.recurrent_run import run_layer
from anaphora.nn.recurrent_step import LayerStep

B, T, I, H = 3, 5, 2, 4
LENGTHS = torch.tensor([5, 0, 3])


def _gradients(y: Tensor, last: tuple[Tensor, ...], leaves: list[Tensor]) -> list[Tensor]:
    loss = (y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum() + last[-1].square().sum()
    return [y.detach(), *torch.autograd.grad(loss, leaves)]


@pytest.mark.parametrize("waiting", [256, 0])
def test_the_operator_computes_what_the_layer_does(waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when what the forward pass has kept is gone and has to be computed again."""
    monkeypatch.setattr(recurrent_operator, "WAITING", waiting)
    cell = nn.GRU(I, H)
    x = torch.randn(B, T, I, requires_grad=True)
    h = torch.randn(B, H, requires_grad=True)
    params = list(cell.parameters())
    run = LayerRun(LayerStep(cell), None, (x,), (), (h,), LENGTHS, True)
    expected = _gradients(*run_layer(run), [x, h, *params])
    found = run_operator(run, number_of(cell))
    for a, b in zip(_gradients(*found, [x, h, *params]), expected, strict=True):
        assert torch.equal(a, b)
    assert not recurrent_operator._waiting


def test_the_operator_keeps_torch_s_rules() -> None:
    cell = nn.Elman(I, H)
    tensors = [p.detach().clone().requires_grad_() for p in cell.parameters()]
    tensors += [torch.randn(B, T, I, requires_grad=True), torch.randn(B, H)]
    counts = [len(tensors) - 2, 1, 0, 1]
    arguments = (tensors, None, counts, number_of(cell), [0, 0, 0], "", [])
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(recurrence, arguments, test_utils=tests)


def _counting(graphs: list[torch.fx.GraphModule]) -> Any:
    """A back end of the compiler that runs what it is given, and keeps it."""

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    return backend


def _calls(graphs: list[torch.fx.GraphModule]) -> int:
    return sum("recurrence" in str(node.target) for graph in graphs for node in graph.graph.nodes)


@pytest.mark.parametrize("training", [True, False])
def test_a_compiled_model_holds_the_layer_whole(training: bool) -> None:
    torch._dynamo.reset()
    layer = nn.Recurrent(
        nn.LSTM(I, H, peephole=True), layers=2, bidirectional=True, recurrent_dropout=0.3, zoneout=0.1
    )
    layer.train(training)
    graphs: list[torch.fx.GraphModule] = []
    x = torch.randn(B, T, I, requires_grad=True)
    found = []
    for module in (layer, torch.compile(layer, fullgraph=True, backend=_counting(graphs))):
        torch.manual_seed(5)
        found.append(_gradients(*module(x, LENGTHS), [x, *layer.parameters()]))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)
    assert _calls(graphs) == len(layer.cells)  # and no loop over time


@pytest.mark.parametrize("precision", [None, torch.bfloat16])
def test_other_lengths_need_no_other_program(precision: torch.dtype | None) -> None:
    """Compiled forward and backward, as the compiler's usual back ends do it; also under autocast."""
    torch._dynamo.reset()
    layer = nn.Recurrent(nn.LSTM(I, H), layers=2, bidirectional=True)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    with (
        torch._dynamo.config.patch(error_on_recompile=True),
        torch.autocast("cpu", torch.bfloat16, enabled=precision is not None),
    ):
        for batch, time in ((3, 5), (4, 7), (2, 6)):
            x = torch.randn(batch, time, I, requires_grad=True)
            lengths = torch.randint(0, time + 1, (batch,))
            plain, found = (_gradients(*m(x, lengths), [x, *layer.parameters()]) for m in (layer, compiled))
            for a, b in zip(found, plain, strict=True):
                assert a.dtype == b.dtype
                torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


def test_nothing_waits_for_a_backward_pass_that_cannot_come() -> None:
    torch._dynamo.reset()
    layer = nn.Recurrent(nn.GRU(I, H), layers=2)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(B, T, I)
    for _ in range(4):
        y, _ = compiled(x)
        assert len(recurrent_operator._waiting) <= 2 * len(layer.cells)  # this pass's and the one's before
    y.sum().backward()
    with torch.no_grad():
        compiled(x)
    assert not recurrent_operator._waiting


@pytest.mark.parametrize("kept", [256, 0])
def test_results_lie_as_compiled_programs_expect(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the usual order and apart from one another, however the arguments and what computes them lie."""
    monkeypatch.setattr(recurrent_operator, "WAITING", kept)
    cell = nn.GRU(I, H)
    x = torch.randn(T, I, B).permute(2, 0, 1).requires_grad_()
    tensors = [*cell.parameters(), x, torch.randn(H, B).t().requires_grad_()]
    rest = (None, [len(tensors) - 2, 1, 0, 1], number_of(cell), [0, 0, 1], "", [])
    *outputs, token = recurrence(tensors, *rest)
    grads = recurrence_backward(token, [torch.randn_like(o) for o in outputs], tensors, *rest)
    with FakeTensorMode(allow_non_fake_inputs=True):
        expected = [*recurrence(tensors, *rest)[:-1], *recurrence_backward(token, outputs, tensors, *rest)]
    for a, b in zip([*outputs, *grads], expected, strict=True):
        assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
        assert a.untyped_storage().nbytes() == a.nbytes


def test_what_transforms_functions_sees_through_the_layer() -> None:
    """Operators of their own have no rules for these; the single operations have."""
    torch._dynamo.reset()
    layer = nn.Recurrent(nn.GRU(I, H))
    x = torch.randn(2, B, T, I)
    many, slope = torch.vmap(lambda x: layer(x)[0]), torch.func.grad(lambda x: layer(x)[0].sum())
    for transform, given in ((many, x), (slope, x[0])):
        graphs: list[torch.fx.GraphModule] = []
        compiled = torch.compile(transform, backend=_counting(graphs))
        torch.testing.assert_close(compiled(given), transform(given))
        assert not _calls(graphs)


@pytest.mark.parametrize("warm", [False, True])
def test_single_steps_are_compiled_as_they_are(warm: bool) -> None:
    torch._dynamo.reset()
    layer = nn.Recurrent(nn.LSTM(I, H), layers=2).eval()
    x = torch.randn(B, I)
    state = layer.initial_state(B, x)
    compiled = torch.compile(layer.step, fullgraph=True, backend="eager")
    with torch.no_grad():
        for _ in range(5 * warm):
            layer.step(x, state)
        (y, new), (expected, last) = compiled(x, state), layer.step(x, state)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(new, last)


@pytest.mark.parametrize("waiting", [256, 0])
def test_every_backward_pass_sees_the_numbers_the_forward_pass_drew(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrent_operator, "WAITING", waiting)
    cell, x = Drawing(I, H), torch.randn(B, T, I, requires_grad=True)
    run = LayerRun(LayerStep(cell), None, (x,), (), (torch.zeros(B, H),))
    leaves = [x, *cell.parameters()]
    torch.manual_seed(3)
    expected = _gradients(*run_layer(run), leaves)
    after = torch.rand(2)
    torch.manual_seed(3)
    y, last = run_operator(run, number_of(cell))
    loss = (y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum() + last[-1].square().sum()
    for _ in range(3):
        found = torch.autograd.grad(loss, leaves, retain_graph=True)
        for a, b in zip((y, *found), expected, strict=True):
            torch.testing.assert_close(a, b)
    assert torch.equal(torch.rand(2), after)  # nothing was drawn in between
    del y, last, loss, found
    run_operator(run, number_of(cell))
    assert len(recurrent_operator._drawn) <= 1


def test_lengths_are_checked_in_the_operator() -> None:
    cell, x = nn.GRU(I, H), torch.randn(B, T, I)
    run = LayerRun(LayerStep(cell), None, (x,), (), (torch.zeros(B, H),))
    for wrong in ([T + 1, 0, 0], [0, -1, 0], [1 << 40, 0, 0]):
        with pytest.raises(ValueError, match="lengths must lie between 0 and the 5 steps"):
            run_operator(run._replace(lengths=torch.tensor(wrong)), number_of(cell))
    with pytest.raises(ValueError, match="integers"):
        run_operator(run._replace(lengths=torch.rand(B)), number_of(cell))


@pytest.mark.parametrize(("batch", "time"), [(0, 4), (3, 0)])
def test_without_rows_or_steps_gradients_are_zero(batch: int, time: int) -> None:
    cell, x = nn.GRU(I, H), torch.randn(batch, time, I, requires_grad=True)
    h = torch.randn(batch, H, requires_grad=True)
    run = LayerRun(LayerStep(cell), None, (x,), (), (h,))
    y, (last,) = run_operator(run, number_of(cell))
    found = torch.autograd.grad(y.sum() + last.sum(), [x, h, *cell.parameters()])
    assert not any(g.any() for g in (found[0], *found[2:]))
    assert torch.equal(found[1], torch.ones(batch, H))


def test_threads_do_not_disturb_one_another() -> None:
    cells = [nn.GRU(I, H) for _ in range(4)]
    x = torch.randn(B, T, I)

    def gradients(cell: nn.Cell) -> list[Tensor]:
        run = LayerRun(LayerStep(cell), None, (x,), (), (torch.zeros(B, H),), LENGTHS)
        return _gradients(*run_operator(run, number_of(cell)), list(cell.parameters()))

    expected = [gradients(cell) for cell in cells]
    with ThreadPoolExecutor(8) as pool:
        for k, found in enumerate(pool.map(gradients, cells * 40)):
            assert all(torch.equal(a, b) for a, b in zip(found, expected[k % 4], strict=True))


class Tied(nn.Cell):
    """Two maps that share a matrix."""

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.gate, self.new = nn.Affine(inputs, hidden, hidden), nn.Affine(inputs, hidden, hidden)
        self.new.weights[1] = self.gate.weights[1]

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        f = torch.sigmoid(self.gate(x, h))
        return (1 - f) * h + f * torch.tanh(self.new(x, h))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_cell_may_share_its_weights(compiled: bool) -> None:
    torch._dynamo.reset()
    layer = nn.Recurrent(Tied(I, H))
    cell, x = layer.cells[0], torch.randn(B, T, I)
    run = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
    found = _gradients(*run(x), list(cell.parameters()))
    h, outputs = torch.zeros(B, H), []
    for now in x.unbind(1):
        h = cell.step(now, h)
        outputs.append(h)
    for a, b in zip(found, _gradients(torch.stack(outputs, 1), (h,), list(cell.parameters())), strict=True):
        torch.testing.assert_close(a, b)
    assert list(cell.recurrent_weights()) == ["gate.weights.1"]
    assert nn.Recurrent(Tied(I, H), weight_dropout=0.5)(x)[0].isfinite().all()


def test_copies_are_cells_of_their_own() -> None:
    layer = nn.Recurrent(nn.GRU(I, H), layers=2)
    numbers = [layer._numbers]
    for made in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        numbers.append(made._numbers)
        assert [number_of(cell) for cell in made.cells] == made._numbers
    assert len({n for group in numbers for n in group}) == 6
