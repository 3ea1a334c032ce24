"""The JSON of one input of each kind, as types: `/openapi.json` and `/docs` follow from them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from anaphora.kinds.labels import Ranked


class File(BaseModel):
    """The bytes of a file."""

    base64: str = Field(description="The bytes in base64.")


class Recording(BaseModel):
    """Sound of one channel."""

    samples: list[float] = Field(description="Numbers from −1 to 1.")
    rate: int = Field(ge=1, description="Samples a second.")


SentenceInput = Annotated[
    str | list[str], Field(description="A sentence with spaces between words, or its words.")
]
SeriesInput = Annotated[
    list[float] | list[list[float | None]],
    Field(description="Numbers (time, columns); null where a value is not known."),
]
PictureInput = Annotated[
    list[list[float | list[float]]] | File,
    Field(description="Pixels (height, width, 3) from 0 to 255, or the bytes of a picture file."),
]
SoundInput = Annotated[
    list[float] | Recording | File,
    Field(
        description="Samples at the rate of training, samples with their rate, or the bytes of a sound file."
    ),
]


class QuestionInput(BaseModel):
    """A question about a picture."""

    picture: PictureInput
    question: str
    choices: list[str] | None = Field(None, description="The answers to choose among; all if not given.")


class Tagged(BaseModel):
    """The words of a sentence, the tag of each, and how probable it is."""

    words: list[str]
    tags: list[str | int | float | list[str]]
    probabilities: list[float]


class Read(BaseModel):
    """log p of a line in nats, over so many symbols."""

    text: str
    log_prob: float
    symbols: int
    perplexity: float


class Written(BaseModel):
    """A text with its score."""

    text: str
    score: float
    log_prob: float
    finished: bool


class Word(BaseModel):
    """A word of a transcript, with its times in seconds."""

    model_config = {"extra": "allow"}


class Transcribed(BaseModel):
    """A transcript with the times of its words."""

    text: str
    words: list[Word]
    score: float
    log_prob: float


class Answered(BaseModel):
    """An answer and how probable it is."""

    answer: str
    probability: float


class Forecast(BaseModel):
    """Forecasts (steps, targets), and the interval that holds a value with probability ``level``."""

    mean: list[list[float]]
    low: list[list[float]]
    high: list[list[float]]
    level: float


OUTPUTS: dict[str, Any] = {
    "tag": list[str | int | float | list[str]] | Tagged,
    "language": float | Read | None,
    "translate": str | Written | list[Written],
    "transcribe": str | Transcribed | list[Transcribed],
    "caption": str | Written | list[Written],
    "answer": str | Answered | list[Ranked],
    "forecast": list[list[float]] | Forecast,
}
"""One output of each task: as it is, and with ``details``."""


class Failure(BaseModel):
    """Why a request was refused."""

    error: str


class InferTensor(BaseModel):
    """A tensor; ``data`` may be flat or nested."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Any] | None = None
    parameters: dict[str, Any] | None = None


class Infer(BaseModel):
    """A request of the Open Inference Protocol; ``parameters`` are options of ``predict``."""

    id: str | None = None
    inputs: list[InferTensor]
    outputs: list[dict[str, Any]] | None = None
    parameters: dict[str, Any] | None = None


class Inferred(BaseModel):
    """An answer of the Open Inference Protocol."""

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[InferTensor]
