"""What a completion may ask for, in the words of OpenAI's protocol; mistakes are one sentence each."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anaphora.serving.refusals import malformed

STOPS, STOP_LENGTH, ALTERNATIVES = 16, 256, 20


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")
    include_usage: bool = False


class Asked(BaseModel):
    """The body of a request; what is not given is as in training."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prompt: str | list[str] | list[int] | list[list[int]] = ""
    model: str | None = None
    max_tokens: int = Field(16, ge=0)
    temperature: float | None = Field(None, ge=0, le=1000, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0)
    min_p: float | None = Field(None, ge=0, le=1)
    n: int = Field(1, ge=1)
    seed: int | None = Field(None, ge=0, lt=2**63)
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=ALTERNATIVES)
    user: str | None = None
    # Known to clients, and possible only where they ask for nothing.
    best_of: int | None = None
    suffix: str | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None


class Choice(BaseModel):
    """One text of the answer."""

    text: str
    index: int
    logprobs: dict[str, list[Any]] | None
    finish_reason: Literal["stop", "length"] | None


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completed(BaseModel):
    """The answer, or one event of a stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    seed: int
    choices: list[Choice]
    usage: Usage | None = None


def read_asked(body: dict[str, Any]) -> Asked:
    """The body of a request, checked. Raises a `Refusal` (400) with every mistake."""
    try:
        asked = Asked.model_validate(body)
    except ValidationError as error:
        problems = {_problem(each) for each in error.errors()}
        raise malformed(" ".join(sorted(problems))) from None
    for name in ("suffix", "presence_penalty", "frequency_penalty", "logit_bias"):
        if getattr(asked, name):
            raise malformed(f"{name} is not possible with these models; leave it out.")
    if asked.best_of is not None and asked.best_of != asked.n:
        raise malformed("best_of is not possible here; ask for n texts and choose.")
    stops = stops_of(asked)
    if len(stops) > STOPS or any(not 0 < len(text) <= STOP_LENGTH for text in stops):
        raise malformed(f"stop may have {STOPS} texts of 1 to {STOP_LENGTH} characters; leave some out.")
    if asked.max_tokens == 0 and not asked.echo:
        raise malformed("max_tokens = 0 asks for nothing; set echo = true to have the prompt scored.")
    return asked


def _problem(error: Any) -> str:
    where = str(error["loc"][0]) if error["loc"] else "the body"
    if error["type"] == "extra_forbidden":
        return f"{where} is not a setting of a completion; leave it out."
    wanted = (
        "a text, a list of texts, or symbols"
        if where == "prompt"
        else error["msg"][0].lower() + error["msg"][1:]
    )
    return f"{where} cannot be used: {wanted}."


def stops_of(asked: Asked) -> list[str]:
    """The texts that end a completion."""
    return [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
