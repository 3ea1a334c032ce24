"""Which backend is the fastest on a GPU: fitted to measurements, kept in the cache, used by the choice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anaphora.engine import measure, tuning
from anaphora.engine.backends.base import Case, LayerRun
from anaphora.engine.dispatch import BACKENDS, choose, run_layer
from anaphora.engine.prepare import Engine
from anaphora.engine.tuning import EVERYWHERE, NOWHERE, Measurement, Region, Thresholds, fit

KEY = {"gpu": "Some GPU", "torch": "2", "driver": "12080", "anaphora": "0"}
SIZES = [(h, b) for h in (256, 512, 768, 1024) for b in (16, 64, 256)]


def _measured(**times: float) -> list[Measurement]:
    """Every backend takes the same time at every size."""
    return [Measurement(h, b, "bf16", times) for h, b in SIZES]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAPHORA_CACHE", str(tmp_path))
    tuning._thresholds.cache_clear()


# ---------------------------------------------------------------------- fitting
def test_one_backend_is_faster_everywhere_or_nowhere() -> None:
    found = fit(_measured(persistent=1.0, triton=2.0, cudnn=3.0, cuda_graph=4.0))
    assert found.triton_over_persistent == NOWHERE
    assert found.persistent_over_cudnn == found.triton_over_cudnn == found.triton_over_graph == EVERYWHERE


def test_a_backend_that_never_ran_is_preferred_nowhere() -> None:
    """No Hopper: there is no persistent kernel."""
    found = fit(_measured(triton=2.0, cudnn=1.0))
    assert found.persistent_over_cudnn == NOWHERE
    assert not any(found.triton_over_cudnn.holds(h, b) for h, b in SIZES)
    assert found.triton_over_graph == EVERYWHERE  # nothing beside it


def test_the_limits_lie_where_the_times_cross() -> None:
    true = Region(512, 100_000)
    rows = [
        Measurement(h, b, kind, {"triton": 1.0 if true.holds(h, b) else 3.0, "persistent": 2.0})
        for h, b in SIZES
        for kind in ("bf16", "fp32")
    ]
    found = fit(rows).triton_over_persistent
    assert all(found.holds(h, b) == true.holds(h, b) for h, b in SIZES)


def test_a_few_per_cent_of_noise_do_not_decide() -> None:
    """One wild measurement among many costs less than what following it would."""
    rows = _measured(triton=1.0, cudnn=1.5)
    rows[0] = replace(rows[0], times={"triton": 1.1, "cudnn": 1.0})  # 256 units, 16 rows: a close race
    found = fit(rows).triton_over_cudnn
    assert sum(found.holds(h, b) for h, b in SIZES) >= len(SIZES) - 1


# ---------------------------------------------------------------------- the cache
def test_what_was_kept_is_read_again() -> None:
    assert tuning.read(KEY) is None
    rows = _measured(triton=1.0, cudnn=2.0)
    path = tuning.keep(KEY, fit(rows), rows)
    assert tuning.read(KEY) == fit(rows)
    assert json.loads(path.read_text())["measurements"][0]["times"] == {"triton": 1.0, "cudnn": 2.0}
    for name in KEY:  # another driver, say
        assert tuning.read({**KEY, name: "other"}) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"key": 1}',
        json.dumps({"key": KEY, "thresholds": {"triton_over_cudnn": {"hidden": "many", "cells": 0}}}),
        json.dumps({"key": KEY, "thresholds": {"triton_over_cudnn": {"hidden": -1, "cells": 0}}}),
        json.dumps({"key": KEY, "thresholds": {"triton_over_cudnn": {"hidden": True, "cells": 0}}}),
        json.dumps({"key": KEY, "thresholds": {"no such": {"hidden": 1, "cells": 0}}}),
        json.dumps({"key": {**KEY, "gpu": "another"}, "thresholds": {}}),
    ],
)
def test_a_damaged_file_counts_as_none(text: str) -> None:
    tuning.path_of(KEY).write_text(text)
    assert tuning.read(KEY) is None


def test_a_measurement_counts_before_what_is_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {0: "NVIDIA H200", 1: "Some GPU"}
    monkeypatch.setattr(torch.cuda, "get_device_name", names.get)
    monkeypatch.setattr(tuning, "driver_version", lambda: 12080)
    h200, other = (torch.device("cuda", k) for k in names)
    assert tuning.thresholds(h200) == tuning.H200
    assert tuning.thresholds(other) is None
    for index in names:
        tuning.keep(tuning.key_of(index), Thresholds(triton_over_cudnn=Region(7, 7)), [])
    for device in (h200, other):
        found = tuning.thresholds(device)
        assert found is not None
        assert found.triton_over_cudnn == Region(7, 7)


# ---------------------------------------------------------------------- the choice
def _chosen(
    monkeypatch: pytest.MonkeyPatch, thresholds: Thresholds | None, missing: set[str], native: bool
) -> str:
    """For 64 rows of 512 units, where the backends ``missing`` cannot serve."""
    for backend in BACKENDS:
        no = {*missing, "c", "scan"} if native else {*missing, "c", "scan", "cudnn"}
        monkeypatch.setattr(backend, "why_not", lambda _, bad=backend.name in no: "it rains" if bad else None)
    gpu = torch.device("cuda", 0)
    return choose(Case(gpu, torch.bfloat16, 64, 8, 512, native=native, thresholds=thresholds)).backend


@pytest.mark.parametrize(
    ("thresholds", "native", "foreign"),
    [
        (tuning.H200, "persistent", "persistent"),
        (Thresholds(persistent_over_cudnn=NOWHERE, triton_over_cudnn=NOWHERE), "cudnn", "persistent"),
        (Thresholds(triton_over_persistent=EVERYWHERE), "triton", "triton"),
        (Thresholds(triton_over_persistent=EVERYWHERE, triton_over_cudnn=NOWHERE), "cudnn", "triton"),
    ],
)
def test_the_choice_follows_the_thresholds(
    monkeypatch: pytest.MonkeyPatch, thresholds: Thresholds, native: str, foreign: str
) -> None:
    assert _chosen(monkeypatch, thresholds, set(), True) == native
    assert _chosen(monkeypatch, thresholds, set(), False) == foreign


def test_without_persistent_kernels_triton_competes_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Thresholds(triton_over_graph=NOWHERE, triton_over_cudnn=NOWHERE)
    assert _chosen(monkeypatch, slow, {"persistent"}, True) == "cudnn"
    assert _chosen(monkeypatch, slow, {"persistent"}, False) == "cuda_graph"
    assert _chosen(monkeypatch, slow, {"persistent", "cuda_graph"}, False) == "triton"
    assert _chosen(monkeypatch, None, {"persistent"}, True) == "cudnn"  # nothing was measured
    assert _chosen(monkeypatch, None, {"persistent"}, False) == "triton"


def test_what_is_measured_is_the_lstm_of_torch() -> None:
    peer = torch.nn.LSTM(3, 4, batch_first=True)
    with torch.no_grad():
        peer.bias_hh_l0.zero_()
    x, zeros = torch.randn(2, 5, 3), torch.zeros(2, 4)
    params = {"input": peer.weight_ih_l0, "recurrent": peer.weight_hh_l0, "bias": peer.bias_ih_l0}
    engine = Engine(measure.lstm_step, "test")
    y, _ = run_layer(engine, LayerRun(measure.lstm_step, params, (x,), (), (zeros, zeros)))
    torch.testing.assert_close(y, peer(x)[0])


@pytest.mark.cuda
def test_every_backend_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)  # or persistent kernels do not take float32
    monkeypatch.setattr(measure, "HIDDEN", (256,))
    monkeypatch.setattr(measure, "BATCH", (16,))
    found = list(measure.measure(0))
    assert [m.dtype for m in found] == ["bf16", "fp32"]
    hopper = torch.cuda.get_device_capability()[0] == 9
    for m in found:
        assert {"cudnn", "cuda_graph", "triton"} <= m.times.keys()
        assert ("persistent" in m.times) == hopper
        assert all(0 < ms < 1000 for ms in m.times.values())
    assert isinstance(fit(found), Thresholds)
