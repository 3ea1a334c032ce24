"""How far back can a model remember? The vanishing gradient, measured (Hochreiter 1991; Bengio et al. 1994).

Elman network, LSTM, GRU and Transformer learn the same problem with the answer hidden further and further back.
For each there is the share of test examples it gets right, and ‖∂L/∂s_t‖: how much the loss at the end still feels
of the state at step t, in the fresh network, from which learning has to begin, and in the trained one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anaphora.data.sources.labelled import open_labelled
from anaphora.errors import AnaphoraError
from anaphora.models.classifier import SequenceClassifier
from anaphora.settings.base import suggestion
from anaphora.tasks.classify.estimator import Classifier
from anaphora.tasks.studies.gradients import gradients_over_time
from anaphora.tasks.studies.parts import Parts
from anaphora.training.progress import Reporter

MODELS = ("rnn", "lstm", "gru", "transformer")
LAGS = (10, 30, 100)
CORPORA = ("adding", "brackets", "recall")
SETTINGS: dict[str, Any] = {
    "hidden": 64,
    "dropout": 0.0,
    "lr": 5e-3,
    "warmup": 50,
    "steps": 1200,
    "valid_every": 100,
    "save_every": 100,
    "patience": 0,
    "ema": 0.0,
    "threads": 1,
    "device": "cpu",
}
TEXT = {"tokens": "word", "vocab_size": 64}
OWN: dict[str, dict[str, Any]] = {  # what suits one kind of model only
    "rnn": {"lr": 2e-3, "embedding": 32, "steps": 3000},  # cheap steps: it gets more of them, and a chance
    "lstm": {"pooling": "last", "embedding": 32},
    "gru": {"pooling": "last", "embedding": 32},
    "transformer": {"lr": 1e-3, "layers": 2, "heads": 4, "feedforward": 128},
}
_ROWS = 40  # sequences in a batch
_GRADIENT_EXAMPLES = 50


def memory(
    out: str | Path,
    *,
    corpus: str = "adding",
    settings: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
    models: tuple[str, ...] = MODELS,
    lags: tuple[int, ...] = LAGS,
) -> dict[str, Any]:
    """Train each model at each lag; the share of test examples it gets right, and its gradients over time.

    Every part is a run folder ``MODEL-LAG`` in ``out``. Parts that are finished are not trained again, and one that
    was interrupted goes on where it stopped, so the same call after Ctrl-C continues the study.
    """
    if corpus not in CORPORA:
        hint = suggestion(corpus, CORPORA, otherwise="")
        raise AnaphoraError(f"{corpus} cannot be studied for memory ({', '.join(CORPORA)}).{hint}")
    report = reporter or Reporter()
    each = {
        (model, lag): Classifier(model=model, **_settings(model, corpus, lag, settings or {}))
        for lag in lags
        for model in models
    }
    chosen = {model: _settings(model, corpus, 0, settings or {}) for model in MODELS}
    names = rf"({'|'.join(MODELS)})-\d+"
    parts = Parts(out, "memory", {"corpus": corpus, "settings": chosen}, names=names)
    found: dict[str, Any] = {"success": {model: {} for model in models}, "gradients": {}, "runs": {}}
    for number, ((model, lag), fresh) in enumerate(each.items(), start=1):
        part = f"{model}-{lag}"
        result = parts.finished(part)
        if result is None:
            report.say(f"{number} of {len(each)}: {model}, {corpus} with a lag of {lag}")
            result = _learn(parts, part, fresh, f"{corpus}:{lag}", report)
        report.say(f"{number} of {len(each)}: {model} at lag {lag}: {result['success']:.1%} right")
        found["success"][model][lag] = result["success"]
        found["gradients"].setdefault(lag, {})[model] = result["gradients"]
        found["runs"][part] = str(parts[part])
    examples = len(open_labelled(f"{corpus}:{lags[0]}", role="test"))
    return {"study": "memory", "corpus": corpus, "examples": examples, **found}


def _settings(model: str, corpus: str, lag: int, given: Mapping[str, Any]) -> dict[str, Any]:
    kind = {"target": "number"} if corpus == "adding" else TEXT
    chosen = {**SETTINGS, "batch_tokens": _ROWS * (lag + 10), **kind, **OWN[model], **given}
    if model == "transformer":
        chosen.pop("embedding", None)
    return chosen


def _learn(parts: Parts, part: str, fresh: Classifier, data: str, reporter: Reporter) -> dict[str, Any]:
    """Train one model, or go on with its training, and measure it."""
    trained = parts.trained(part, fresh, data, reporter)
    rows = open_labelled(data, role="test")
    inputs, labels = zip(*rows.read(range(_GRADIENT_EXAMPLES)), strict=True)
    model, fresh_model = trained.model_, trained._fresh_model()
    assert isinstance(model, SequenceClassifier)  # as all of MODELS are
    assert isinstance(fresh_model, SequenceClassifier)
    after = gradients_over_time(trained, model, inputs, labels)
    before = gradients_over_time(trained, fresh_model, inputs, labels)
    result = {
        "success": trained.score(data)["accuracy"] / 100,
        "gradients": {"before": before, "after": after},
    }
    parts.keep(part, result)
    return result
