"""An event loop of one's own: tests of the page leave one running in the tests' thread, where `asyncio.run` then fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Value = TypeVar("Value")


async def until(happened: Callable[[], object]) -> None:
    """Wait for ``happened()``, as long as a busy machine may take."""
    async with asyncio.timeout(120):
        while not happened():
            await asyncio.sleep(0.005)


def run(work: Coroutine[Any, Any, Value]) -> Value:
    """What ``work`` gives, computed by a loop in another thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
