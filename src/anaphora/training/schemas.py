"""The JSON of a run folder, checked after its checksum: a checksum proves that bytes are those that were written, not
that a sound program wrote them.

Names that are not known here are kept: a later version may add some.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

Count = Annotated[int, Field(ge=0, lt=1 << 53)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(max_length=1000)]
Number = FiniteFloat | int | None


class Schema(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class Exact(BaseModel):
    """Taken whole by the program, so that no name may be added."""

    model_config = ConfigDict(strict=True, extra="forbid")


class ListedFile(Schema):
    bytes: Count
    sha256: Sha256


class Manifest(Schema):
    """``manifest.json`` of a checkpoint."""

    format: Annotated[int, Field(ge=1)]
    step: Count
    files: dict[Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}\.(json|safetensors)$")], ListedFile]
    sha256: Sha256


class Note(Schema):
    """The note inside a safetensors file."""

    format: Annotated[int, Field(ge=1)]
    facts: dict[Name, Any]
    tied: dict[Name, Name]
    sha256: Sha256


class ExportFacts(Schema):
    """What the weights of a run say of themselves; ``files`` are the sha256 of the files they belong to."""

    files: dict[Name, Sha256]
    step: Count | None = None
    chosen: Name | None = None
    averaged: bool = False
    metric: Name | None = None
    value: Number = None


class Best(Schema):
    step: Count
    value: FiniteFloat
    metrics: dict[Name, Number]


class Ranked(Exact):
    step: Count
    value: FiniteFloat


class Standing(Exact):
    step: Count
    symbols: Count
    skipped: Count
    best: Best | None
    metrics: dict[Name, Number]
    ranked: list[Ranked] = []
    total: FiniteFloat
    count: FiniteFloat
    norms: FiniteFloat
    steps: Count
    clipped: Count


class Progress(Exact):
    halvings: Count
    waited: Count
    since_best: Count
    lowest: FiniteFloat | None = None
    values: list[FiniteFloat | None] = []


class Health(Exact):
    said: list[Name]
    first_loss: FiniteFloat | None
    streak: Count
    steps: Count
    clipped: Count
    norms: FiniteFloat


class Scale(Exact):
    factor: Annotated[FiniteFloat, Field(gt=0)]
    good: Count
    fallen: Literal["", "fp32", "bf16"] = ""


class Mark(Schema):
    bytes: Count
    sha256: Sha256


class MadeWith(Schema):
    world: Annotated[int, Field(ge=1, lt=1 << 31)]


class State(Schema):
    """``state.json`` of a checkpoint."""

    format: int
    standing: Standing
    progress: Progress
    health: Health
    scale: Scale
    batches: dict[Name, Annotated[int, Field(gt=-(1 << 53), lt=1 << 53)]]
    journals: dict[Name, Mark]
    made_with: MadeWith
    settings: dict[Name, Any] = {}
    own: dict[Name, Any] = {}


class MetricsRow(Schema):
    step: Count
    epoch: Count = 0
    symbols: Count = 0
    loss: Number = None
    lr: Number = None
    grad_norm: Number = None
    clipped: Number = None
    dev: dict[Name, Number] = {}
    best: bool = False
    health: str = ""
    message: str = ""


class SamplesRow(Schema):
    step: Count


class TimingsRow(Schema):
    step: Count | None = None
    from_step: Count | None = None
    seconds: Number = None
    tokens_per_second: Number = None
    took: Number = None
    event: str = ""


class BadBatchesRow(Schema):
    step: Count
    indices: list[Count] = []


ROWS: dict[str, type[Schema]] = {
    "metrics.jsonl": MetricsRow,
    "samples.jsonl": SamplesRow,
    "timings.jsonl": TimingsRow,
    "bad-batches.jsonl": BadBatchesRow,
}
