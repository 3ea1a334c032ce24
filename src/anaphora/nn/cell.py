"""What a recurrent cell is: a set of states and the equations of one step."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from anaphora.nn.affine import Affine
from anaphora.nn.watched import Watched


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

    ``Cell(inputs, hidden, **options)`` hands the options to ``setup`` and remembers them, so that
    :class:`~anaphora.nn.recurrent.Recurrent` can make the cells of further layers and directions.
    """

    state: tuple[str, ...] = ("h",)
    _derived = ("_engines", "_number")

    def __init__(self, inputs: int, hidden: int, **options: Any):
        super().__init__()
        if inputs < 1 or hidden < 1:
            raise ValueError(f"{type(self).__name__} needs positive widths, got {inputs} and {hidden}.")
        self.inputs, self.hidden, self.options = inputs, hidden, options
        self.setup(inputs, hidden, **options)

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """``setup(inputs, hidden, **options)`` makes the parameters."""
        raise TypeError(f"{type(self).__name__} does not define setup(self, inputs, hidden).")

    def step(self, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        """``step(x, *states)`` computes the new states; shapes as above."""
        raise TypeError(f"{type(self).__name__} does not define step(self, x, {', '.join(self.state)}).")

    def advance(self, x: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """``step`` with the states always a tuple."""
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
            states = tuple(x.new_zeros(x.shape[0], self.hidden) for _ in self.state)
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

    def __getstate__(self) -> dict[str, Any]:
        """Without the machine code compiled for it, which a copy makes or finds for itself."""
        return {name: value for name, value in self.__dict__.items() if name != "_engines"}

    def extra_repr(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"{self.inputs}, {self.hidden}{options}"


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer by name, as ``named_parameters`` and ``named_buffers`` find them, in a tenth of the time:
    a layer on a GPU takes little more than their walk. What has several names is found by its first."""
    found: dict[str, Tensor] = {}
    seen = set()
    waiting: list[tuple[str, nn.Module]] = [("", module)]
    for path, part in waiting:
        for name, tensor in (*part._parameters.items(), *part._buffers.items()):
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found[path + name] = tensor
        waiting += [(f"{path}{name}.", child) for name, child in part._modules.items() if child is not None]
    return found
