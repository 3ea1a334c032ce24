"""A look into a language model while it reads one text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.data.symbols import PAD
from anaphora.errors import DataError
from anaphora.models.language_masked import MaskedLanguage
from anaphora.nn.embedding import Embedding
from anaphora.probe.attribution import attribute_symbols, attribution_arrays
from anaphora.probe.lens import lens_arrays
from anaphora.probe.reading import add_next_symbols, probe_reading
from anaphora.probe.trace import Array, Trace
from anaphora.tasks.looking import facts_of

if TYPE_CHECKING:
    from anaphora.tasks.language.estimator import LanguageModel

ATTRIBUTED = 256
"""Symbols over which an answer is shared out: the last of a longer text."""
COUNTED = 32
"""Symbols that are left out one by one of a model of counts, the last: it looks back over fewer."""
LONGEST = 2048
"""Symbols that are looked at; of a longer text the last."""


def probe_language(m: LanguageModel, text: str, what: Sequence[str]) -> Trace:
    """What was expected after every symbol (``top``, ``sorted_log_probs``), states, gates, attention and, on request,
    gradients of −log p of each next symbol. Of ``masked`` what it would put at every place itself."""
    ids = m.tokenizer_.encode(text)[-LONGEST:]
    ids = ids[::-1] if m.settings_.backward else ids
    if not ids:
        raise DataError("the text is empty; give something to look at.")
    spell = m.tokenizer_.pieces
    facts = facts_of(m, text)
    if not isinstance(m.model_, nn.Module):
        return _stepwise(m, ids, facts, what)
    device = next(m.model_.parameters()).device
    model = m.model_
    if isinstance(model, MaskedLanguage):
        read, after = ids, ids
        symbols = torch.tensor([read], device=device)
        lengths = torch.tensor([len(read)], device=device)

        def call() -> Tensor:
            return model(symbols, lengths)  # type: ignore[no-any-return]
    else:
        context = getattr(model.body, "context", None)
        read = [m.begin, *ids] if context is None else [m.begin, *ids][-context:]
        after = [*read[1:], m.end]
        symbols = torch.tensor([read], device=device)

        def call() -> Tensor:
            return model(symbols)  # type: ignore[no-any-return]

    wanted = torch.tensor(after, device=device)
    trace, logits = probe_reading(
        model,
        call,
        places=spell(read),
        facts=facts,
        losses=lambda out: F.cross_entropy(out[0].float(), wanted, reduction="none"),
        losses_of=spell(after),
        what=what,
    )
    if "attribution" in what and isinstance(model, MaskedLanguage):
        trace = _hidden_one_by_one(m, trace, read, int(logits[0, -1].argmax()))
    elif "attribution" in what:
        trace = _attributed(m, trace, read, int(logits[0, -1].argmax()))
    if "lens" in what and "states" in trace.arrays:
        arrays, rows = lens_arrays(model, trace.arrays["states"], logits[0], spell)
        tables = {**trace.tables, "lens": rows} if rows else trace.tables
        trace = replace(trace, arrays={**trace.arrays, **arrays}, tables=tables)
    if isinstance(model, MaskedLanguage):  # what it would put at each place itself: nothing is drawn from it
        trace = replace(trace, facts={**trace.facts, "top": "here"})
        return add_next_symbols(trace, logits[0], spell, whole=False)
    return add_next_symbols(trace, logits[0], spell)


def _attributed(m: LanguageModel, trace: Trace, read: list[int], best: int) -> Trace:
    """log p of the most probable next symbol, shared out over the last symbols that were read."""
    model, device = m.model_.eval(), next(m.model_.parameters()).device
    read = read[-ATTRIBUTED:]
    cut = len(trace.tokens["time"]) - len(read)

    def run(rows: list[list[int]]) -> Tensor:
        found: Tensor = model(torch.tensor(rows, device=device))[:, -1].float().log_softmax(-1)
        return found[:, best : best + 1]

    embedding = next((module for module in model.modules() if isinstance(module, Embedding)), None)
    if embedding is None or len(read) < 2:
        return trace
    found, falls = attribute_symbols(
        embedding,
        lambda n: run([read] * n),
        places=len(read),
        kept=[0] if not cut else [],
        left_out=lambda k: run([read[:k] + read[k + 1 :]])[0],
    )
    spelled = m.tokenizer_.pieces([best])[0]
    arrays, facts = attribution_arrays(
        found, falls, ("source",), of=f"log p({spelled} comes next)", without="left out"
    )
    tokens = {**trace.tokens, "source": trace.tokens["time"][cut:]}
    return replace(trace, tokens=tokens, arrays={**trace.arrays, **arrays}, facts={**trace.facts, **facts})


@torch.no_grad()
def _hidden_one_by_one(m: LanguageModel, trace: Trace, read: list[int], best: int) -> Trace:
    """log p of the most probable symbol at the last place, with each place hidden in turn."""
    model, device = m.model_.eval(), next(m.model_.parameters()).device
    first = max(0, len(read) - ATTRIBUTED)
    rows = [read, *([*read[:k], PAD, *read[k + 1 :]] for k in range(first, len(read)))]
    falls = []
    for some in range(0, len(rows), 32):
        part = torch.tensor(rows[some : some + 32], device=device)
        lengths = torch.full((len(part),), len(read), device=device)
        falls.append(model(part, lengths)[:, -1].float().log_softmax(-1)[:, best])
    logs = torch.cat(falls).double().cpu().numpy()
    return _occluded(m, trace, trace.tokens["time"][first:], logs, best, "hidden", "stands at the last place")


def _occluded(
    m: LanguageModel, trace: Trace, names: list[str], logs: Any, best: int, without: str, how: str
) -> Trace:
    """The trace with ``occlusion`` (source) over ``names``; ``logs`` are log p with all places, then without each."""
    spelled = m.tokenizer_.pieces([best])[0]
    known = {"of": f"log p({spelled} {how})", "without": without, "value": float(logs[0])}
    return replace(
        trace,
        tokens={**trace.tokens, "source": names},
        arrays={**trace.arrays, "occlusion": Array(("source",), logs[0] - logs[1:])},
        facts={**trace.facts, "attribution": known},
    )


def _stepwise(m: LanguageModel, ids: list[int], facts: dict[str, object], what: Sequence[str]) -> Trace:
    """An n-gram model has nothing inside but what it expects: ask it symbol by symbol."""
    read = [m.begin, *ids]
    rows = _expected(m, read)
    trace = Trace({"time": m.tokenizer_.pieces(read)}, {}, {**facts, "places": "read"})
    if "attribution" in what:
        best, last = int(rows[-1].argmax()), read[-COUNTED:]
        # without the first symbol there is nothing that the others could follow
        kept = range(1 if len(last) == len(read) else 0, len(last))
        without = [[*last[:k], *last[k + 1 :]] for k in kept]
        logs = [_expected(m, one)[-1][best] for one in without]
        found = np.array([float(rows[-1][best]), *map(float, logs)])
        names = [m.tokenizer_.pieces(last)[k] for k in kept]
        if len(found) > 1:
            trace = _occluded(m, trace, names, found, best, "left out", "comes next")
    return add_next_symbols(trace, torch.stack(rows), m.tokenizer_.pieces)


def _expected(m: LanguageModel, read: list[int]) -> list[Tensor]:
    """log p of every symbol after each of ``read``."""
    state, rows = m.start(1), []
    for symbol in read:
        log_probs, state = m.step(torch.tensor([symbol]), state)
        rows.append(log_probs[0])
    return rows
