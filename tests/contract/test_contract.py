"""The contract of all tasks, one check of one case at a time: ``pytest tests/contract -k classify`` proves one task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from cases import CASES, Case
from check_task import CHECKS, check_task
from checks import Share, Subject
from doors import Served

from trained_runs import Store

pytestmark = pytest.mark.filterwarnings("ignore")


def _first(of: Callable[[Case], object]) -> Collection[str]:
    return {of(case): name for name, case in reversed(CASES.items())}.values()


SHARES: dict[Share, Collection[str]] = {
    "all": CASES,
    "kinds": _first(lambda case: (case.task, case.kind)),
    "tasks": _first(lambda case: case.task),
}


def _contract() -> Iterator[object]:
    for name, case in CASES.items():
        for check in CHECKS.values():
            if check.applies(case):
                marks = [pytest.mark.xdist_group(f"contract {case.task}")]
                if name not in SHARES[check.share]:
                    marks.append(pytest.mark.slow)
                yield pytest.param(name, check.name, id=f"{name}-{check.name}", marks=marks)


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Served]]:
    started: dict[str, Served] = {}
    yield started
    for server in started.values():
        server.end()


@pytest.mark.parametrize(("case", "check"), list(_contract()))
def test_contract(
    case: str,
    check: str,
    trained: Store,
    tmp_path: Path,
    servers: dict[str, Served],
    request: pytest.FixtureRequest,
) -> None:
    def serve() -> Served:
        """One server for the cases of a task that this run asks."""
        task = CASES[case].task
        if task not in servers:
            asked = {
                item.callspec.params["case"]
                for item in request.session.items
                if isinstance(item, pytest.Function)
                and item.originalname == "test_contract"
                and "predict" not in CASES[item.callspec.params["case"]].lacks
            }
            names = [name for name in CASES if name in asked and CASES[name].task == task]
            servers[task] = Served({name: trained(name).run for name in names})
        return servers[task]

    CHECKS[check].run(Subject(case, trained(case), tmp_path, serve))


def test_a_task_is_proved_by_one_call(tmp_path: Path) -> None:
    assert check_task(CASES["classify-text-ngrams"], tmp_path, ["fit", "killed", "batch"]) == ["fit", "batch"]
