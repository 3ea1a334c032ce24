"""Work that a GPU does beside a chain of kernels that wait for one another: it fills the pauses between them, and the multiprocessors that
the last blocks of a kernel leave idle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")
LATE = 2  # stages that the second queue may be behind the chain


class Beside:
    """A second queue. On anything but a CUDA GPU, and without a ``second`` one, what it is given is done at once.

    What is given to `run` may read what the chain has computed before, by its closure: that is kept until the work is over, since the
    chain could write to memory that is freed. Both queues can be captured in one CUDA graph.
    """

    def __init__(self, device: torch.device, *, second: bool = True):
        self._stream: Any = _stream(device) if second and device.type == "cuda" else None
        self._kept: list[Any] = []
        self._stages: deque[tuple[Any, list[Any]]] = deque()

    def run(self, work: Callable[[], Result]) -> Result:
        """Queue ``work``; what it gives may be read after `join`, or after what `so_far` gives was called."""
        if self._stream is None:
            return work()
        self._kept.append(work)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            return work()

    def so_far(self) -> Callable[[], None]:
        """What makes the chain wait for all that was queued until now."""
        if self._stream is None:
            return lambda: None
        event = self._stream.record_event()
        return lambda: torch.cuda.current_stream().wait_event(event)

    def stage(self) -> None:
        """A stage of the chain is over: wait for what was queued some stages ago, and let go of what it needed."""
        if self._stream is None:
            return
        self._stages.append((self._stream.record_event(), self._kept))
        self._kept = []
        if len(self._stages) > LATE:
            event, _ = self._stages.popleft()
            torch.cuda.current_stream().wait_event(event)

    def join(self) -> None:
        """The chain waits for all that was queued."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
        self._stages.clear()
        self._kept.clear()


@cache
def _stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
