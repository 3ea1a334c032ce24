"""The captioner as the registry knows it: its settings and presets. Nothing here imports torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from anaphora.settings import (
    AttentionSettings,
    DecoderSettings,
    HoldoutSettings,
    InitSettings,
    PictureSettings,
    RecurrentSettings,
    SearchSettings,
    StackSettings,
    TextSettings,
    TrainingSettings,
    TransformerSettings,
    TuningSettings,
)
from anaphora.settings.network import RecurrentStack, TransformerStack
from anaphora.settings.own import Own, OwnMetric
from anaphora.settings.search import OwnSearchSettings, SeveralOutputs, search_problem
from anaphora.settings.text import BadInput
from anaphora.tasks.info import Preset, TaskInfo, Uses, budget, budgeted

_MOST_WORDS = "Most symbols in a caption."


class CaptionerSettings(
    TextSettings,
    PictureSettings,
    AttentionSettings,
    DecoderSettings,
    TransformerStack,
    RecurrentStack,
    InitSettings,
    TuningSettings,
    HoldoutSettings,
    TrainingSettings,
    SearchSettings,
):
    model: Annotated[str, Own()] = Field(
        "lstm-attention", description="The preset: `anaphora models` lists them."
    )
    metric: Annotated[Literal["cider", "bleu", "exact_match", "loss"], OwnMetric()] = Field(
        "cider", description="The dev measure that decides which weights are best."
    )
    bleu_tokenize: Literal["13a", "none", "intl", "char", "zh"] = Field(
        "13a",
        description="How sacrebleu splits text before counting; `none` for text that is tokenized already.",
    )
    embedding: int = Field(
        128,
        ge=1,
        description="Width of the vectors of words, and of those of the places of a picture (Transformer: both are hidden).",
    )
    max_length: int = Field(60, ge=1, description=_MOST_WORDS)
    soft_share: float = Field(
        0.5,
        ge=0,
        lt=1,
        description="How much of the loss of hard attention is that of the expected context (soft attention) instead of "
        "drawn places; 0.5 as in Xu 2015.",
    )
    valid_examples: int = Field(
        500, ge=1, description="Most dev pictures captioned at each evaluation while training."
    )

    @model_validator(mode="after")
    def _shapes_fit(self) -> CaptionerSettings:
        problem = search_problem(self)
        if problem:
            raise ValueError(problem)
        attends = self.model in ("lstm-attention", "lstm-hard")
        if attends and self.attention == "dot" and self.hidden != self.embedding:
            raise ValueError(
                f"attention = 'dot' needs states and places of one width, not hidden = {self.hidden} and "
                f"embedding = {self.embedding}: make them equal, or set attention = 'additive'"
            )
        return self


class CaptionOptions(SearchSettings, OwnSearchSettings, SeveralOutputs, BadInput):
    """What ``predict`` takes: how to search, how many captions to give, and what to do with broken pictures."""

    max_length: int = Field(60, ge=1, description=_MOST_WORDS)


_EYE = ("picture_size", "halvings", "augment", "mirror", "picture_weights")
_SEARCH = tuple(SearchSettings.model_fields)
_ALWAYS: Uses = (
    *(TextSettings, TrainingSettings, StackSettings, InitSettings, TuningSettings),
    *_EYE,
    *_SEARCH,
    *("tie", "label_smoothing", "teacher_forcing", "forcing_schedule"),
    *("metric", "bleu_tokenize", "max_length", "valid_examples"),
)
_RECURRENT_USES: Uses = (*_ALWAYS, RecurrentSettings, "embedding", "channels")
_COMMON = {
    "tokens": "word",
    "hidden": 128,
    "dropout": 0.0,
    "label_smoothing": 0.0,
    "lr": 4e-3,
    "warmup": 100,
    "batch_tokens": 1024,
    "steps": 1500,
    "valid_every": 500,
    "length_penalty": 0.0,
}
_RECURRENT = _COMMON | {"channels": 16}
_PRESETS = (
    Preset(
        "lstm",
        "One vector of the whole picture enters every step of an LSTM (cell=elman: h=tanh(W_xh x+W_hh h+W_ih v)).",
        _RECURRENT,
        tuple(one for one in _RECURRENT_USES if one != "coverage"),
    ),
    Preset(
        "lstm-attention",
        "Before each word an LSTM looks at the places of a grid and takes their weighted mean (soft; Xu 2015).",
        _RECURRENT | {"attention": "additive"},
        (*_RECURRENT_USES, AttentionSettings),
    ),
    Preset(
        "lstm-hard",
        "Before each word one place of the grid is drawn; trained by the score function with a baseline (Xu 2015).",
        _RECURRENT | {"attention": "additive"},
        (
            *(one for one in _RECURRENT_USES if one not in ("teacher_forcing", "forcing_schedule")),
            AttentionSettings,
            "soft_share",
        ),
    ),
    Preset(
        "transformer",
        "Patches of the picture in, words out, attention only (Vaswani 2017, Dosovitskiy 2021).",
        _COMMON | {"layers": 3, "feedforward": 512, "lr": 1e-3, "warmup": 400, "steps": 4000},
        (*_ALWAYS, TransformerSettings),
        budget=budget(36.0, 4000, 12_000, patience=5),
    ),
)

CAPTION = TaskInfo(
    command="caption",
    name="Captioner",
    summary="a picture into a sentence about it",
    data_help="TSV path⇥caption (further captions in columns or rows), an embedded corpus, or (picture, captions) pairs",
    settings=CaptionerSettings,
    presets=budgeted(_PRESETS, budget(14.0, 1500, 12_000, patience=5)),
    default_preset="lstm-attention",
    home="anaphora.tasks.caption.estimator",
    predicting=CaptionOptions,
    folders=True,
    example="captions.tsv",
    next_steps=(
        ("Use it:", "predict {run} PICTURE"),
        ("Look inside:", "inspect {run} --view captions --text '#1'"),
    ),
)
