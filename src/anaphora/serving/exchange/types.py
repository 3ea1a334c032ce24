"""The JSON of one input of each kind, as types: `/openapi.json` and `/docs` follow from them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field


class File(BaseModel):
    """The bytes of a file."""

    base64: str = Field(description="The bytes in base64.")


class Recording(BaseModel):
    """Sound of one channel."""

    samples: list[float] = Field(description="Numbers from −1 to 1.")
    rate: int = Field(ge=1, description="Samples a second.")


TextInput = Annotated[str, Field(description="A text.")]
SentenceInput = Annotated[
    str | list[str], Field(description="A sentence with spaces between words, or its words.")
]
VectorsInput = Annotated[list[list[float]], Field(description="Numbers (time, features).")]
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
