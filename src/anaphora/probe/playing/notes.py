"""Reels from what was noted while a model ran: recurrent cells, attention, Transformers layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.cell import Cell
from anaphora.nn.inside import Note
from anaphora.nn.recurrent import Recurrent
from anaphora.nn.transformer.layers import DecoderLayer, EncoderLayer, Sublayer
from anaphora.probe.noted import as_numpy
from anaphora.probe.playing.cells import play_cell
from anaphora.probe.playing.reel import Equation, Reel, all_of, columns

MOST_PLACES = 64
"""Places of a Transformer that can be followed through its layers."""


@dataclass
class Seen:
    """What was seen of a model: notes, and each sublayer's input and output ``(time, width)``, by module."""

    notes: list[Note] = field(default_factory=list)
    sublayers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)


@contextmanager
def seeing(model: nn.Module) -> Iterator[Seen]:
    """Collects what ``model`` does inside the ``with`` block while something records it."""
    seen = Seen()

    def keep(module: nn.Module, arguments: tuple[object, ...], output: Tensor) -> None:
        x = arguments[0]
        if inside.recording() and isinstance(x, Tensor) and x.dim() == 3 and x.shape[0] == 1:
            seen.sublayers.setdefault(id(module), (x[0].detach(), output[0].detach()))

    kinds = (Sublayer, EncoderLayer, DecoderLayer)
    handles = [m.register_forward_hook(keep) for m in model.modules() if isinstance(m, kinds)]
    try:
        with inside.watching() as notes:
            yield seen
        seen.notes = notes
    finally:
        for handle in handles:
            handle.remove()


def reels_of(
    model: nn.Module, seen: Seen, labels: Callable[[int], list[str]], keys: Callable[[int], list[str]]
) -> dict[str, Callable[[], Reel]]:
    """What of ``model`` can be played, by name; ``labels(n)`` names n places in time, ``keys(n)`` n places looked at."""
    return {
        **dict(_cells(model, seen, labels)),
        **dict(_attentions(model, seen, labels, keys)),
        **dict(_layers(model, seen, labels)),
    }


# ---------------------------------------------------------------- recurrent cells
def _cells(
    model: nn.Module, seen: Seen, labels: Callable[[int], list[str]]
) -> Iterator[tuple[str, Callable[[], Reel]]]:
    owners = {
        id(cell): (path, layer, module)
        for path, module in model.named_modules()
        if isinstance(module, Recurrent)
        for layer, cell in enumerate(module.cells)
    }
    for path, cell in model.named_modules():
        if not isinstance(cell, Cell):
            continue
        rows = {name: over_time(seen.notes, cell, name) for name in _wanted(cell)}
        if any(value is None for value in rows.values()):
            continue
        given = {name: value for name, value in rows.items() if value is not None}
        count = min(len(value) for value in given.values())
        given = {name: value[:count] for name, value in given.items()}
        name, places = f"{type(cell).__name__} {path}", labels(count)
        if id(cell) in owners:
            whole, number, recurrent = owners[id(cell)]
            way = (", backward" if number % 2 else ", forward") if recurrent.bidirectional else ""
            side = whole.split(".")[0]
            where = f"{side} " if side in ("encoder", "decoder") else ""
            name = f"{where}layer {number // recurrent.directions + 1}{way} ({type(cell).__name__})"
            if way == ", backward":  # played as it reads: from the end
                given = {key: value.flip(0) for key, value in given.items()}
                places = places[::-1]
        title = f"{type(cell).__name__} cell of the {name.split(' (')[0]}"
        yield name, _cell_reel(cell, given, places, title)


def _wanted(cell: Cell) -> list[str]:
    return ["given_x", *(f"given_{name}" for name in cell.state), *cell.state]


def _cell_reel(cell: Cell, given: dict[str, Tensor], steps: list[str], title: str) -> Callable[[], Reel]:
    def made() -> Reel:
        states = [given[f"given_{name}"] for name in cell.state]
        new = [given[name] for name in cell.state]
        return play_cell(cell, given["given_x"], states, new, steps=steps, title=title)

    return made


def over_time(notes: Sequence[Note], module: nn.Module, name: str) -> Tensor | None:
    """A value of one sequence at every step ``(T, ·)``: as a layer joined it, else step by step until a step that begins again;
    None where it was not noted or of several sequences."""
    found = [note.value for note in notes if note.module is module and note.name == name]
    joined = [value for value in found if value.dim() == 3 and value.shape[0] == 1]
    if joined:
        return joined[0][0]
    rows = [value for value in found if value.dim() == 2 and value.shape[0] == 1]
    if not rows or len(rows) != len(found):
        return None
    again = next(
        (i for i in range(1, len(rows)) if torch.equal(rows[i], rows[0]) and bool(rows[i].any())), len(rows)
    )
    return torch.cat(rows[:again])


# ---------------------------------------------------------------- attention
def _attentions(
    model: nn.Module, seen: Seen, labels: Callable[[int], list[str]], keys: Callable[[int], list[str]]
) -> Iterator[tuple[str, Callable[[], Reel]]]:
    for path, module in model.named_modules():
        weights = _rows(seen.notes, module, "weights")
        if weights is None:
            continue
        scores = _rows(seen.notes, module, "scores")
        for head in range(len(weights)):
            of = f", head {head + 1}" if len(weights) > 1 else ""
            own = None if scores is None or len(scores) != len(weights) else scores[head]
            name = f"attention {path}{of}"
            yield name, _attention_reel(weights[head], own, labels, keys, f"Attention of {path}{of}")


def _rows(notes: Sequence[Note], module: nn.Module, name: str) -> Tensor | None:
    """``(heads, queries, keys)`` of one sequence, the first that was noted; steps are joined."""
    found = [n.value for n in notes if n.module is module and n.name == name and n.value.shape[0] == 1]
    if not found or found[0].dim() not in (3, 4):
        return None
    shape = found[0].shape
    same = [v[0] if v.dim() == 4 else v for v in found if v.dim() == len(shape) and v.shape[-1] == shape[-1]]
    if shape[-2] > 1:
        return same[0]
    return torch.cat(same, dim=-2)


def _attention_reel(
    weights: Tensor,
    scores: Tensor | None,
    labels: Callable[[int], list[str]],
    keys: Callable[[int], list[str]],
    title: str,
) -> Callable[[], Reel]:
    def made() -> Reel:
        alpha = as_numpy(weights).astype(np.float64)
        if scores is not None and scores.shape == weights.shape:
            e = np.where(alpha > 0, as_numpy(scores).astype(np.float64), -1e9)
            note = ""
        else:
            e = np.log(np.maximum(alpha, 1e-30))
            note = "The scores e are known up to a number that all of a row share; here they are log α, so that Z is 1."
        shifted = np.exp(e - e.max(1, keepdims=True))
        total = shifted.sum(1)
        gap = float(np.abs(shifted / total[:, None] - alpha).max())
        values = columns({"e": e, "m": e.max(1), "w": shifted, "Z": total, "α": alpha})
        equations = [
            Equation("m", ["max ", all_of("e")]),
            Equation("w", ["exp(", {"ref": "e"}, " − ", {"ref": "m"}, ")"]),
            Equation("Z", ["Σ ", all_of("w")]),
            Equation("α", [{"ref": "w"}, " / ", {"ref": "Z"}]),
        ]
        return Reel(
            title, labels(len(alpha)), equations, values, alpha.shape[1], axis="query", names=keys(alpha.shape[1]), note=note,
            max_difference=gap,
        )  # fmt: skip

    return made


# ---------------------------------------------------------------- Transformers
def _layers(
    model: nn.Module, seen: Seen, labels: Callable[[int], list[str]]
) -> Iterator[tuple[str, Callable[[], Reel]]]:
    stacks: dict[str, list[tuple[str, tuple[Tensor, Tensor]]]] = {}
    for path, module in model.named_modules():
        if not isinstance(module, EncoderLayer | DecoderLayer) or id(module) not in seen.sublayers:
            continue
        stack, _, number = path.rpartition(".")
        parts = [
            (name.removeprefix("around_").replace("_", " "), seen.sublayers[id(child)])
            for name, child in module.named_children()
            if isinstance(child, Sublayer) and id(child) in seen.sublayers
        ]
        for name, both in parts or [("whole", seen.sublayers[id(module)])]:
            stacks.setdefault(stack, []).append((f"layer {int(number) + 1} {name}", both))
    for stack, rows in stacks.items():
        count = len(rows[0][1][0])
        side = stack.split(".")[0]
        places = labels(count)
        first = any(
            layer.norm_first
            for layer in model.get_submodule(stack).children()
            if hasattr(layer, "norm_first")
        )
        for place in range(min(count, MOST_PLACES)):
            name = f"{side} layers at place {place + 1}: {places[place]}"
            yield name, _layer_reel(rows, place, norm_first=first, title=f"Layer by layer, {name}")


def _layer_reel(
    rows: list[tuple[str, tuple[Tensor, Tensor]]], place: int, *, norm_first: bool, title: str
) -> Callable[[], Reel]:
    def made() -> Reel:
        before = np.stack([as_numpy(x[place]) for _, (x, _) in rows]).astype(np.float64)
        after = np.stack([as_numpy(y[place]) for _, (_, y) in rows]).astype(np.float64)
        values = {"x′": before, "x": after, "‖x‖": np.linalg.norm(after, axis=1)}
        if norm_first:
            values["f"] = after - before
            equations = [Equation("x", [{"ref": "x′"}, " + ", {"ref": "f", "text": "f(norm(x′))"}])]
            note = "f is what the sublayer adds: attention, or the feed-forward network."
        else:
            equations = [Equation("x", ["norm(", all_of("x′"), " + f(x′))"])]
            note = "norm subtracts the mean of the whole vector and divides by its deviation, so that a unit alone does not add up."
        equations.append(Equation("‖x‖", ["length of ", all_of("x")]))
        return Reel(
            title,
            [name for name, _ in rows],
            equations,
            columns(values),
            before.shape[1],
            axis="sublayer",
            note=note,
        )

    return made


def play_collapse(
    posteriors: np.ndarray, symbols: Sequence[str], blank: int, seconds: float | None = None
) -> Reel:
    """Frame by frame: the best symbol, what collapsing does with it, and the text so far; units are symbols."""
    best = np.asarray(posteriors).argmax(1)
    written: list[str] = []
    said, done = [], []
    for t, symbol in enumerate(best.tolist()):
        if symbol == blank:
            done.append("blank: nothing")
        elif t and symbol == best[t - 1]:
            done.append("the same again: nothing")
        else:
            written.append(symbols[symbol])
            done.append(f"writes {symbols[symbol]}")
        said.append("".join(written) or "∅")
    texts = {"best symbol": [symbols[s] for s in best.tolist()], "collapse": done, "text": said}
    values = columns({"p": posteriors, "max p": np.asarray(posteriors).max(1)})
    equations = [Equation("max p", ["max_s ", all_of("p"), "(s)"])]
    places = [f"{t * seconds:.2f} s" if seconds else str(t + 1) for t in range(len(best))]
    return Reel(
        "CTC: the best path, collapsed", places, equations, values, len(symbols), axis="frame", names=list(symbols), texts=texts,
        note="Repeats are merged first, then blanks removed: a blank keeps two equal symbols apart.",
    )  # fmt: skip
