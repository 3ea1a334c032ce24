"""CTC loss and prefix beam against PyTorch, flashlight-text and pyctcdecode. Run: python benchmarks/ctc.py [--json] [--times N]

One process, one thread, both sides in turn, the least of N times. The loss is float32 with its gradient, 32 inputs of
200 frames and 32 symbols, targets of 80. The beam has width 50 on noisy outputs of the same size; its rows compare
inputs per second, and the exact −log p(y | x) of the best hypothesis, which must be no higher than the peer's. The
decoders are not installed with us: ``pip install flashlight-text pyctcdecode`` first, or their rows are left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.search import ctc_beam, ctc_loss
from rows import row, show

BATCH, TIME, SYMBOLS, LABELS, WIDTH = 32, 200, 32, 80, 50
GRADIENT_ERROR = 1e-6
Search = Callable[[Tensor], list[list[int]]]


def least(ours: Callable[[], object], theirs: Callable[[], object], times: int) -> tuple[float, float]:
    """Seconds of the fastest run of each, run in turn."""
    best = [float("inf")] * 2
    for _ in range(times):
        for side, run in enumerate((ours, theirs)):
            begin = time.perf_counter()
            run()
            best[side] = min(best[side], time.perf_counter() - begin)
    return best[0], best[1]


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


def noisy_outputs(inputs: int) -> Tensor:
    """log p ``(inputs, TIME, SYMBOLS)`` of a model that is often wrong: a peak of 5 at the true symbol in noise."""
    scores = 1.8 * torch.randn(inputs, TIME, SYMBOLS)
    true = torch.zeros(inputs, TIME, dtype=torch.long)
    true[:, ::5] = torch.randint(1, SYMBOLS, (inputs, TIME // 5))
    true[:, 1::5] = true[:, ::5]
    return scores.scatter_add(2, true[:, :, None], torch.full((inputs, TIME, 1), 5.0)).log_softmax(-1)


def flashlight() -> Search:
    from flashlight.lib.text.decoder import (
        CriterionType,
        LexiconFreeDecoder,
        LexiconFreeDecoderOptions,
        ZeroLM,
    )

    options = LexiconFreeDecoderOptions(
        beam_size=WIDTH,
        beam_size_token=SYMBOLS,
        beam_threshold=1e9,
        lm_weight=0.0,
        sil_score=0.0,
        log_add=True,
        criterion_type=CriterionType.CTC,
    )
    decoder = LexiconFreeDecoder(options, ZeroLM(), -1, 0, [])

    def one(log_p: Tensor) -> list[int]:
        best = torch.tensor(decoder.decode(log_p.data_ptr(), *log_p.shape)[0].tokens)
        return [k for k in best.unique_consecutive().tolist() if k > 0]

    return lambda log_p: [one(item.contiguous()) for item in log_p]


def pyctcdecode() -> Search:
    import logging

    logging.disable(logging.WARNING)  # it warns of the language model it is not given
    from pyctcdecode import build_ctcdecoder

    letters = "".join(chr(ord("a") + i) for i in range(26)) + "äöüßé"
    decoder = build_ctcdecoder(["", *letters])
    return lambda log_p: [
        [letters.index(letter) + 1 for letter in decoder.decode(item.numpy(), beam_width=WIDTH)]
        for item in log_p
    ]


def ours_of(log_p: Tensor, threads: int = 1) -> list[list[int]]:
    return [found[0].tokens for found in ctc_beam(log_p, width=WIDTH, threads=threads)]


def beam_rows(peer: str, theirs: Search, inputs: int, goal: float, times: int) -> list[dict[str, Any]]:
    """Inputs per second, and the mean exact −log p of the best hypothesis."""
    log_p = noisy_outputs(inputs)
    mine, peers = (
        float(ctc_loss(log_p, side, reduction="sum", normalized=True)) / inputs
        for side in (ours_of(log_p), theirs(log_p))
    )
    fast, slow = least(lambda: ours_of(log_p), lambda: theirs(log_p), times)
    name = f"CTC prefix beam {WIDTH}, {TIME}×{SYMBOLS}"
    return [
        row(name, peer, inputs / fast, inputs / slow, "inputs/s", goal=goal, more_is_better=True),
        row("exact −log p of its best hypothesis", peer, mine, peers, "nats", goal=1.0),
    ]


def thread_rows(times: int) -> list[dict[str, Any]]:
    log_p = noisy_outputs(2 * BATCH)
    two, one = least(lambda: ours_of(log_p, threads=2), lambda: ours_of(log_p), times)
    rates = (2 * BATCH / two, 2 * BATCH / one)
    return [row("CTC prefix beam, two threads", "one", *rates, "inputs/s", goal=1.6, more_is_better=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = loss_rows(4 * options.times)
    peers = (("flashlight-text", flashlight, BATCH, 20.0), ("pyctcdecode", pyctcdecode, 8, 25.0))
    for name, make, inputs, goal in peers:
        try:
            search = make()
        except ModuleNotFoundError:
            print(f"{name} is not installed, so its rows are left out: pip install {name}", file=sys.stderr)
            continue
        rows += beam_rows(name, search, inputs, goal, max(options.times // 2, 1))
    rows += thread_rows(options.times)
    show(rows, as_json=options.json)


if __name__ == "__main__":
    main()
