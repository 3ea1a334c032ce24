"""Time an LSTM by every backend on this GPU: what ``anaphora doctor --tune`` does."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any

import torch

from anaphora.engine.backends.base import BackendName, LayerRun, Params, States
from anaphora.engine.dispatch import force, run_layer
from anaphora.engine.prepare import Engine
from anaphora.engine.tuning import Measurement
from anaphora.errors import AnaphoraError
from anaphora.native.c import CannotCompile

STEPS, TIMES = 64, 5  # of a measured sequence; runs of which the median counts
SECONDS = 60.0  # what a measurement may take, about
# Sizes that are far apart come first: on a slow GPU, where time runs out, the whole range is measured nevertheless.
HIDDEN, BATCH = (256, 1024, 512, 768), (64, 256, 16)
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
BACKENDS: tuple[BackendName, ...] = ("persistent", "triton", "cudnn", "cuda_graph")
LAYERS = len(HIDDEN) * len(BATCH) * len(TYPES)


def measure(index: int, seconds: float = SECONDS) -> Iterator[Measurement]:
    """An LSTM of every size by every backend that can serve it, until the time is up."""
    until = time.monotonic() + seconds
    with torch.cuda.device(index):
        for hidden, batch, dtype in product(HIDDEN, BATCH, TYPES):
            if time.monotonic() > until:
                return
            runs = _runs(hidden, batch, TYPES[dtype])
            times = {}
            for name, run in runs.items():
                with suppress(
                    AnaphoraError, CannotCompile, RuntimeError
                ):  # it cannot serve, or has no memory
                    times[name] = _milliseconds(run)
            torch.cuda.empty_cache()
            yield Measurement(hidden, batch, dtype, times)


def _runs(hidden: int, batch: int, dtype: torch.dtype) -> dict[str, Callable[[], Any]]:
    """Forward and backward passes by each backend, to be timed."""
    like: dict[str, Any] = {"device": "cuda", "dtype": dtype}
    peer = torch.nn.LSTM(hidden, hidden, batch_first=True).to(**like)
    peer.flatten_parameters()
    x = torch.randn(batch, STEPS, hidden, requires_grad=True, **like)
    dy = torch.randn(batch, STEPS, hidden, **like)
    state = (torch.zeros(batch, hidden, **like), torch.zeros(batch, hidden, **like))
    named = dict(peer.named_parameters())
    params: Params = {
        "input": named["weight_ih_l0"],
        "recurrent": named["weight_hh_l0"],
        "bias": named["bias_ih_l0"],
    }
    engine = Engine(lstm_step, "the LSTM of doctor --tune")

    def by_cudnn() -> Any:
        return torch.autograd.grad(peer(x)[0], [x, *peer.parameters()], dy)

    def by(name: BackendName) -> Any:
        with force(name):
            y, _ = run_layer(engine, LayerRun(lstm_step, params, (x,), (), state))
        return torch.autograd.grad(y, [x, *params.values()], dy)

    return {name: by_cudnn if name == "cudnn" else partial(by, name) for name in BACKENDS}


def lstm_step(params: Params, steps: States, rows: States, states: States) -> States:
    """An LSTM without options, on its own parameters: what every backend has."""
    (x,), (h, c) = steps, states
    gates = torch.addmm(params["bias"], x, params["input"].t()) + h @ params["recurrent"].t()
    i, f, g, o = gates.chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _milliseconds(run: Callable[[], Any]) -> float:
    for _ in range(4):  # compile, meet the shape a second time, capture, replay
        run()
    times: list[float] = []
    for _ in range(TIMES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()  # type: ignore[no-untyped-call]
        run()
        end.record()  # type: ignore[no-untyped-call]
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)
