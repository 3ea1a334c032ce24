"""Which codes of positions work? Counting, dividing, binary digits, sines and learned vectors, tried on one problem.

A Transformer sees a set. Of rows of letters the fourth one is asked for, so a model must know which place is which.
Beside the answers there is what the codes look like: how large they get, how far neighbours are apart, and whether a place
has the same code in a longer row.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.models.classifier import SequenceClassifier
from anaphora.models.encoders import TransformerEncoder
from anaphora.models.memory import Memory
from anaphora.nn.attention import masks
from anaphora.nn.positions import Learned, Sinusoidal
from anaphora.tasks.classify.estimator import Classifier
from anaphora.tasks.studies.parts import Parts
from anaphora.training.progress import Reporter

CODES = ("none", "counting", "dividing", "binary", "sinusoidal", "learned")
LETTERS = "abcdefgh"
ASKED = 3
"""The place whose letter is asked for, counted from 0."""
TRAINED = (4, 20)
"""Least and most places of a row in training."""
LONGER = (21, 32)
"""Those of rows that are only tested."""
PLACES = 64
"""Places for which there is a learned vector, and at which codes are looked at."""
SETTINGS: dict[str, Any] = {
    "model": "transformer",
    "tokens": "char",
    "vocab_size": 32,
    "hidden": 32,
    "layers": 2,
    "heads": 4,
    "feedforward": 64,
    "pooling": "attention",
    "dropout": 0.0,
    "lr": 2e-3,
    "warmup": 50,
    "batch_tokens": 1024,
    "steps": 400,
    "valid_every": 200,
    "save_every": 400,
    "patience": 0,
    "ema": 0.0,
    "threads": 1,
    "device": "cpu",
}
EXAMPLES = 4000
TESTED = 500


class Code(nn.Module):
    """P ``(batch, time, width)`` for rows of ``lengths`` places; place p counts from 0.

    - ``counting``: one component is p; ``dividing``: it is p/(T − 1), T the length of the row;
    - ``binary``: the components are the binary digits of p, the lowest first;
    - ``sinusoidal`` and ``learned``: see `anaphora.nn.positions`; ``none``: zeros.
    """

    def __init__(self, kind: str, width: int):
        super().__init__()
        self.kind, self.width = kind, width
        self.table: nn.Module = nn.Identity()
        if kind == "sinusoidal":
            self.table = Sinusoidal(width)
        elif kind == "learned":
            self.table = Learned(width, PLACES)

    def forward(self, lengths: Tensor, time: int) -> Tensor:
        found = torch.zeros(len(lengths), time, self.width)
        place = torch.arange(time)
        if self.kind == "counting":
            found[:, :, 0] = place.float()
        elif self.kind == "dividing":
            found[:, :, 0] = place / (lengths[:, None] - 1).clamp(min=1)
        elif self.kind == "binary":
            digits = min(self.width, 16)
            found[:, :, :digits] = (place[:, None] >> torch.arange(digits) & 1).float()
        elif self.kind != "none":
            found = self.table(found)
        return found


class CodedEncoder(nn.Module):
    """The stack of a `TransformerEncoder` over symbols plus a code that may depend on the length of the row."""

    def __init__(self, encoder: TransformerEncoder, code: Code):
        super().__init__()
        self.embedding, self.stack, self.code = encoder.embedding, encoder.stack, code
        self.width = encoder.width

    def forward(self, source: Tensor, lengths: Tensor) -> Memory:
        """source ``(batch, S)``, lengths ``(batch,)``."""
        mask = masks.padding(lengths, source.shape[1])
        return Memory(self.stack(self.embedding(source) + self.code(lengths, source.shape[1]), mask), mask)


class CodedClassifier(Classifier):
    """A Transformer classifier with another code of positions."""

    code = "none"

    def _fresh_model(self) -> SequenceClassifier:
        model = super()._fresh_model()
        assert isinstance(model, SequenceClassifier)
        assert isinstance(model.encoder, TransformerEncoder)
        model.encoder = CodedEncoder(model.encoder, Code(self.code, model.encoder.width))
        return model


def positions(
    out: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
    codes: tuple[str, ...] = CODES,
) -> dict[str, Any]:
    """Train a small Transformer with each code; how often it is right, and what the code looks like.

    ``codes`` of the result: for each, ``trained`` and ``longer``, the shares of right answers in rows as long as in
    training and in longer ones; ``largest``, the greatest value of the code at `PLACES` places; ``least_step`` and
    ``greatest_step``, the distance ‖P[p + 1] − P[p]‖ of neighbours; ``shift``, by how much the code of a place changes
    when the row gets longer. ``sizes`` and ``steps`` hold ‖P[p]‖ and the distances for the picture.
    """
    report = reporter or Reporter()
    chosen = {**SETTINGS, **(settings or {})}
    models: dict[str, Classifier] = {}
    for code in codes:
        models[code] = CodedClassifier(**chosen)
        models[code].code = code  # type: ignore[attr-defined]
    parts = Parts(out, "positions", {"settings": chosen, "examples": EXAMPLES}, names="|".join(CODES))
    rows = {code: _properties(Code(code, chosen["hidden"])) for code in codes}
    for number, code in enumerate(codes, start=1):
        result = parts.finished(code)
        if result is None:
            report.say(f"{number} of {len(codes)}: {code}")
            model = models[code].fit(
                examples(EXAMPLES, TRAINED, 0), valid=examples(TESTED, TRAINED, 1), reporter=report
            )
            if model.result_.stopped == "interrupted":
                raise KeyboardInterrupt
            shares = {"trained": TRAINED, "longer": LONGER}
            result = {
                name: model.score(examples(TESTED, lengths, 2))["accuracy"] / 100
                for name, lengths in shares.items()
            }
            if code == "learned":
                learned = model.model_.get_submodule("encoder.code")
                assert isinstance(learned, Code)
                result["properties"] = _properties(learned.cpu())
            parts.keep(code, result)
        report.say(f"{number} of {len(codes)}: {code}: {result['trained']:.1%} right")
        rows[code] |= result.pop("properties", {}) | result
    return {"study": "positions", "examples": TESTED, "guess": 1 / len(LETTERS), "codes": rows}


def examples(count: int, lengths: tuple[int, int], seed: int) -> list[tuple[str, str]]:
    """Rows of letters, and the fourth letter of each; the same for the same seed."""
    draw = random.Random(seed * 1000 + lengths[0])
    found = []
    for _ in range(count):
        row = draw.choices(LETTERS, k=draw.randint(*lengths))
        found.append(("".join(row), row[ASKED]))
    return found


@torch.no_grad()
def _properties(code: Code) -> dict[str, Any]:
    """What a code looks like over the places of a row of `PLACES`, and how it differs in one half as long."""
    table = code(torch.tensor([PLACES]), PLACES)[0]
    half = code(torch.tensor([PLACES // 2]), PLACES // 2)[0]
    steps = (table[1:] - table[:-1]).norm(dim=1)
    return {
        "largest": float(table.abs().max()),
        "least_step": float(steps.min()),
        "greatest_step": float(steps.max()),
        "shift": float((table[: PLACES // 2] - half).norm(dim=1).max()),
        "sizes": [float(size) for size in table.norm(dim=1)],
        "steps": [float(step) for step in steps],
    }
