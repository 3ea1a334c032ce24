"""Models trained once for all tests of tasks."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from tasks_tiny import pairs, tiny

import anaphora as an


@pytest.fixture(scope="session")
def copier() -> an.Translator:
    """Turns letters into capitals and, on words like those it saw, gets nearly all right."""
    return tiny(steps=800).fit(pairs(1600), valid=pairs(20, seed=1))


@pytest.fixture(scope="session")
def of_preset() -> Callable[[str], an.Translator]:
    """A briefly trained model of each of PRESETS, made when it is first asked for."""

    @functools.cache
    def make(preset: str) -> an.Translator:
        return tiny(preset).fit(pairs(200), valid=pairs(4, seed=1))

    return make
