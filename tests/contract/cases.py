"""One tiny model for each task, kind of input, kind of output and way of training, as data: a new task or kind is a new row.

Nothing here imports torch.
"""

from __future__ import annotations

import functools
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import case_data as data
import numpy as np
from case_data import Row, Writer


def _array(x: Any) -> Any:
    return np.array(x, np.float32)


def _pixels(x: Any) -> Any:
    return _picture(repr(x))


@functools.cache
def _picture(pixels: str) -> Any:
    """The same object for equal pictures: questions about it are one dialogue."""
    return np.array(literal_eval(pixels), np.uint8)


def _question(x: Any) -> Any:
    return _pixels(x["picture"]), x["question"]


def _sound(x: Any) -> Any:
    return np.array(x, np.float32), data.RATE


def _columns(x: Any) -> Any:
    return dict(zip(("load", "wind"), np.array(x).T, strict=True))


def _text(x: Any) -> Any:
    return x


KINDS: dict[Callable[[Any], Any], str] = {
    _text: "text",
    _array: "vectors",
    _pixels: "picture",
    _question: "question",
    _sound: "sound",
    _columns: "series",
}


@dataclass(frozen=True)
class Case:
    """``rows(count, seed)`` are inputs in their JSON form with what belongs to them; ``write`` and ``ask`` keep them in files,
    to train on and to predict; ``python`` makes of an input what ``predict`` takes. ``fields`` name columns, and ``options``
    are for predicting. ``lacks`` says what the model cannot do: "steps", as it is fitted in one go; "predict"; "export"; "dev",
    as its dev data are no rows of their own; "many", as an input is a whole table; "chance", as it is fitted without; "curve",
    as two processes draw, or compare, otherwise than one. ``scoring`` are the options by which dev data are measured, and of
    rows to ask about only ``every`` second, third … is taken, where others would go on with a dialogue."""

    task: str
    model: str
    rows: Callable[[int, int], list[Row]]
    write: Writer
    settings: Mapping[str, Any] = field(default_factory=dict)
    ask: Writer = data.write_lines
    python: Callable[[Any], Any] = _text
    fields: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    lacks: Sequence[str] = ()
    train: int = 40
    dev: int = 8
    scoring: Mapping[str, Any] = field(default_factory=dict)
    every: int = 1

    @property
    def estimator(self) -> Any:
        """The public class of the task."""
        import anaphora

        return getattr(anaphora, CLASSES[self.task])

    def write_data(self, folder: Path) -> tuple[str, str | None]:
        """The names of files of training and dev data; no dev data where the task takes them off the end."""
        train = self.write(folder, "train", self.rows(self.train, 1))
        return train, None if "dev" in self.lacks else self.write(folder, "dev", self.rows(self.dev, 2))

    @property
    def kind(self) -> str:
        """What an input is: a text, vectors, a picture, a question about one, sound, or a series."""
        return KINDS[self.python]

    @property
    def printed(self) -> str:
        """The field of a record of ``predict --json`` that holds what ``predict`` gives."""
        return {"tag": "tags", "language": "log_prob", "forecast": "forecast"}.get(self.task, "output")

    @property
    def broken(self) -> bytes:
        """A row that cannot be read, for a file of inputs."""
        row = b"none.png\tis it on the left\n" if self.task == "answer" else b"none.png\n"
        return {data.write_lines: b"\xff\n", data.write_vectors: b"[[1, \n"}.get(self.ask, row)

    @property
    def by_rows(self) -> bool:
        """Whether a file of inputs is answered row by row as it is read."""
        return self.ask is data.write_lines

    def inputs(self, count: int = 6) -> list[Any]:
        """Inputs of their own, in JSON form."""
        return [x for x, _ in self._asked(count)]

    def given(self, inputs: Sequence[Any]) -> list[Any]:
        """Inputs as ``predict`` takes them."""
        return [self.python(x) for x in inputs]

    def write_inputs(self, folder: Path, count: int = 6) -> str:
        return self.ask(folder, "inputs", self._asked(count))

    def _asked(self, count: int) -> list[Row]:
        return self.rows(count * self.every, 3)[:: self.every]


def _series(count: int, seed: int) -> list[Row]:
    """One series of so many steps, but at least enough to forecast."""
    return [(data.waves(max(count, 24), seed), "")]


CLASSES = {
    "classify": "Classifier",
    "tag": "Tagger",
    "language": "LanguageModel",
    "translate": "Translator",
    "forecast": "Forecaster",
    "transcribe": "Transcriber",
    "caption": "Captioner",
    "answer": "Answerer",
    "embed": "Embedder",
}
PACE = {"steps": 6, "valid_every": 3, "save_every": 3, "log_every": 1, "keep": 1, "film": 0, "device": "cpu"}
NETWORK = {**PACE, "hidden": 6, "lr": 0.03, "warmup": 0, "batch_tokens": 100, "dropout": 0.1}
EMBEDDED = {**NETWORK, "embedding": 4}
ATTENDING = {**NETWORK, "hidden": 8, "heads": 2, "feedforward": 8, "layers": 1}
WORDS = {"tokens": "word"}
WRITING = {"tokens": "char", "max_length": 8, "valid_examples": 8}
SEEING = {"picture_size": data.SIDE, "halvings": 2}
BEAM = {"beam": 3, "max_length": 8}


def _classify(model: str, settings: Mapping[str, Any], rows: Any, write: Writer, **more: Any) -> Case:
    return Case("classify", model, rows, write, settings, **more)


def _vectors(**more: Any) -> dict[str, Any]:
    return {"ask": data.write_vectors, "python": _array, **more}


BODY = {"source_field": "body", "target_field": "kind"}
SHOWN = {"ask": data.write_pictures, "python": _pixels, "train": 18, "dev": 6}
ASKED = {"ask": data.write_pictures, "python": _question, "train": 24, "dev": 8}
HEARD = {"ask": data.write_arrays, "python": _array, "train": 20, "dev": 4, "scoring": {"beam": 1}}
FOREVER = {"horizon": 3, "window": 8, "period": 6}
SERIES: dict[str, Any] = {
    "ask": data.write_series,
    "python": _columns,
    "train": 90,
    "lacks": ("dev", "many"),
}
COUNTED = ("steps", "export", "chance")

CASES: dict[str, Case] = {
    # ------------------------------------------------------------------ classify
    "classify-text-lstm": _classify("lstm", EMBEDDED | WORDS, data.sentences, data.write_tsv),
    "classify-text-conv-classes": _classify(
        "conv", EMBEDDED | WORDS | {"target": "classes"}, data.several, data.write_csv, fields=BODY
    ),
    "classify-text-transformer-number": _classify(
        "transformer", ATTENDING | WORDS | {"target": "number"}, data.lengths, data.write_jsonl
    ),
    "classify-text-fasttext": _classify(
        "fasttext", PACE | {"embedding": 4, "lr": 0.03, "vocab_size": 300}, data.sentences, data.write_tsv
    ),
    "classify-text-ngrams": _classify(
        "ngrams", {"vocab_size": 300}, data.sentences, data.write_csv, fields=BODY, lacks=["steps", "chance"]
    ),
    "classify-text-ngrams-number": _classify(
        "ngrams",
        {"vocab_size": 300, "target": "number"},
        data.lengths,
        data.write_tsv,
        lacks=["steps", "chance"],
    ),
    "classify-vectors-bilstm": _classify("bilstm", NETWORK, data.arrays, data.write_npz, **_vectors()),
    "classify-vectors-rocket": _classify(
        "rocket", {"thresholds": 1}, data.arrays, data.write_arrays, **_vectors(lacks=["steps"])
    ),
    "classify-picture-vit": _classify("vit", ATTENDING, data.pictures, data.write_by_label, **SHOWN),
    "classify-picture-glimpse": _classify(
        "glimpse",
        NETWORK | {"patch": 4, "glimpses": 2},
        data.pictures,
        data.write_by_label,
        lacks=["curve"],
        **SHOWN,
    ),
    "classify-picture-grid-lstm": _classify(
        "grid-lstm", NETWORK, data.pictures, data.write_by_label, **SHOWN
    ),
    # ------------------------------------------------------------------ tag
    "tag-letters-bilstm-crf": Case(
        "tag",
        "bilstm-crf",
        data.tagged,
        data.write_conll,
        EMBEDDED | {"character_embedding": 4, "character_hidden": 3},
        lacks=["curve"],
    ),
    "tag-words-transformer": Case(
        "tag", "transformer", data.tagged, data.write_tsv, ATTENDING | {"characters": "none"}, lacks=["curve"]
    ),
    "tag-words-hmm": Case("tag", "hmm", data.tagged, data.write_conll, {}, lacks=COUNTED),
    "tag-frames-bilstm": Case("tag", "bilstm", data.framed, data.write_npz, NETWORK, **_vectors()),
    # ------------------------------------------------------------------ language
    "language-lines-lstm": Case(
        "language", "lstm", data.sentences, data.write_lines, EMBEDDED | {"lines": True, "tokens": "char"}
    ),
    "language-running-gru": Case(
        "language", "gru", data.sentences, data.write_lines, EMBEDDED | {"lines": False, "tokens": "char"}
    ),
    "language-running-transformer": Case(
        "language",
        "transformer",
        data.sentences,
        data.write_lines,
        ATTENDING | {"lines": False, "tokens": "bpe", "vocab_size": 280, "context": 16},
    ),
    "language-masked": Case(
        "language",
        "masked",
        data.sentences,
        data.write_lines,
        ATTENDING | {"tokens": "word", "context": 16},
        lacks=["predict", "export", "curve"],
    ),
    "language-ngram": Case(
        "language", "ngram", data.sentences, data.write_lines, {"tokens": "word"}, lacks=COUNTED
    ),
    # ------------------------------------------------------------------ translate
    "translate-char-lstm-attention": Case(
        "translate", "lstm-attention", data.capitals, data.write_tsv, EMBEDDED | WRITING, options=BEAM
    ),
    "translate-word-gru-attention": Case(
        "translate",
        "gru-attention",
        data.phrases,
        data.write_csv,
        EMBEDDED | WRITING | WORDS,
        fields=BODY,
        options=BEAM,
    ),
    "translate-bpe-transformer": Case(
        "translate",
        "transformer",
        data.phrases,
        data.write_tsv,
        ATTENDING | WRITING | {"tokens": "bpe", "vocab_size": 280, "joint": True, "input_dropout": 0.0},
        options=BEAM,
    ),
    # ------------------------------------------------------------------ forecast
    "forecast-linear": Case(
        "forecast",
        "linear",
        _series,
        data.write_series,
        {**PACE, **FOREVER, "batch_tokens": 200, "lr": 0.01},
        **SERIES,
    ),
    "forecast-lstm": Case(
        "forecast", "lstm", _series, data.write_series, NETWORK | FOREVER | {"batch_tokens": 200}, **SERIES
    ),
    "forecast-median": Case(
        "forecast",
        "median",
        _series,
        data.write_series,
        {"horizon": 3, "period": 6},
        **SERIES | {"lacks": ("dev", "many", *COUNTED)},
    ),
    "forecast-var": Case(
        "forecast",
        "var",
        _series,
        data.write_series,
        {"horizon": 3},
        **SERIES | {"lacks": ("dev", "many", *COUNTED)},
    ),
    "forecast-kalman": Case(
        "forecast",
        "kalman",
        _series,
        data.write_series,
        {"horizon": 3, "period": 6, "iterations": 3, "structure": "level"},
        **SERIES | {"lacks": ("dev", "many", *COUNTED)},
    ),
    # ------------------------------------------------------------------ transcribe
    "transcribe-frames-ctc": Case(
        "transcribe", "bilstm-ctc", data.frames, data.write_arrays, NETWORK | {"layers": 1}, **HEARD
    ),
    "transcribe-frames-transducer": Case(
        "transcribe", "transducer", data.frames, data.write_arrays, EMBEDDED, lacks=["export"], **HEARD
    ),
    "transcribe-frames-joint": Case(
        "transcribe", "joint", data.frames, data.write_arrays, EMBEDDED | {"layers": 1}, **HEARD
    ),
    "transcribe-sound-conformer": Case(
        "transcribe",
        "conformer-ctc",
        data.sounds,
        data.write_wavs,
        ATTENDING | {"kernel": 3, "chunk": 4},
        **HEARD | {"ask": data.write_wavs, "python": _sound},
    ),
    # ------------------------------------------------------------------ caption
    "caption-lstm-attention": Case(
        "caption",
        "lstm-attention",
        data.captioned,
        data.write_pictures,
        EMBEDDED | SEEING | {"channels": 4, "max_length": 8},
        options=BEAM,
        scoring={"beam": 1},
        **SHOWN,
    ),
    "caption-transformer": Case(
        "caption",
        "transformer",
        data.captioned,
        data.write_pictures,
        ATTENDING | SEEING | {"max_length": 8},
        options=BEAM,
        scoring={"beam": 1},
        **SHOWN,
    ),
    # ------------------------------------------------------------------ answer
    "answer-lstm-attention": Case(
        "answer",
        "lstm-attention",
        data.questions,
        data.write_pictures,
        EMBEDDED | SEEING | {"channels": 4},
        **ASKED,
    ),
    "answer-transformer-history": Case(
        "answer",
        "transformer",
        data.questions,
        data.write_pictures,
        ATTENDING | SEEING | {"history": 1},
        **ASKED | {"every": 2},
    ),
    # ------------------------------------------------------------------ embed
    "embed-pairs-bow": Case(
        "embed",
        "bow",
        data.capitals,
        data.write_tsv,
        {**PACE, "vector_size": 4, "embedding": 4, "lr": 0.03, "batch_tokens": 100, "tokens": "char"},
        lacks=["curve"],
    ),
    "embed-labels-bilstm": Case(
        "embed",
        "bilstm",
        data.sentences,
        data.write_jsonl,
        EMBEDDED | WORDS | {"vector_size": 4, "positives": "labels"},
        lacks=["curve"],
    ),
    "embed-views-transformer": Case(
        "embed",
        "transformer",
        data.sentences,
        data.write_lines,
        ATTENDING | WORDS | {"vector_size": 4},
        lacks=["curve"],
    ),
    "embed-vectors-bilstm": Case(
        "embed",
        "bilstm",
        data.arrays,
        data.write_npz,
        NETWORK | {"vector_size": 4},
        **_vectors(lacks=["curve"]),
    ),
}
