"""Every task with a recurrent network, a Transformer or a convolution: inputs, outputs with their scores, and measures."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import answer_tiny
import caption_tiny
import classify_tiny
import embed_tiny
import forecast_tiny
import numpy as np
import pytest
import tasks_tiny
import transcribe_tiny

import anaphora as an
from anaphora.data.corpora import generate
from anaphora.kinds.measures.captions import caption_measures
from anaphora.kinds.measures.tags import tag_measures
from anaphora.kinds.measures.texts import translation_measures
from anaphora.kinds.measures.transcripts import transcription_report

Rows = Sequence[Any]


@dataclass(frozen=True)
class Case:
    """``made(device)`` is a trained model, ``rows(n)`` are inputs with what is right, ``told`` the outputs for inputs with
    every number that belongs to them, and ``measured`` one measure: by ``score``, and from outputs."""

    made: Callable[[str], Any]
    rows: Callable[[int], Rows]
    told: Callable[[Any, list[Any]], list[Any]]
    measured: Callable[[Any, Rows, list[Any]], tuple[Any, Any]] | None = None


def _classifier(preset: str, rows: Callable[..., Rows] = classify_tiny.texts, **more: Any) -> Case:
    def measured(m: Any, rows: Rows, told: list[Any]) -> tuple[Any, Any]:
        right = [answer == label for (answer, _), (_, label) in zip(told, rows, strict=True)]
        return m.score(list(rows))["accuracy"], 100.0 * float(np.mean(right))

    return Case(
        lambda device: classify_tiny.tiny(preset, steps=6, device=device, **more).fit(
            rows(60), valid=rows(8, seed=1)
        ),
        lambda n: rows(n, seed=7) if rows is not classify_tiny.texts else rows(n, seed=7, longest=70),
        lambda m, xs: list(zip(m.predict(xs), m.predict_proba(xs).tolist(), strict=True)),
        measured,
    )


def _translator(preset: str, **more: Any) -> Case:
    def measured(m: Any, rows: Rows, told: list[Any]) -> tuple[Any, Any]:
        best = [outputs[0][0] for outputs in told]
        return m.score(list(rows), **SEARCH), translation_measures(best, [y for _, y in rows]).report

    return Case(
        lambda device: tasks_tiny.tiny(preset, steps=8, device=device, **more).fit(
            tasks_tiny.pairs(200), valid=tasks_tiny.pairs(4, seed=1)
        ),
        lambda n: tasks_tiny.pairs(n, seed=5, longest=40),
        lambda m, xs: [
            [(o.text, o.score, o.log_prob) for o in found] for found in m.search(xs, n_best=3, **SEARCH)
        ],
        measured,
    )


SEARCH: dict[str, Any] = {"beam": 3, "max_length": 12}
SIZES = {"hidden": 24, "lr": 1e-2, "warmup": 0, "ema": 0.0, "steps": 8, "batch_tokens": 500, "layers": 1}
TAGGER = {**SIZES, "characters": "conv", "character_hidden": 4, "valid_every": 1000, "save_every": 1000}
LANGUAGE = {**SIZES, "batch_tokens": 128, "lines": True, "tokens": "char"}


def _tagger(**more: Any) -> Case:
    def rows(n: int) -> Rows:
        return [(x.split(), y.split()) for x, y in list(generate("names", split="dev", size=n))]

    def measured(m: Any, rows: Rows, told: list[Any]) -> tuple[Any, Any]:
        data = [(" ".join(x), " ".join(y)) for x, y in rows]
        wanted = tag_measures([tags for tags, _ in told], [y for _, y in rows], spans=True).report
        return m.score(data), wanted

    return Case(
        lambda device: an.Tagger(**{**TAGGER, **more}, device=device).fit(
            generate("names", size=100), valid=generate("names", split="dev", size=8)
        ),
        rows,
        lambda m, xs: [(t.tags, t.probabilities) for t in m.tag(xs)],
        measured,
    )


def _language(**more: Any) -> Case:
    def rows(n: int) -> Rows:
        draw = random.Random("lines")
        return [("".join(draw.choices("abc ", k=draw.choice([3, 5, 20, 60]))) + "a", None) for _ in range(n)]

    def measured(m: Any, rows: Rows, told: list[Any]) -> tuple[Any, Any]:
        found = m.score([x for x, _ in rows])
        return found["loss"] * found["symbols"], pytest.approx(-sum(told), rel=1e-12)

    return Case(
        lambda device: an.LanguageModel(**{**LANGUAGE, **more}, device=device).fit([x for x, _ in rows(80)]),
        rows,
        lambda m, xs: m.predict(xs),
        measured,
    )


def _transcriber(preset: str) -> Case:
    def measured(m: Any, rows: Rows, told: list[Any]) -> tuple[Any, Any]:
        names = [str(number) for number in range(len(rows))]
        best = [transcripts[0][0] for transcripts in told]
        keys = ("wer", "cer")
        wanted = transcription_report(names, [y for _, y in rows], best)
        found = m.score(list(rows), beam=4)
        return [found[key] for key in keys], [wanted[key] for key in keys]

    return Case(
        lambda device: transcribe_tiny.tiny(preset, steps=8, device=device).fit(
            transcribe_tiny.recordings(60), valid=transcribe_tiny.recordings(4, seed=1)
        ),
        lambda n: transcribe_tiny.recordings(n, seed=5, longest=6),
        lambda m, xs: [
            [(t.text, t.score, t.log_prob, t.words) for t in found]
            for found in m.transcribe(xs, n_best=2, beam=4)
        ],
        measured,
    )


def _captioner(preset: str) -> Case:
    def measured(m: Any, rows: Rows, told: list[Any]) -> tuple[Any, Any]:
        best = [captions[0][0] for captions in told]
        wanted = caption_measures(
            best, [list(texts) for _, texts in rows], tokenize=m.settings_.bleu_tokenize
        ).report
        found = m.score(list(rows), **SEARCH)
        return {key: found[key] for key in wanted}, wanted

    return Case(
        lambda device: caption_tiny.tiny(preset, steps=8, device=device).fit(
            caption_tiny.pictures(40), valid=caption_tiny.pictures(4, seed=1)
        ),
        lambda n: caption_tiny.pictures(n, seed=3),
        lambda m, xs: [
            [(o.text, o.score, o.log_prob) for o in found] for found in m.search(xs, n_best=2, **SEARCH)
        ],
        measured,
    )


def _answerer(preset: str) -> Case:
    def measured(m: Any, rows: Rows, told: list[Any]) -> tuple[Any, Any]:
        right = [answer == wanted for (answer, _), (_, wanted) in zip(told, rows, strict=True)]
        return m.score([(*x, y) for x, y in rows])["accuracy"], 100.0 * float(np.mean(right))

    return Case(
        lambda device: answer_tiny.tiny(preset, steps=8, device=device).fit(
            answer_tiny.scenes(30), valid=answer_tiny.scenes(4, seed=1)
        ),
        lambda n: [((x, question), y) for x, question, y in answer_tiny.scenes(-(-n // 3), seed=2)][:n],
        lambda m, xs: list(zip(m.predict(xs), m.predict_proba(xs).tolist(), strict=True)),
        measured,
    )


def _forecaster(preset: str, **more: Any) -> Case:
    return Case(
        lambda device: forecast_tiny.tiny(preset, steps=8, device=device, **more).fit(forecast_tiny.waves()),
        lambda n: [(forecast_tiny.waves(12 + number % 50, seed=number), None) for number in range(n)],
        lambda m, xs: [one.tolist() for one in m.predict(xs, horizon=6)],
    )


def _embedder(preset: str) -> Case:
    return Case(
        lambda device: embed_tiny.tiny(preset, steps=6, device=device).fit(
            embed_tiny.pairs(60), valid=embed_tiny.pairs(8, seed=1)
        ),
        lambda n: embed_tiny.pairs(n, seed=7, longest=60),
        lambda m, xs: m.predict(xs).tolist(),
    )


CASES: dict[str, Case] = {
    "classify bilstm": _classifier("bilstm attention"),
    "classify transformer": _classifier("transformer mean"),
    "classify conv": _classifier("conv mean"),
    "tag bilstm-crf": _tagger(model="bilstm-crf", embedding=16),
    "tag transformer": _tagger(model="transformer", heads=2, feedforward=48),
    "language lstm": _language(model="lstm", embedding=8, bptt=16),
    "language transformer": _language(model="transformer", heads=2, feedforward=32, context=16),
    "translate gru-attention": _translator("gru-attention"),
    "translate input feeding": _translator("lstm-attention input feeding"),
    "translate transformer": _translator("transformer norm first"),
    "transcribe bilstm-ctc": _transcriber("bilstm-ctc"),
    "transcribe joint": _transcriber("joint"),
    "caption lstm-attention": _captioner("lstm-attention"),
    "caption transformer": _captioner("transformer"),
    "answer lstm-attention": _answerer("lstm-attention"),
    "answer transformer": _answerer("transformer"),
    "embed bow": _embedder("bow"),
    "embed bilstm": _embedder("bilstm"),
    "embed transformer": _embedder("transformer"),
    "forecast lstm": _forecaster("lstm", normalize="window"),
    "forecast conv": _forecaster("conv"),
}
