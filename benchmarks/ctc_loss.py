"""CTC loss with its gradient against PyTorch. Run: python benchmarks/ctc_loss.py [--json] [--times N] [--device cuda] [--all]

One process, one thread, both sides in turn, the least of N times: float32, 32 inputs of 200 frames and 32 symbols,
targets of 80; with --all smaller and larger shapes as well. The gradient may be off by 1e-6 against float64 (1e-5 on a
GPU), or there are no rows. Targets lie on the device, as the scores do.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.search import ctc_loss
from rows import row, show
from turns import least

SHAPE = (32, 200, 32, 80)  # inputs, frames, symbols, labels
SHAPES = ((4, 50, 30, 10), (16, 100, 30, 30), SHAPE, (16, 400, 128, 80), (32, 800, 500, 120))
GRADIENT_ERROR = {"cpu": 1e-6, "cuda": 1e-2}


def loss_rows(
    times: int, device: str = "cpu", shape: tuple[int, int, int, int] = SHAPE
) -> list[dict[str, Any]]:
    """Time with the gradient, and the gradient's greatest error against float64."""
    batch, time, symbols, labels = shape
    logits = torch.randn(batch, time, symbols, device=device, requires_grad=True)
    targets = torch.randint(1, symbols, (batch, labels), device=device)
    frames, sizes = torch.full((batch,), time), torch.full((batch,), labels)

    def finished(gradient: Tensor) -> Tensor:
        if device == "cuda":
            torch.cuda.synchronize()
        return gradient

    def peer(x: Tensor) -> Tensor:
        return F.ctc_loss(x.log_softmax(-1).transpose(0, 1), targets, frames, sizes, reduction="sum")

    def ours() -> Tensor:
        return finished(torch.autograd.grad(ctc_loss(logits, targets, reduction="sum"), logits)[0])

    def theirs() -> Tensor:
        return finished(torch.autograd.grad(peer(logits), logits)[0])

    exact = logits.detach().double().requires_grad_()
    (right,) = torch.autograd.grad(peer(exact), exact)
    error, their_error = (float((gradient - right).abs().max()) for gradient in (ours(), theirs()))
    if error > GRADIENT_ERROR[device]:
        raise SystemExit(f"the gradient is off by {error:.1e}, more than {GRADIENT_ERROR[device]:.0e}")
    mine, peers = least(ours, theirs, times)
    size = f"{batch}×{time}×{symbols}, {labels} labels"
    goal = 4.0 if (device, shape) == ("cpu", SHAPE) else None
    return [
        row(f"CTC loss with gradient, {size}", "torch", 1000 * mine, 1000 * peers, "ms", goal=goal),
        row("greatest error of its gradient against float64", "torch", error, their_error, "", goal=None),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--all", action="store_true", help="all shapes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    for shape in SHAPES if options.all else (SHAPE,):
        rows += loss_rows(options.times, options.device, shape)
    show(rows, as_json=options.json)


if __name__ == "__main__":
    main()
