"""What an answer rests on: integrated gradients (Sundararajan et al. 2017) and occlusion over the places of an input.

Both share out a score f(x), such as log p of the answer, over the places of the input. Integrated gradients follow the
straight line from a baseline x′ to x: IG_k = (x_k − x′_k) · ∫₀¹ ∂f(x′ + a(x − x′))/∂x_k da. They sum to f(x) − f(x′), and how
far the sum is from it (the completeness error) says how well the integral was computed. Occlusion asks the model itself: how
much f falls when a place is left out or covered.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anaphora.cancellation import each_step
from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Array, Trace

STEPS = (16, 64, 256)
"""Nodes of the Gauss–Legendre rule; more of them where the sum is further than `CLOSE` from what it should be."""
CLOSE = 0.01
MOST_NUMBERS = 1 << 21
"""Numbers (of all nodes and outputs together) beyond which no more nodes are taken."""
MOST_ROWS = 2048
"""Inputs that go through a model at once."""
MOST_LEFT_OUT = 64
"""Places, or stretches of places, of an embedder's input that are left out one by one."""

Score = Callable[[Tensor], Tensor]
"""From inputs ``(n, places…, width)`` to one score for each output ``(n, outputs)``."""


@dataclass(frozen=True)
class Integrated:
    """``values`` (outputs, places…); f at the input and at the baseline, each summed over outputs; and the completeness error
    |Σ IG − (f(x) − f(x′))| as a share of |f(x) − f(x′)|."""

    values: NDArray[Any]
    value: float
    baseline: float
    error: float


def integrated_gradients(
    score: Score, x: Tensor, baseline: Tensor, *, each: bool = True, flat: bool = True
) -> Integrated:
    """x, baseline ``(1, places…, width)``. ``each`` output has a row of its own; without it there is one row, of their sum.
    ``flat`` sums over the last axis, which is a vector's width.

        found = integrated_gradients(lambda x: x.square().sum(2), x, torch.zeros_like(x))    # x ** 2
    """
    for steps in STEPS:
        found = _integrated(score, x, baseline, steps, each, flat)
        if found.error <= CLOSE or x[0].numel() * steps * len(found.values) > MOST_NUMBERS:
            break
    return found


def _integrated(score: Score, x: Tensor, baseline: Tensor, steps: int, each: bool, flat: bool) -> Integrated:
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    shares = torch.from_numpy((nodes + 1) / 2).to(x)
    importance = torch.from_numpy(weights / 2).to(x)
    shape = (steps, *([1] * (x.dim() - 1)))
    way = (baseline + shares.view(shape) * (x - baseline)).detach().requires_grad_()
    with torch.enable_grad():
        ends = torch.cat([x, baseline]).detach()
        scores = score(torch.cat([way, ends])).double()  # (steps + 2, outputs)
        path = scores[:steps] * importance.double()[:, None]
        rows = path.sum(0) if each else path.sum()[None]
        grads = [
            torch.autograd.grad(row, way, retain_graph=i + 1 < len(rows), materialize_grads=True)[0].sum(0)
            for i, row in enumerate(rows.unbind())
        ]
    values = torch.stack(grads).double() * (x - baseline).double()  # (outputs, places…, width)
    value, start = (float(one) for one in scores[steps:].detach().sum(1))
    if not np.isfinite(value) or not np.isfinite(start):
        raise AnaphoraError("the score of this answer is not finite, so it cannot be shared out.")
    gap = abs(float(values.sum()) - (value - start))
    error = gap / max(abs(value - start), 1e-6)
    return Integrated((values.sum(-1) if flat else values).cpu().numpy(), value, start, error)


@torch.no_grad()
def occluded(
    score: Score, x: Tensor, baseline: Tensor, groups: Sequence[Any], *, like: tuple[int, ...]
) -> NDArray[Any]:
    """How much the score falls when places are covered by the baseline, ``(outputs, *like)``.

    ``groups`` are indices into the places ``like`` of x ``(1, *like, width)``, covered together; a place in a group has its
    group's value divided by the size of the group, so that values sum to the groups' sum.
    """
    whole = score(x)[0].double()
    falls = np.zeros((len(whole), *like))
    for first in each_step(range(0, len(groups), MOST_ROWS)):
        part = groups[first : first + MOST_ROWS]
        rows = x.expand(len(part), *x.shape[1:]).clone()
        for row, group in zip(rows, part, strict=True):
            row[group] = baseline[0][group]
        fall = (whole - score(rows).double()).cpu().numpy()  # (groups, outputs)
        for group, one in zip(part, fall, strict=True):
            size = falls[0][group].size
            falls[(slice(None), *group) if isinstance(group, tuple) else (slice(None), group)] = (
                one / max(size, 1)
            ).reshape(-1, *([1] * falls[0][group].ndim))
    return falls


def stretches(count: int, most: int) -> list[slice]:
    """``count`` places in at most ``most`` stretches of about the same length."""
    edges = np.linspace(0, count, min(count, most) + 1).round().astype(int).tolist()
    return [slice(a, b) for a, b in itertools.pairwise(edges) if b > a]


@torch.no_grad()
def with_each_left_out(
    trace: Trace, embed: Callable[[list[Any]], Tensor], encoded: Any, own: Tensor, places: list[str]
) -> Trace:
    """``trace`` with ``occlusion`` (source): how far the vector ``own`` ``(1, width)`` turns when a place is left out, 1 − cos.

    ``embed`` makes vectors of inputs, ``places`` names those of the input ``encoded``; of more than `MOST_LEFT_OUT` whole
    stretches are left out.
    """
    if len(encoded) < 2:  # nothing would be left
        return trace
    groups = stretches(len(encoded), MOST_LEFT_OUT)
    falls = np.zeros(len(encoded))
    for some in each_step(range(0, len(groups), 32)):
        part = groups[some : some + 32]
        vectors = embed([np.delete(encoded, group, 0) for group in part])
        moved = 1 - torch.nn.functional.cosine_similarity(vectors, own)
        for group, value in zip(part, moved.double().cpu().tolist(), strict=True):
            falls[group] = value / (group.stop - group.start)
    known = {"of": "the direction of the vector", "without": "left out", "value": 1.0}
    return replace(
        trace,
        tokens={**trace.tokens, "source": places[: len(encoded)]},
        arrays={**trace.arrays, "occlusion": Array(("source",), falls)},
        facts={**trace.facts, "attribution": known},
    )


def squares(rows: int, columns: int, most: int) -> list[tuple[slice, slice]]:
    """A grid of at most ``most`` × ``most`` rectangles over a picture."""
    return [(down, across) for down in stretches(rows, most) for across in stretches(columns, most)]


def looked_up(module: nn.Module, call: Callable[[], Any]) -> Tensor:
    """What ``module`` (an embedding) puts out at its first call ``(1, places, width)`` when ``call`` runs the model."""
    found: list[Tensor] = []
    handle = module.register_forward_hook(lambda m, arguments, output: found.append(output.detach()))
    try:
        with torch.no_grad():
            call()
    finally:
        handle.remove()
    if not found:
        raise AnaphoraError(
            "the model looks up no vectors, so an answer cannot be shared out over its input."
        )
    return found[0]


@contextmanager
def replaced(module: nn.Module, x: Tensor) -> Iterator[None]:
    """Inside the ``with`` block the first call of ``module`` puts out ``x``."""
    calls = 0

    def give(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x if calls == 1 else output

    handle = module.register_forward_hook(give)
    try:
        yield
    finally:
        handle.remove()


def through(module: nn.Module, run: Callable[[int], Tensor]) -> Score:
    """The score of vectors in place of what ``module`` puts out; ``run(n)`` runs the model on its input n times over."""

    def score(x: Tensor) -> Tensor:
        with replaced(module, x):
            return run(len(x))

    return score


def usual_vector(module: nn.Module, like: Tensor) -> Tensor:
    """The mean of the vectors of all symbols, which stands for no symbol in particular ``(width,)``; where ``module`` makes vectors
    in another way, the mean of those of the input. A zero vector would do for both, but norms of it are not smooth."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or weight.shape[1] != like.shape[-1]:
        return like.mean((0, 1))
    return weight.detach().mean(0) * float(getattr(module, "scale", 1.0))


def attribution_arrays(
    found: Integrated, occlusion: NDArray[Any], axes: tuple[str, ...], *, of: str, without: str
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays ``integrated_gradients`` and ``occlusion`` over ``axes`` and the facts that belong to them; ``of`` says what was
    shared out, ``without`` what occlusion did to a place."""
    one = len(axes) < found.values.ndim  # a single output has no axis of its own
    arrays = {
        "integrated_gradients": Array(axes, found.values[0] if one else found.values),
        "occlusion": Array(axes, occlusion[0] if one else occlusion),
    }
    known = {"value": found.value, "baseline": found.baseline, "error": found.error}
    return arrays, {"attribution": {"of": of, "without": without, **known}}


def attribute_symbols(
    module: nn.Module,
    run: Callable[[int], Tensor],
    *,
    places: int,
    kept: Sequence[int] = (),
    left_out: Callable[[int], Tensor] | None = None,
    each: bool = False,
) -> tuple[Integrated, NDArray[Any]]:
    """Integrated gradients and occlusion ``(outputs, places)`` over symbols that ``module`` (an embedding) looks up.

    ``run(n)`` runs the model on the input n times over and returns scores ``(n, outputs)``. Places ``kept`` (marks of the
    beginning and the end) stay as they are. ``left_out(k)`` is the score ``(outputs,)`` of the input without place k; where it
    is None, the vector of a place becomes that of no symbol in particular instead. Raises an `AnaphoraError` where the model looks up other places.
    """
    x = looked_up(module, lambda: run(1))
    before = x.shape[1] - places if x.dim() == 3 else -1  # what fills a window before the first symbol
    if before < 0 or x.shape[0] != 1:
        raise AnaphoraError("the model does not look up one vector for each symbol of its input.")
    baseline = usual_vector(module, x).expand_as(x).clone()
    same = [*range(before), *(before + k for k in kept)]
    baseline[:, same] = x[:, same]
    score = through(module, run)
    found = integrated_gradients(score, x, baseline, each=each)
    found = replace(found, values=found.values[:, before:])
    free = [k for k in range(places) if k not in set(kept)]
    with torch.no_grad():
        if left_out is None:
            groups = [slice(before + k, before + k + 1) for k in free]
            falls = occluded(score, x, baseline, groups, like=(before + places,))[:, before:]
        else:
            whole = run(1)[0].double()
            falls = np.zeros((len(whole), places))
            for k in free:
                falls[:, k] = (whole - left_out(k).double()).cpu().numpy()
    return found, falls if each else falls.sum(0, keepdims=True)
