"""The transducer loss and its gradient against the same formula written plainly in torch, in one process.

    python benchmarks/transducer_loss.py [--device cuda] [--rounds 5]

"Plain" is the formula as torchaudio documents it: log-softmax over all symbols, α node by node along each frame (vectorised over the
batch), and autograd for the gradient. "Diagonals" computes α a diagonal at a time, which is as far as torch operations go.
If torchaudio is installed, its `rnnt_loss` is timed as well. Medians of forward and backward, in milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from anaphora.search import transducer_loss

SHAPES = ((4, 50, 10, 30), (16, 100, 30, 30), (16, 200, 40, 128), (8, 400, 80, 256))


def nodes(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    log_p = logits.log_softmax(-1)
    following = torch.nn.functional.pad(targets, (0, 1))[:, None, :, None].expand(*logits.shape[:3], 1)
    return log_p[..., 0], log_p.gather(3, following)[..., 0]


def plain(logits: Tensor, targets: Tensor) -> Tensor:
    """Node by node."""
    blank, label = nodes(logits, targets)
    rows, time_steps, places = blank.shape
    blanks, labels = [row.unbind(1) for row in blank.unbind(1)], [row.unbind(1) for row in label.unbind(1)]
    before: list[Tensor] = []
    for t in range(time_steps):
        now: list[Tensor] = []
        for u in range(places):
            reached = []
            if t:
                reached.append(before[u] + blanks[t - 1][u])
            if u:
                reached.append(now[u - 1] + labels[t][u - 1])
            if not reached:
                now.append(logits.new_zeros(rows))
            else:
                now.append(torch.logaddexp(*reached) if len(reached) == 2 else reached[0])
        before = now
    return -(before[-1] + blanks[-1][-1]).sum()


def diagonals(logits: Tensor, targets: Tensor) -> Tensor:
    """All nodes with the same t + u at once."""
    blank, label = nodes(logits, targets)
    rows, time_steps, places = blank.shape
    none = logits.new_full((rows, 1), -torch.inf)
    alpha = torch.cat((logits.new_zeros(rows, 1), none.expand(rows, places - 1)), 1)
    us = torch.arange(places, device=logits.device)
    for n in range(1, time_steps + places - 1):
        at = n - 1 - us
        inside = ((at >= 0) & (at < time_steps)).expand(rows, places)
        at = at.clamp(0, time_steps - 1)
        by_blank = alpha + torch.where(inside, blank[:, at, us], -torch.inf)
        by_label = alpha + torch.where(inside, label[:, at, us], -torch.inf)
        moved = torch.cat((none, by_label[:, :-1]), 1)
        high = torch.maximum(by_blank, moved)
        safe = torch.where(high == -torch.inf, 0.0, high)
        alpha = safe + ((by_blank - safe).exp() + (moved - safe).exp()).clamp_min(1e-37).log()
        alpha = torch.where(high == -torch.inf, -torch.inf, alpha)
    return -(alpha[:, -1] + blank[:, -1, -1]).sum()


def ours(logits: Tensor, targets: Tensor) -> Tensor:
    return transducer_loss(logits, targets, reduction="sum")


def timed(
    function: Callable[[Tensor, Tensor], Tensor], logits: Tensor, targets: Tensor, rounds: int
) -> tuple[float, float]:
    """The loss, and the median of seconds."""
    taken, value = [], 0.0
    for _ in range(rounds + 1):
        z = logits.clone().requires_grad_()
        if z.is_cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        loss = function(z, targets)
        loss.backward()
        if z.is_cuda:
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
        value = float(loss.detach())
    return value, statistics.median(taken[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--most-nodes", type=int, default=4000, help="time the plain formula up to T · U of this"
    )
    asked = parser.parse_args()
    for rows, frames, size, symbols in SHAPES:
        torch.manual_seed(1)
        logits = torch.randn(rows, frames, size + 1, symbols, device=asked.device)
        targets = torch.randint(1, symbols, (rows, size), device=asked.device)
        expected, mine = timed(ours, logits, targets, asked.rounds)
        parts = [f"ours {1e3 * mine:8.2f}"]
        others: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"diagonals": diagonals}
        if frames * size <= asked.most_nodes:
            others["plain"] = plain
        try:
            from torchaudio.functional import rnnt_loss
        except (ImportError, OSError):
            pass
        else:

            def theirs(z: Tensor, y: Tensor) -> Tensor:
                counts = torch.full((len(z),), z.shape[1], dtype=torch.int32, device=z.device)
                sizes = torch.full((len(z),), y.shape[1], dtype=torch.int32, device=z.device)
                loss: Tensor = rnnt_loss(z, y.int(), counts, sizes, blank=0, reduction="sum")
                return loss

            others["torchaudio"] = theirs
        for name, function in others.items():
            value, seconds = timed(function, logits, targets, 1 if name == "plain" else asked.rounds)
            if abs(value - expected) > 1e-3 * abs(expected):
                raise SystemExit(f"{name}: {value} where ours gives {expected}")
            parts.append(f"{name} {1e3 * seconds:8.2f} ({seconds / mine:.1f}×)")
        print(f"B {rows:2} T {frames:3} U {size:2} V {symbols:3}  " + "  ".join(parts), flush=True)


if __name__ == "__main__":
    main()
