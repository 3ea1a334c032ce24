"""Write a recurrent cell as its equations and compare it with an LSTM on `adding`, which needs memory.

Two numbers of a long row are marked; the answer is a line through their sum. Always answering 0.5 finds 15.4 %.
"""

import argparse
import tempfile
from pathlib import Path

import torch

import anaphora as an


class Leaky(an.nn.Cell):
    """h_t = a ∘ h_{t−1} + (1 − a) ∘ tanh(W x_t + U h_{t−1} + b): a learned rate of forgetting for each unit."""

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.new = an.nn.Affine(inputs, hidden, hidden)
        self.rate = torch.nn.Parameter(torch.linspace(0.0, 5.0, hidden))  # σ: from ½ to 0.99

    def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        a = torch.sigmoid(self.rate)
        return a * h + (1 - a) * torch.tanh(self.new(x, h))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "data", nargs="?", default="adding:30", help="sequences of vectors with a number each, or a corpus"
    )
    parser.add_argument("--steps", type=int, default=400, help="steps of training")
    parser.add_argument("--out", type=Path, default=None, help="where runs and pictures go")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="own-cell-"))

    layer = an.nn.Recurrent(Leaky(2, 8))
    x = torch.randn(3, 5, 2)  # (batch, time, features)
    print(layer.explain(x))  # which backend runs it, and why

    common = {"target": "number", "hidden": 32, "steps": options.steps, "valid_every": 100, "device": "cpu"}
    for name, cell in {"elman": "elman", "lstm": "lstm", "leaky": Leaky}.items():
        model = an.Classifier("lstm", cell=cell, **common).fit(options.data, out=out / name, verbose=False)
        found = model.score(options.data)
        print(f"{name:6} finds {found['accuracy']:5.1f} %")
    an.history(out / "elman", out / "lstm", out / "leaky").view("curves").save(out / "curves.svg")
    print(f"Runs and curves: {out}")


if __name__ == "__main__":
    main()
