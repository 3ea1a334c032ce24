"""Look inside an encoder-decoder while it writes one output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from anaphora.data.symbols import BOS, EOS
from anaphora.errors import AnaphoraError
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn import inside
from anaphora.nn.attention.multihead import MultiHead
from anaphora.nn.embedding import Embedding
from anaphora.probe.attribution import attribute_symbols, attribution_arrays
from anaphora.probe.gradients import pair_gradients
from anaphora.probe.noted import (
    Note,
    Noted,
    as_numpy,
    inner_arrays,
    joined,
    said_layers,
    stacked,
    weights_hash,
)
from anaphora.probe.reading import ablation, position_arrays
from anaphora.probe.trace import Array, Layer, Trace
from anaphora.search import BeamNode, NBest

START, END = "<s>", "</s>"
ATTENTION = {
    "cross_attention": ("head", "target", "source"),
    "self_attention": ("head", "fed", "key"),
    "encoder_attention": ("head", "query", "key"),
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
        self_attention (layer, head, fed, key), encoder_attention (layer, head, query, key)
        decoder_states (layer, fed, unit), encoder_states (layer, source, unit); a layer that reads in both
                                                     directions has an entry for each, forward first; with the
                                                     same axes decoder_cells, decoder_gate_forget … of cells
        log_probs (target,)                          log p of the symbols of the target
        top_symbols, top_log_probs (target, rank)    the 5 most probable symbols at each place
        positions (step, unit)                       what a Transformer adds at each place of the source
        source_gradients (target, source)            with ``gradients`` in `what`: ‖∂(−log p_t)/∂x_s‖, and with respect
        target_gradients (target, fed)               to the symbols that the decoder was fed, from the start mark on

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
    spell = pieces or (lambda ids: [str(symbol) for symbol in ids])
    first = START if start == BOS else spell([start])[0]
    tokens = {
        "source": [*source_pieces, END],
        "target": [*target_pieces, END],
        "fed": [first, *target_pieces],
    }
    arrays, known = sided_arrays(model, joined(model, notes), len(tokens["target"]), len(tokens["source"]))
    arrays |= {**position_arrays(model.encoder, len(tokens["source"])), **extra, **shared[0]}
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
        "target_gradients": Array(("target", "fed"), found[1]),
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
    model: Seq2Seq, notes: Sequence[Note], target: int, source: int
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Sort what the modules noted by their place in the model, and say which layers it is of. A decoder's states stand at
    the symbols that it was fed."""
    noted = Noted(torch.empty(0), 0.0, list(notes))
    arrays, layers = inner_arrays(noted, under="encoder", side="encoder", axis="source")
    for found, known in (
        inner_arrays(noted, under="decoder", side="decoder", axis="fed"),
        heads_by_kind(model, noted),
    ):
        arrays |= found
        layers |= known
    across = {path for path, module in model.named_modules() if module in set(model.decoder.attentions)}
    single = [note for note in noted.kept("weights", ndim=3) if note.path in across]
    how = None
    if single:
        arrays["alignment"] = Array(("target", "source"), as_numpy(single[-1].value[0]))
        how = "attention"
    elif "cross_attention" in arrays:
        heads = arrays["cross_attention"].values[-1]
        arrays["alignment"] = Array(("target", "source"), heads.mean(0))
        how = f"attention, mean of the {len(heads)} heads of {layers['cross_attention'][-1]}"
    if how and arrays["alignment"].values.shape != (target, source):
        raise AnaphoraError(
            f"The model noted an alignment of shape {arrays['alignment'].values.shape} for {target} target and {source} source symbols; "
            "note (batch, target, source)."
        )
    return arrays, {"alignment": how, **said_layers(layers)}


def heads_by_kind(
    model: Seq2Seq, noted: Noted, *, prompted: int | None = None, source: int | None = None
) -> tuple[dict[str, Array], dict[str, list[Layer]]]:
    """The weights of heads by the kind of their attention, and their layers. ``prompted``: so many places are kept of a
    decoder that reads a prompt before them; what of a row of ``self_attention`` is missing from 1 then went to it. ``source``:
    of the encoder only layers with so many places are kept (0: none)."""
    across = {path for path, module in model.named_modules() if module in set(model.decoder.attentions)}
    groups: dict[str, list[Note]] = {}
    for note in noted.kept("weights", ndim=4):
        kind = "cross_attention" if note.path in across else "encoder_attention"
        if kind == "encoder_attention" and note.path.startswith("decoder"):
            kind = "self_attention"
        if kind == "encoder_attention" and source is not None and note.value.shape[-2:] != (source, source):
            continue
        if prompted is not None and kind != "encoder_attention":
            value = note.value[:, :, -prompted:]
            note = note._replace(value=value[..., -prompted:] if kind == "self_attention" else value)
        groups.setdefault(kind, []).append(note)
    arrays, layers = {}, {}
    for kind, notes in groups.items():
        if found := stacked(notes, ATTENTION[kind]):
            arrays[kind], layers[kind] = found
    return arrays, layers


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
