"""The server as its own process: signals, workers, slow and many clients, TLS, and the command's own mistakes."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from warm_command import popen

pytestmark = pytest.mark.xdist_group("serve")
BODY = json.dumps({"inputs": ["a b c"], "details": True})
JSON = {"content-type": "application/json"}


class Process:
    """``anaphora serve`` with these arguments."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None, descriptors: int = 0):
        self.process = popen(
            ["-m", "anaphora", "serve", *arguments, "--port", "0"],
            stdin=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        )
        if descriptors:
            import resource

            resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (descriptors, descriptors))
        assert self.process.stderr is not None
        lines = []
        while not (found := re.search(r"at (https?)://[^:]+:(\d+)/", "".join(lines))):
            line = self.process.stderr.readline()
            assert line, "".join(lines)
            lines.append(line)
        self.port = int(found[2])
        self.said: list[str] = []
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()

    def _listen(self) -> None:
        self.said.extend(self.process.stderr or ())

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def ask(self, method: str = "POST", path: str = "/predict", body: str | None = BODY, **headers: str):
        connection = self.connect()
        try:
            connection.request(method, path, body, {**JSON, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        try:
            return self.process.wait(120)
        finally:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()
            self._listening.join(120)
            for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
                if stream is not None:
                    stream.close()


@pytest.fixture(scope="module")
def one(folder_of):
    started = Process(str(folder_of("classify")), "--device", "cpu")
    yield started
    assert started.end() == 0
    assert not started.said, started.said[:5]


def test_slow_and_broken_clients_do_not_keep_others_from_their_answers(one):
    """S3, S4: half a head, half a body, a lying length, no HTTP at all, and clients that leave at once."""
    head = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1:{one.port}\r\nContent-Type: application/json\r\n"
    starts = [
        b"POST /predict HT",
        f"{head}Content-Length: 100\r\n\r\n{{".encode(),
        f"{head}Transfer-Encoding: chunked\r\n\r\n5\r\n{{".encode(),
        f"{head}X: {'x' * 200_000}".encode(),
        b"\x16\x03\x01\x00\xff" * 20,
        b"GET / HTTP/9.9\r\n\r\n",
    ]
    status, wanted = one.ask()
    assert status == 200
    with contextlib.ExitStack() as held:
        for start in starts * 5:
            slow = held.enter_context(socket.create_connection(("127.0.0.1", one.port), timeout=120))
            with contextlib.suppress(ConnectionError):
                slow.sendall(start)
        for _ in range(20):
            with contextlib.suppress(ConnectionError):
                left = socket.create_connection(("127.0.0.1", one.port), timeout=120)
                left.sendall(f"{head}Content-Length: {len(BODY)}\r\n\r\n{BODY}".encode())
                left.close()
        assert [one.ask() for _ in range(5)] == [(200, wanted)] * 5
        claimed = held.enter_context(socket.create_connection(("127.0.0.1", one.port), timeout=120))
        claimed.sendall(f"{head}Content-Length: {1 << 30}\r\n\r\n".encode())
        assert b" 413 " in claimed.recv(4096).split(b"\r\n")[0]


@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_many_connections_at_once(one, count):
    """All are answered, and those that stay idle cost nothing but their descriptor."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 1000), hard))
        resource.prlimit(one.process.pid, resource.RLIMIT_NOFILE, (min(hard, count + 1000), hard))
    request = (
        f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1:{one.port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(BODY)}\r\n\r\n{BODY}"
    ).encode()
    _, wanted = one.ask()
    answered = 0
    with contextlib.ExitStack() as held:
        for begin in range(0, count, 200):  # fewer than may wait for their answers
            clients = []
            for _ in range(begin, min(count, begin + 200)):
                client = held.enter_context(socket.create_connection(("127.0.0.1", one.port), timeout=120))
                client.sendall(request)  # at once: the head of a request has its time
                clients.append(client)
            for client in clients:
                got = b""
                while not got.endswith(wanted) and (piece := client.recv(65536)):
                    got += piece
                answered += got.endswith(wanted)
        assert one.ask() == (200, wanted)
    assert answered == count


def test_no_descriptors_are_left_and_it_is_said_at_most_once(folder_of):
    """E11, B5: 120 idle connections wrote 17,000 tracebacks; now those above the cap are closed, and others are answered."""
    started = Process(str(folder_of("classify")), "--device", "cpu", descriptors=90)
    try:
        status, wanted = started.ask()
        with contextlib.ExitStack() as held:
            for _ in range(150):
                held.enter_context(socket.create_connection(("127.0.0.1", started.port), timeout=120))
            closed = held.pop_all()
        closed.close()
        for _ in range(20):
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, answer = started.ask()
                if status == 200:
                    break
            time.sleep(0.2)
        assert (status, answer) == (200, wanted)
    finally:
        assert started.end() == 0
    assert len(started.said) <= 1
    assert "Traceback" not in "".join(started.said)


def test_a_websocket_ends_after_its_error_whatever_the_client_goes_on_to_send(one):
    """B13, S4: 3 GB were read and thrown away in 8 seconds."""
    head = (
        f"GET /v1/listen HTTP/1.1\r\nHost: 127.0.0.1:{one.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    frame = b"\x82\xff" + (1 << 16).to_bytes(8, "big") + b"\0" * 4 + b"\0" * (1 << 16)
    with socket.create_connection(("127.0.0.1", one.port), timeout=120) as client:
        client.sendall(head.encode())
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 1 << 28:
                client.sendall(frame)
                sent += len(frame)
    assert sent < 1 << 26
    assert one.ask()[0] == 200


def test_a_client_that_reads_nothing_is_cut_off(monkeypatch):
    """S4, E4: once the buffers are full; whatever it was sent."""
    import asyncio

    import own_loop
    from anaphora.web import listening

    monkeypatch.setattr(listening, "READER_SECONDS", 0.05)

    class Writer(asyncio.Protocol):
        def pause_writing(self) -> None:
            pass

        resume_writing = pause_writing

    class Sending(listening.ReaderInTime, Writer):
        def connection_made(self, transport) -> None:
            self.transport = transport
            transport.write(b"x" * (1 << 26))

        def connection_lost(self, exc) -> None:
            super().connection_lost(exc)
            lost.set()

    async def cut_off() -> None:
        nonlocal lost
        lost = asyncio.Event()
        server = await asyncio.get_running_loop().create_server(Sending, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()):
            async with asyncio.timeout(120):
                await lost.wait()
        server.close()

    lost = asyncio.Event()
    own_loop.run(cut_off())


def test_a_hangup_ends_the_server_in_order(folder_of):
    """S12: a closed terminal is as good as SIGTERM."""
    started = Process(str(folder_of("classify")), "--device", "cpu")
    assert started.ask()[0] == 200
    assert started.end(signal.SIGHUP) == 0


def test_sigterm_under_load_loses_no_accepted_request(folder_of):
    """S12: what was sent before the signal is answered, with a result or (where it was not read yet) with 503; never a closed connection."""
    started = Process(str(folder_of("translate")), "--device", "cpu")
    body = json.dumps({"inputs": ["a b c a b c"] * 8, "beam": 8})
    sent: list[float] = []
    outcomes: list[tuple[float, object]] = []

    def client() -> None:
        connection, moment = started.connect(), math.inf
        try:
            while True:
                moment = math.inf  # not sent yet
                connection.request("POST", "/predict", body, JSON)
                moment = time.monotonic()
                sent.append(moment)
                answer = connection.getresponse()
                answer.read()
                outcomes.append((moment, answer.status))
                if answer.status == 503:
                    return
        except (http.client.RemoteDisconnected, ConnectionError) as error:
            outcomes.append((moment, repr(error)))
        finally:
            connection.close()

    clients = [threading.Thread(target=client) for _ in range(12)]
    for thread in clients:
        thread.start()
    while len(sent) < 25 and any(thread.is_alive() for thread in clients):
        time.sleep(0.01)
    signalled = time.monotonic()
    code = started.end()
    for thread in clients:
        thread.join(120)
    assert code == 0
    finished = [outcome for moment, outcome in outcomes if moment < signalled]
    assert set(finished) <= {200, 503}
    assert len(finished) >= 25
    assert finished.count(200) > 12  # those before; each of the twelve had at most one under way


def test_a_killed_worker_is_replaced_and_the_rest_goes_on(folder_of):
    """S12: kill -9 of one of two."""
    started = Process(str(folder_of("classify")), "--device", "cpu", "--workers", "2")
    try:
        wanted = [started.ask()[1] for _ in range(10)][-1]
        workers = _children(started.process.pid)
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        while _runs(workers[0]):  # what it accepts in its last moment ends with it
            time.sleep(0.01)
        for _ in range(20):
            assert started.ask() == (200, wanted)
        until = time.monotonic() + 300
        while len(_children(started.process.pid)) < 2 or workers[0] in _children(started.process.pid):
            assert time.monotonic() < until
            time.sleep(0.05)
        status, metrics = started.ask("GET", "/metrics", None)
        counted = re.search(
            r'anaphora_requests_total\{route="/predict",status="200"\} (\d+)', metrics.decode()
        )
        assert status == 200
        assert counted is not None
        assert (
            int(counted[1]) >= 29
        )  # of all workers, also of those that are gone; the last one may not have counted
    finally:
        assert started.end() == 0
    assert "a worker ended (signal 9); another one is started." in "".join(started.said)


def _runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sorted(map(int, found))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["none"], "none does not exist"),
        (["RUN", "RUN"], "two runs are called"),
        (["RUN", "--host", "0.0.0.0"], "needs a token"),
        (["RUN", "--token", "a-token-of-some-length"], "--token-file"),
        (["RUN", "--token-file", "short.txt"], "at least 16 ASCII characters"),
        (["RUN", "--token-file", "none"], "--token-file none cannot be read"),
        (["RUN", "--tls-cert", "none"], "belong together"),
        (["RUN", "--tls-cert", "none", "--tls-key", "none"], "cannot be used"),
        (["RUN", "--workers", "0"], "--workers"),
        (["RUN", "--device", "cuda:99"], "device"),
    ],
)
def test_mistakes_on_the_command_line(folder_of, tmp_path, arguments, text):
    given = [str(folder_of("classify")) if one == "RUN" else one for one in arguments]
    (tmp_path / "short.txt").write_text("short\n")
    command = ["-m", "anaphora", "serve", *given, "--port", "0"]
    done = popen(command, cwd=str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _, said = done.communicate(timeout=120)
    assert done.returncode == 2, said
    assert text in said
    assert "Traceback" not in said


def test_a_token_of_the_environment_and_https(folder_of, tmp_path):
    import ssl

    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    try:
        subprocess.run(
            [*made, "-keyout", "key.pem", "-out", "cert.pem"], cwd=tmp_path, check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("there is no openssl here")
    files = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    token = "a-token-of-some-length"
    started = Process(str(folder_of("classify")), "--device", "cpu", *files, env={"ANAPHORA_TOKEN": token})
    trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    trusting.check_hostname = False
    try:
        for headers, wanted in (({}, 401), ({"authorization": f"Bearer {token}"}, 200)):
            connection = http.client.HTTPSConnection("127.0.0.1", started.port, timeout=120, context=trusting)
            connection.request("POST", "/predict", BODY, {**JSON, **headers})
            assert connection.getresponse().status == wanted
            connection.close()
    finally:
        assert started.end() == 0
