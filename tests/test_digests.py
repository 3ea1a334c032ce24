"""The digests tell values apart by their bits, and a comparison names what changed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch


@pytest.fixture(scope="module")
def digests() -> ModuleType:
    path = Path(__file__).parent.parent / "tools" / "digests.py"
    spec = importlib.util.spec_from_file_location("digests", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_values_count_by_their_bits_and_not_by_where_they_lie(digests: ModuleType) -> None:
    x = torch.randn(3, 4)
    assert digests.digest([x]) == digests.digest((x.t().contiguous().t(),)) == digests.digest([x.numpy()])
    others = [[x.double()], [x.flatten()], [-x], [x, x], [torch.nextafter(x, x + 1)], [x.tolist()]]
    assert len({digests.digest(value) for value in [[x], *others]}) == 7
    assert digests.digest(0.0) != digests.digest(-0.0)
    assert digests.digest(np.zeros(1)) != digests.digest(-np.zeros(1))
    with pytest.raises(TypeError, match="no digest of a object"):
        digests.digest(object())


def test_every_path_has_a_name_of_its_own(digests: ModuleType) -> None:
    names = [name for name, _ in digests.paths()]
    assert len(names) == len(set(names)) > 250


def test_a_path_gives_the_same_twice_and_another_digest_after_a_change(
    digests: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = dict(digests.paths())["float32 recurrent torch LSTM ragged"]
    found = digests.digest(work())
    assert found == digests.digest(work())
    monkeypatch.setattr(torch, "sigmoid", lambda x: torch.special.expit(x) + 2**-23)
    reference = dict(digests.paths())["float32 recurrent reference LSTM ragged"]
    changed = digests.digest(reference())
    monkeypatch.undo()
    assert changed != digests.digest(reference())


def test_a_comparison_names_what_changed_and_what_is_gone(
    digests: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_text("avx2 a: 1\navx2 b: 2\navx2 c: 3\n")
    after.write_text("avx2 a: 1\navx2 b: 5\navx2 d: 4\n")
    assert digests.compare(before, after) == 2
    assert capsys.readouterr().out.splitlines() == [
        "changed: avx2 b", "gone: avx2 c", "new: avx2 d", "1 the same, 1 changed, 1 gone, 1 new",
    ]  # fmt: skip
    assert digests.compare(before, before) == 0
