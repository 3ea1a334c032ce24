"""The translator as the registry knows it: settings and presets. Nothing here imports torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from anaphora.settings import (
    AttentionSettings,
    DirectionSettings,
    EmbeddingSettings,
    HoldoutSettings,
    InitSettings,
    RecurrentSettings,
    SearchSettings,
    Seq2SeqSettings,
    StackSettings,
    TrainingSettings,
    TransformerSettings,
    TuningSettings,
    VariantSettings,
)
from anaphora.settings.encoder import EncoderSettings
from anaphora.settings.network import in_blocks
from anaphora.settings.own import Own, OwnMetric
from anaphora.settings.search import LanguageChoice, OwnSearchSettings, SeveralOutputs, search_problem
from anaphora.settings.seq2seq_variants import PairVariantSettings
from anaphora.settings.teaching import TeacherSettings
from anaphora.settings.text import InputColumn, SidesSettings
from anaphora.tasks.info import Preset, TaskInfo, Uses, budget, budgeted


class TranslatorSettings(
    TeacherSettings,
    TuningSettings,
    InitSettings,
    EncoderSettings,
    SidesSettings,
    Seq2SeqSettings,
    HoldoutSettings,
    TrainingSettings,
    SearchSettings,
):
    model: Annotated[str, Own()] = Field(
        "lstm-attention", description="The preset: `anaphora models` lists them."
    )
    metric: Annotated[Literal["chrf", "bleu", "exact_match", "loss"], OwnMetric()] = Field(
        "chrf",
        description="The dev measure that decides which weights are best. chrF also tells outputs of few words apart, "
        "where BLEU is not defined for lack of four-word sequences.",
    )
    bleu_tokenize: Literal["13a", "none", "intl", "char", "zh"] = Field(
        "13a",
        description="How sacrebleu splits text before counting; `none` for text that is tokenized already.",
    )
    valid_examples: int = Field(
        1000, ge=1, description="Most dev examples decoded at each evaluation while training."
    )

    @model_validator(mode="after")
    def _shapes_fit(self) -> TranslatorSettings:
        problem = search_problem(self)
        if problem:
            raise ValueError(problem)
        if self.bpe_dropout and "bpe" not in (
            self.source_tokens or self.tokens,
            self.target_tokens or self.tokens,
        ):
            raise ValueError(
                f"bpe_dropout = {self.bpe_dropout} leaves out merges of tokens = 'bpe', but tokens = '{self.tokens}'"
            )
        named = "encoder" if self.encoder != "auto" else "cell" if in_blocks(self) else ""
        if named and self.model in ("rnn", "lstm"):
            raise ValueError(
                f"{named} = {getattr(self, named)!r} needs a decoder that looks at what it reads: choose lstm-attention, "
                "gru-attention or transformer"
            )
        if self.lexical and self.encoder != "auto":
            raise ValueError(
                f"lexical = true needs the vectors of the symbols read, which encoder = {self.encoder!r} does not hand on: "
                "leave one of the two out"
            )
        if self.model.endswith("-attention") and self.attention == "dot" and self.bidirectional:
            raise ValueError(
                "attention = 'dot' needs states and annotations of one width, but both directions give "
                f"annotations of {2 * self.hidden} and states of {self.hidden}: "
                "set bidirectional = false, or attention = 'bilinear'"
            )
        return self


class TranslateOptions(SearchSettings, OwnSearchSettings, LanguageChoice, SeveralOutputs, InputColumn):
    """What ``predict`` takes: how to search, and how many outputs to give."""


_SEARCH = tuple(SearchSettings.model_fields.keys() - {"coverage"})
_ALWAYS: Uses = (
    EncoderSettings,
    *(SidesSettings, TrainingSettings, StackSettings, InitSettings, TuningSettings, TeacherSettings),
    *_SEARCH,
    *("tie", "label_smoothing", "r_drop", "bpe_dropout", "invented", "teacher_forcing", "forcing_schedule"),
    *("metric", "bleu_tokenize", "valid_examples"),
)
_RECURRENT: Uses = (*_ALWAYS, EmbeddingSettings, RecurrentSettings, DirectionSettings, "reverse_source")
_ATTENDING: Uses = (AttentionSettings, "coverage")


def _budget(epochs: float) -> dict[str, Any]:
    """As many passes as Multi30k needs, of 29 000 pairs; very few pairs are read more often, and very many less often."""
    return budget(epochs, 1000, 12_000, patience=5)


_PRESETS = (
    Preset(
        "rnn",
        "Plain recurrent encoder and decoder (Elman); everything passes through one state.",
        {"cell": "elman", "bidirectional": False, "layers": 1},
        _RECURRENT,
    ),
    Preset(
        "lstm",
        "Two-layer LSTM encoder and decoder, state handed over (Sutskever 2014); try reverse_source=true.",
        {"cell": "lstm", "bidirectional": False, "layers": 2},
        _RECURRENT,
    ),
    Preset(
        "lstm-attention",
        "Bidirectional LSTM encoder, LSTM decoder that looks back at every annotation (Luong 2015).",
        {
            "cell": "lstm",
            "bidirectional": True,
            "layers": 1,
            "hidden": 512,
            "attention": "bilinear",
            "dropout": 0.5,
            "ema": 0.998,
            "warmup": 200,
            "steps": 6000,
            "length_penalty": 0.4,
            "keep_best": 3,
        },
        (*_RECURRENT, *_ATTENDING, "input_feeding", "lexical"),
        budget=_budget(47.0),
    ),
    Preset(
        "gru-attention",
        "Bidirectional GRU encoder; additive attention from the previous state feeds the step (Bahdanau 2015).",
        {
            "cell": "gru",
            "bidirectional": True,
            "layers": 1,
            "attention": "additive",
            "dropout": 0.3,
            "ema": 0.998,
            "keep_best": 3,
        },
        (*_RECURRENT, *_ATTENDING),
    ),
    Preset(
        "transformer",
        "Attention only, encoder and decoder (Vaswani 2017); norm_first=false is the published order.",
        {
            "layers": 3,
            "hidden": 256,
            "positions": "rotary",
            "dropout": 0.3,
            "input_dropout": 0.1,
            "r_drop": 5.0,
            "lr": 2e-3,
            "schedule": "cosine",
            "warmup": 800,
            "steps": 4500,
            "ema": 0.998,
            "joint": True,
            "keep_best": 3,
        },
        (*_ALWAYS, TransformerSettings, VariantSettings, PairVariantSettings, "input_dropout", "coverage"),
        budget=_budget(34.0),
    ),
)

TRANSLATE = TaskInfo(
    command="translate",
    name="Translator",
    summary="a sequence into another of any length: translation, summaries, spelling to sound, dates to ISO",
    data_help="TSV source⇥target, two parallel files, CSV/JSONL with named fields, an embedded corpus, or pairs",
    settings=TranslatorSettings,
    presets=budgeted(_PRESETS, _budget(32.0)),
    default_preset="lstm-attention",
    home="anaphora.tasks.translate.estimator",
    predicting=TranslateOptions,
    next_steps=(
        ("Use it:", "predict {run} FILE"),
        ("Look inside:", "inspect {run} --view alignment --text '…'"),
    ),
)
