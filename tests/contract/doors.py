"""The ways to an answer other than Python: the command is in `command`, a server and a Python without torch are here."""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import http.client
import json
import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warm_command import popen

TESTS = Path(__file__).parents[1]

WITHOUT_TORCH = """\
import base64, json, pickle, sys, traceback, warnings
warnings.simplefilter("ignore")
from anaphora.runtime import load
from kept import plain
for line in sys.stdin:
    folder, calls = pickle.loads(base64.b64decode(line))
    try:
        model = load(folder)
        answers = [plain(getattr(model, method)(inputs, **options)) for method, inputs, options in calls]
    except Exception:
        answers = traceback.format_exc()
    print(json.dumps([answers, "torch" in sys.modules]), flush=True)
"""


def environment() -> dict[str, str]:
    paths = [str(TESTS), str(TESTS / "contract"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@functools.cache
def _process_without_torch() -> subprocess.Popen[str]:
    started = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_TORCH],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )

    def end() -> None:
        started.communicate()

    atexit.register(end)
    return started


def without_torch(exported: Path, calls: list[tuple[str, Any, Mapping[str, Any]]]) -> list[Any]:
    """What the model of an exported folder says to each ``(method, inputs, options)``, in a Python that never imports torch."""
    process = _process_without_torch()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(base64.b64encode(pickle.dumps((str(exported), calls))).decode() + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    assert line, "the runtime has ended; its error is on stderr"
    answers, torch = json.loads(line)
    assert not isinstance(answers, str), answers
    assert not torch, "the runtime has imported torch"
    return list(answers)


class Served:
    """``anaphora serve`` over runs by their names."""

    def __init__(self, runs: Mapping[str, Path]):
        named = [f"{name}={folder}" for name, folder in runs.items()]
        self._process = popen(
            ["-m", "anaphora", "serve", *named, "--port", "0", "--device", "cpu"],
            stdin=subprocess.PIPE,
            env=environment(),
        )
        assert self._process.stderr is not None
        said = ""
        while not (found := re.search(r"at http://[^:]+:(\d+)/", said)):
            line = self._process.stderr.readline()
            if not line:
                self.end()
                raise AssertionError(f"no server: {said}")
            said += line
        self._port = int(found[1])

    def ask(self, name: str, body: Any) -> tuple[int, Any]:
        """The status and the JSON of ``POST /runs/NAME/predict``; ``body`` is sent as JSON, or as it is if it is bytes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)) as to:
            to.request("POST", f"/runs/{name}/predict", content, {"content-type": "application/json"})
            answer = to.getresponse()
            return answer.status, json.loads(answer.read())

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        self._process.communicate()
