"""X6, F6: Signs of life between the processes of a group, here between threads of one process."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable

import pytest

from anaphora.errors import SettingsError, TrainingError
from anaphora.training.pulse import _HELLO, Pulse, timeout


class Place:
    """What rank 0 shares, given to every other process."""

    def __init__(self, peers: int):
        self.values: queue.Queue = queue.Queue()
        self.peers = peers

    def give(self, value):
        for _ in range(self.peers):
            self.values.put(value)
        return value

    def take(self, _=None):
        return self.values.get(timeout=120)


def together(*works: Callable):
    """What each work returns or raises, each in a thread of its own."""
    results: list = [None] * len(works)

    def run(place: int, work: Callable) -> None:
        try:
            results[place] = work()
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return results


def group(world: int) -> list[Pulse]:
    place = Place(world - 1)
    peers = [lambda rank=rank: Pulse(rank, world, place.take) for rank in range(1, world)]
    return together(lambda: Pulse(0, world, place.give), *peers)


@pytest.fixture(autouse=True)
def long_time_out(monkeypatch):
    """Longer than a busy machine lets a thread wait, so that only tests of the time out itself meet it."""
    monkeypatch.setenv("ANAPHORA_TIMEOUT", "120")
    monkeypatch.delenv("MASTER_ADDR", raising=False)


@pytest.fixture
def one_second(monkeypatch):
    monkeypatch.setenv("ANAPHORA_TIMEOUT", "1")


@pytest.fixture
def three_seconds(monkeypatch):
    monkeypatch.setenv("ANAPHORA_TIMEOUT", "3")


def late(pulse: Pulse) -> None:
    time.sleep(3.5)
    pulse.meet()


@pytest.mark.usefixtures("three_seconds")
def test_processes_wait_for_rank_0_longer_than_the_time_out():
    pulses = group(3)
    assert together(lambda: late(pulses[0]), pulses[1].meet, pulses[2].meet) == [None, None, None]
    assert together(*(pulse.meet for pulse in pulses)) == [None, None, None]


@pytest.mark.usefixtures("three_seconds")
def test_rank_0_waits_for_the_others():
    pulses = group(2)
    assert together(pulses[0].meet, lambda: late(pulses[1])) == [None, None]


def test_a_meeting_is_over_when_all_have_come():
    pulses = group(3)
    came = threading.Event()

    def last() -> None:
        time.sleep(0.2)
        came.set()
        pulses[2].meet()

    def other(pulse: Pulse) -> bool:
        pulse.meet()
        return came.is_set()

    assert together(lambda: other(pulses[0]), lambda: other(pulses[1]), last)[:2] == [True, True]


def test_a_failure_is_passed_on_by_rank_0_and_names_the_first_that_failed():
    pulses = group(3)
    pulses[2].fail()
    for pulse, error in zip(pulses[:2], together(pulses[0].meet, pulses[1].meet), strict=True):
        assert isinstance(error, TrainingError)
        assert str(error).startswith(
            f"rank 2 stopped answering, so this process (rank {pulse.rank}) stops too;"
        )


def test_a_loss_is_passed_on_once(monkeypatch):
    pulse = Pulse(0, 1, lambda value: value)
    passed_on = []
    monkeypatch.setattr(pulse, "_send", lambda: passed_on.append(pulse.lost))
    for rank in (2, 2, 1):
        pulse._lose(rank)
    assert passed_on == [2]


@pytest.mark.usefixtures("one_second")
@pytest.mark.parametrize("closed", [True, False], ids=["killed", "stopped"])
def test_a_closed_connection_and_silence_are_noticed(closed):
    place = Place(1)

    def ghost() -> socket.socket:
        port, token = place.take()
        connection = socket.create_connection(("localhost", port))
        connection.sendall(_HELLO.pack(token, 1))
        return connection

    pulse, connection = together(lambda: Pulse(0, 2, place.give), ghost)
    if closed:
        connection.close()
    with pytest.raises(TrainingError, match="rank 1 stopped answering"):
        pulse.meet()
    connection.close()


def test_a_stranger_is_not_taken_for_a_process_of_the_group():
    place, seen_off = Place(2), threading.Event()

    def stranger() -> bytes:
        port, _ = place.take()
        with socket.create_connection(("localhost", port)) as connection:
            connection.sendall(_HELLO.pack(bytes(16), 1))
            connection.settimeout(120)
            answer = connection.recv(1)
        seen_off.set()
        return answer

    def peer() -> Pulse:
        seen_off.wait(120)
        return Pulse(1, 2, place.take)

    first, answer, second = together(lambda: Pulse(0, 2, place.give), stranger, peer)
    assert answer == b""  # closed without an answer
    assert together(first.meet, second.meet) == [None, None]


@pytest.mark.usefixtures("one_second")
def test_a_process_that_never_comes_is_named():
    (error,) = together(lambda: Pulse(0, 2, lambda value: value))
    assert str(error) == "rank 1 did not connect to rank 0; start all processes again."


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf", "nan"])
def test_a_time_out_must_be_a_number(monkeypatch, text):
    monkeypatch.setenv("ANAPHORA_TIMEOUT", text)
    with pytest.raises(
        SettingsError, match=f"ANAPHORA_TIMEOUT = '{text}' is not a number of seconds above 0"
    ):
        timeout()


def test_a_process_that_waits_for_a_gpu_is_ended(monkeypatch, capsys):
    exits: queue.Queue = queue.Queue()
    monkeypatch.setattr("anaphora.training.pulse._GRACE", 0.0)
    monkeypatch.setattr("os._exit", exits.put)
    place = Place(1)
    pulse, other = together(
        lambda: Pulse(0, 2, place.give, exits=True), lambda: Pulse(1, 2, place.take, exits=True)
    )
    pulse.inside = 1  # inside a collective operation, which nothing can interrupt
    other.fail()
    assert exits.get(timeout=120) == 1
    assert capsys.readouterr().err.startswith(
        "anaphora: rank 1 stopped answering, so this process (rank 0) stops too;"
    )
    assert exits.empty()  # the one that failed ends by its own error
