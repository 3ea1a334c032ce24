"""The engine: generated recurrences against the reference loop, and what it does when it cannot generate."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from anaphora import nn
from anaphora.kernels import compiler
from anaphora.kernels.recurrence import engine as engine_module
from anaphora.kernels.recurrence.engine import Engine
from anaphora.kernels.recurrence.reference import run_reference
from anaphora.nn.recurrent_step import LayerStep

I, H = 3, 4
CELLS = {
    "elman": lambda: nn.Elman(I, H),
    "relu": lambda: nn.Elman(I, H, activation="relu"),
    "lstm": lambda: nn.LSTM(I, H),
    "no forget": lambda: nn.LSTM(I, H, forget=False),
    "coupled": lambda: nn.LSTM(I, H, coupled=True),
    "peephole": lambda: nn.LSTM(I, H, peephole=True),
    "layer norm": lambda: nn.LSTM(I, H, layer_norm=True),
    "gru before": lambda: nn.GRU(I, H),
    "gru after": lambda: nn.GRU(I, H, reset="after"),
    "simple gru": lambda: nn.SimpleGRU(I, H),
    "mgu": lambda: nn.MGU(I, H),
    "shortcut": lambda: nn.Shortcut(I, H, cell=nn.GRU, by=3),
}


def _engine(cell: nn.Cell) -> Engine:
    return Engine(LayerStep(cell), type(cell).__name__)


def _inputs(cell: nn.Cell, dtype: torch.dtype, batch: int, time: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    x = torch.randn(batch, time, cell.inputs, dtype=dtype, requires_grad=True)
    return x, tuple(torch.randn(batch, cell.hidden, dtype=dtype, requires_grad=True) for _ in cell.state)


def _results(run: Any, cell: nn.Cell, x: Tensor, initial: tuple[Tensor, ...], *rest: Any) -> list[Tensor]:
    """Outputs, last states, and the gradients of everything, for fixed random weights on the outputs."""
    params = dict(cell.named_parameters())
    y, last = run(params, (x,), (), initial, *rest)
    torch.manual_seed(11)
    loss = (y * torch.randn_like(y)).sum() + sum((s * torch.randn_like(s)).sum() for s in last)
    leaves = [x, *initial, *params.values()]
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [
        y,
        *last,
        *(g if g is not None else torch.zeros_like(v) for g, v in zip(found, leaves, strict=True)),
    ]


def _reference(cell: nn.Cell) -> Any:
    return lambda *arguments: run_reference(LayerStep(cell), *arguments)


def _compiled(engine: Engine) -> bool:
    ready = [p for p in engine._prepared.values() if p is not None]
    return bool(ready) and all(p.compiled is not None for p in ready)


@pytest.mark.parametrize("name", CELLS)
def test_gradcheck_on_the_generated_path(name: str) -> None:
    cell = CELLS[name]().double()
    for p in cell.parameters():
        p.data += 0.2 * torch.randn_like(p)
    x, initial = _inputs(cell, torch.float64, 3, 4)
    names = list(dict(cell.named_parameters()))
    engine = _engine(cell)
    lengths = torch.tensor([4, 2, 3])

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        start = 1 + len(initial)
        params = dict(zip(names, tensors[start:], strict=True))
        y, last = engine(params, (tensors[0],), (), tuple(tensors[1:start]), lengths, name == "lstm")
        return y, *last

    assert torch.autograd.gradcheck(run, (x, *initial, *cell.parameters()))
    assert _compiled(engine)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("path", ["compiled", "torch"])
def test_equals_the_reference(name: str, path: str) -> None:
    lengths = torch.tensor([5, 9, 0, 1, 9, 7, 3, 3, 8, 2, 6])
    # Layer norm over four numbers can enlarge rounding a hundredfold in float32; float64 shows the equality.
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 2e-4)):
        cell = CELLS[name]().to(dtype)
        x, initial = _inputs(cell, dtype, 11, 9)
        engine = _engine(cell)
        if path == "torch":
            engine.prepared(dict(cell.named_parameters()), (x,), (), initial).compiled = None
        for rest in ((None, False), (lengths, False), (lengths, True)):
            ours = _results(engine, cell, x, initial, *rest)
            theirs = _results(_reference(cell), cell, x, initial, *rest)
            for a, b in zip(ours, theirs, strict=True):
                scale = max(1.0, float(b.detach().abs().max()))
                torch.testing.assert_close(a, b, atol=tolerance * scale, rtol=0)


@pytest.mark.parametrize(
    ("inputs", "hidden", "batch", "time"), [(1, 1, 1, 1), (7, 33, 9, 5), (40, 17, 23, 3), (5, 64, 1, 20)]
)
@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU])
def test_odd_sizes_and_strides(make: type[nn.Cell], inputs: int, hidden: int, batch: int, time: int) -> None:
    cell = make(inputs, hidden)
    wide = torch.randn(time, batch, 2 * inputs)
    x = wide[..., ::2].transpose(0, 1).requires_grad_()  # neither rows nor columns lie together
    initial = tuple(torch.randn(hidden, batch).t().requires_grad_() for _ in cell.state)
    ours = _results(_engine(cell), cell, x, initial)
    theirs = _results(_reference(cell), cell, x, initial)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


FUNCTIONS = (torch.exp, torch.tanh, torch.sigmoid, torch.relu, torch.abs, torch.nn.functional.silu)


class Through(nn.Cell):
    """Every function of the input, as one state each."""

    state = tuple(f.__name__ for f in FUNCTIONS)

    def setup(self, inputs: int, hidden: int) -> None:
        self.one = torch.nn.Parameter(torch.ones(()))

    def step(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(x) * self.one for function in FUNCTIONS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_everywhere_on_the_line(dtype: torch.dtype) -> None:
    """Our own exponential and its kin, from −∞ to ∞, at the joints of their pieces, and for what is no number."""
    special = [
        float("-inf"),
        -1e30,
        -104.1,
        -88.1,
        -0.625,
        -1e-30,
        0.0,
        0.62499,
        88.7,
        89.5,
        1e30,
        float("inf"),
    ]
    x = torch.cat((torch.linspace(-100, 95, 1999), torch.tensor([*special, float("nan")]))).to(dtype)
    cell = Through(len(x), len(x)).to(dtype)
    initial = tuple(torch.zeros(1, len(x), dtype=dtype) for _ in FUNCTIONS)
    with torch.no_grad():
        engine = _engine(cell)
        _, last = engine(dict(cell.named_parameters()), (x[None, None],), (), initial)
    assert _compiled(engine)
    exact = 4e-7 if dtype == torch.float32 else 1e-15
    for function, y in zip(FUNCTIONS, last, strict=True):
        torch.testing.assert_close(y[0], function(x), rtol=exact, atol=1e-38, equal_nan=True)


# ---------------------------------------------------------------------- random cells
UNARY = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "exp": lambda v: torch.exp(torch.tanh(v)),
    "neg": torch.neg,
    "sin": torch.sin,
    "cos": torch.cos,
    "abs": torch.abs,
    "square": torch.square,
    "root": lambda v: torch.sqrt(1 + v * v),
    "softplus": torch.nn.functional.softplus,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "elu": torch.nn.functional.elu,
    "leaky": torch.nn.functional.leaky_relu,
    "clamp": lambda v: v.clamp(-0.7, 0.6),
    "log": lambda v: torch.log1p(v * v),
    "norm": lambda v: torch.nn.functional.layer_norm(v, v.shape[-1:]),
    "softmax": lambda v: torch.softmax(v, -1),
    "centred": lambda v: v - v.mean(-1, keepdim=True),
    "scaled": lambda v: v / (1 + v.var(-1, keepdim=True)),
    "swapped": lambda v: torch.cat(v.chunk(2, -1)[::-1], -1),
    "peak": lambda v: v - 0.5 * v.amax(-1, keepdim=True),
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda a, b: a / (1 + b * b),
    "max": torch.maximum,
    "where": lambda a, b: torch.where(a > b, a, 2 * b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "times sum": lambda a, b: a * b.sum(-1, keepdim=True),
}


class Drawn(nn.Cell):
    """A cell drawn at random: each instruction makes a value from earlier ones, the last ones are the states."""

    def setup(self, inputs: int, hidden: int, *, states: int, program: list[tuple[str, int, int]]) -> None:
        self.state = tuple(f"s{i}" for i in range(states))
        self.program = program
        self.enter = nn.Affine(inputs, 2 * hidden)
        self.scale = torch.nn.Parameter(torch.randn(hidden))
        wanted = [k for k, (op, _, _) in enumerate(program) if op == "product"]
        self.maps = torch.nn.ModuleDict({str(k): nn.Affine(hidden, hidden, recurrent=0) for k in wanted})

    def step(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        values = [*self.enter(x).chunk(2, -1), *states]
        for k, (op, a, b) in enumerate(self.program):
            left, right = values[a % len(values)], values[b % len(values)]
            if op == "product":
                new = self.maps[str(k)](left)
            elif op == "vector":
                new = left * self.scale + 0.5
            elif op in UNARY:
                new = UNARY[op](left)
            else:
                new = BINARY[op](left, right)
            values.append(new)
        return tuple(torch.tanh(v) for v in values[-len(states) :])


def test_states_that_share_a_gradient() -> None:
    """What a product sends back to two states at once, or to a state and the input, reaches both."""

    class Twins(nn.Cell):
        state = ("a", "b")

        def setup(self, inputs: int, hidden: int) -> None:
            self.w = nn.Affine(hidden, hidden, recurrent=0)

        def step(self, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            both = torch.tanh(self.w(a + b + x))
            return both, both

    class Sums(Twins):
        def step(self, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            return torch.tanh(self.w(a) + self.w(a * b) + a + b), self.w(a + b) + a

    for made in (Twins, Sums):
        cell = made(H, H).double()
        x, initial = _inputs(cell, torch.float64, 3, 4)
        engine = _engine(cell)
        theirs = _results(_reference(cell), cell, x, initial)
        for a, b in zip(_results(engine, cell, x, initial), theirs, strict=True):
            torch.testing.assert_close(a, b)
        assert _compiled(engine)


OPERATIONS = ["product", "product", "vector", *UNARY, *BINARY]
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=9
)


def _check_drawn(program: list[tuple[str, int, int]], states: int, hidden: int, compile_it: bool) -> None:
    torch.manual_seed(len(program))
    cell = Drawn(I, hidden, states=states, program=program).double()
    x, initial = _inputs(cell, torch.float64, 5, 4)
    engine = _engine(cell)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if not compile_it:
            engine.prepared(dict(cell.named_parameters()), (x,), (), initial).compiled = None
        lengths = torch.tensor([4, 1, 3, 4, 2])
        ours = _results(engine, cell, x, initial, lengths)
    theirs = _results(_reference(cell), cell, x, initial, lengths)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)
    assert _compiled(engine) is compile_it


@pytest.fixture(scope="module")
def _quick_compiler(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Random cells are compiled once and thrown away: no optimisation, no place in the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setattr(compiler, "FLAGS", tuple(f for f in compiler.FLAGS if f not in ("-O3", "-march=native")))
    patch.setenv("ANAPHORA_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(program=PROGRAMS, states=st.integers(1, 3), hidden=st.sampled_from([2, 4, 17]))
@pytest.mark.usefixtures("_quick_compiler")
def test_random_cells_generated_equal_eager(
    program: list[tuple[str, int, int]], states: int, hidden: int
) -> None:
    _check_drawn(program, states, hidden, compile_it=True)


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(program=PROGRAMS, states=st.integers(1, 3), hidden=st.sampled_from([2, 4, 17]))
@pytest.mark.usefixtures("_quick_compiler")
def test_many_random_cells_generated_equal_eager(
    program: list[tuple[str, int, int]], states: int, hidden: int
) -> None:
    _check_drawn(program, states, hidden, compile_it=True)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(program=PROGRAMS, states=st.integers(1, 3), hidden=st.sampled_from([2, 4, 17]))
@pytest.mark.usefixtures("_quick_compiler")
def test_random_cells_derived_equal_eager(
    program: list[tuple[str, int, int]], states: int, hidden: int
) -> None:
    _check_drawn(program, states, hidden, compile_it=False)


# ---------------------------------------------------------------------- what the engine does not do itself
def test_second_derivatives() -> None:
    cell = nn.GRU(I, H).double()
    recurrent = nn.Recurrent(cell)
    x = torch.randn(2, 3, I).double().requires_grad_()
    initial = torch.randn(1, 2, H).double().requires_grad_()

    def run(x: Tensor, h: Tensor, *_: Tensor) -> Tensor:
        return recurrent(x, torch.tensor([3, 2]), (h,))[0]

    assert torch.autograd.gradgradcheck(run, (x, initial, *cell.parameters()), atol=1e-5)


def test_forward_mode_derivatives_and_vmap() -> None:
    recurrent = nn.Recurrent(nn.MGU(I, H)).double()
    x, tangent = torch.randn(2, 3, I).double(), torch.randn(2, 3, I).double()
    _, dy = torch.func.jvp(lambda x: recurrent(x)[0], (x,), (tangent,))
    step = 1e-6
    torch.testing.assert_close(
        dy,
        (recurrent(x + step * tangent)[0] - recurrent(x - step * tangent)[0]) / (2 * step),
        atol=1e-6,
        rtol=1e-5,
    )
    many = torch.randn(5, 2, 3, I).double()
    mapped = torch.func.vmap(lambda x: recurrent(x)[0])(many)
    torch.testing.assert_close(mapped, torch.stack([recurrent(m)[0] for m in many]))


class Untraceable(nn.Cell):
    def setup(self, inputs: int, hidden: int) -> None:
        self.a = nn.Affine(inputs, hidden, hidden)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        new = torch.tanh(self.a(x, h))
        return new if float(new.sum().detach()) > 1e9 else new.cumsum(-1)


def test_what_cannot_be_traced_runs_eagerly_and_says_so_once() -> None:
    recurrent = nn.Recurrent(Untraceable(I, H), layers=2)
    x = torch.randn(2, 3, I)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        recurrent(x)
        y, _ = recurrent(x)
        nn.Recurrent(Untraceable(I, H))(x)
    (only,) = [str(w.message) for w in said if issubclass(w.category, UserWarning)]
    assert only.startswith("Untraceable runs step by step in plain torch")
    value = x
    for cell in recurrent.cells:
        h, outputs = torch.zeros(2, H), []
        for t in range(3):
            h = cell.step(value[:, t], h)
            outputs.append(h)
        value = torch.stack(outputs, 1)
    torch.testing.assert_close(y, value)


def test_rows_that_meet_are_refused() -> None:
    class Mixing(nn.Cell):
        def setup(self, inputs: int, hidden: int) -> None:
            self.a = nn.Affine(inputs, hidden, hidden)

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return torch.tanh(self.a(x, h - h.mean(0)))

    recurrent = nn.Recurrent(Mixing(I, H))
    x = torch.randn(3, 4, I)
    engine_module._said.clear()
    with pytest.warns(UserWarning, match="plain torch"):
        y, _ = recurrent(x)
    h = torch.zeros(3, H)
    for t in range(4):
        h = recurrent.cells[0].step(x[:, t], h)
    torch.testing.assert_close(y[:, -1], h)


def test_tracing_leaves_the_random_numbers_alone() -> None:
    recurrent = nn.Recurrent(nn.LSTM(I, H))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    recurrent(torch.ones(2, 3, I))
    assert torch.equal(before, torch.get_rng_state())


def test_a_step_that_draws_random_numbers_draws_those_it_would_have_drawn() -> None:
    class Noisy(nn.Cell):
        def setup(self, inputs: int, hidden: int) -> None:
            self.a = nn.Affine(inputs, hidden, hidden)

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return torch.tanh(self.a(x, h) + torch.randn_like(h))

    recurrent = nn.Recurrent(Noisy(I, H))
    x, h = torch.ones(2, 3, I), torch.zeros(2, H)
    torch.manual_seed(5)
    with pytest.warns(UserWarning, match="random numbers"):
        y, _ = recurrent(x)
    torch.manual_seed(5)
    for t in range(3):
        h = recurrent.cells[0].step(x[:, t], h)
    assert torch.equal(y[:, -1], h)


def test_parameters_may_be_prepared_inside_the_step() -> None:
    """Weight normalisation, tied and scaled weights: done once per call by torch, with their gradient."""

    class Prepared(nn.Cell):
        def setup(self, inputs: int, hidden: int) -> None:
            self.v = torch.nn.Parameter(torch.randn(hidden, inputs + hidden))
            self.g = torch.nn.Parameter(torch.rand(hidden) + 0.5)
            self.register_buffer("fixed", torch.randn(hidden))

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            w = self.g[:, None] * self.v / self.v.norm(dim=1, keepdim=True)
            joined = torch.cat((x, h), -1) @ w.t()
            return torch.tanh(joined + self.fixed * torch.nn.functional.softplus(self.g))

    cell = Prepared(I, H).double()
    x, initial = _inputs(cell, torch.float64, 3, 5)
    engine = _engine(cell)
    given_params = lambda: {**dict(cell.named_parameters()), **dict(cell.named_buffers())}  # noqa: E731
    y, _ = engine(given_params(), (x,), (), initial)
    z, _ = run_reference(LayerStep(cell), given_params(), (x,), (), initial)
    torch.testing.assert_close(y, z)
    for a, b in zip(
        torch.autograd.grad(y.sum(), list(cell.parameters())),
        torch.autograd.grad(z.sum(), list(cell.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
    assert _compiled(engine)
    recurrent = nn.Recurrent(cell).eval()
    with torch.no_grad():
        one, _ = recurrent.step(x[:, 0], tuple(s[None] for s in initial))
        torch.testing.assert_close(one, y[:, 0])
        cell.v.data.mul_(torch.randn_like(cell.v))
        two, _ = recurrent.step(x[:, 0], tuple(s[None] for s in initial))
        torch.testing.assert_close(two, recurrent(x[:, :1], initial=tuple(s[None] for s in initial))[0][:, 0])


def test_no_gradient_keeps_nothing() -> None:
    recurrent = nn.Recurrent(nn.LSTM(I, H))
    x = torch.randn(2, 3, I)
    with torch.no_grad():
        y, _ = recurrent(x)
    assert y.grad_fn is None
    assert torch.equal(y, recurrent(x)[0])
    with torch.inference_mode():
        assert torch.equal(y, recurrent(x)[0])


def test_frozen_weights_and_partial_gradients() -> None:
    cell = nn.LSTM(I, H).double()
    x, initial = _inputs(cell, torch.float64, 3, 4)
    whole = _results(_engine(cell), cell, x, initial)
    cell.gates.weights[0].requires_grad_(False)
    y, last = _engine(cell)(dict(cell.named_parameters()), (x.detach(),), (), initial)
    torch.manual_seed(11)
    loss = (y * torch.randn_like(y)).sum() + sum((s * torch.randn_like(s)).sum() for s in last)
    grads = torch.autograd.grad(loss, [*initial, cell.gates.bias, cell.gates.weights[1]])
    wanted = dict(zip(["x", "h", "c", *dict(cell.named_parameters())], whole[3:], strict=True))
    expected = [wanted["h"], wanted["c"], wanted["gates.bias"], wanted["gates.weights.1"]]
    for a, b in zip(grads, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_threads_and_runs_do_not_change_a_bit() -> None:
    cell = nn.LSTM(20, 48, peephole=True)
    x, initial = _inputs(cell, torch.float32, 37, 12)
    lengths = torch.randint(0, 13, (37,))
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            results.append(_results(_engine(cell), cell, x, initial, lengths))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_after_a_fork() -> None:
    recurrent = nn.Recurrent(nn.GRU(I, H))
    x = torch.randn(20, 6, I)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        y, _ = recurrent(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            good = False
            try:
                good = torch.equal(recurrent(x)[0], y)
            finally:
                os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(before)


def test_the_gradient_may_come_for_a_last_state_alone() -> None:
    cell = nn.LSTM(I, H).double()
    x, initial = _inputs(cell, torch.float64, 4, 5)
    lengths = torch.tensor([5, 0, 2, 3])
    params = dict(cell.named_parameters())
    for k in range(2):
        found = []
        for run in (_engine(cell), _reference(cell)):
            _, last = run(params, (x,), (), initial, lengths)
            found.append(torch.autograd.grad(last[k].square().sum(), [x, *initial, *params.values()]))
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b)


def test_backward_twice_and_buffers_in_use_are_not_shared() -> None:
    recurrent = nn.Recurrent(nn.LSTM(16, 32))
    x, other = torch.randn(16, 64, 16), torch.randn(16, 64, 16)
    y, _ = recurrent(x)
    params = list(recurrent.parameters())
    first = torch.autograd.grad(y.sum(), params, retain_graph=True)
    z, _ = recurrent(other)  # would overwrite what y's graph still holds
    second = torch.autograd.grad(y.sum(), params)
    torch.autograd.grad(z.sum(), params)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
