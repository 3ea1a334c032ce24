"""The tagger as the registry knows it: settings and presets. Nothing here imports torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from anaphora.settings import (
    DirectionSettings,
    EmbeddingSettings,
    HoldoutSettings,
    NetworkSettings,
    PretrainedSettings,
    RecurrentSettings,
    Settings,
    StackSettings,
    TrainingSettings,
    TransformerSettings,
    TuningSettings,
    VariantSettings,
)
from anaphora.settings.encoder import EncoderSettings
from anaphora.settings.frames import FrameSettings
from anaphora.settings.own import Own, OwnMetric
from anaphora.settings.teaching import TeacherSettings
from anaphora.tasks.info import Preset, TaskInfo, Uses, budget, budgeted, linear_presets


class FrameTargetSettings(Settings):
    """What a label of a frame is, and how frames are scaled. Words have one tag each."""

    target: Literal["class", "classes", "number"] = Field(
        "class",
        description="What the label of a frame is: one class; any number of classes, written a|b|c, or - for none; or a "
        "number. Words have one class.",
    )
    threshold: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="Of several classes (target = classes) those whose probability is at least this are given.",
    )
    scale: Literal["features", "all", "none"] = Field(
        "features",
        description="Frames are shifted and scaled to mean 0 and variance 1, as measured on the training data: each feature "
        "by itself, all with the same numbers, or not at all.",
    )


class TaggerSettings(
    TeacherSettings,
    EncoderSettings,
    FrameTargetSettings,
    FrameSettings,
    NetworkSettings,
    PretrainedSettings,
    TuningSettings,
    HoldoutSettings,
    TrainingSettings,
):
    model: Annotated[str, Own()] = Field(
        "bilstm-crf", description="The preset: `anaphora models` lists them."
    )
    vocab_size: int = Field(
        30_000, ge=8, description="Most words that have a vector; the rest becomes <unk>."
    )
    lowercase: bool = Field(
        True, description="One vector for a word whatever its capitals; its characters still show them."
    )
    characters: Literal["lstm", "conv", "none"] = Field(
        "lstm",
        description="How the spelling of a word is read besides its vector: by an LSTM in both directions, by a "
        "convolution, or not at all.",
    )
    character_embedding: int = Field(32, ge=1, description="Width of the vectors of characters.")
    character_hidden: int = Field(
        64,
        ge=1,
        description="Width of what the spelling gives: of each direction, or filters of the convolution.",
    )
    hide_rare: float = Field(
        0.25,
        ge=0,
        le=1000,
        allow_inf_nan=False,
        description="α: while training, a word seen n times is hidden (becomes <unk>) with probability α/(α + n), so "
        "that the model learns to do without it.",
    )
    pieces: Literal["first", "last", "mean"] = Field(
        "first",
        description="What stands for a word that a model of init reads in pieces: the state of its first or last piece, or the "
        "mean of all. A model that looks back only is read from the last.",
    )
    crf: bool = Field(
        False,
        description="Score whole sequences of tags by a CRF above the network instead of each tag by itself; bilstm-crf "
        "always does.",
    )
    scheme: Literal["auto", "none", "bio", "iob1", "bioes", "bilou"] = Field(
        "auto",
        description="How tags mark spans (B-PER I-PER O): only sequences that are valid in it are predicted, and spans "
        "are scored. auto finds out from the training tags; none takes tags as they are.",
    )
    balance_spans: bool = Field(
        True,
        description="Where tags mark spans: after training, shift the score of O (outside of spans) to where F1 on the dev data "
        "is best. A tagger of rare spans finds too few of them otherwise. Needs 50 spans in the dev data.",
    )
    order: Literal[2, 3] = Field(
        3, description="Tags that the HMM looks at together: 2 (each depends on the one before) or 3."
    )
    kernel: int = Field(
        7,
        ge=1,
        le=63,
        description="Words or frames that a window of mlp or conv sees, the middle one included; odd.",
    )
    max_tokens: int = Field(
        256,
        ge=2,
        description="Longer training sentences are left out (and counted); of frames the longest sequence fits unless this "
        "is given. At prediction sequences may have any length.",
    )
    bad_rows: Literal["strict", "skip"] = Field(
        "strict",
        description="What to do with a sentence that has a broken row (wrong columns, no tag, broken UTF-8): stop and "
        "name the row, or leave the sentence out and report how many were, and why.",
    )
    metric: Annotated[Literal["auto", "accuracy", "f1", "loss"], OwnMetric()] = Field(
        "auto",
        description="The dev measure that decides which weights are best: auto is f1 of spans where tags mark spans, "
        "the loss for numbers, else accuracy.",
    )

    @property
    def chained(self) -> bool:
        """Whether a CRF scores the tags."""
        return self.model == "bilstm-crf" or self.crf

    @model_validator(mode="after")
    def _shapes_fit(self) -> TaggerSettings:
        if self.model in ("mlp", "conv") and self.kernel % 2 == 0:
            raise ValueError(f"kernel = {self.kernel} must be odd, so that a window has a middle")
        if self.target != "class" and self.chained:
            raise ValueError(
                f"a CRF scores sequences of classes, but target = '{self.target}': choose another preset, such as bilstm"
            )
        if self.pieces != "first" and self.donates != "weights":
            raise ValueError(f"pieces = '{self.pieces}' is about a model of init that cuts words: set init")
        if self.target == "number" and self.metric in ("accuracy", "f1"):
            raise ValueError(f"metric = '{self.metric}' needs classes, but target = 'number'")
        if self.model != "transformer":
            return self
        spelled = {"lstm": 2 * self.character_hidden, "conv": self.character_hidden, "none": 0}[
            self.characters
        ]
        if spelled >= self.hidden and self.donates != "weights":
            raise ValueError(
                f"the spelling takes {spelled} of hidden = {self.hidden} values and leaves none to the word: lower "
                "character_hidden"
            )
        return self


class TagOptions(Settings):
    """What ``predict`` takes: how the input is read."""

    form: Literal["auto", "text", "conll", "conllu"] = Field(
        "auto",
        description="How the input is read: text has a sentence a line with spaces between words, the others are columns. "
        "auto goes by the file's ending; standard input is text.",
    )
    source_field: str = Field("", description="The column of the words; as in training if not given.")
    target_field: str = Field("", description="The column to write tags to; as in training if not given.")

    @field_validator("source_field", "target_field", mode="before")
    @classmethod
    def _numbers_name_columns(cls, value: Any) -> Any:
        """``--set source_field=2`` is read as a number, and means the second column."""
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_LEARNT: Uses = (
    EncoderSettings,
    FrameTargetSettings,
    TeacherSettings,
    *(
        TrainingSettings,
        StackSettings,
        "vocab_size",
        "lowercase",
        "scheme",
        "max_tokens",
        "bad_rows",
        "metric",
        "balance_spans",
    ),
    *("characters", "character_embedding", "character_hidden", "hide_rare", "embeddings", "crf"),
)
_BEGUN: Uses = (*_LEARNT, "init", "init_as", "mix", "pieces", TuningSettings)
_RECURRENT: Uses = (*_BEGUN, FrameSettings, EmbeddingSettings, RecurrentSettings, DirectionSettings)
_TRAINED = {
    "steps": 1000,
    "batch_tokens": 1024,
    "lr": 2e-3,
    "dropout": 0.4,
    "warmup": 50,
    "ema": 0.995,
    "valid_every": 200,
}
_PRESETS = (
    Preset(
        "hmm",
        "Hidden Markov model over tags, counted; new words by their endings (Brants 2000). Seconds, no network.",
        {},
        ("order", "scheme", "metric", "bad_rows", "seed"),
        direct=True,
    ),
    Preset(
        "mlp",
        "Feed-forward network on a window of words or frames: no memory beyond it (Collobert 2011).",
        {"hidden": 128, "embedding": 100, **_TRAINED},
        (*_LEARNT, FrameSettings, EmbeddingSettings, "kernel"),
    ),
    Preset(
        "conv",
        "Convolutions around each word or frame, dilated ones above them: a wide but fixed view.",
        {"hidden": 128, "embedding": 100, **_TRAINED, "layers": 3},
        (*_LEARNT, FrameSettings, EmbeddingSettings, "kernel"),
    ),
    Preset(
        "lstm",
        "LSTM from left to right: a tag as soon as its word or frame is read, without what follows.",
        {"hidden": 128, "embedding": 100, **_TRAINED, "bidirectional": False},
        _RECURRENT,
    ),
    Preset(
        "bilstm",
        "Bidirectional LSTM over words and their characters; each word tagged by itself (Ling 2015).",
        {"hidden": 128, "embedding": 100, **_TRAINED},
        _RECURRENT,
    ),
    Preset(
        "bilstm-crf",
        "The same under a CRF, which scores whole sequences of tags (Huang 2015, Lample 2016).",
        {"hidden": 128, "embedding": 100, **_TRAINED},
        _RECURRENT,
    ),
    *linear_presets(
        {"hidden": 128, "embedding": 100, **_TRAINED, "layers": 2, "dropout": 0.2, "lr": 1e-3},
        (*_BEGUN, FrameSettings, EmbeddingSettings, DirectionSettings),
    ),
    Preset(
        "transformer",
        "Self-attention over words and their characters; each word tagged by itself.",
        {
            **_TRAINED,
            "layers": 2,
            "hidden": 256,
            "feedforward": 512,
            "character_hidden": 48,
            "dropout": 0.2,
            "lr": 1e-3,
            "warmup": 200,
        },
        (*_BEGUN, FrameSettings, TransformerSettings, VariantSettings, "causal"),
    ),
)

TAG = TaskInfo(
    command="tag",
    name="Tagger",
    summary="a tag for every word or a label for every frame: parts of speech, named entities, phases of a movement",
    data_help="CoNLL columns (word first, tag last), CoNLL-U, TSV words⇥tags, an embedded corpus, or (words, tags); frames: "
    ".npz with X and y, a list or folder of files, or pairs of an array and its labels",
    settings=TaggerSettings,
    presets=budgeted(_PRESETS, budget(16.0, 1000, 2000)),
    default_preset="bilstm-crf",
    home="anaphora.tasks.tag.estimator",
    predicting=TagOptions,
    example="train.conll",
)
