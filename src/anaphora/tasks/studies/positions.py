"""Which codes of positions work? Counting, dividing, binary digits, sines and learned vectors, tried on one problem.

A Transformer sees a set. The target at every place of a row of letters is the letter two places before, so a model must find a
place from another: the score of two places is a product q · k, which is linear in a count (or a share of the length), so that
nothing in the middle can be singled out by it, and which would have to carry in binary digits; sines turn a shift into a
product. Beside the answers there is what the codes look like: how large they get, how far neighbours are apart, and whether a place
has the same code in a longer row.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anaphora.models.encoders import TransformerEncoder
from anaphora.models.memory import Memory
from anaphora.models.tagger import Tagger as Model
from anaphora.nn.attention import masks
from anaphora.nn.positions import Learned, Sinusoidal
from anaphora.tasks.studies.parts import Parts
from anaphora.tasks.tag.estimator import Tagger
from anaphora.training.progress import Reporter

CODES = ("none", "counting", "dividing", "binary", "sinusoidal", "learned")
LETTERS = "abcdefgh"
BACK = 2
"""How many places back the target letter is; before it there is nothing, ``-``."""
TRAINED = (4, 20)
"""Least and most places of a row in training."""
LONGER = (21, 32)
"""Those of rows that are only tested."""
PLACES = 64
"""Places for which there is a learned vector, and at which codes are looked at."""
SETTINGS: dict[str, Any] = {
    "model": "transformer",
    "characters": "none",
    "hide_rare": 0.0,
    "hidden": 32,
    "layers": 2,
    "heads": 4,
    "feedforward": 64,
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
TESTED = 200


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


class CodedTagger(Tagger):
    """A Transformer tagger with another code of positions."""

    code = "none"

    def _fresh_model(self) -> Model:
        model = super()._fresh_model()
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
    training, and at the places of longer rows that training has never seen; ``largest``, the greatest value of the code at `PLACES` places; ``least_step`` and
    ``greatest_step``, the distance ‖P[p + 1] − P[p]‖ of neighbours; ``shift``, by how much the code of a place changes
    when the row gets longer. ``sizes`` and ``steps`` hold ‖P[p]‖ and the distances for the picture.
    """
    report = reporter or Reporter()
    chosen = {**SETTINGS, **(settings or {})}
    models: dict[str, CodedTagger] = {}
    for code in codes:
        models[code] = CodedTagger(**chosen)
        models[code].code = code
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
            result = {
                "trained": _right(model, TRAINED, BACK),
                "longer": _right(model, LONGER, TRAINED[1]),
            }
            if code == "learned":
                learned = model.model_.encoder.code  # type: ignore[union-attr]
                assert isinstance(learned, Code)
                result["properties"] = _properties(learned.cpu())
            parts.keep(code, result)
        report.say(f"{number} of {len(codes)}: {code}: {result['trained']:.1%} right")
        rows[code] |= result.pop("properties", {}) | result
    return {"study": "positions", "examples": TESTED, "guess": 1 / len(LETTERS), "codes": rows}


def examples(count: int, lengths: tuple[int, int], seed: int) -> list[tuple[list[str], list[str]]]:
    """Rows of letters, and for every place the letter two places before; the same for the same seed."""
    draw = random.Random(seed * 1000 + lengths[0])
    rows = [draw.choices(LETTERS, k=draw.randint(*lengths)) for _ in range(count)]
    return [(row, ["-"] * BACK + row[:-BACK]) for row in rows]


def _right(model: Tagger, lengths: tuple[int, int], first: int) -> float:
    """The share of right answers from place ``first`` on, in rows that were not trained on."""
    rows = examples(TESTED, lengths, 2)
    found = model.predict([row for row, _ in rows])
    answers = [
        said == meant
        for one, (_, wanted) in zip(found, rows, strict=True)
        for said, meant in zip(one[first:], wanted[first:], strict=True)
    ]
    return float(np.mean(answers))


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
