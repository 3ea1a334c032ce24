"""A few cases of every target; ``make fuzz`` runs as many as time allows."""

from __future__ import annotations

import pytest

from fuzz import fuzz, targets


@pytest.mark.slow
@pytest.mark.parametrize("name", targets())
def test_a_thousand_cases(tmp_path, name):
    found = fuzz(60.0, 1000, 7, tmp_path, [name])[name]
    assert found["findings"] == []
    assert found["cases"] == 1000
    assert found["slowest"] < 5.0
