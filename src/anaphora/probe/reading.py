"""Look inside a model that reads one sequence: a language model, a tagger, a classifier, a forecaster."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anaphora.errors import AnaphoraError
from anaphora.models.classifier import VectorInput
from anaphora.models.frontend import ConvolvedFrames, DenseFrames
from anaphora.nn.attention.multihead import MultiHead
from anaphora.nn.embedding import Embedding
from anaphora.nn.positions import Learned, Sinusoidal
from anaphora.nn.recurrent import Recurrent
from anaphora.probe.gradients import (
    MAX_SPECTRUM,
    input_gradients,
    jacobian_spectrum,
    norms_of,
    state_gradients,
    state_jacobians,
)
from anaphora.probe.noted import as_numpy, inner_arrays, run_noted, said_layers, weights_hash
from anaphora.probe.recurrence import recurrence_arrays
from anaphora.probe.trace import Array, Trace

SOURCES = (Embedding, VectorInput, DenseFrames, ConvolvedFrames)
"""What puts out the vector of each place, with respect to which gradients are taken."""
TOP = 20
"""How many of the most probable symbols are spelled at each place."""
WHAT = ("gradients", "jacobians", "ablation", "recurrence", "attribution", "lens")
"""What costs more than one run of the model, and is computed on request only."""


def probe_reading(
    model: nn.Module,
    call: Callable[[], Tensor],
    *,
    places: Sequence[str],
    facts: Mapping[str, Any],
    losses: Callable[[Tensor], Tensor] | None = None,
    losses_of: Sequence[str] | None = None,
    what: Sequence[str] = (),
    margin: int = 0,
) -> tuple[Trace, Tensor]:
    """The inside of ``model`` as ``call()`` runs it on a batch of one, and what it put out.

    ``places`` names the symbols that were read, without ``margin`` at either end that the model reads besides. ``losses`` turns an output into one loss per place (or one in all); ``losses_of`` says
    what each is of, if not of the place itself. For ``what``: ``gradients`` (‖∂L_t/∂x_k‖, and with respect to states where they have an order in time),
    ``jacobians`` (singular values of ∂s_t/∂s_{t−1} and of their products), ``ablation`` (how the loss changes when a
    head is silenced) and ``recurrence`` (`recurrence_arrays`: decays and effective weights of linear recurrences). Arrays as in `inner_arrays`, and ``positions``.
    """
    unknown = [name for name in what if name not in WHAT]
    if unknown:
        raise AnaphoraError(f"what must be of {', '.join(WHAT)}, not {unknown[0]!r}.")
    noted = run_noted(model, call)
    inside, layers = inner_arrays(noted, places=len(places) + 2 * margin)
    arrays = {
        name: array
        for name, whole in inside.items()
        if (array := _without_margin(whole, len(places), margin)) is not None
    }
    tables: dict[str, list[dict[str, Any]]] = {}
    if "gradients" in what and losses is not None:
        arrays |= _gradients(model, call, losses, len(places))
    if "jacobians" in what:
        arrays |= _jacobians(model, call, len(places))
    if "recurrence" in what:
        arrays |= recurrence_arrays(model, call, len(places))
    if "ablation" in what and losses is not None:
        tables["ablation"] = ablation(model, call, losses)
    arrays |= position_arrays(model, len(places))
    known = {
        **facts,
        **said_layers(layers),
        "places": "read",
        "model": weights_hash(model),
        "dtype": str(noted.output.dtype).removeprefix("torch."),
        "max_difference": noted.difference,
    }
    if losses is not None:
        known["loss"] = float(losses(noted.output).mean())
    tokens = {"time": list(places)} | ({} if losses_of is None else {"loss": list(losses_of)})
    return Trace(tokens, arrays, known, tables), noted.output


def _without_margin(array: Array, places: int, margin: int) -> Array | None:
    """The array at the ``places`` alone; None where it is of others."""
    if "time" not in array.axes:
        return array
    axis = array.axes.index("time")
    if array.values.shape[axis] != places + 2 * margin:
        return None
    kept = np.take(array.values, range(margin, margin + places), axis)
    return array._replace(values=kept) if margin else array


def add_next_symbols(
    trace: Trace, logits: Tensor, spell: Callable[[list[int]], list[str]], *, whole: bool = True
) -> Trace:
    """The same with what was expected after each place, from ``logits`` (time, V): the table ``top``, and with ``whole`` the
    array ``sorted_log_probs`` (time, rank) of the whole distribution, best first."""
    log_probs = logits.detach().float().log_softmax(-1)
    best = log_probs.sort(dim=-1, descending=True)
    arrays = dict(trace.arrays)
    if whole:
        arrays["sorted_log_probs"] = Array(("time", "rank"), np.maximum(as_numpy(best.values), -1e30))
    top = [
        {"pieces": spell(ids), "log_probs": [v if math.isfinite(v) else None for v in values]}
        for ids, values in zip(best.indices[:, :TOP].tolist(), best.values[:, :TOP].tolist(), strict=True)
    ]
    return replace(trace, arrays=arrays, tables={**trace.tables, "top": top})


@torch.no_grad()
def ablation(
    model: nn.Module,
    call: Callable[[], Tensor],
    losses: Callable[[Tensor], Tensor],
    layers: Sequence[MultiHead] | None = None,
) -> list[dict[str, Any]]:
    """For each head of each `MultiHead` layer (of all, or of ``layers``), the mean loss without it minus the mean loss with it.

    A head is silenced by taking its columns out of the output projection W_O, which is what it speaks through.
    """
    was_training = model.training
    model.eval()
    try:
        usual = float(losses(call()).mean())
        if layers is None:
            layers = [module for module in model.modules() if isinstance(module, MultiHead)]
        rows = []
        for layer, module in enumerate(layers, start=1):
            for head in range(module.heads):
                with module.silenced(head):
                    rows.append(
                        {"layer": layer, "head": head + 1, "loss": float(losses(call()).mean()) - usual}
                    )
    finally:
        model.train(was_training)
    return rows


def _gradients(
    model: nn.Module, call: Callable[[], Tensor], losses: Callable[[Tensor], Tensor], places: int
) -> dict[str, Array]:
    was_training = model.training
    model.eval()
    try:
        found: dict[str, Array] = {}
        sources = [module for module in model.modules() if isinstance(module, SOURCES)]
        if sources:
            norms = input_gradients(sources[0], call, losses)
            if norms.shape[1] == places:
                found["input_gradients"] = Array(("step", "time"), norms)
        layers = [module for module in model.modules() if isinstance(module, Recurrent)]
        if len(layers) == 1 and not layers[0].bidirectional:
            through = _through_states(layers[0], call, losses)
            if through is not None and through.shape[1] == places:
                found["state_gradients"] = Array(("step", "time"), through)
    finally:
        model.train(was_training)
    return found


def _through_states(
    recurrent: Recurrent, call: Callable[[], Tensor], losses: Callable[[Tensor], Tensor]
) -> np.ndarray[Any, Any] | None:
    """Run the model as always to see what its recurrent layer is given; then once more with the layer unrolled."""
    given = _given(recurrent, call)
    if given is None:
        return None

    def read(y: Tensor, last: tuple[Tensor, ...]) -> Tensor:
        put = recurrent.register_forward_hook(lambda module, arguments, output: (y, last))
        try:
            return losses(call())
        finally:
            put.remove()

    found = state_gradients(recurrent, given, read)
    return found if len(found) else None


def _given(recurrent: Recurrent, call: Callable[[], Tensor]) -> Tensor | None:
    """What the layer reads ``(1, T, inputs)`` when the model is run, if that is one sequence read once."""
    given: list[Tensor] = []
    handle = recurrent.register_forward_pre_hook(lambda module, arguments: given.append(arguments[0]))
    try:
        with torch.no_grad():
            call()
    finally:
        handle.remove()
    return given[0] if len(given) == 1 and given[0].shape[0] == 1 else None


def _jacobians(model: nn.Module, call: Callable[[], Tensor], places: int) -> dict[str, Array]:
    """``jacobian_norms`` (time): σ_max(∂s_t/∂s_{t−1}), and ``jacobian_products`` (time): σ_max(∂s_T/∂s_t). Of states that are
    not too wide also ``jacobian_singular`` (time, rank), ``jacobian_eigenvalues`` (time, coordinate, unit) and
    ``jacobian_growth`` (time), as in `jacobian_spectrum`."""
    layers = [module for module in model.modules() if isinstance(module, Recurrent)]
    if len(layers) != 1 or layers[0].bidirectional:
        return {}
    was_training = model.training
    model.eval()
    try:
        given = _given(layers[0], call)
        if given is None or given.shape[1] != places:
            return {}
        jacobians = state_jacobians(layers[0], given)
    finally:
        model.train(was_training)
    own, products = norms_of(jacobians)
    found = {"jacobian_norms": Array(("time",), own), "jacobian_products": Array(("time",), products)}
    if len(jacobians[0]) <= MAX_SPECTRUM:
        singular, eigenvalues, growth = jacobian_spectrum(jacobians)
        found["jacobian_singular"] = Array(("time", "rank"), singular)
        found["jacobian_eigenvalues"] = Array(("time", "coordinate", "unit"), eigenvalues)
        found["jacobian_growth"] = Array(("time",), growth)
    return found


def position_arrays(model: nn.Module, length: int) -> dict[str, Array]:
    """``positions`` (step, unit): the vectors that the first module of positions adds; empty where there is none."""
    for module in model.modules():
        if isinstance(module, Sinusoidal):
            width = module.width
        elif isinstance(module, Learned):
            width = module.weight.shape[1]
            length = min(length, module.places)
        else:
            continue
        device = next(model.parameters()).device
        with torch.no_grad():
            table = module(torch.zeros(1, length, width, device=device))[0]
        # named by a rank, since places beyond the text may be among them
        return {"positions": Array(("step", "unit"), as_numpy(table))}
    return {}
