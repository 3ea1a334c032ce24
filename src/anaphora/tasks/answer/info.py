"""The answerer as the registry knows it: its settings and presets. Nothing here imports torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from anaphora.settings import (
    DirectionSettings,
    EmbeddingSettings,
    HoldoutSettings,
    InitSettings,
    NetworkSettings,
    PictureSettings,
    RecurrentSettings,
    Settings,
    StackSettings,
    TextSettings,
    TrainingSettings,
    TransformerSettings,
    TuningSettings,
)
from anaphora.settings.own import Own, OwnMetric
from anaphora.tasks.info import Preset, TaskInfo, Uses, budget, budgeted


class AnswererSettings(
    TextSettings,
    NetworkSettings,
    PictureSettings,
    InitSettings,
    TuningSettings,
    HoldoutSettings,
    TrainingSettings,
):
    model: Annotated[str, Own()] = Field(
        "lstm-attention", description="The preset: `anaphora models` lists them."
    )
    tokens: Literal["char", "word", "bpe"] = Field(
        "word",
        description="What one symbol of a question is: a character, a word between spaces, or a piece learned by byte "
        "pair encoding.",
    )
    looks: int = Field(
        4, ge=1, le=64, description="How many places of the picture a question looks at, side by side."
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="Share of the target probability spread over all answers."
    )
    answers: int = Field(
        3000,
        ge=2,
        description="Most answers that can be given: the commonest of the training data; other questions teach nothing.",
    )
    history: int = Field(
        0,
        ge=0,
        le=100,
        description="Dialogue: so many of the questions about the same picture that came before, with their answers, are read "
        "before each question.",
    )
    metric: Annotated[Literal["accuracy", "loss"], OwnMetric()] = Field(
        "accuracy", description="The dev measure that decides which weights are best."
    )
    max_tokens: int = Field(
        64,
        ge=2,
        description="Longer questions are left out of training (and counted); at prediction they are cut, with a warning. Of a "
        "dialogue the last so many symbols are read.",
    )


class AnswerOptions(Settings):
    """What ``predict`` takes."""

    top: int = Field(1, ge=1, le=1000, description="Answers given to each question, the most probable first.")
    choices: bool = Field(
        False,
        description="Multiple choice: the third column of each row (for score, the fourth) lists the answers to choose among, "
        "written a|b|c.",
    )
    bad_rows: Literal["strict", "skip"] = Field(
        "strict",
        description="What to do with a row whose picture or question cannot be used: stop and name it, or answer "
        "nothing and go on.",
    )


_ALWAYS: Uses = (
    TextSettings,
    TrainingSettings,
    StackSettings,
    "label_smoothing",
    "answers",
    "history",
    "metric",
    "picture_size",
)
_RECURRENT: Uses = (EmbeddingSettings, RecurrentSettings, DirectionSettings)
_TRAINED: dict[str, Any] = {
    "hidden": 96,
    "embedding": 64,
    "channels": 16,
    "halvings": 4,
    "batch_tokens": 1024,
    "steps": 6000,
    "valid_every": 500,
    "save_every": 500,
    "lr": 2e-3,
    "warmup": 100,
    "dropout": 0.0,
    "ema": 0.99,
}

_PRESETS = (
    Preset(
        "lstm-attention",
        "LSTM over the question in both directions, which looks at several places of the picture side by side.",
        _TRAINED,
        (*_ALWAYS, *_RECURRENT, PictureSettings, "looks", InitSettings, TuningSettings),
    ),
    Preset(
        "transformer",
        "Self-attention over the picture's places and over the question's words, which also attend to the places.",
        {key: value for key, value in _TRAINED.items() if key != "embedding"}
        | {"layers": 2, "feedforward": 192, "lr": 1e-3},
        (*_ALWAYS, TransformerSettings, PictureSettings, InitSettings, TuningSettings),
    ),
    Preset(
        "question-only",
        "The baseline: LSTM over the question, which never looks at the picture.",
        {key: value for key, value in _TRAINED.items() if key not in PictureSettings.model_fields}
        | {"steps": 600, "valid_every": 100},
        (*_ALWAYS, *_RECURRENT),
        budget=budget(3.0, 600, 6000),
    ),
)

ANSWER = TaskInfo(
    command="answer",
    name="Answerer",
    summary="a question about a picture to its answer",
    data_help="TSV path⇥question⇥answer (and perhaps the kind of question), paths from the folder of the list; an embedded "
    "corpus; or triples (path or array, question, answer)",
    settings=AnswererSettings,
    presets=budgeted(_PRESETS, budget(14.0, 3000, 20_000)),
    default_preset="lstm-attention",
    home="anaphora.tasks.answer.estimator",
    predicting=AnswerOptions,
    example="questions.tsv",
)
