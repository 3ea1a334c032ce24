"""How CUDA graphs are captured, with a graph that only writes down what is done to it."""

from __future__ import annotations

import gc
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from anaphora.native import graphs
from anaphora.native.graphs import can_capture, capture, capturing

said: list[str] = []


class Graph:
    def capture_begin(self, pool: Any, capture_error_mode: str) -> None:
        said.append(f"begin {pool} {capture_error_mode} {'collecting' if gc.isenabled() else 'held off'}")

    def capture_end(self) -> None:
        said.append(f"end {'collecting' if gc.isenabled() else 'held off'}")

    def replay(self) -> None:
        said.append("replay")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    said.clear()
    now = SimpleNamespace(
        device_index=0, cuda_stream=7, device="cpu", wait_stream=lambda other: said.append("the caller waits")
    )
    beside = SimpleNamespace(wait_stream=lambda other: said.append("it waits"))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: now)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: beside)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(graphs, "_streams", {})


HELD = ["begin pool thread_local held off", "end held off"]


def test_work_runs_once_before_it_is_captured() -> None:
    replay, result = capture(lambda: said.append("work") or 5, "pool")
    assert result == 5
    assert said == ["work", "it waits", HELD[0], "work", HELD[1], "the caller waits"]
    replay()
    assert said[-1] == "replay"


def test_less_may_run_before() -> None:
    capture(lambda: said.append("work"), "pool", first=lambda: said.append("first"))
    assert said[:2] == ["first", "it waits"]
    assert said.count("work") == 1


def test_the_collector_is_as_it_was_also_after_an_error() -> None:
    def fails() -> None:
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"), capturing("pool"):
        fails()
    assert said == HELD
    assert gc.isenabled()
    gc.disable()
    try:
        with capturing("pool"):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_one_thread_captures_at_a_time() -> None:
    """Else the first to end would let the collector run while the other still captures."""
    inside, started = threading.Event(), threading.Event()

    def other() -> None:
        started.set()
        with capturing("other"):
            inside.set()

    thread = threading.Thread(target=other)
    with capturing("pool"):
        thread.start()
        assert started.wait(60)
        assert not inside.is_set()
        said.append("still here")
    thread.join(60)
    assert inside.is_set()
    assert said == [*HELD[:1], "still here", HELD[1], HELD[0].replace("pool", "other"), HELD[1]]


@pytest.mark.parametrize(
    ("device", "current", "capturing_now", "trees", "expected"),
    [
        ("cuda:0", 0, False, False, True),
        ("cuda:1", 0, False, False, False),
        ("cuda:0", 0, True, False, False),
        ("cuda:0", 0, False, True, False),
        ("cpu", 0, False, False, False),
    ],
)
def test_where_a_capture_can_be_made(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    current: int,
    capturing_now: bool,
    trees: bool,
    expected: bool,
) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing_now)
    monkeypatch.delitem(sys.modules, "torch._inductor.cudagraph_trees", raising=False)
    if trees:
        monkeypatch.setitem(sys.modules, "torch._inductor.cudagraph_trees", SimpleNamespace())
    assert can_capture(torch.device(device)) is expected
