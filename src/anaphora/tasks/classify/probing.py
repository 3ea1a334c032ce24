"""A look into a classifier while it reads one input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.data.labelled_batches import tensors_of
from anaphora.errors import DataError
from anaphora.probe.reading import probe_reading
from anaphora.probe.trace import Array, Trace
from anaphora.tasks.classify.inputs import TextInputs, cut
from anaphora.tasks.classify.outputs import probabilities
from anaphora.tasks.looking import facts_of, numbers

if TYPE_CHECKING:
    from anaphora.tasks.classify.estimator import Classifier


def probe_classifier(m: Classifier, x: Any, target: str | None, what: Sequence[str]) -> Trace:
    """States, gates, attention and, on request, gradients of one input; the loss is that of ``target``, or of what the
    model itself answers. Array ``probabilities`` (symbol) over the classes."""
    inputs = m.inputs_
    if not isinstance(inputs, TextInputs) and isinstance(x, str):
        x = numbers(x)
    (encoded,) = cut(m._encode([x]), m.settings_.max_tokens)
    if not len(encoded):
        raise DataError("the input is empty; give something to look at.")
    source, lengths = tensors_of([encoded], next(m.model_.parameters()).device)
    if isinstance(inputs, TextInputs):
        places = [*inputs.tokenizer.pieces(encoded.tolist()), "</s>"]
    else:
        places = [str(t + 1) for t in range(len(encoded))]
    chosen = _class(m, target)

    def losses(scores: Tensor) -> Tensor:
        if m.targets_.kind != "class":
            return scores.square().sum(-1)
        answer = scores.argmax(-1) if chosen is None else torch.tensor([chosen], device=scores.device)
        return F.cross_entropy(scores, answer, reduction="none")

    text = x if isinstance(x, str) else f"{len(encoded)} steps"
    trace, scores = probe_reading(
        m.model_,
        lambda: m.model_(source, lengths),
        places=places,
        facts=facts_of(m, text),
        losses=losses,
        what=what,
    )
    if m.targets_.kind == "number":
        return trace
    shares = probabilities(m.targets_, scores.double().cpu().numpy())[0]
    arrays = {**trace.arrays, "probabilities": Array(("symbol",), shares)}
    return replace(trace, tokens={**trace.tokens, "symbol": m.classes_}, arrays=arrays)


def _class(m: Classifier, target: str | None) -> int | None:
    if target is None:
        return None
    if target not in m.classes_:
        raise DataError(f"{target!r} is not a class; there are {', '.join(m.classes_[:20])}.")
    return m.classes_.index(target)
