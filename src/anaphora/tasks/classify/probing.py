"""A look into a classifier while it reads one input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from anaphora.data.batches.padded import tensors_of
from anaphora.data.sources.arrays import as_sequence, picture_size
from anaphora.data.sources.labelled import read_file
from anaphora.errors import DataError
from anaphora.kinds.kind import cut
from anaphora.kinds.text import NGramInputs, TextInputs
from anaphora.kinds.vectors import typed_numbers
from anaphora.models.classical.rocket import RocketClassifier
from anaphora.models.classifier import SequenceClassifier
from anaphora.models.looking import LookingClassifier
from anaphora.nn.embedding import Embedding
from anaphora.probe.attribution import (
    attribute_symbols,
    attribution_arrays,
    integrated_gradients,
    occluded,
    squares,
    stretches,
)
from anaphora.probe.noted import as_numpy
from anaphora.probe.reading import probe_reading
from anaphora.probe.trace import Array, Trace
from anaphora.tasks.looking import facts_of, places_of

if TYPE_CHECKING:
    from anaphora.tasks.classify.estimator import Classifier


def probe_classifier(m: Classifier, x: Any, target: str | None, what: Sequence[str]) -> Trace:
    """States, gates, attention and, on request, gradients of one input (a picture may be the name of its file); the loss is
    that of ``target``, or of what the model itself answers. Array ``probabilities`` (symbol) over the classes."""
    inputs = m.inputs_
    if isinstance(inputs, NGramInputs):
        return _weighed(m, x, what)
    if isinstance(m.model_, RocketClassifier):
        return _counted(m, x, target, what)
    text = x if isinstance(x, str) else None
    if not isinstance(inputs, TextInputs) and isinstance(x, str):
        x = typed_numbers(x) if inputs.size is None else read_file(Path(x))
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
    if "attribution" in what:
        arrays, known = _attributed(m, encoded, len(trace.tokens["time"]), scores, chosen)
        trace = replace(trace, arrays={**trace.arrays, **arrays}, facts={**trace.facts, **known})
    if m.targets_.kind == "number":
        (value,) = m.targets_.answers(scores.double().cpu().numpy(), m._threshold)
        return replace(trace, facts={**trace.facts, "output": f"{float(value):.6g}"})
    shares = m.targets_.probabilities(scores.double().cpu().numpy())[0]
    arrays = {**trace.arrays, "probabilities": Array(("symbol",), shares)}
    tokens = {**trace.tokens, "symbol": m.classes_, **({"label": m.classes_} if "beliefs" in arrays else {})}
    return replace(trace, tokens=tokens, arrays=arrays)


def _weighed(m: Classifier, x: Any, what: Sequence[str]) -> Trace:
    """Nothing happens inside a weighted sum: its ``probabilities`` (symbol) are all there is to see, and how log p of the
    answer falls without each word."""
    if not isinstance(x, str) or not x.strip():
        raise DataError("the input is empty; give something to look at.")
    shares = m.predict_proba([x])[0]
    arrays, tokens, facts = (
        {"probabilities": Array(("symbol",), shares)},
        {"symbol": m.classes_},
        facts_of(m, x),
    )
    if "attribution" in what:
        words = x.split()
        without = [" ".join(words[:k] + words[k + 1 :]) or " " for k in range(len(words))]
        best = int(shares.argmax())
        falls = np.log(shares[best]) - np.log(np.maximum(m.predict_proba(without)[:, best], 1e-300))
        arrays["occlusion"], tokens["time"] = Array(("time",), falls), words
        facts["attribution"] = {
            "of": f"log p({m.classes_[best]})",
            "without": "left out",
            "value": float(np.log(shares[best])),
        }
    return Trace(tokens, arrays, facts)


def _counted(m: Classifier, x: Any, target: str | None, what: Sequence[str]) -> Trace:
    """The same of shares that are counted: ``probabilities`` (symbol), or the number, and how log p of the class ``target``, or of the answer,
    falls where a stretch of the sequence is set to zero."""
    (encoded,) = m._encode([typed_numbers(x) if isinstance(x, str) else x])
    if not len(encoded):
        raise DataError("the input is empty; give something to look at.")
    source, lengths = tensors_of([encoded], next(m.model_.parameters()).device)
    scores = m.model_(source, lengths)
    plain = scores.double().cpu().numpy()
    arrays: dict[str, Array] = {}
    tokens, facts = {"time": places_of(m.inputs_, encoded)}, facts_of(m, _outline(encoded))
    if m.targets_.kind == "number":
        facts["output"] = f"{float(m.targets_.answers(plain, m._threshold)[0]):.6g}"
    else:
        arrays["probabilities"] = Array(("symbol",), m.targets_.probabilities(plain)[0])
        tokens["symbol"] = m.classes_
    if "attribution" in what:
        of, asked = _asked(m, scores, _class(m, target))
        falls = occluded(
            lambda rows: asked(m.model_(rows, lengths.expand(len(rows)))),
            source,
            torch.zeros_like(source),
            stretches(len(encoded), 48),
            like=encoded.shape[:-1],
        )
        arrays["occlusion"] = Array(("time",), falls[0])
        facts["attribution"] = {"of": of, "without": "set to zero", "value": float(asked(scores)[0, 0])}
    return Trace(tokens, arrays, facts)


def _asked(m: Classifier, scores: Tensor, chosen: int | None) -> tuple[str, Callable[[Tensor], Tensor]]:
    """What is shared out over an input, and how scores ``(n, outputs)`` give it, ``(n, 1)``: log p of the class ``chosen``, or of the answer;
    of numbers the output itself."""
    best, kind = int(scores[0].argmax()) if chosen is None else chosen, m.targets_.kind

    def asked(outputs: Tensor) -> Tensor:
        if kind == "number":
            return outputs[:, :1]
        logs = outputs.log_softmax(-1) if kind == "class" else F.logsigmoid(outputs)
        return logs[:, best : best + 1]

    return "the output" if kind == "number" else f"log p({m.classes_[best]})", asked


def _attributed(
    m: Classifier, encoded: Any, places: int, scores: Tensor, chosen: int | None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """log p of the class ``chosen``, or of the answer (of numbers the output itself), shared out over the input."""
    model, device = m.model_.eval(), next(m.model_.parameters()).device
    of, asked = _asked(m, scores, chosen)

    def run(rows: list[Any]) -> Tensor:
        return asked(model(*tensors_of(rows, device)))

    if isinstance(m.inputs_, TextInputs):
        first = int(isinstance(model, SequenceClassifier) and model.begin is not None)
        own = range(first, first + len(encoded))
        found, falls = attribute_symbols(
            next(module for module in model.modules() if isinstance(module, Embedding)),
            lambda n: run([encoded] * n),
            places=places,
            kept=[k for k in range(places) if k not in own],
            left_out=(lambda k: run([np.delete(encoded, k - first, 0)])[0]) if len(encoded) > 1 else None,
        )
        return attribution_arrays(found, falls, ("time",), of=of, without="left out")
    x, _ = tensors_of([encoded], device)
    lengths = torch.tensor([len(encoded)], device=device)

    def score(inputs: Tensor) -> Tensor:
        return asked(model(inputs, lengths.expand(len(inputs))))

    picture = encoded.ndim == 3
    groups: Any = squares(encoded.shape[0], encoded.shape[1], 10) if picture else stretches(len(encoded), 48)
    blank = torch.zeros_like(x)
    found = integrated_gradients(score, x, blank)
    falls = occluded(score, x, blank, groups, like=encoded.shape[:-1])
    axes = ("row", "column") if picture else ("time",)
    return attribution_arrays(found, falls, axes, of=of, without="set to zero")


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
        return [*["<s>"] * begun, *places_of(m.inputs_, encoded)]
    if isinstance(m.model_, LookingClassifier):
        return [str(look + 1) for look in range(m.settings_.glimpses)]
    if encoded.ndim == 3:
        rows, columns = (-(-side // m.settings_.patch) for side in encoded.shape[:2])
        first = getattr(m.model_.encoder, "first", None)
        before = 0 if first is None else first.numel() // first.shape[-1]
        return [*["<s>"] * before, *(f"{i + 1},{j + 1}" for i in range(rows) for j in range(columns))]
    return places_of(m.inputs_, encoded)


def _outline(encoded: Any) -> str:
    return picture_size(encoded.shape) if encoded.ndim == 3 else f"{len(encoded)} steps"


def _class(m: Classifier, target: str | None) -> int | None:
    if target is None:
        return None
    if target not in m.classes_:
        raise DataError(f"{target!r} is not a class; there are {', '.join(m.classes_[:20])}.")
    return m.classes_.index(target)
