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
)
from anaphora.settings.encoder import EncoderSettings
from anaphora.settings.own import Own, OwnMetric
from anaphora.tasks.info import Preset, TaskInfo, Uses, linear_presets


class TaggerSettings(EncoderSettings, NetworkSettings, PretrainedSettings, HoldoutSettings, TrainingSettings):
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
    scheme: Literal["auto", "none", "bio", "iob1", "bioes", "bilou"] = Field(
        "auto",
        description="How tags mark spans (B-PER I-PER O): only sequences that are valid in it are predicted, and spans "
        "are scored. auto finds out from the training tags; none takes tags as they are.",
    )
    order: Literal[2, 3] = Field(
        3, description="Tags that the HMM looks at together: 2 (each depends on the one before) or 3."
    )
    max_tokens: int = Field(
        256,
        ge=2,
        description="Longer training sentences are left out (and counted); at prediction sentences may have any length.",
    )
    bad_rows: Literal["strict", "skip"] = Field(
        "strict",
        description="What to do with a sentence that has a broken row (wrong columns, no tag, broken UTF-8): stop and "
        "name the row, or leave the sentence out and report how many were, and why.",
    )
    metric: Annotated[Literal["auto", "accuracy", "f1", "loss"], OwnMetric()] = Field(
        "auto",
        description="The dev measure that decides which weights are best: auto is f1 of spans where tags mark spans, "
        "else accuracy.",
    )

    @model_validator(mode="after")
    def _shapes_fit(self) -> TaggerSettings:
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
    *(
        TrainingSettings,
        StackSettings,
        "vocab_size",
        "lowercase",
        "scheme",
        "max_tokens",
        "bad_rows",
        "metric",
    ),
    *("characters", "character_embedding", "character_hidden", "hide_rare", "init", "init_as", "embeddings"),
)
_RECURRENT: Uses = (*_LEARNT, EmbeddingSettings, RecurrentSettings, DirectionSettings)
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
        (*_LEARNT, EmbeddingSettings, DirectionSettings),
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
        (*_LEARNT, TransformerSettings, "causal"),
    ),
)

TAG = TaskInfo(
    command="tag",
    name="Tagger",
    summary="a tag for every word: parts of speech, named entities, chunks, slots",
    data_help="CoNLL columns (word first, tag last), CoNLL-U, TSV words⇥tags, an embedded corpus, or (words, tags)",
    settings=TaggerSettings,
    presets={preset.name: preset for preset in _PRESETS},
    default_preset="bilstm-crf",
    home="anaphora.tasks.tag.estimator",
    predicting=TagOptions,
    example="train.conll",
)
