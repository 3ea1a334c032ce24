"""A look into an answerer while it reads one question about one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.errors import DataError
from anaphora.models.answerer import CrossReader, Looks
from anaphora.nn import inside
from anaphora.nn.embedding import Embedding
from anaphora.probe.attribution import attribute_symbols, attribution_arrays, squares
from anaphora.probe.noted import as_numpy
from anaphora.probe.reading import probe_reading
from anaphora.probe.trace import Array, Trace
from anaphora.tasks.answer.inference import group, rows_of
from anaphora.tasks.answer.objective import Asked, inputs_of
from anaphora.tasks.looking import facts_of

if TYPE_CHECKING:
    from anaphora.tasks.answer.estimator import Answerer


def probe_answerer(m: Answerer, x: Any, target: str | None, what: Sequence[str]) -> Trace:
    """States and, on request, gradients while one ``(picture, question)`` is read; the loss is that of the answer
    ``target``, or of the model's own.

    Arrays besides those of `probe_reading`: ``picture`` (row, column, channel), ``attention`` (output, place) over the
    picture's grid for each look (of a Transformer, for each word), and ``probabilities`` (symbol) over the answers.
    """
    if not isinstance(x, tuple | list) or len(x) != 2:
        raise DataError("an Answerer looks at a picture and a question; give both, (picture, question).")
    rows = rows_of([x], m.size, m.answers_)
    asked, _ = group(rows, m._cut(m._encode([rows[0].question])))
    inputs = inputs_of(asked, next(m.model_.parameters()).device)
    words = [*m.tokenizer_.pieces(asked[0].questions[0].tolist()), "</s>"]
    chosen = _number(m, target)

    def losses(scores: Tensor) -> Tensor:
        answer = scores.argmax(-1) if chosen is None else torch.tensor([chosen], device=scores.device)
        return F.cross_entropy(scores, answer, reduction="none")

    trace, scores = probe_reading(
        m.model_,
        lambda: m.model_(*inputs),
        places=words,
        facts=facts_of(m, rows[0].question),
        losses=losses,
        what=what,
    )
    shares = as_numpy(torch.softmax(scores[0].double(), -1))
    arrays = {**trace.arrays, "probabilities": Array(("symbol",), shares)}
    facts = {**trace.facts, "output": m.answers_[int(shares.argmax())]}
    tokens = {**trace.tokens, "symbol": m.answers_}
    if "attribution" in what:
        more, known = _attributed(m, asked[0], len(words), int(shares.argmax()) if chosen is None else chosen)
        arrays |= more
        facts |= known
    pictures = m.model_.pictures
    if pictures is not None:
        arrays["picture"] = Array(("row", "column", "channel"), rows[0].pixels)
        tokens["output"], weights = _looks(m, inputs, words)
        arrays["attention"] = Array(("output", "place"), weights)
        facts["grid"] = list(pictures.grid)
    return replace(trace, tokens=tokens, arrays=arrays, facts=facts)


def _attributed(m: Answerer, asked: Asked, places: int, best: int) -> tuple[dict[str, Array], dict[str, Any]]:
    """log p of the answer shared out over the words; and ``picture_occlusion`` (row, column): how much it falls when a square
    of the picture becomes grey."""
    model, device = m.model_.eval(), next(m.model_.parameters()).device
    ids = asked.questions[0]

    def run(rows: list[Asked]) -> Tensor:
        scores: Tensor = model(*inputs_of(rows, device)).float().log_softmax(-1)
        return scores[:, best : best + 1]

    def left_out(k: int) -> Tensor:
        return run([Asked(asked.pixels, [np.delete(ids, k, 0)])])[0]

    found, falls = attribute_symbols(
        next(module for module in model.modules() if isinstance(module, Embedding)),
        lambda n: run([Asked(asked.pixels, [ids] * n)]),
        places=places,
        kept=[places - 1],
        left_out=left_out if len(ids) > 1 else None,
    )
    arrays, facts = attribution_arrays(
        found, falls, ("time",), of=f"log p({m.answers_[best]})", without="left out"
    )
    if model.pictures is not None:
        rows, columns = asked.pixels.shape[:2]
        groups = squares(rows, columns, 7)
        grey = asked.pixels.mean((0, 1)).round().astype(asked.pixels.dtype)
        covered = [asked.pixels.copy() for _ in groups]
        for pixels, group in zip(covered, groups, strict=True):
            pixels[group] = grey
        with torch.no_grad():
            drops = run([asked])[0] - run([Asked(pixels, [ids]) for pixels in covered])[:, 0]
        table = np.zeros((rows, columns))
        for group, drop in zip(groups, drops.tolist(), strict=True):
            table[group] = drop / table[group].size
        arrays["picture_occlusion"] = Array(("row", "column"), table)
    return arrays, facts


@torch.no_grad()
def _looks(m: Answerer, inputs: tuple[Tensor, ...], words: list[str]) -> tuple[list[str], Any]:
    """Who looked at the places of the picture, and how much at each, ``(who, places)``: each look of the question, or in
    a Transformer each of its words, by the mean of the heads of the highest layer."""
    reader = m.model_.reader
    m.model_.eval()
    with inside.record() as notes:
        m.model_(*inputs)
    if isinstance(reader, Looks):
        (found,) = (n.value for n in notes if n.module is reader and n.name == "weights")
        return [f"look {number + 1}" for number in range(reader.looks)], as_numpy(found[0])
    assert isinstance(reader, CrossReader)
    top = reader.layers[-1].cross_attention
    (found,) = (n.value for n in notes if n.module is top and n.name == "weights")
    return words, as_numpy(found[0].mean(0))


def _number(m: Answerer, target: str | None) -> int | None:
    if target is None:
        return None
    if target not in m.answers_:
        raise DataError(f"{target!r} is not an answer; there are {', '.join(m.answers_[:20])}.")
    return m.answers_.index(target)
