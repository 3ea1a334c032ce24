"""Own parts under torchrun: one process's callback stops all, and ``an.fit`` trains one module in two processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import anaphora as an

SCRIPT = """
import os, sys, torch
import anaphora as an
rank = int(os.environ["RANK"])

class Ender(an.Callback):
    def on_step(self, now):
        return an.STOP if rank == 1 and now.step == 2 else None

data = [("a b", "x"), ("b a", "y"), ("a", "x"), ("b", "y")] * 4
m = an.Classifier("lstm", callbacks=[Ender()], steps=9, hidden=4, embedding=4, batch_tokens=24)
m.fit(data, valid=data, out=sys.argv[1] + "/run")
module = torch.nn.Linear(2, 1)
torch.nn.init.ones_(module.weight)
batches = [torch.arange(8.0).reshape(4, 2) / (3 + i) for i in range(3)]
result = an.fit(module, lambda m, x: m(x).square().mean(1), batches, epochs=2, out=sys.argv[1] + "/module", lr=0.1)
print(m.result_.stopped, m.result_.steps, result.steps, module.weight.tolist())
"""


def test_callbacks_and_fit_in_two_processes(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    source = str(Path(an.__file__).parent.parent)
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path)],
            env={**os.environ, **group, "RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONPATH": source},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    ended = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ended
    (first, _), (second, _) = ended
    assert first == second
    assert first.startswith("callback 2 6 [[")
