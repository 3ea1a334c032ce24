"""A look into a classifier while it reads one input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from anaphora.data.labelled_batches import tensors_of
from anaphora.data.labelled_inputs import NGramInputs, TextInputs, cut
from anaphora.data.vectors import as_sequence, picture_size
from anaphora.data.vectors_readers import read_file
from anaphora.errors import DataError
from anaphora.models.classifier import SequenceClassifier
from anaphora.models.looking import LookingClassifier
from anaphora.probe.noted import as_numpy
from anaphora.probe.reading import probe_reading
from anaphora.probe.trace import Array, Trace
from anaphora.tasks.looking import facts_of, numbers

if TYPE_CHECKING:
    from anaphora.tasks.classify.estimator import Classifier


def probe_classifier(m: Classifier, x: Any, target: str | None, what: Sequence[str]) -> Trace:
    """States, gates, attention and, on request, gradients of one input (a picture may be the name of its file); the loss is
    that of ``target``, or of what the model itself answers. Array ``probabilities`` (symbol) over the classes."""
    inputs = m.inputs_
    if isinstance(inputs, NGramInputs):
        return _weighed(m, x)
    text = x if isinstance(x, str) else None
    if not isinstance(inputs, TextInputs) and isinstance(x, str):
        x = numbers(x) if inputs.size is None else read_file(Path(x))
    (encoded,) = cut(m._encode([x]), m._longest)
    if not len(encoded):
        raise DataError("the input is empty; give something to look at.")
    source, lengths = tensors_of([encoded], next(m.model_.parameters()).device)
    chosen = _class(m, target)

    def losses(scores: Tensor) -> Tensor:
        if m.targets_.kind != "class":
            return scores.square().sum(-1)
        answer = scores.argmax(-1) if chosen is None else torch.tensor([chosen], device=scores.device)
        return F.cross_entropy(scores, answer, reduction="none")

    trace, scores = probe_reading(
        m.model_,
        lambda: m.model_(source, lengths),
        places=_places(m, encoded),
        facts=facts_of(m, text or _outline(encoded)),
        losses=losses,
        what=what,
    )
    # Where places attend to each other there is no look of an answer at the picture to be drawn over it.
    if encoded.ndim == 3 and "attention" not in trace.arrays:
        trace = replace(trace, arrays={**trace.arrays, **looked_at(m, x, source)})
    if m.targets_.kind == "number":
        return trace
    shares = m.targets_.probabilities(scores.double().cpu().numpy())[0]
    arrays = {**trace.arrays, "probabilities": Array(("symbol",), shares)}
    tokens = {**trace.tokens, "symbol": m.classes_, **({"label": m.classes_} if "beliefs" in arrays else {})}
    return replace(trace, tokens=tokens, arrays=arrays)


def _weighed(m: Classifier, x: Any) -> Trace:
    """Nothing happens inside a weighted sum: its ``probabilities`` (symbol) are all there is to see."""
    if not isinstance(x, str) or not x.strip():
        raise DataError("the input is empty; give something to look at.")
    return Trace(
        {"symbol": m.classes_}, {"probabilities": Array(("symbol",), m.predict_proba([x])[0])}, facts_of(m, x)
    )


def looked_at(m: Classifier, x: Any, source: Tensor) -> dict[str, Array]:
    """The ``picture`` (row, column, channel) to be shown; of a model that looks several times ``glimpses`` (step,
    coordinate), x, y and side of each window, and its ``beliefs`` (step, label)."""
    arrays = {
        "picture": Array(("row", "column", "channel"), as_colours(as_sequence(x, "input 1", scan="picture")))
    }
    if isinstance(m.model_, LookingClassifier):
        m.model_.eval()
        with torch.no_grad():
            _, looks = m.model_.look(source)
            beliefs = m.model_.beliefs(looks)[0].double().cpu().numpy()
        arrays["glimpses"] = Array(("step", "coordinate"), as_numpy(looks.windows[0]))
        if m.targets_.kind != "number":
            arrays["beliefs"] = Array(("step", "label"), m.targets_.probabilities(beliefs))
    return arrays


def as_colours(picture: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Numbers ``(rows, columns, channels)`` of any range as grey, or red, green and blue, from 0 to 255.

    Numbers from 0 to 255 stay, those from 0 to 1 are spread over that range, others from their least to their greatest.
    Of other than one or three channels the mean is shown.
    """
    low, high = float(picture.min()), float(picture.max())
    if low >= 0 and high <= 255:
        low, high = 0.0, 255.0 if high > 1 else 1.0
    if picture.shape[2] not in (1, 3):
        picture = picture.mean(2, keepdims=True)
    found: NDArray[np.uint8] = np.rint((picture - low) * (255.0 / max(high - low, 1e-30))).astype(np.uint8)
    return found


def _places(m: Classifier, encoded: Any) -> list[str]:
    """A name for each state: the symbols, the numbers of steps or looks, or row and column of squares of a picture."""
    if isinstance(m.inputs_, TextInputs):
        begun = isinstance(m.model_, SequenceClassifier) and m.model_.begin is not None
        pieces = m.inputs_.tokenizer.pieces(encoded.tolist())
        return [*["<s>"] * begun, *pieces, *["</s>"] * m.inputs_.end]
    if isinstance(m.model_, LookingClassifier):
        return [str(look + 1) for look in range(m.settings_.glimpses)]
    if encoded.ndim == 3:
        rows, columns = (-(-side // m.settings_.patch) for side in encoded.shape[:2])
        first = getattr(m.model_.encoder, "first", None)
        before = 0 if first is None else first.numel() // first.shape[-1]
        return [*["<s>"] * before, *(f"{i + 1},{j + 1}" for i in range(rows) for j in range(columns))]
    return [str(t + 1) for t in range(len(encoded))]


def _outline(encoded: Any) -> str:
    return picture_size(encoded.shape) if encoded.ndim == 3 else f"{len(encoded)} steps"


def _class(m: Classifier, target: str | None) -> int | None:
    if target is None:
        return None
    if target not in m.classes_:
        raise DataError(f"{target!r} is not a class; there are {', '.join(m.classes_[:20])}.")
    return m.classes_.index(target)
