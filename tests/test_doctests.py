"""The examples in docstrings are what happens: every ``>>>`` of the source is run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

import anaphora as an

SOURCE = Path(an.__file__).parent
MODULES = [
    "anaphora." + ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if "\n    >>> " in path.read_text(encoding="utf-8")
    and path.parent.name != "site"  # tests/learn builds the site
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    runner = doctest.DocTestRunner(optionflags=flags)
    found = [
        test
        for test in doctest.DocTestFinder().find(
            module, name, extraglobs={"an": an, "np": np, "torch": torch}
        )
        if test.examples
    ]
    assert found, f"{name} has >>> outside of docstrings"
    for test in found:
        runner.run(test)
    assert runner.failures == 0
