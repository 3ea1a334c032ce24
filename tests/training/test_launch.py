"""X6: what a job of torchrun remembers over its restarts."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from anaphora.training.launch import recall, remember


@pytest.fixture
def job(monkeypatch):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    return store


def test_only_a_restarted_process_remembers(job, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    remember("run", "runs/x")
    assert recall("run") is None
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert recall("run") == "runs/x"
    assert recall("out") is None


def test_outside_torchrun_there_is_nothing(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "3")
    remember("run", "runs/x")
    assert recall("run") is None
