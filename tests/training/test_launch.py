"""X6: what a job of torchrun remembers over its restarts."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from anaphora.training import launch
from anaphora.training.launch import recall, remember


@pytest.fixture
def job(monkeypatch):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    return store


@pytest.mark.parametrize("count", ["0", "1"])
def test_a_restarted_process_remembers_also_where_its_own_torchrun_counted_none(job, monkeypatch, count):
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", count)
    remember("run", "runs/x")
    assert recall("run") is None  # its own
    launch._process.cache_clear()
    assert recall("run") == "runs/x"
    assert recall("out") is None


def test_another_command_of_the_job_does_not_go_on_with_it(job, monkeypatch):
    monkeypatch.setattr("sys.argv", ["anaphora", "train", "classify", "a.tsv", "-o", "runs/x"])
    remember("run", "runs/x")
    launch._process.cache_clear()
    monkeypatch.setattr("sys.argv", ["anaphora", "train", "classify", "b.tsv", "-o", "runs/x"])
    assert recall("run") is None


def test_outside_torchrun_there_is_nothing(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    remember("run", "runs/x")
    launch._process.cache_clear()
    assert recall("run") is None
