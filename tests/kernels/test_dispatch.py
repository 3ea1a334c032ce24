"""Which backend runs a recurrence, as a function of what there is to choose from."""

from __future__ import annotations

import pytest
import torch
from recurrence_results import Run, with_compiler

from anaphora import nn
from anaphora.engine import dispatch
from anaphora.engine.backends.base import BackendName, Case
from anaphora.engine.dispatch import BACKENDS, choose, force, forced
from anaphora.engine.tuning import EVERYWHERE, H200, Region, Thresholds
from anaphora.errors import AnaphoraError
from anaphora.nn.recurrent_step import LayerStep

GPU = torch.device("cuda", 0)


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The backends that can serve; take names out or put them in. Reasons of the others: "it rains"."""
    names = {"persistent", "triton", "cudnn", "cuda_graph", "torch", "reference"}
    for backend in BACKENDS:

        def why_not(case: Case, name: str = backend.name) -> str | None:
            return None if name in names else "it rains"

        monkeypatch.setattr(backend, "why_not", why_not)
    return names


def _case(
    batch: int = 4,
    hidden: int = 16,
    *,
    native: bool = True,
    known: Thresholds | None = H200,
    first: bool = False,
) -> Case:
    return Case(GPU, torch.float32, batch, 8, hidden, native=native, thresholds=known, capturing_first=first)


@pytest.mark.parametrize(
    ("missing", "chosen"),
    [
        ((), "persistent"),
        (("triton", "cudnn"), "persistent"),
        (("persistent",), "triton"),
        (("persistent", "cudnn"), "triton"),
        (("persistent", "triton"), "cudnn"),
        (("persistent", "triton", "cudnn"), "cuda_graph"),
        (("persistent", "triton", "cudnn", "cuda_graph"), "torch"),
        (("persistent", "triton", "cudnn", "cuda_graph", "torch"), "reference"),
    ],
)
def test_the_first_that_can_serve(able: set[str], missing: tuple[str, ...], chosen: str) -> None:
    able -= set(missing)
    decision = choose(_case(native="cudnn" not in missing))
    assert decision.backend == chosen
    assert {decision.others[name] for name in ("c", *missing)} == {"it rains"}  # type: ignore[index]
    rest = able - {chosen}
    assert {decision.others[name] for name in rest} <= {f"{chosen} comes first"}  # type: ignore[index]
    assert set(decision.others) | {chosen} == {b.name for b in BACKENDS}


@pytest.mark.parametrize(
    ("batch", "hidden", "chosen", "captured"),
    [
        (64, 512, "persistent", "persistent"),
        (256, 512, "persistent", "persistent"),  # two rounds of narrow slices are still faster
        (64, 1024, "persistent", "persistent"),
        (128, 640, "triton", "cudnn"),
        (256, 1024, "triton", "cudnn"),
    ],
)
def test_large_layers_are_left_to_kernels_of_one_step(
    able: set[str], batch: int, hidden: int, chosen: str, captured: str
) -> None:
    """``captured``: the choice while a CUDA graph is captured before Triton's kernels were compiled."""
    assert choose(_case(batch, hidden)).backend == chosen
    assert choose(_case(batch, hidden, first=True)).backend == captured
    able.remove("cudnn")
    assert choose(_case(batch, hidden, native=False, first=True)).backend == "persistent"
    able.remove("triton")
    assert choose(_case(batch, hidden, native=False)).backend == "persistent"


def test_pytorchs_own_layer_comes_first_where_nothing_was_measured(able: set[str]) -> None:
    able.remove("persistent")  # an Ampere or Ada GPU
    decision = choose(_case(known=None))
    assert decision.backend == "cudnn"
    assert "nothing was measured" in decision.others["triton"]
    assert choose(_case()).backend == "triton"
    able.remove("cudnn")
    assert choose(_case(known=None, native=False)).backend == "triton"


def test_another_hopper_is_not_taken_for_an_h200(able: set[str]) -> None:
    """An H100 has the instructions of the persistent kernels, but nobody has measured them there."""
    decision = choose(_case(known=None))
    assert decision.backend == "cudnn"
    assert "nothing was measured" in decision.others["persistent"]
    assert choose(_case(256, 1024, known=None)).backend == "cudnn"
    able.remove("cudnn")  # a cell that PyTorch does not have
    assert choose(_case(known=None, native=False)).backend == "persistent"
    assert choose(_case(256, 1024, known=None, native=False)).backend == "triton"


def test_what_was_measured_on_a_gpu_decides(able: set[str]) -> None:
    never = Region(1 << 40, 1 << 40)
    assert (
        choose(_case(known=Thresholds(persistent_over_cudnn=never, triton_over_cudnn=never))).backend
        == "cudnn"
    )
    assert choose(_case(known=Thresholds(triton_over_persistent=EVERYWHERE))).backend == "triton"
    able -= {"persistent", "cudnn"}
    assert choose(_case(native=False, known=Thresholds(triton_over_graph=never))).backend == "cuda_graph"


def test_shapes_that_are_not_captured_have_a_stand_in(able: set[str]) -> None:
    assert choose(_case(256, 1024)).stand_in == "persistent"
    able.remove("persistent")
    assert choose(_case()).stand_in == "cudnn"
    able.remove("cudnn")
    assert choose(_case(native=False)).stand_in is None


# ---------------------------------------------------------------------- forced
X, STATES = torch.randn(2, 3, 4), (torch.zeros(2, 4), torch.zeros(2, 4))


@pytest.mark.parametrize("name", [pytest.param("c", marks=with_compiler), "torch", "reference"])
def test_a_backend_can_be_forced_for_a_while(name: BackendName, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, seen = nn.LSTM(4, 4), []
    for backend in BACKENDS:

        def run(job: object, name: str = backend.name, run=backend.run) -> object:  # type: ignore[no-untyped-def]
            seen.append(name)
            return run(job)

        monkeypatch.setattr(backend, "run", run)
    engine, params = Run(LayerStep(cell)), dict(cell.named_parameters())
    with force(name):
        assert forced() == name
        y, _ = engine(params, (X,), (), STATES)
        with force(None):
            engine(params, (X,), (), STATES)
    assert forced() is None
    torch.testing.assert_close(y, engine(params, (X,), (), STATES)[0])
    free = dispatch.decide(
        engine.engine, dispatch.LayerRun(engine.engine.function, params, (X,), (), STATES)
    )[0]
    assert seen == [name, free.backend, free.backend]


@pytest.mark.parametrize("name", ["persistent", "triton", "cuda_graph", "cudnn"])
def test_a_forced_backend_that_cannot_serve_is_an_error(name: BackendName) -> None:
    cell = nn.MGU(4, 4)
    pattern = "not on an NVIDIA GPU|no layer for this cell"
    with force(name), pytest.raises(AnaphoraError, match=pattern) as caught:
        Run(LayerStep(cell))(dict(cell.named_parameters()), (X,), (), STATES[:1])
    assert str(caught.value).count(".") == 1


def test_an_unknown_backend_is_refused() -> None:
    with (
        pytest.raises(ValueError, match="c, persistent, triton, cudnn, cuda_graph, matrix, torch, reference"),
        force("fast"),
    ):  # type: ignore[arg-type]
        pass
