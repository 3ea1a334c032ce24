"""An error in a part of the user's own: its file and line, and exit code 2; it is no fault of ours."""

from __future__ import annotations

import sys

import pytest

from anaphora.cli.failures import FAULT, MISTAKE, guarded
from anaphora.cli.main import run
from anaphora.settings.own import IMPORTED

PART = """
import torch

class Forgets(torch.optim.SGD):
    def __init__(self, params, lr):
        super().__init__(params, lr=lr)
        self.rates = {}["usual"]

def broken():
    return torch.zeros(2) @ torch.zeros(3)
"""


@pytest.fixture
def parts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "forgetful.py").write_text(PART)
    yield tmp_path / "forgetful.py"
    sys.modules.pop("forgetful", None)
    IMPORTED.discard(str(tmp_path / "forgetful.py"))


def test_its_file_and_line_are_named(parts, capsys):
    rows = "".join(f"{'good' if i % 2 else 'bad'} film {i}\t{i % 2}\n" for i in range(40))
    (parts.parent / "rows.tsv").write_text(rows)
    train = ["train", "classify", "rows.tsv", "--model", "bow", "--steps", "2", "-o", "run"]
    assert run([*train, "--set", "optimizer=forgetful:Forgets"]) == MISTAKE
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith(f"anaphora: {parts}:7: your own part failed (KeyError: 'usual');")
    assert not (parts.parent / "run").exists()


def test_what_it_calls_is_put_down_to_it_and_other_errors_are_not(parts, capsys):
    import forgetful

    assert guarded(forgetful.broken, debug=False) == FAULT  # no part was imported from it
    IMPORTED.add(str(parts))
    capsys.readouterr()
    assert guarded(forgetful.broken, debug=False) == MISTAKE
    assert f"{parts}:10: your own part failed (RuntimeError: " in capsys.readouterr().err
    assert guarded(lambda: {}["x"], debug=False) == FAULT
