"""Look inside an encoder-decoder while it writes one output."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anaphora.data.symbols import BOS, EOS
from anaphora.errors import AnaphoraError
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn import inside
from anaphora.nn.attention.multihead import MultiHead
from anaphora.nn.embedding import Embedding
from anaphora.nn.inside import Note
from anaphora.probe.attribution import attribute_symbols, attribution_arrays
from anaphora.probe.gradients import pair_gradients
from anaphora.probe.noted import GATES, STATES, as_numpy, weights_hash
from anaphora.probe.reading import ablation, position_arrays
from anaphora.probe.trace import Array, Trace
from anaphora.search import BeamNode, NBest

END = "</s>"
ATTENTION = {
    "cross_attention": ("layer", "head", "target", "source"),
    "self_attention": ("layer", "head", "target", "key"),
    "encoder_attention": ("layer", "head", "query", "key"),
}
"""Kinds of attention that have heads, and their axes."""
MOST_ATTRIBUTED = 24
"""Output symbols up to which each has an attribution of its own."""
TOP = 5
"""How many of the most probable symbols are kept at each place of the output."""


def probe_seq2seq(
    model: Seq2Seq,
    source_ids: Sequence[int],
    source_pieces: Sequence[str],
    target_ids: Sequence[int],
    target_pieces: Sequence[str],
    *,
    nbest: NBest | None = None,
    pieces: Callable[[list[int]], list[str]] | None = None,
    facts: Mapping[str, Any] | None = None,
    what: Sequence[str] = (),
    start: int = BOS,
) -> Trace:
    """The inside of `model` as it reads the source and writes the given target (both without specials), after `start`.

    The model runs twice on the pair: once as always, once noting what happens; the trace says how far the
    two are apart. `model` takes (source (1, S), source_lengths (1,), target_in (1, T), target_lengths (1,))
    and returns logits (1, T, V), T and S counting EOS; `model.decoder.attentions` names the modules that
    attend to the source. Arrays:

        alignment (target, source)                   the attention paid to each source symbol
        cross_attention (layer, head, target, source)   of a Transformer, as are the next two
        self_attention (layer, head, target, key), encoder_attention (layer, head, query, key)
        decoder_states (layer, target, unit), encoder_states (layer, source, unit); a layer that reads in
                                                     both directions counts twice, forward first; with the
                                                     same axes decoder_cells, decoder_gate_forget … of cells
        log_probs (target,)                          log p of the symbols of the target
        top_symbols, top_log_probs (target, rank)    the 5 most probable symbols at each place
        positions (step, unit)                       what a Transformer adds at each place of the source
        source_gradients (target, source)            with ``gradients`` in `what`: ‖∂(−log p_t)/∂x_s‖, and with respect
        target_gradients (step, time)                to the symbols that the decoder was fed, from the start mark on

    `nbest` adds the beam tree as a table, `pieces` (ids to text) the spelling of its symbols. A Transformer's
    alignment is the mean over the heads of its last layer.
    """
    device = next(model.parameters()).device
    inputs = _tensors(source_ids, target_ids, device, start)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            plain = model(*inputs)
            with inside.record() as notes:
                seen = model(*inputs)
        extra = _gradients(model, inputs, _ids(target_ids, device)) if "gradients" in what else {}
        shared = _attributed(model, source_ids, target_ids, start) if "attribution" in what else ({}, {})
    finally:
        model.train(was_training)
    tokens = {"source": [*source_pieces, END], "target": [*target_pieces, END]}
    arrays, known = sided_arrays(model, notes, len(tokens["target"]), len(tokens["source"]))
    arrays |= {**position_arrays(model.encoder, len(tokens["source"])), **extra, **shared[0]}
    spell = pieces or (lambda ids: [str(symbol) for symbol in ids])
    written, tables = _written(seen[0].float().log_softmax(-1), _ids(target_ids, device), spell)
    arrays |= written
    known |= shared[1] | {
        "model": weights_hash(model),
        "dtype": str(seen.dtype).removeprefix("torch."),
        "max_difference": float((seen.float() - plain.float()).abs().max()),
        "output": _origin(nbest),
    }
    if "ablation" in what:
        tables["ablation"] = _ablation(model, inputs, _ids(target_ids, device))
    if nbest is not None:
        tables |= search_tables(nbest, spell)
    return Trace(tokens, arrays, {**known, **(facts or {})}, tables)


def _origin(nbest: NBest | None) -> str:
    if not nbest:
        return "given"
    return "found by the search" if nbest[0].finished else "found by the search, cut at its greatest length"


def _ids(symbols: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([*symbols, EOS], device=device)


def _tensors(
    source: Sequence[int], target: Sequence[int], device: torch.device, start: int
) -> tuple[Tensor, ...]:
    def length(symbols: Sequence[int]) -> Tensor:
        return torch.tensor([len(symbols) + 1], device=device)

    target_in = torch.tensor([[start, *target]], device=device)
    return _ids(source, device)[None], length(source), target_in, length(target)


def _gradients(model: Seq2Seq, inputs: tuple[Tensor, ...], wanted: Tensor) -> dict[str, Array]:
    """Gradients of −log p of each output symbol with respect to what was read and what had been written."""
    looked_up = [
        next((m for m in side.modules() if isinstance(m, Embedding)), None)
        for side in (model.encoder, model.decoder)
    ]
    modules = [module for module in looked_up if module is not None]

    def losses(logits: Tensor) -> Tensor:
        return -logits[0].float().log_softmax(-1).gather(1, wanted[:, None])[:, 0]

    found = pair_gradients(modules, lambda: model(*inputs), losses)
    if len(found) != 2:
        return {}
    return {
        "source_gradients": Array(("target", "source"), found[0]),
        "target_gradients": Array(("step", "time"), found[1]),
    }


def _ablation(model: Seq2Seq, inputs: tuple[Tensor, ...], wanted: Tensor) -> list[dict[str, Any]]:
    """For each head of each kind of attention, the mean loss of the target without it minus the mean loss with it."""
    cross = set(model.decoder.attentions)
    groups: dict[str, list[MultiHead]] = {
        "cross_attention": [],
        "self_attention": [],
        "encoder_attention": [],
    }
    for path, module in model.named_modules():
        if isinstance(module, MultiHead):
            side = "self_attention" if path.startswith("decoder") else "encoder_attention"
            groups["cross_attention" if module in cross else side].append(module)

    def losses(logits: Tensor) -> Tensor:
        return -logits[0].float().log_softmax(-1).gather(1, wanted[:, None])[:, 0]

    return [
        {**row, "kind": kind}
        for kind, modules in groups.items()
        for row in ablation(model, lambda: model(*inputs), losses, modules)
    ]


def _attributed(
    model: Seq2Seq, source: Sequence[int], target: Sequence[int], start: int
) -> tuple[dict[str, Array], dict[str, Any]]:
    """log p of the output shared out over the source: symbol by symbol where there are not too many of them."""
    device = next(model.parameters()).device
    embedding = next((m for m in model.encoder.modules() if isinstance(m, Embedding)), None)
    if embedding is None or not source:
        return {}, {}
    each = len(target) < MOST_ATTRIBUTED
    wanted = _ids(target, device)

    def run(rows: list[Sequence[int]]) -> Tensor:
        inputs = [
            torch.cat(parts)
            for parts in zip(*(_tensors(row, target, device, start) for row in rows), strict=True)
        ]
        log_probs = model(*inputs).float().log_softmax(-1)
        found: Tensor = log_probs.gather(2, wanted.expand(len(rows), -1)[..., None])[..., 0]
        return found

    found, falls = attribute_symbols(
        embedding,
        lambda n: run([source] * n),
        places=len(source) + 1,
        kept=[len(source)],
        left_out=lambda k: run([[*source[:k], *source[k + 1 :]]])[0],
        each=each,
    )
    axes = ("target", "source") if each else ("source",)
    return attribution_arrays(found, falls, axes, of="log p(output)", without="left out")


def sided_arrays(
    model: Seq2Seq, notes: Iterable[Note], target: int, source: int
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Sort what the modules noted by their place in the model; what was noted step by step is joined."""
    paths = {module: path for path, module in model.named_modules()}
    joined: dict[tuple[str, str], list[Tensor]] = {}
    for note in notes:
        if note.module in paths:
            one_step = note.name in (*STATES, *GATES, "c") and note.value.ndim == 2
            value = note.value.unsqueeze(1) if one_step else note.value
            joined.setdefault((paths[note.module], note.name), []).append(value)
    layers: dict[str, list[NDArray[Any]]] = {}
    attentive = {paths.get(module) for module in model.decoder.attentions}
    for (path, name), values in joined.items():
        kind = _kind(path, name, values[0].ndim, path in attentive)
        if kind is not None:
            layers.setdefault(kind, []).append(as_numpy(torch.cat(values, dim=-2)[0]))
    if getattr(model.encoder, "reverse", False):  # noted in reading order
        for kind in [kind for kind in layers if kind.startswith("encoder_") and kind != "encoder_attention"]:
            layers[kind] = [layer[::-1].copy() for layer in layers[kind]]
    arrays: dict[str, Array] = {}
    for kind, found in layers.items():
        axes = ATTENTION.get(kind, ("layer", "target" if kind.startswith("decoder") else "source", "unit"))
        if kind != "alignment" and len({layer.shape for layer in found}) == 1:
            arrays[kind] = Array(axes, np.stack(found))
    how = None
    if "alignment" in layers:
        arrays["alignment"] = Array(("target", "source"), layers["alignment"][-1])
        how = "attention"
    elif "cross_attention" in layers:
        heads = layers["cross_attention"][-1]
        arrays["alignment"] = Array(("target", "source"), heads.mean(0))
        how = f"attention, mean of the {heads.shape[0]} heads of layer {len(layers['cross_attention'])}"
    if how and arrays["alignment"].values.shape != (target, source):
        raise AnaphoraError(
            f"The model noted an alignment of shape {arrays['alignment'].values.shape} for {target} target "
            f"and {source} source symbols; its attention must note weights (batch, target, source)."
        )
    return arrays, {"alignment": how}


def _kind(path: str, name: str, ndim: int, attends_to_source: bool) -> str | None:
    """Which array a note belongs to, from the module's place in the model."""
    side = path.split(".")[0]
    if name == "weights" and attends_to_source:
        return "alignment" if ndim == 3 else "cross_attention"
    if name == "weights" and ndim == 4:
        return "self_attention" if side == "decoder" else "encoder_attention"
    if ndim == 3 and side in ("encoder", "decoder"):
        kinds = {**dict.fromkeys(STATES, "states"), "c": "cells", **{gate: f"gate_{gate}" for gate in GATES}}
        return f"{side}_{kinds[name]}" if name in kinds else None
    return None


def _written(
    log_probs: Tensor, target: Tensor, spell: Callable[[list[int]], list[str]]
) -> tuple[dict[str, Array], dict[str, list[dict[str, Any]]]]:
    """Of log p (target, V): that of the symbols of the target (target,), and the most probable symbols at each place."""
    top = log_probs.topk(min(TOP, log_probs.shape[-1]), dim=-1)
    own = log_probs.gather(1, target[:, None])[:, 0]
    arrays = {
        "log_probs": Array(("target",), as_numpy(own)),
        "top_log_probs": Array(("target", "rank"), as_numpy(top.values)),
        "top_symbols": Array(("target", "rank"), top.indices.cpu().numpy()),
    }
    table = [
        {"pieces": spell(ids), "log_probs": [value if math.isfinite(value) else None for value in values]}
        for ids, values in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]
    return arrays, {"top": table}


def search_tables(nbest: NBest, spell: Callable[[list[int]], list[str]]) -> dict[str, list[dict[str, Any]]]:
    """The beam tree, a record per node: `parent` is the rank of its parent among those kept a step before."""
    best = [
        {
            "pieces": spell(h.tokens),
            "score": h.score,
            "log_prob": h.log_prob,
            "steps": h.steps,
            "finished": h.finished,
        }
        for h in nbest
    ]
    nodes = [
        _node_record(node, number, fate, spell)
        for number, step in enumerate(nbest.tree or [])
        for fate, group in (("kept", step.kept), ("finished", step.finished), ("pruned", step.pruned))
        for node in group
    ]
    return {"nbest": best, "beam": nodes} if nodes else {"nbest": best}


def _node_record(
    node: BeamNode, step: int, fate: str, spell: Callable[[list[int]], list[str]]
) -> dict[str, Any]:
    return {
        "step": step,
        "fate": fate,
        "rank": node.rank if fate == "kept" else None,
        "parent": node.parent.rank if node.parent is not None else None,
        "symbol": node.symbol,
        "piece": END if node.symbol == EOS else spell([node.symbol])[0],
        "step_log_prob": node.step,
        "log_prob": node.log_prob,
        "score": node.score,
    }
