"""``Recurrent.explain`` names the backends that really run, and a reason for every other."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from recurrent_peers import Drawing

from anaphora import nn
from anaphora.engine import prepare
from anaphora.engine.backends.base import Job, Result
from anaphora.engine.dispatch import BACKENDS, force
from anaphora.native import c as compiler
from anaphora.nn import inside
from anaphora.ops.invariant import batch_invariant

B, T, I, H = 3, 4, 2, 5


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the backends that ran, in order."""
    seen: list[str] = []
    for backend in BACKENDS:

        def run(job: Job, name: str = backend.name, run: Callable[[Job], Result] = backend.run) -> Result:
            seen.append(name)
            return run(job)

        monkeypatch.setattr(backend, "run", run)
    return seen


def _without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise compiler.CannotCompile("there is no C compiler")

    monkeypatch.setattr(prepare, "CompiledPlan", fails)


CASES: dict[str, tuple[Callable[[], nn.Recurrent], dict[str, Any]]] = {
    "lstm": (lambda: nn.Recurrent(nn.LSTM(I, H), layers=2, bidirectional=True), {}),
    "noise": (lambda: nn.Recurrent(nn.GRU(I, H), layers=2, zoneout=0.2, recurrent_dropout=0.3), {}),
    "dense": (lambda: nn.Recurrent(nn.MGU(I, H), layers=3, connections="dense"), {}),
    "drawing": (lambda: nn.Recurrent(Drawing(I, H), layers=2), {}),
    "half": (lambda: nn.Recurrent(nn.Elman(I, H)).half(), {"dtype": torch.float16}),
    "ragged": (lambda: nn.Recurrent(nn.LSTM(I, H)), {"lengths": torch.tensor([4, 0, 2])}),
    "empty batch": (lambda: nn.Recurrent(nn.LSTM(I, H)), {"batch": 0}),
    "no steps": (lambda: nn.Recurrent(nn.LSTM(I, H)), {"time": 0}),
    "autocast": (
        lambda: nn.Recurrent(nn.LSTM(I, H)),
        {"around": lambda: torch.autocast("cpu", torch.bfloat16)},
    ),
    "looked into": (lambda: nn.Recurrent(nn.LSTM(I, H)), {"around": inside.record}),
    "forced": (lambda: nn.Recurrent(nn.LSTM(I, H)), {"around": lambda: force("cudnn")}),
}


@pytest.mark.parametrize("compiler_found", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_explain_names_what_really_runs(
    name: str, compiler_found: bool, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiler_found:
        _without_compiler(monkeypatch)
    make, options = CASES[name]
    layer = make()
    x = torch.randn(options.get("batch", B), options.get("time", T), I).to(
        options.get("dtype", torch.float32)
    )
    with warnings.catch_warnings(), options.get("around", nullcontext)():
        warnings.simplefilter("ignore")
        before = torch.get_rng_state()
        told = layer.explain(x, options.get("lengths"))
        assert torch.equal(torch.get_rng_state(), before)
        assert not ran
        layer(x, options.get("lengths"))
    assert list(told.backends) == ran
    names = {backend.name for backend in BACKENDS}
    for choice in told.choices:
        assert {choice.backend, *choice.others} == names
        assert all(choice.others.values())


def test_reasons_are_the_dispatchers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(B, T, I)
    prepare._warned.clear()
    with pytest.warns(UserWarning, match="Drawing runs step by step"):
        drawing = nn.Recurrent(Drawing(I, H)).explain(x).choices[0]
    assert drawing.backend == "reference"
    assert "random numbers" in drawing.others["c"]
    assert "no layer for this cell" in drawing.others["cudnn"]
    mixed = nn.Recurrent(nn.LSTM(I, H)).double().explain(x).choices[0]
    assert mixed.backend == "reference"
    assert "torch.float64" in mixed.others["c"]
    assert "NVIDIA" in mixed.others["persistent"]
    _without_compiler(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = nn.Recurrent(nn.LSTM(I, H)).explain(x).choices[0]
        peephole = nn.Recurrent(nn.LSTM(I, H, peephole=True)).explain(x).choices[0]
    assert (own.backend, own.others["c"]) == ("cudnn", "there is no C compiler")
    assert peephole.backend == "torch"


def test_it_prints_and_becomes_json() -> None:
    told = nn.Recurrent(nn.LSTM(I, H), layers=2, bidirectional=True).explain(torch.randn(B, T, I))
    lines = str(told).splitlines()
    assert lines[0].startswith(f"layer 1, forward: {told.choices[0].backend} (")
    assert len(lines) == 4 + 1 + len(BACKENDS) - 1  # the states, and why not each other backend
    assert lines[-1] == f"layer 2, backward: {told.choices[3].backend}, as above"
    found = json.loads(json.dumps(told.to_dict()))
    assert [c["layer"] for c in found["choices"]] == [1, 1, 2, 2]


def test_wrong_inputs_are_errors_as_in_a_call() -> None:
    layer = nn.Recurrent(nn.LSTM(I, H))
    with pytest.raises(ValueError, match="x must be"):
        layer.explain(torch.randn(B, I))
    with pytest.raises(ValueError, match="lengths must lie between"):
        layer.explain(torch.randn(B, T, I), torch.tensor([T + 1, 0, 0]))


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    "make",
    [lambda: nn.LSTM(64, 64), lambda: nn.GRU(64, 64), lambda: nn.LSTM(64, 1024), lambda: Drawing(64, 64)],
)
def test_explain_names_what_really_runs_on_a_gpu(
    make: Callable[[], nn.Cell], dtype: torch.dtype, ran: list[str]
) -> None:
    layer = nn.Recurrent(make(), layers=2).to("cuda", dtype)
    x = torch.randn(256, 3, 64, device="cuda", dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            ran.clear()
            told = layer.explain(x)
            layer(x)
            for choice in told.choices:
                assert ran.pop(0) == choice.backend
                if ran[:1] == [choice.stand_in]:  # until the shape is captured
                    ran.pop(0)
            assert not ran


@pytest.mark.cuda
def test_explain_in_the_batch_invariant_mode(ran: list[str]) -> None:
    layer = nn.Recurrent(nn.LSTM(64, 64)).cuda()
    x = torch.randn(100, 3, 64, device="cuda")
    with torch.no_grad(), batch_invariant(x.device):
        told = layer.explain(x)
        layer(x)
    assert set(ran) == set(told.backends)
    assert len(ran) == 2  # groups of rows
