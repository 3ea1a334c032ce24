"""Matrix-valued recurrences on a GPU: gated linear attention, forward and backward, against its peers.

    python benchmarks/linear_gpu.py [--peer-seconds 60] [--peer-variants 6] [--json FILE]

bfloat16, 8 heads of 128, 32 768 tokens in all. Peers: flash-linear-attention's `chunk_gla` (the package `fla`) and torch's
causal attention. Times are those of the GPU (events around a CUDA graph of the call where it can be captured), the least of
some rounds. Errors are relative, to plain torch in float64. A peer that is not installed is named with the error.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.nn.linear import matrix_scan
from scan_gpu import tried

TOKENS, HEADS, SIZE = 32768, 8, 128
Run = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def ours(q: Tensor, k: Tensor, v: Tensor, log_w: Tensor) -> Tensor:
    return matrix_scan(q, k, v, log_w)[0]


def attention(q: Tensor, k: Tensor, v: Tensor, log_w: Tensor) -> Tensor:
    transposed = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(*transposed, is_causal=True).transpose(1, 2)


def flash_linear_attention(variants: int) -> Run:
    from fla.ops.gla import chunk_gla  # type: ignore[import-not-found]

    compile_side_by_side(variants)
    return lambda q, k, v, log_w: chunk_gla(q, k, v, log_w, scale=1.0)[0]


def compile_side_by_side(most: int) -> None:
    """Triton's tuner compiles some two hundred variants of the peer's kernels one after the other, for minutes: here in
    threads, and of each kernel at most so many, spread evenly over its list."""
    from triton.runtime.autotuner import Autotuner

    usual = Autotuner.prune_configs

    def pruned(self: Any, kwargs: dict[str, Any]) -> Any:
        chosen = usual(self, kwargs)
        chosen = chosen[:: -(-len(chosen) // most)]

        def compiled(config: Any) -> None:
            with suppress(Exception):  # the tuner meets it again
                self.fn.run(**{**self.nargs, **kwargs, **config.all_kwargs(), "warmup": True})

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(compiled, chosen))
        return chosen

    Autotuner.prune_configs = pruned


def drawn(batch: int, steps: int) -> list[Tensor]:
    """q, k, v and log α as a layer gives them: log σ(N(0, 1)) / 16 in float32."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, steps, HEADS, SIZE, device="cuda").bfloat16() for _ in range(3))
    log_w = F.logsigmoid(torch.randn(batch, steps, HEADS, SIZE, device="cuda")) / 16
    return [x.requires_grad_() for x in (q * SIZE**-0.5, k, v, log_w)]


def timed(run: Run, batch: int, steps: int) -> dict[str, float | str]:
    given = drawn(batch, steps)
    weights = torch.randn_like(given[2])

    def forward() -> Tensor:
        with torch.no_grad():
            return run(*given)

    def both() -> Any:
        return torch.autograd.grad(run(*given), given, weights, allow_unused=True)

    return {"forward": tried(forward), "forward and backward": tried(both)}


def errors(run: Run) -> dict[str, float]:
    """Of the outputs and all gradients, over 1000 steps of two heads."""
    given = [x.detach()[:, :, :2].requires_grad_() for x in drawn(1, 1000)]
    weights = torch.randn_like(given[2])
    exact = [x.detach().double().requires_grad_() for x in given]
    names = ("y", "q", "k", "v", "log_w")
    y, wanted = run(*given), ours(*exact)
    found = (y, *torch.autograd.grad(y, given, weights))
    right = (wanted, *torch.autograd.grad(wanted, exact, weights.double()))
    return {
        name: float((a.detach().double() - b.detach()).norm() / b.detach().norm())
        for name, a, b in zip(names, found, right, strict=True)
    }


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """A peer may compile for minutes."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"not compiled within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def prepared(name: str, make: Callable[[], Run], seconds: int) -> tuple[Run | None, dict[str, Any]]:
    """A peer, compiled, and its errors; or why there is none."""
    begin = time.perf_counter()
    try:
        with at_most(seconds):
            run = make()
            given = drawn(TOKENS // 4096, 4096)  # tuned at a size that is timed
            torch.autograd.grad(run(*given).sum(), given, allow_unused=True)
            torch.cuda.synchronize()
            found = errors(run) if name != "attention" else {}
    except Exception as error:  # a peer may fail in any way; it is named
        return None, {"error": f"{type(error).__name__}: {str(error)[:200]}"}
    return run, {"errors": found, "seconds to compile": time.perf_counter() - begin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer-seconds", type=int, default=60, help="how long a peer may compile")
    parser.add_argument(
        "--peer-variants", type=int, default=1000, help="how many of each of its kernels are tried"
    )
    parser.add_argument("--json", type=Path, help="write the times to this file")
    options = parser.parse_args()
    makers: dict[str, Callable[[], Run]] = {
        "ours": lambda: ours,
        "attention": lambda: attention,
        "fla chunk_gla": lambda: flash_linear_attention(options.peer_variants),
    }
    rows: list[dict[str, Any]] = []
    for name, make in makers.items():
        run, about = prepared(name, make, options.peer_seconds)
        print(f"{name}: {about}", flush=True)
        rows.append({"what": name, **about})
        for steps in (2048, 4096, 8192, 16384) if run else ():
            found = timed(run, TOKENS // steps, steps)
            torch.cuda.empty_cache()
            rows.append({"what": name, "time": steps, "milliseconds": found})
            shown = (f"{key} {v if isinstance(v, str) else f'{v:.3f} ms'}" for key, v in found.items())
            print(f"  T={steps}: {', '.join(shown)}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
