"""CUDA graphs: work captured once, then launched as a whole.

A capture fails, or spoils another one, where something else happens meanwhile: a graph that is collected ends it, a CUDA call of another
thread breaks one that is captured in the global error mode, and the graphs of ``torch.compile`` free memory that it still writes to. So
there is one way to capture, which everything here uses.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")
_capturing = Lock()
_streams: dict[tuple[int, int], Any] = {}


def can_capture(device: torch.device) -> bool:
    """Return True if a capture can be made or replayed here: not while this stream is being captured already, and not beside the
    CUDA graphs of ``torch.compile(mode="reduce-overhead")``.

    Those call ``torch._C._cuda_clearCublasWorkspaces()``, which frees the working memory that products captured by
    other work still write to: the next replay is an illegal memory access (``benchmarks/cublas_workspace.py`` shows it
    with PyTorch alone).
    """
    if device.type != "cuda":
        return False
    here = device.index == torch.cuda.current_device() and not torch.cuda.is_current_stream_capturing()
    return here and "torch._inductor.cudagraph_trees" not in sys.modules


def current_stream() -> int:
    """Return the number of the stream that work goes to now."""
    return torch.cuda.current_stream().cuda_stream


def graph_pool() -> Any:
    """Return memory for graphs that are never replayed at the same time, and for nothing else."""
    return torch.cuda.graph_pool_handle()


@contextmanager
def capturing(pool: Any) -> Iterator[Callable[[], None]]:
    """Capture what is launched inside on the current stream, not the default one; yield what launches it again.

    What is launched must have run before: a capture may neither load kernels nor make handles. One thread captures at a time.
    """
    with _capturing:
        graph = torch.cuda.CUDAGraph()
        collecting = gc.isenabled()
        gc.disable()  # a graph that is collected meanwhile would end the capture
        try:
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")  # other threads may call CUDA
            try:
                yield graph.replay
            finally:
                graph.capture_end()
        finally:
            if collecting:
                gc.enable()


def capture(
    work: Callable[[], Result], pool: Any, *, first: Callable[[], object] | None = None
) -> tuple[Callable[[], None], Result]:
    """Return what launches the kernels of ``work`` again, and the tensors that hold its result after each launch.

    ``first`` runs before the capture and launches each kernel at least once; None: ``work`` itself.
    """
    now = torch.cuda.current_stream()
    # One stream beside each, as products keep their working memory by stream: graphs that may run at the
    # same time must not share it.
    place = (now.device_index, now.cuda_stream)
    if place not in _streams:
        _streams[place] = torch.cuda.Stream(now.device)  # type: ignore[no-untyped-call]
    beside = _streams[place]
    (first or work)()
    beside.wait_stream(now)
    with torch.cuda.stream(beside):
        some = torch.ones(16, 16, device=now.device)
        some @ some  # makes the handle of this stream
        with capturing(pool) as replay:
            result = work()
    now.wait_stream(beside)
    return replay, result
