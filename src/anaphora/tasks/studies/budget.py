"""Which recurrence learns most in the same time? Language models of every kind, each given as many seconds of training.

Equal steps favour models with expensive steps, equal parameters those that use each one often. What a user has is time: so the
pace of each model is measured first, on this machine, and each then trains as many steps as fit into the budget, its
learning rate falling to the end of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from anaphora.errors import SettingsError
from anaphora.probe.history import history
from anaphora.tasks.language.estimator import LanguageModel
from anaphora.tasks.studies.parts import Parts
from anaphora.tasks.studies.scaling import texts
from anaphora.training.callbacks import Callback, Moment
from anaphora.training.progress import Reporter

MODELS = ("rnn", "lstm", "gru", "mingru", "mamba", "griffin", "gla", "deltanet", "xlstm", "transformer")
SECONDS = 20.0
"""Training time of each model, evaluations not counted; on a CPU the time of this process alone."""
SETTINGS: dict[str, Any] = {
    "schedule": "cosine",
    "batch_tokens": 2048,
    "dropout": 0.0,
    "valid_symbols": 20_000,
    "length": 20,  # of the samples at each evaluation
    "patience": 0,
    "ema": 0.0,
    "threads": 1,
    "device": "cpu",
}
OWN: dict[str, dict[str, Any]] = {
    "lstm": {"hidden": 256},
    "transformer": {"lr": 2e-3},
}
_PACED = (4, 30)
"""The steps between which the pace is measured; those before compile and warm up. The median counts."""
_EVALUATIONS = 8
_LEAST_STEPS = 8


def budget(
    out: str | Path,
    *,
    corpus: str = "python",
    settings: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
    models: tuple[str, ...] = MODELS,
) -> dict[str, Any]:
    """Train a language model of each preset for ``seconds`` (a setting of this study); its dev loss against that time.

    ``corpus`` is an embedded corpus or a text file; the first million characters are used. ``models`` of the result: for
    each ``seconds`` and ``losses`` (nats per character, in order), ``best``, ``steps``, ``pace`` (seconds a step) and
    ``parameters``. Parts that are finished are not trained again by the same call.
    """
    report, given = reporter or Reporter(), dict(settings or {})
    seconds = given.pop("seconds", SECONDS)
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise SettingsError([f"seconds = {seconds!r} must be a positive number of seconds for each model."])
    train, dev = ("\n".join(lines) for lines in texts(corpus))
    chosen = {model: _settings(model, given) for model in models}
    for each in chosen.values():
        LanguageModel(**each)  # what does not fit is an error before anything is trained
    asked = {"corpus": corpus, "seconds": seconds, "settings": given, "characters": len(train)}
    parts = Parts(out, "budget", asked, names=rf"({'|'.join(MODELS)})(-pace)?")
    found = {}
    for number, model in enumerate(models, start=1):
        result = parts.finished(model)
        if result is None:
            pace = _pace(parts, model, chosen[model], [train], [dev], report)
            steps = max(_LEAST_STEPS, round(seconds / pace))
            report.say(f"{number} of {len(models)}: {model}, {steps:,} steps of {1000 * pace:.1f} ms")
            every = {"steps": steps, "valid_every": max(1, steps // _EVALUATIONS), "save_every": steps}
            every |= {} if "warmup" in given else {"warmup": steps // 20}
            trained = parts.trained(
                model, LanguageModel(**{**chosen[model], **every}), [train], report, valid=[dev]
            )
            result = {**_course(parts[model], pace), "steps": steps, "pace": pace}
            result["parameters"] = sum(p.numel() for p in trained.model_.parameters())
            parts.keep(model, result)
        report.say(f"{number} of {len(models)}: {model}: {result['best']:.3f} nats a character")
        found[model] = result
    return {
        "study": "budget",
        "corpus": corpus,
        "seconds": seconds,
        "characters": len(train),
        "models": found,
        "runs": {model: str(parts[model]) for model in models},
    }


def _settings(model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": model, **SETTINGS, **OWN.get(model, {}), **given}


class Clock(Callback):
    """Notes the time after every step: of this process alone on a CPU, so that other programs do not count."""

    ticks: ClassVar[list[float]] = []

    def on_step(self, now: Moment) -> None:
        self.ticks.append(time.process_time() if _on_cpu(now) else time.perf_counter())


def _on_cpu(now: Moment) -> bool:
    return next(now.model.parameters()).device.type == "cpu"


def _pace(parts: Parts, model: str, chosen: dict[str, Any], train: Any, dev: Any, report: Reporter) -> float:
    """Seconds of a step, from a training of a few steps."""
    kept = parts.finished(f"{model}-pace")
    if kept is None:
        first, last = _PACED
        short = {"steps": last, "valid_every": last, "save_every": last, "warmup": 0, "callbacks": [Clock]}
        Clock.ticks.clear()
        paced = LanguageModel(**{**chosen, **short}).fit(train, valid=dev, reporter=report)
        if paced.result_.stopped == "interrupted":
            raise KeyboardInterrupt
        kept = {"pace": max(1e-4, float(np.median(np.diff(Clock.ticks[first:]))))}
        parts.keep(f"{model}-pace", kept)
    return float(kept["pace"])


def _course(run: Path, pace: float) -> dict[str, Any]:
    """The dev losses of a run against the time its training steps took."""
    rows = [row for row in history(run).tables["dev"] if row["measure"] == "loss"]
    losses = [row["value"] for row in rows]
    return {"seconds": [row["step"] * pace for row in rows], "losses": losses, "best": min(losses)}
