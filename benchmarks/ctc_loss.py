"""CTC loss with its gradient against PyTorch. Run: python benchmarks/ctc_loss.py [--json] [--times N]

One process, one thread, both sides in turn, the least of N times: float32, 32 inputs of 200 frames and 32 symbols,
targets of 80. The gradient may be off by 1e-6 against float64, or there are no rows.
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

BATCH, TIME, SYMBOLS, LABELS = 32, 200, 32, 80
GRADIENT_ERROR = 1e-6


def loss_rows(times: int) -> list[dict[str, Any]]:
    """Time with the gradient, and the gradient's greatest error against float64."""
    logits = torch.randn(BATCH, TIME, SYMBOLS, requires_grad=True)
    targets = torch.randint(1, SYMBOLS, (BATCH, LABELS))
    frames, sizes = torch.full((BATCH,), TIME), torch.full((BATCH,), LABELS)

    def peer(x: Tensor) -> Tensor:
        return F.ctc_loss(x.log_softmax(-1).transpose(0, 1), targets, frames, sizes, reduction="sum")

    def ours() -> Tensor:
        return torch.autograd.grad(ctc_loss(logits, targets, reduction="sum"), logits)[0]

    def theirs() -> Tensor:
        return torch.autograd.grad(peer(logits), logits)[0]

    exact = logits.detach().double().requires_grad_()
    (right,) = torch.autograd.grad(peer(exact), exact)
    error, their_error = (float((gradient - right).abs().max()) for gradient in (ours(), theirs()))
    if error > GRADIENT_ERROR:
        raise SystemExit(f"the gradient is off by {error:.1e}, more than {GRADIENT_ERROR:.0e}")
    mine, peers = least(ours, theirs, times)
    size = f"{BATCH}×{TIME}×{SYMBOLS}, {LABELS} labels"
    return [
        row(f"CTC loss with gradient, {size}", "torch", 1000 * mine, 1000 * peers, "ms", goal=4.0),
        row("greatest error of its gradient against float64", "torch", error, their_error, "", goal=None),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    show(loss_rows(options.times), as_json=options.json)


if __name__ == "__main__":
    main()
