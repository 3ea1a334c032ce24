"""Reels from what was noted while a model ran: recurrent cells, attention, Transformers layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.attention.multihead import MultiHead
from anaphora.nn.cell import Cell
from anaphora.nn.inside import Note
from anaphora.nn.recurrent import Recurrent
from anaphora.nn.transformer.layers import DecoderLayer, EncoderLayer, Sublayer
from anaphora.probe.noted import Order, as_numpy
from anaphora.probe.playing.cells import play_cell
from anaphora.probe.playing.reel import Equation, Part, Reel, all_of, columns
from anaphora.probe.trace import Layer

Floats = NDArray[np.float64]

MOST_PLACES = 64
"""Places of a Transformer that can be followed through its layers."""


Names = Callable[[str, int], list[str]]
"""Names for so many places of an axis: ``time``, ``source``, ``target`` or ``fed``, as in a trace."""


class Passed(NamedTuple):
    """What one sublayer read, what its function gave (None: not to be seen from outside) and what came out: ``(time, width)``."""

    before: Tensor
    added: Tensor | None
    after: Tensor


@dataclass
class Seen:
    """What was seen of a model: notes, and what passed each sublayer, by module."""

    notes: list[Note] = field(default_factory=list)
    sublayers: dict[int, Passed] = field(default_factory=dict)


@contextmanager
def seeing(model: nn.Module) -> Iterator[Seen]:
    """Collects what ``model`` does inside the ``with`` block while something records it."""
    seen = Seen()
    added: dict[int, Tensor] = {}

    def watch(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not inside.recording() or len(arguments) < 2 or not callable(arguments[1]):
            return None

        def function(x: Tensor) -> Tensor:
            found: Tensor = arguments[1](x)
            added.setdefault(id(module), found.detach())
            return found

        return (arguments[0], function, *arguments[2:])

    def keep(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
        x = arguments[0]
        if inside.recording() and isinstance(x, Tensor) and x.dim() == 3 and x.shape[0] == 1:
            own = added.get(id(module))
            passed = Passed(x[0].detach(), None if own is None else own[0], output[0].detach())
            seen.sublayers.setdefault(id(module), passed)

    kinds = (Sublayer, EncoderLayer, DecoderLayer)
    handles = [m.register_forward_hook(keep) for m in model.modules() if isinstance(m, kinds)]
    handles += [m.register_forward_pre_hook(watch) for m in model.modules() if isinstance(m, Sublayer)]
    try:
        with inside.watching() as notes:
            yield seen
        seen.notes = notes
    finally:
        for handle in handles:
            handle.remove()


def reels_of(model: nn.Module, seen: Seen, names: Names) -> dict[str, Callable[[], Reel]]:
    """What of ``model`` can be played, by name."""
    return {
        **dict(_cells(model, seen, names)),
        **dict(_attentions(model, seen, names)),
        **dict(_layers(model, seen, names)),
    }


def _axis(model: nn.Module, path: str) -> str:
    """Whose symbols a part of the model reads: those of the source, those that a decoder is fed, or all there are."""
    side = path.split(".")[0]
    if not isinstance(getattr(model, "decoder", None), nn.Module) or side not in ("encoder", "decoder"):
        return "time"
    return "source" if side == "encoder" else "fed"


# ---------------------------------------------------------------- recurrent cells
def _cells(model: nn.Module, seen: Seen, names: Names) -> Iterator[tuple[str, Callable[[], Reel]]]:
    owners = {
        id(cell): (path, layer, module)
        for path, module in model.named_modules()
        if isinstance(module, Recurrent)
        for layer, cell in enumerate(module.cells)
    }
    order = Order(model)
    for path, cell in model.named_modules():
        if not isinstance(cell, Cell):
            continue
        rows = {name: over_time(seen.notes, cell, name) for name in _wanted(cell)}
        if any(value is None for value in rows.values()):
            continue
        given = {name: value for name, value in rows.items() if value is not None}
        count = min(len(value) for value in given.values())
        given = {name: value[:count] for name, value in given.items()}
        name, places = f"{type(cell).__name__} {path}", names(_axis(model, path), count)
        direction = order.direction(path)
        if direction == "backward":  # played as it reads: from the end
            places = places[::-1]
            if not order.turned(path):  # its notes were put into the order of the text
                given = {key: value.flip(0) for key, value in given.items()}
        if id(cell) in owners:
            whole, number, recurrent = owners[id(cell)]
            side = whole.split(".")[0]
            where = f"{side} " if side in ("encoder", "decoder") else ""
            layer = Layer(order.block(path) or number // recurrent.directions + 1, direction)
            name = f"{where}{layer} ({type(cell).__name__})"
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
def _attentions(model: nn.Module, seen: Seen, names: Names) -> Iterator[tuple[str, Callable[[], Reel]]]:
    across = {id(module) for module in getattr(getattr(model, "decoder", None), "attentions", ())}
    for path, module in model.named_modules():
        weights = _rows(seen.notes, module, "weights")
        if weights is None:
            continue
        own = _axis(model, path)
        looks, at = ("target", "source") if id(module) in across else (own, own)
        sides = names(looks, weights.shape[1]), names(at, weights.shape[2])
        for head in range(len(weights)):
            of = f", head {head + 1}" if len(weights) > 1 else ""
            scored = _scored(seen.notes, module, head, weights[head])
            yield (
                f"attention {path}{of}",
                _attention_reel(weights[head], scored, sides, f"Attention of {path}{of}"),
            )


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


class Scored(NamedTuple):
    """What a softmax was taken of: scores ``(queries, keys)`` and which of them count; of a head also the queries, already
    divided by √d, the keys ``(·, d)``, and what is added to their products."""

    scores: Floats
    seen: NDArray[np.bool_]
    queries: Floats | None = None
    keys: Floats | None = None
    bias: Floats | None = None


def _scored(notes: Sequence[Note], module: nn.Module, head: int, weights: Tensor) -> Scored | None:
    """The scores of a head from the numbers that the model noted; None where it noted none of them."""

    def of(name: str) -> Floats | None:
        value = _rows(notes, module, name)
        return None if value is None else as_numpy(value[min(head, len(value) - 1)]).astype(np.float64)

    visible = of("seen")
    seen = (
        np.ones(weights.shape, bool) if visible is None or visible.shape != weights.shape else visible > 0.5
    )
    scores = of("scores")
    if scores is not None and scores.shape == weights.shape:
        return Scored(scores, seen)
    q, k, bias = of("queries"), of("keys"), of("bias")
    if not isinstance(module, MultiHead) or q is None or k is None or (len(q), len(k)) != weights.shape:
        return None
    q = q * (q.shape[1] ** -0.5 if module.scale is None else module.scale)
    return Scored(q @ k.T + (0.0 if bias is None else bias), seen, q, k, bias)


def _attention_reel(
    weights: Tensor, scored: Scored | None, sides: tuple[list[str], list[str]], title: str
) -> Callable[[], Reel]:
    def made() -> Reel:
        alpha = as_numpy(weights).astype(np.float64)
        if scored is None:
            return Reel(
                title, sides[0], [Equation("α", ["as the model noted it"])], columns({"α": alpha}), alpha.shape[1],
                axis="query", names=sides[1], note="The model notes the weights alone, not the scores they come from.",
            )  # fmt: skip
        e = np.where(scored.seen, scored.scores, -1e9)
        most = e.max(1)
        shifted = np.where(scored.seen, np.exp(e - most[:, None]), 0.0)
        total = shifted.sum(1)
        found = shifted / np.where(total > 0, total, 1.0)[:, None]
        values = columns({"e": e, "m": most, "w": shifted, "Z": total, "α": found})
        equations = [
            Equation("m", ["max ", all_of("e")]),
            Equation("w", ["exp(", {"ref": "e"}, " − ", {"ref": "m"}, ")"]),
            Equation("Z", ["Σ ", all_of("w")]),
            Equation("α", [{"ref": "w"}, " / ", {"ref": "Z"}]),
        ]
        note, matrices = "", {}
        if scored.queries is not None and scored.keys is not None:
            parts: list[Part] = ["k · ", all_of("q")]
            terms = ("K", "q") if scored.bias is None else None
            if scored.bias is not None:
                values["b"] = scored.bias
                parts += [" + ", {"ref": "b"}]
            values["q"], matrices["K"] = scored.queries, scored.keys
            equations.insert(0, Equation("e", parts, terms))
            note = "q is divided by √d already. " + (
                "b is what the distance of two places adds." if "b" in values else ""
            )
        if not scored.seen.all():
            note += " A score of −1e9 is of a place that may not be seen."
        return Reel(
            title, sides[0], equations, values, alpha.shape[1], axis="query", names=sides[1], matrices=matrices,
            note=note.strip(), max_difference=float(np.abs(found - alpha).max()),
        )  # fmt: skip

    return made


# ---------------------------------------------------------------- Transformers
def _layers(model: nn.Module, seen: Seen, names: Names) -> Iterator[tuple[str, Callable[[], Reel]]]:
    stacks: dict[str, list[tuple[str, Passed, nn.Module]]] = {}
    for path, module in model.named_modules():
        if not isinstance(module, EncoderLayer | DecoderLayer) or id(module) not in seen.sublayers:
            continue
        stack, _, number = path.rpartition(".")
        parts: list[tuple[str, nn.Module]] = [
            (name.removeprefix("around_").replace("_", " "), child)
            for name, child in module.named_children()
            if isinstance(child, Sublayer) and id(child) in seen.sublayers
        ]
        whole: list[tuple[str, nn.Module]] = [("whole", module)]
        for name, part in parts or whole:
            row = (f"layer {int(number) + 1} {name}", seen.sublayers[id(part)], part)
            stacks.setdefault(stack, []).append(row)
    for stack, rows in stacks.items():
        count = len(rows[0][1].after)
        places = names(_axis(model, stack), count)
        for place in range(min(count, MOST_PLACES)):
            name = f"{stack.split('.')[0]} layers at place {place + 1}: {places[place]}"
            yield name, _layer_reel(rows, place, title=f"Layer by layer, {name}")


def _layer_reel(rows: list[tuple[str, Passed, nn.Module]], place: int, *, title: str) -> Callable[[], Reel]:
    @torch.no_grad()
    def made() -> Reel:
        before = np.stack([as_numpy(passed.before[place]) for _, passed, _ in rows]).astype(np.float64)
        after = np.stack([as_numpy(passed.after[place]) for _, passed, _ in rows]).astype(np.float64)
        values = {"x′": before, "x": after, "‖x‖": np.linalg.norm(after, axis=1)}
        gap = None
        note = "A layer whose sublayers stand side by side is one step; what each of them adds is not shown."
        equations = [Equation("x", ["layer(", all_of("x′"), ")"])]
        if all(passed.added is not None and isinstance(part, Sublayer) for _, passed, part in rows):
            added = [passed.added[place] for _, passed, _ in rows if passed.added is not None]
            values["f"] = np.stack([as_numpy(one) for one in added]).astype(np.float64)
            first = all(part.norm_first for *_, part in rows)
            sums = [passed.before[place] + one for (_, passed, _), one in zip(rows, added, strict=True)]
            whole = sums if first else [part.norm(x) for x, (*_, part) in zip(sums, rows, strict=True)]  # type: ignore[operator]
            gap = float(np.abs(np.stack([as_numpy(one) for one in whole]) - after).max())
            if first:
                equations = [Equation("x", [{"ref": "x′"}, " + ", {"ref": "f", "text": "f(norm(x′))"}])]
                note = "f is what the sublayer adds: attention, or the feed-forward network."
            else:
                values["s"] = values["x′"] + values["f"]
                equations = [
                    Equation("s", [{"ref": "x′"}, " + ", {"ref": "f", "text": "f(x′)"}]),
                    Equation("x", ["norm(", all_of("s"), ")"]),
                ]
                note = "f is what the sublayer adds; norm subtracts the mean of the whole vector and divides by its deviation."
        equations.append(Equation("‖x‖", ["length of ", all_of("x")]))
        return Reel(
            title,
            [name for name, *_ in rows],
            equations,
            columns(values),
            before.shape[1],
            axis="sublayer",
            note=note,
            max_difference=gap,
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
