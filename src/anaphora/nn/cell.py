"""What a recurrent cell is: a set of states and the equations of one step, made of affine maps of several inputs."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anaphora.native.derived import Watched
from anaphora.nn import inside


# ----------------------------------------------------------------------
# The affine map of several inputs that every recurrent cell is made of.
class Affine(Watched):
    """``W₁ v₁ + W₂ v₂ + … + b``: ``Affine(in₁, in₂, …, out)``, called with as many inputs.

    ``widths`` are those of the inputs, then that of the result.

    In a cell the first input is ``x`` and the others are states: ``Affine(inputs, hidden, hidden)(x, h)``
    is W x + U h + b. This equals one product with the concatenation, [W|U][x; h] + b.

    Weights of inputs from ``recurrent`` on multiply states: they start orthogonal, the others Glorot uniform,
    the bias at zero. ``blocks`` says how many maps are stacked in the output (four gates of an LSTM): each
    block is initialised as a map of its own.

    Shapes: inputs ``(..., inᵢ)``, result ``(..., out)``; ``weights[i]`` ``(out, inᵢ)``, ``bias`` ``(out,)``.

    >>> an.nn.Affine(3, 4, 5)(torch.zeros(2, 3), torch.zeros(2, 4)).shape
    torch.Size([2, 5])
    """

    def __init__(self, *widths: int, bias: bool = True, recurrent: int = 1, blocks: int = 1):
        super().__init__()
        if len(widths) < 2 or min(widths) < 1:
            raise ValueError(f"Affine needs at least one input width and the output width, got {widths}.")
        *inputs, outputs = widths
        if outputs % blocks:
            raise ValueError(f"Affine cannot divide its {outputs} outputs into {blocks} blocks.")
        self.inputs, self.outputs = tuple(inputs), outputs
        self.recurrent, self.blocks = recurrent, blocks
        self.weights = nn.ParameterList([nn.Parameter(torch.empty(outputs, width)) for width in inputs])
        self.bias: nn.Parameter | None = nn.Parameter(torch.empty(outputs)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for i, weight in enumerate(self.weights):
            for block in weight.detach().chunk(self.blocks):
                if i >= self.recurrent:
                    nn.init.orthogonal_(block)
                else:
                    nn.init.xavier_uniform_(block)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, *inputs: Tensor) -> Tensor:
        if len(inputs) != len(self.inputs):
            raise ValueError(f"Affine of {len(self.inputs)} inputs was called with {len(inputs)}.")
        total = F.linear(inputs[0], self.weights[0], self.bias)
        for i in range(1, len(inputs)):
            total = total + F.linear(inputs[i], self.weights[i])
        return total

    def extra_repr(self) -> str:
        return ", ".join(map(str, (*self.inputs, self.outputs)))


# ----------------------------------------------------------------------
# What a recurrent cell is: a set of states and the equations of one step.
class Cell(Watched):
    """One step of a recurrence, h_t = f(x_t, h_{t−1}), written as its equations.

    A subclass names its states, makes its parameters in ``setup`` and computes one step in ``step``::

        class Elman(Cell):
            state = ("h",)
            def setup(self, inputs, hidden):
                self.a = Affine(inputs, hidden, hidden)
            def step(self, x, h):
                return torch.tanh(self.a(x, h))

    ``step(x, *states)`` gets x ``(batch, inputs)`` and each state ``(batch, hidden)`` and returns the new
    states in the order of ``state``: a tuple, or the tensor itself when there is only one. The first state is
    the output. A step must be a pure function of its arguments and the cell's parameters, and treat
    every row of the batch alike; nothing else is needed.

    A state that is not a vector of ``hidden`` numbers gets its shape in ``setup``, by name; the first state cannot::

        class LinearAttention(Cell):
            state = ("h", "S")
            def setup(self, inputs, hidden, heads=2):
                self.shapes = {"S": (heads, hidden // heads, hidden // heads)}
                self.project = Affine(inputs, 3 * hidden)
            def step(self, x, h, S):
                q, k, v = self.project(x).unflatten(-1, (3, *self.shapes["S"][:2])).unbind(1)
                S = 0.9 * S + outer(k, v)
                return contract(q, S).flatten(1), S

    ``step`` sees it as ``(batch, heads, d, e)``; outside, in ``initial`` and ``last``, it is flat: ``(…, batch, heads·d·e)``.

    ``Cell(inputs, hidden, **options)`` hands the options to ``setup`` and remembers them, so that
    :class:`~anaphora.nn.recurrent.Recurrent` can make the cells of further layers and directions.

    Args:
        inputs: the width of x.
        hidden: the width of the first state.
        options: those of the subclass's ``setup``.

    Raises a `ValueError` for widths below 1 and for shapes that contradict ``state``.

    >>> class Leaky(an.nn.Cell):
    ...     def setup(self, inputs, hidden, rate=0.5):
    ...         self.rate, self.a = rate, an.nn.Affine(inputs, hidden)
    ...
    ...     def step(self, x, h):
    ...         return (1 - self.rate) * h + self.rate * torch.tanh(self.a(x))
    >>> y, last = an.nn.Recurrent(Leaky(3, 4, rate=0.1))(torch.zeros(2, 5, 3))
    >>> y.shape, last[0].shape
    (torch.Size([2, 5, 4]), torch.Size([1, 2, 4]))
    """

    state: tuple[str, ...] = ("h",)
    shapes: Mapping[str, tuple[int, ...]] = {}
    _derived = ("_number",)

    def __init__(self, inputs: int, hidden: int, **options: Any):
        super().__init__()
        if inputs < 1 or hidden < 1:
            raise ValueError(f"{type(self).__name__} needs positive widths, got {inputs} and {hidden}.")
        self.inputs, self.hidden, self.options = inputs, hidden, options
        self.setup(inputs, hidden, **options)
        self._check_shapes()

    def _check_shapes(self) -> None:
        name = type(self).__name__
        for state, shape in self.shapes.items():
            if state not in self.state:
                raise ValueError(
                    f"{name}: shapes names {state!r}, which is not among its states {self.state}."
                )
            if not shape or any(not isinstance(n, int) or n < 1 for n in shape):
                raise ValueError(f"{name}: the shape of {state} must be positive integers, got {shape}.")
        if prod(self.shape_of(0)) != self.hidden or len(self.shape_of(0)) > 1:
            raise ValueError(
                f"{name}: its first state, {self.state[0]}, is its output, so its shape must be ({self.hidden},), "
                f"got {self.shape_of(0)}; put a vector first."
            )

    def shape_of(self, index: int) -> tuple[int, ...]:
        """The shape of a state, by its number in ``state``, as ``step`` sees it without the batch."""
        return tuple(self.shapes.get(self.state[index], (self.hidden,)))

    @property
    def widths(self) -> tuple[int, ...]:
        """How many numbers each state has."""
        return tuple(prod(self.shape_of(i)) for i in range(len(self.state)))

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """``setup(inputs, hidden, **options)`` makes the parameters."""
        raise TypeError(f"{type(self).__name__} does not define setup(self, inputs, hidden).")

    def step(self, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        """``step(x, *states)`` computes the new states; shapes as above."""
        raise TypeError(f"{type(self).__name__} does not define step(self, x, {', '.join(self.state)}).")

    def advance(self, x: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """``step`` with the states always a tuple. A state that comes flat, ``(batch, numbers)``, leaves flat."""
        if self.shapes:
            return self._advance_shaped(x, states)
        return self._stepped(x, states)

    def _advance_shaped(self, x: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        shapes = [self.shape_of(i) for i in range(len(states))]
        flat = [len(shape) > 1 and s.dim() == 2 for s, shape in zip(states, shapes, strict=True)]
        each = zip(states, shapes, flat, strict=True)
        new = self._stepped(x, tuple([s.reshape(-1, *shape) if f else s for s, shape, f in each]))
        for name, value, shape in zip(self.state, new, shapes, strict=True):
            if value.shape[1:] != shape:
                raise ValueError(
                    f"{type(self).__name__}.step returned {name} with the shape {tuple(value.shape[1:])}; "
                    f"it must be {shape}."
                )
        return tuple([s.flatten(1) if f else s for s, f in zip(new, flat, strict=True)])

    def _stepped(self, x: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if inside.watched():
            inside.note(self, "given_x", x)
            for name, value in zip(self.state, states, strict=True):
                inside.note(self, f"given_{name}", value.flatten(1))
        new = self.step(x, *states)
        new = (new,) if isinstance(new, Tensor) else tuple(new)
        if len(new) != len(self.state):
            raise ValueError(
                f"{type(self).__name__}.step returned {len(new)} states; "
                f"its state is {self.state}, so it must return {len(self.state)}."
            )
        return new

    def forward(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """One step; states left out start at zero. Returns the tuple of new states."""
        if not states:
            states = tuple(x.new_zeros(x.shape[0], width) for width in self.widths)
        return self.advance(x, states)

    def another(self, inputs: int) -> Cell:
        """A fresh cell of the same kind, width and options for another input width."""
        return type(self)(inputs, self.hidden, **self.options)

    def recurrent_weights(self) -> dict[str, nn.Parameter]:
        """The weights that multiply states, by name: those weight dropout acts on; a shared one by its first name."""
        found: dict[int, tuple[str, nn.Parameter]] = {}
        for path, module in self.named_modules():
            if isinstance(module, Affine):
                for i in range(module.recurrent, len(module.weights)):
                    name = f"{path}.weights.{i}" if path else f"weights.{i}"
                    found.setdefault(id(module.weights[i]), (name, module.weights[i]))
        return dict(found.values())

    def extra_repr(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"{self.inputs}, {self.hidden}{options}"
