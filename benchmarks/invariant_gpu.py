"""What it costs on a GPU that no output depends on its batch. Run: python benchmarks/invariant_gpu.py [--json] [--times N]

Each row computes the same with the setting ``batch_invariant`` on (ours) and off (the peer): the ratio is how much slower the
mode makes it, below 1 where it does. Sides run in turn, the least of N times counts. The whole takes less than a minute.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn import functional as F

from anaphora import nn
from anaphora.nn import transformer
from anaphora.nn.attention import MultiHead
from anaphora.ops.invariant import batch_invariant
from anaphora.tasks.registry import TASKS, resolve
from anaphora.tasks.translate.build import build_seq2seq
from anaphora.tasks.translate.inference import search_outputs
from rows import row, show

CUDA = torch.device("cuda")
KINDS = ("fp32", "tf32", "bf16")
SYMBOLS = 8000
SEARCH: dict[str, Any] = {"beam": 5, "max_length": 40}


def arithmetic(kind: str) -> AbstractContextManager[Any]:
    """fp32 and tf32 by torch's switches, bf16 by autocast."""
    torch.backends.cuda.matmul.fp32_precision = "tf32" if kind == "tf32" else "ieee"
    return torch.autocast("cuda", torch.bfloat16) if kind == "bf16" else nullcontext()


def works() -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is measured: a product, layers as encoders have them, and searches for outputs."""
    for rows in (5, 320, 16_384):
        x, w = torch.randn(rows, 512, device=CUDA), torch.randn(2048, 512, device=CUDA)
        yield f"product of {rows} rows, 512 → 2048", lambda x=x, w=w: F.linear(x, w)
    layer = transformer.EncoderLayer(MultiHead(512, 8), transformer.FeedForward(512, 2048), norm_first=True)
    stack = transformer.TransformerEncoder(layer, 6).to(CUDA).eval()
    for batch, length in ((1, 20), (64, 64)):
        x = torch.randn(batch, length, 512, device=CUDA)
        mask = torch.ones(batch, length, dtype=torch.bool, device=CUDA)
        yield f"Transformer encoder of 6 layers, {batch} × {length}", lambda x=x, m=mask: stack(x, m)
    lstm = nn.Recurrent(nn.LSTM(512, 512), layers=2, bidirectional=True).to(CUDA).eval()
    for batch in (1, 64, 256):
        x = torch.randn(batch, 64, 512, device=CUDA)
        lengths = torch.full((batch,), 64, device=CUDA)
        yield f"bidirectional LSTM of 2 layers, {batch} × 64", lambda x=x, n=lengths: lstm(x, n)
    for preset in ("lstm-attention", "transformer"):
        settings = resolve(TASKS["translate"], {"model": preset})
        model = build_seq2seq(settings, SYMBOLS, SYMBOLS).to(CUDA).eval()
        for items in (1, 64):
            draw = torch.Generator().manual_seed(items)
            sources = torch.randint(4, SYMBOLS, (items, 20), generator=draw).tolist()
            yield (
                f"beam of 5, {preset}, {items} sources, 40 symbols",
                lambda m=model, s=sources: search_outputs(m, s, **SEARCH),
            )


def seconds(work: Callable[[], Any], on: bool) -> float:
    with torch.no_grad(), batch_invariant(CUDA, on):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=50.0, help="no further row is begun after so long")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this needs an NVIDIA GPU")
    torch.manual_seed(0)
    begun, rows = time.perf_counter(), []
    for title, work in works():
        for kind in KINDS if not title.startswith("beam") else ("fp32",):
            if time.perf_counter() - begun > asked.seconds:
                print(f"left out, out of time: {title}, {kind}", file=sys.stderr)
                continue
            with arithmetic(kind):
                for on in (False, True) * 4:  # compiles, captures
                    seconds(work, on)
                found = {on: min(seconds(work, on) for _ in range(asked.times)) * 1e3 for on in (False, True)}
            rows.append(row(f"{title}, {kind}", "off", found[True], found[False], "ms", goal=None))
    show(rows, as_json=asked.json)


if __name__ == "__main__":
    main()
