"""Own parts under torchrun: one process's callback stops all, and ``an.fit`` trains one module in two processes."""

from __future__ import annotations

from pathlib import Path

from warm_command import end_group, start_group

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
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    codes, ended = end_group(start_group([str(script), str(tmp_path)], 2))
    assert codes == [0, 0], ended
    (first, _), (second, _) = ended
    assert first == second
    assert first.startswith("callback 2 6 [[")
