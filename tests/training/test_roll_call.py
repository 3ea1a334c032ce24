"""X6: the processes of one start find each other, whatever earlier starts left in the store of torchrun."""

from __future__ import annotations

import threading

import pytest
import torch.distributed as dist

from anaphora.errors import TrainingError
from anaphora.training.roll_call import roll_call


@pytest.fixture
def connect():
    """Makes one more connection to the store of a job, as each of its processes has."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return lambda: dist.TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False)


def start(connect, rank, world, found, patience=60.0):
    """A process of that rank, as a thread; what it found, or its error, goes into ``found``."""

    def work():
        try:
            found[rank] = roll_call(connect(), rank, world, patience)
        except TrainingError as error:
            found[rank] = error

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def together(connect, ranks, world=3):
    """All processes of one start, each after the one before has had time to read what is there."""
    found: dict[int, object] = {}
    threads = []
    for rank in ranks:
        threads.append(start(connect, rank, world, found))
        threads[-1].join(0.05)
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("ranks", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_restart_reads_nothing_of_the_start_before(connect, ranks):
    first = together(connect, (0, 1, 2))
    for rank, part in first.items():
        part.set(f"address/{rank}", "of a process that is no more")
    second = together(connect, ranks)
    assert not any(part.check([f"address/{rank}"]) for part in second.values() for rank in range(3))
    for rank, part in second.items():
        part.set(f"address/{rank}", str(rank))
    for part in second.values():
        assert [part.get(f"address/{rank}") for rank in range(3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("alone", [0, 1, 2])
def test_a_start_that_came_too_few_is_not_joined_by_the_next(connect, alone):
    found: dict[int, object] = {}
    start(connect, alone, 3, found, patience=0.1).join()
    assert isinstance(found[alone], TrainingError)
    second = together(connect, (2, 0, 1))
    second[2].set("word", "heard")
    assert [part.get("word") for part in second.values()] == [b"heard"] * 3


def test_who_waits_too_long_says_so(connect):
    with pytest.raises(TrainingError, match=r"rank 1 did not start in time; start all"):
        roll_call(connect(), 0, 2, 0.05)
    with pytest.raises(TrainingError, match=r"rank 1 timed out: not all other processes started"):
        roll_call(connect(), 1, 2, 0.05)
