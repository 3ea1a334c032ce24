"""Which backend runs a layer: the one place where that is decided, and the call of the one that was chosen.

``BACKENDS`` is the table: the first backend that can serve and has no reason to yield to a later one runs. Each module's
``why_not`` says when it cannot serve; :func:`_yields` says when another is faster on this GPU; :class:`Decision` keeps all
reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor

from anaphora.engine.arguments import checked
from anaphora.engine.backends import cuda_graph, cudnn, matrix, reference
from anaphora.engine.backends.base import Backend, BackendName, Case, Job, LayerRun, Result, States
from anaphora.engine.backends.c import compiled
from anaphora.engine.backends.persistent import run as persistent
from anaphora.engine.backends.scan import run as scan
from anaphora.engine.backends.torch_ops import fixed, passes
from anaphora.engine.backends.triton import passes as triton
from anaphora.engine.precision import tf32_allowed
from anaphora.engine.prepare import COMPILED, Engine, Prepared
from anaphora.engine.rings import Ring
from anaphora.engine.tuning import H200, Region, thresholds
from anaphora.errors import AnaphoraError
from anaphora.ops import invariant

# The order of preference: the CPU's, then the GPU's, then those that serve anywhere.
BACKENDS: tuple[Backend, ...] = (
    scan,
    compiled,
    persistent,
    triton,
    cudnn,
    cuda_graph,
    matrix,
    passes,
    reference,
)

_forced: ContextVar[BackendName | None] = ContextVar("forced", default=None)


@dataclass(frozen=True)
class Decision:
    """What runs a layer, and why the others do not."""

    backend: BackendName
    why: str
    others: Mapping[BackendName, str]  # every other backend: why it does not run
    cannot: Mapping[BackendName, str]  # those that could not, not even if forced
    stand_in: BackendName | None = None  # runs shapes that are not captured yet
    rings: tuple[Ring, ...] = ()  # how the states depend on each other; empty where there is no plan


def choose(case: Case) -> Decision:
    """The first backend of the table that can serve and does not yield to another."""
    found = {b.name: b.why_not(case) for b in BACKENDS}
    cannot = {name: reason for name, reason in found.items() if reason is not None}
    others: dict[BackendName, str] = {}
    chosen: Backend | None = None
    for backend in BACKENDS:
        reason = cannot.get(backend.name)
        if chosen is not None:
            others[backend.name] = reason or f"{chosen.name} comes first"
        elif reason := reason or _yields(backend.name, case, cannot):
            others[backend.name] = reason
        else:
            chosen = backend
    assert chosen is not None  # the reference always serves
    stand_in: BackendName | None = None
    if chosen.name == "triton":
        stand_in = next((name for name in ("persistent", "cudnn") if name not in cannot), None)
    rings = case.matrix_rings if case.plan is None else case.plan.rings
    return Decision(chosen.name, chosen.about, others, cannot, stand_in, rings)


def _yields(name: BackendName, case: Case, cannot: Mapping[BackendName, str]) -> str | None:
    """Why a backend that could serve leaves the run to a later one: the thresholds of the GPU, in words."""
    known, size = case.thresholds or H200, f"{case.batch} rows of {case.hidden} units"
    if name == "scan" and case.device.type == "cpu" and "c" not in cannot and case.plan is not None:
        # Equal within a few per cent where one thread has rows enough; c needs one program less.
        enough = case.batch >= compiled.ROWS_PER_THREAD * case.threads or case.threads == 1
        if enough and not any(source.op != "step" for _, source in case.plan.operands):
            return "the loop has no product in it, so c makes the same pass"

    def faster(region: Region) -> bool:
        return region.holds(case.hidden, case.batch)

    if name == "cudnn" and case.outputs_on_cpu and "torch" not in cannot:
        return "its products depend on the number of rows, and no output may depend on its batch"
    if name in ("persistent", "triton") and case.thresholds is None and "cudnn" not in cannot:
        return "nothing was measured on this GPU (anaphora doctor --tune), so PyTorch's own layer comes first"
    if name == "persistent":
        if faster(known.triton_over_persistent):
            if case.capturing_first and case.native:
                return f"{size} take it several rounds, and cuDNN needs no compiler while a CUDA graph is captured"
            if "triton" not in cannot and not case.capturing_first:
                return f"{size} take it several rounds; a kernel for each step is faster"
        if "cudnn" not in cannot and not faster(known.persistent_over_cudnn):
            return f"PyTorch's own layer was measured faster for {size}"
    if name in ("scan", "triton") and case.capturing_first:
        return "its kernels have not been compiled, which cannot be done while a CUDA graph is captured"
    if name == "triton":
        if "cudnn" not in cannot and not faster(known.triton_over_cudnn):
            return f"PyTorch's own layer was measured faster for {size}"
        if "cuda_graph" not in cannot and not faster(known.triton_over_graph):
            return f"torch's operations, captured, were measured faster for {size}"
    return None


# ---------------------------------------------------------------------- one run
def decide(engine: Engine | None, run: LayerRun) -> tuple[Decision, Prepared | None]:
    """The backend for a run, or the forced one, and what was prepared for it; a ``plain`` run needs no engine."""
    x = run.steps[0]
    barred = run.plain or _nothing_to_do(run) or _misfit(run)
    no_plan = barred or _no_plan(x)
    ready = None if no_plan or engine is None else engine.prepared(run)
    plan = None if ready is None else ready.plan
    if ready is None or plan is None:
        decision = choose(_case(run, ready, barred, no_plan, False))
    else:
        first, shortened = False, False
        if x.is_cuda:
            capturing = torch.cuda.is_current_stream_capturing()
            kernels = scan if plan.loops is None else triton
            first, shortened = capturing and not kernels.compiled_before(plan, run), tf32_allowed()
        threads = 0 if x.is_cuda else torch.get_num_threads()
        state = (first, shortened, ready.compiled is None, torch.is_grad_enabled(), threads)
        key = ("decision", x.shape, x.dtype, x.device, run.native is None, *state)
        decision = plan.cache.get(key, lambda: choose(_case(run, ready, None, None, first)))
    name = _forced.get()
    if name is not None and not barred:
        decision = _take(name, decision)
    if decision.stand_in is not None and invariant.active():  # it would serve the first calls only
        decision = replace(decision, stand_in=None)
    return decision, ready


def _case(
    run: LayerRun, ready: Prepared | None, barred: str | None, no_plan: str | None, first: bool
) -> Case:
    x = run.steps[0]
    ready = ready or Prepared(reason=no_plan)
    return Case(
        x.device,
        x.dtype,
        x.shape[0],
        x.shape[1],
        run.initial[0].shape[-1],
        ready.plan,
        ready.reason,
        None if ready.compiled is not None else ready.no_c or "no program was compiled",
        ready.one_type,
        run.native is not None,
        barred,
        thresholds(x.device) if x.is_cuda else None,
        first,
        fixed.wanted(x),
        torch.get_num_threads(),
        ready.matrix_rings,
    )


def _nothing_to_do(run: LayerRun) -> str | None:
    x = run.steps[0]
    return None if x.shape[0] and x.shape[1] else "x has no rows or no steps"


def _misfit(run: LayerRun) -> str | None:
    """Types or devices that do not go together; the reference then gives PyTorch's own error."""
    x = run.steps[0]
    dtype, device = x.dtype, x.device
    for t in (*run.steps, *run.rows, *run.initial, *(run.params or {}).values()):
        if (t.dtype != dtype and t.is_floating_point()) or t.device != device:
            return f"x is {dtype} on {device}, another tensor is {t.dtype} on {t.device}"
    return None


def _no_plan(x: Tensor) -> str | None:
    """Why no plan is made for inputs like x."""
    if x.is_cuda or (x.device.type == "cpu" and x.dtype in COMPILED):
        return None
    return "a step is traced for NVIDIA GPUs, and for float32 and float64 on the CPU"


def run_layer(engine: Engine | None, run: LayerRun) -> Result:
    """Run one layer in one direction by the backend that was chosen for it."""
    if run.plain is not None:  # as the table has it; torch.compile follows this call, so it is short
        return reference.run(Job(run, None, None, None))
    run = checked(run)
    if run.steps[0].is_cuda and run.steps[0].shape[0] and invariant.active():
        return _in_groups(partial(_run_chosen, engine), run)
    return _run_chosen(engine, run)


def explain(engine: Engine | None, run: LayerRun) -> Decision:
    """What :func:`run_layer` decides for such a run; nothing is run."""
    if run.plain is None:
        run = checked(run)
        if run.steps[0].is_cuda and run.steps[0].shape[0] and invariant.active():
            found: list[Decision] = []

            def look(group: LayerRun) -> Result:
                found.append(decide(engine, group)[0])
                return group.steps[0], group.initial

            _in_groups(look, run)
            return found[0]
    return decide(engine, run)[0]


def _in_groups(work: Callable[[LayerRun], Result], run: LayerRun) -> Result:
    """Some rows at a time. PyTorch's own layer, which chooses its kernels by the length too, does not take part."""

    def one(steps: States, rows: States, initial: States, lengths: Tensor | None) -> Result:
        return work(run._replace(steps=steps, rows=rows, initial=initial, lengths=lengths, native=None))

    return invariant.in_groups(one, run.steps, run.rows, run.initial, run.lengths)


def _run_chosen(engine: Engine | None, run: LayerRun) -> Result:
    decision, ready = decide(engine, run)
    backend = _BY_NAME[decision.backend]
    given = ready.arguments(run) if ready is not None and backend.planned else None
    stand_in: Callable[[], Result] | None = None
    if decision.stand_in is not None:
        stand_in = partial(_BY_NAME[decision.stand_in].run, Job(run, ready, given, None))
    return backend.run(Job(run, ready, given, stand_in))


def run_both(
    engines: tuple[Engine, Engine], runs: tuple[LayerRun, LayerRun], inner: bool
) -> tuple[Tensor, list[States]]:
    """Both directions of a layer on a GPU at the same time: y ``(B, T, 2H)`` and each direction's last states.

    ``inner``: y goes to another layer, so its time may come first in memory.
    """
    runs = checked(runs[0]), checked(runs[1])
    if not invariant.active():  # whether one launch serves both follows from the length, too
        pairs = [decide(engine, run) for engine, run in zip(engines, runs, strict=True)]
        if all(decision.backend == "persistent" for decision, _ in pairs):
            jobs = [Job(r, p, p.arguments(r), None) for r, (_, p) in zip(runs, pairs, strict=True) if p]
            found = persistent.run_both(jobs[0], jobs[1], inner)
            if found is not None:
                return found
    shared = (
        *runs[1].steps,
        *runs[1].rows,
        *runs[1].initial,
        *([] if runs[1].lengths is None else [runs[1].lengths]),
    )
    one, other = (partial(run_layer, e, r) for e, r in zip(engines, runs, strict=True))
    results = _side_by_side(one, other, shared)
    return torch.cat([y for y, _ in results], -1), [last for _, last in results]


_beside: dict[tuple[int, int], Any] = {}  # by device and stream


def _side_by_side(
    first: Callable[[], Result], second: Callable[[], Result], read: Iterable[Tensor]
) -> list[Result]:
    """Two runs on two streams: each leaves much of a GPU idle. Their backward passes run side by side, too.

    ``read``: what the second one is given. Its backward pass may read that on its own stream after autograd has freed
    it, so the allocator must know of both streams; else the first stream could be given the memory too early.
    """
    now = torch.cuda.current_stream()
    place = (now.device_index, now.cuda_stream)
    if place not in _beside:
        _beside[place] = torch.cuda.Stream(now.device)  # type: ignore[no-untyped-call]
    beside = _beside[place]
    beside.wait_stream(now)
    one = first()
    try:
        with torch.cuda.stream(beside):
            other = second()
    finally:
        now.wait_stream(beside)  # also after an error: what was launched still reads the inputs
    for given in read:
        if given.is_cuda:
            given.record_stream(beside)
    for made in (other[0], *other[1]):
        made.record_stream(now)
    return [one, other]


_BY_NAME = {backend.name: backend for backend in BACKENDS}


# ---------------------------------------------------------------------- taking the choice away
@contextmanager
def force(name: BackendName | None) -> Iterator[None]:
    """Within, this backend runs recurrences, or an error says why it cannot: ``with force("triton"): …``.

    For tests and measurements; ``None`` leaves the choice to the library again.
    """
    if name is not None and name not in get_args(BackendName):
        raise ValueError(f"force: the backends are {', '.join(get_args(BackendName))}, got {name!r}.")
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)


def forced() -> BackendName | None:
    """The backend that ``force`` requests here, if any."""
    return _forced.get()


def _take(name: BackendName, decision: Decision) -> Decision:
    reason = decision.cannot.get(name)
    if reason is not None:
        raise AnaphoraError(
            f"Recurrent: the backend {name!r} was requested, but {reason}; leave the choice to the library."
        )
    rest = {b.name: decision.cannot.get(b.name, f"{name} is forced") for b in BACKENDS if b.name != name}
    return replace(decision, backend=name, why="force() requests it", others=rest, stand_in=None)
