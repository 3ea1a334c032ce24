"""Quality against length (Bahdanau et al. 2015, figure 2).

An encoder-decoder without attention must press a sentence into one state and gets worse with length; with
attention it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anaphora.data.sources.opening import open_source
from anaphora.files.writing import claim
from anaphora.tasks.translate.estimator import Translator
from anaphora.training.progress import Reporter

MODELS = ("lstm", "lstm-attention")
SETTINGS: dict[str, Any] = {
    "tokens": "word",
    "hidden": 128,
    "embedding": 64,
    "batch_tokens": 1600,
    "dropout": 0.0,
    "label_smoothing": 0.0,
    "lr": 3e-3,
    "warmup": 100,
    "layers": 1,
    "ema": 0.0,
    "threads": 1,
    "steps": 1500,
    "valid_every": 500,
    "save_every": 500,
    "device": "cpu",
}


def length(
    out: str | Path,
    *,
    corpus: str = "copy",
    settings: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
) -> dict[str, Any]:
    """Train with and without attention on ``corpus``; for each test example, its length and whether it came out right.

    Returns ``{"models": {name: [(length, correct), …]}, "corpus": …, "runs": {…}}``; a study that was written to the
    folder before is replaced.
    """
    folder = Path(out)
    pairs = open_source(corpus, role="test")
    sources, references = zip(*(pairs[i] for i in range(len(pairs))), strict=True)
    values = {**SETTINGS, **(settings or {})}
    translators = {model: Translator(model=model, **values) for model in MODELS}
    claim(folder, "study")  # when all settings are right, so that a mistake leaves nothing behind
    rows: dict[str, list[tuple[int, bool]]] = {}
    for model, translator in translators.items():
        translator.fit(corpus, out=folder / model, force=True, reporter=reporter)
        if translator.result_.stopped == "interrupted":
            raise KeyboardInterrupt
        outputs = translator.predict(list(sources), beam=1)
        rows[model] = [(len(s.split()), o == r) for s, o, r in zip(sources, outputs, references, strict=True)]
    return {"study": "length", "corpus": corpus, "models": rows, "runs": {m: str(folder / m) for m in rows}}
