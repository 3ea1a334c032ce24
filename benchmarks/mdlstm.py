"""The two-dimensional LSTM against a plain double loop over its places. Run: python benchmarks/mdlstm.py [--json]

Forward and backward, four directions, float32; one process, one thread, both sides in turn, the least of many times.
The loop is torch operations, place after place, and must give the same numbers before it is timed. With many pictures
and wide states a place is mostly matrix products, in which both sides are bound by the processor.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from anaphora.nn.grid_lstm import GridLSTM
from rows import row, show
from turns import least

# pictures, rows, columns, inputs, hidden, the ratio we ask for
CASES = (
    (1, 14, 14, 4, 32, 10.0),
    (8, 14, 14, 4, 32, 10.0),
    (16, 28, 28, 1, 16, 10.0),
    (64, 7, 7, 16, 48, None),
)


class DoubleLoop(nn.Module):
    """The equations of `GridLSTM`, with its weights."""

    def __init__(self, layer: GridLSTM):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        weights = self.layer.weight.chunk(len(self.layer.directions))
        biases = self.layer.bias.chunk(len(self.layer.directions))
        found = [
            self._one(x, k, weights[k], biases[k], *flips) for k, flips in enumerate(self.layer.directions)
        ]
        return torch.cat(found, -1)

    def _one(self, x: Tensor, k: int, weight: Tensor, bias: Tensor, bottom: bool, right: bool) -> Tensor:
        flipped = [axis for axis, flip in ((1, bottom), (2, right)) if flip]
        rows = [line.unbind(1) for line in x.flip(flipped).unbind(1)]
        up, left = self.layer.recurrent[k]
        nothing = x.new_zeros(len(x), self.layer.hidden)
        above = [(nothing, nothing)] * len(rows[0])
        found = []
        for line in rows:
            beside = nothing, nothing
            here = []
            for place, (h_up, c_up) in zip(line, above, strict=True):
                h_left, c_left = beside
                a = nn.functional.linear(place, weight, bias) + h_up @ up.T + h_left @ left.T
                i, f_up, f_left, o, new = a.chunk(5, -1)
                c = f_up.sigmoid() * c_up + f_left.sigmoid() * c_left + i.sigmoid() * new.tanh()
                beside = o.sigmoid() * c.tanh(), c
                here.append(beside)
            above = here
            found.append(torch.stack([h for h, _ in here], 1))
        return torch.stack(found, 1).flip(flipped)


def measure(times: int) -> list[dict[str, object]]:
    torch.manual_seed(0)
    rows = []
    for pictures, height, width, inputs, hidden, goal in CASES:
        layer = GridLSTM(inputs, hidden)
        loop, x = DoubleLoop(layer), torch.randn(pictures, height, width, inputs)

        def ours(layer: GridLSTM = layer, x: Tensor = x) -> Tensor:
            layer.zero_grad()
            y: Tensor = layer(x)[0]
            y.square().sum().backward()
            return y

        def theirs(layer: GridLSTM = layer, loop: DoubleLoop = loop, x: Tensor = x) -> Tensor:
            layer.zero_grad()
            y: Tensor = loop(x)
            y.square().sum().backward()
            return y

        same(layer, ours, theirs)
        mine, other = least(ours, theirs, times)
        name = f"two-dimensional LSTM, {pictures} × {height} × {width}, hidden {hidden}"
        rows.append(row(name, "double loop in torch", 1000 * mine, 1000 * other, "ms", goal=goal))
    return rows


def same(layer: GridLSTM, ours: object, theirs: object) -> None:
    """Stop unless both sides give the same states and gradients."""
    found = []
    for run in (ours, theirs):
        y = run()  # type: ignore[operator]
        found.append([y.detach(), *(p.grad.clone() for p in layer.parameters())])
    for mine, other in zip(*found, strict=True):
        if not (mine - other).norm() <= 1e-4 * other.norm():
            raise SystemExit("the two sides give different numbers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    show(measure(options.times), as_json=options.json)


if __name__ == "__main__":
    main()
