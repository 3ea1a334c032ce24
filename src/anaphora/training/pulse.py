"""Which process of a group stopped answering. Rank 0 and each other process send each other a sign of life.

A collective operation that fails reports that a connection was closed or timed out, but not which process is at
fault. And a process that waits for rank 0's evaluation, which can take hours, must not give up after minutes. So every
process has a thread that keeps a connection to rank 0: a killed process closes it, a stopped one falls silent.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from anaphora.errors import SettingsError, TrainingError

_MESSAGE = struct.Struct(">qq")  # (rank that was lost or -1, how many meetings the sender has come to)
_HELLO = struct.Struct(">16sq")  # (token, rank)
_GRACE = 10.0  # seconds in which a GPU's main thread may end by itself after a process was lost


def timeout() -> float:
    """Seconds without an answer after which a process counts as lost: ANAPHORA_TIMEOUT, by default 300."""
    text = os.environ.get("ANAPHORA_TIMEOUT", "300")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise SettingsError([f"ANAPHORA_TIMEOUT = {text!r} is not a number of seconds above 0; correct it."])
    return seconds


class Pulse:
    """The signs of life of one group, from the moment it is made until the process ends.

    ``share`` gives rank 0's value to every process. With ``exits`` a lost process ends this one, because an
    operation of NCCL on a GPU cannot be interrupted.
    """

    def __init__(self, rank: int, world: int, share: Callable[[Any], Any], *, exits: bool = False):
        self.rank, self.lost = rank, -1  # -1: none is lost
        self.inside = 0  # how many `Group.guarded` blocks the main thread is in
        self._limit, self._exits = timeout(), exits
        self._met = 0  # meetings this process has come to
        self._news, self._sending = threading.Condition(), threading.Lock()
        self._peers = self._accept(world, share) if rank == 0 else self._connect(share)
        self._arrived = dict.fromkeys(self._peers, 0)  # meetings each peer has come to
        threading.Thread(target=self._run, name="anaphora-pulse", daemon=True).start()

    def meet(self) -> None:
        """Wait until every process has come here, as long as that takes while all of them are alive."""
        number = self._met + 1
        if self.rank:
            self._arrive(number)
        with self._news:  # rank 0 waits for all, the others for rank 0, which comes last
            self._news.wait_for(lambda: min(self._arrived.values()) >= number or self.lost >= 0)
            here = min(self._arrived.values()) >= number
        if not here:
            raise self.error()
        if not self.rank:
            self._arrive(number)

    def _arrive(self, number: int) -> None:
        self._met = number
        self._send()

    def fail(self) -> None:
        """Report that this process cannot go on."""
        self._lose(self.rank)

    def error(self) -> TrainingError:
        """The sentence that names the lost process; waits until it is known, if a collective failed first."""
        with self._news:
            self._news.wait_for(lambda: self.lost >= 0, timeout=1.5 * self._limit)
        who = f"rank {self.lost}" if self.lost >= 0 else "a process of the group"
        return TrainingError(
            f"{who} stopped answering, so this process (rank {self.rank}) stops too; see that process's own output, "
            "then continue with `anaphora resume`."
        )

    def _accept(self, world: int, share: Callable[[Any], Any]) -> dict[int, socket.socket]:
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        peers: dict[int, socket.socket] = {}
        token = secrets.token_bytes(16)
        with socket.create_server(("", 0), family=family, backlog=world, dualstack_ipv6=dual) as server:
            share((server.getsockname()[1], token))
            end = time.monotonic() + self._limit
            while missing := set(range(1, world)) - peers.keys():
                server.settimeout(max(0.01, end - time.monotonic()))
                try:
                    peer, _ = server.accept()
                except TimeoutError:
                    raise TrainingError(
                        f"rank {min(missing)} did not connect to rank 0; start all processes again."
                    ) from None
                rank = _welcome(peer, token)
                if rank in missing:
                    peers[rank] = peer
                else:
                    peer.close()
        return peers

    def _connect(self, share: Callable[[Any], Any]) -> dict[int, socket.socket]:
        port, token = share(None)
        host = os.environ.get("MASTER_ADDR", "localhost")
        try:
            peer = socket.create_connection((host, port), timeout=self._limit)
            peer.sendall(_HELLO.pack(token, self.rank))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise TrainingError(
                f"rank {self.rank} cannot reach rank 0 at {host}:{port} ({reason}); allow connections between them."
            ) from None
        return {0: peer}

    def _run(self) -> None:
        every = min(1.0, self._limit / 5)
        heard = dict.fromkeys(self._peers, time.monotonic())
        while self._peers:
            self._send()
            end = time.monotonic() + every
            while self._peers and (left := end - time.monotonic()) > 0:
                sockets = {peer: rank for rank, peer in self._peers.items()}
                for peer in select.select(list(sockets), [], [], left)[0]:
                    if self._read(sockets[peer], peer):
                        heard[sockets[peer]] = time.monotonic()
            now = time.monotonic()
            for rank in [rank for rank in self._peers if now - heard[rank] > self._limit]:
                self._lose(rank)

    def _read(self, rank: int, peer: socket.socket) -> bool:
        """Take one message; False where the connection has ended."""
        try:
            lost, met = _MESSAGE.unpack(_exactly(peer, _MESSAGE.size))
        except (OSError, struct.error):
            self._lose(rank)
            return False
        with self._news:
            self._arrived[rank] = met
            self._news.notify_all()
        if lost >= 0:
            self._lose(lost)
        return True

    def _send(self) -> None:
        with self._sending:
            message = _MESSAGE.pack(self.lost, self._met)
            for peer in list(self._peers.values()):
                with contextlib.suppress(OSError):  # the thread notices when it reads
                    peer.sendall(message)

    def _lose(self, rank: int) -> None:
        with self._news:
            if news := self.lost < 0:
                self.lost = rank
                self._news.notify_all()
        if news:  # two processes that answered each other with what both know would do nothing else
            self._send()  # rank 0 passes it on
        if rank in self._peers:
            self._peers.pop(rank).close()
        if self._exits and self.inside and rank != self.rank:
            time.sleep(_GRACE)
            if self.inside:
                sys.stderr.write(f"anaphora: {self.error()}\n")
                sys.stderr.flush()
                os._exit(1)


def _welcome(peer: socket.socket, token: bytes) -> int:
    """The rank of a process that has just connected; 0 for a stranger, who does not know the token."""
    peer.settimeout(5.0)
    try:
        given, rank = _HELLO.unpack(_exactly(peer, _HELLO.size))
    except (OSError, struct.error):
        return 0
    peer.settimeout(timeout())
    return int(rank) if secrets.compare_digest(given, token) else 0


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            break
        data += more
    return data
