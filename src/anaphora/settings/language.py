"""All settings of a language model. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from anaphora.settings import (
    HoldoutSettings,
    InitSettings,
    NetworkSettings,
    Settings,
    TextSettings,
    TrainingSettings,
    TuningSettings,
)
from anaphora.settings.own import Own
from anaphora.settings.search import DrawSettings
from anaphora.settings.teaching import TeacherSettings


class SampleSettings(DrawSettings):
    """How text is drawn from a model."""

    length: int = Field(
        200, ge=1, le=1_000_000, description="Symbols in a sample; in models of lines, at most so many."
    )


class SampleOptions(SampleSettings):
    """What ``sample`` takes."""

    prompt: str = Field("", description="Text to go on from.")
    seed: int = Field(1, ge=0, lt=2**63, description="The same seed draws the same text.")
    n: int = Field(1, ge=1, le=10_000, description="Samples to draw.")
    precision: Literal["full", "bf16"] = Field(
        "full",
        description="Numbers of the weights while text is written. bf16: a Transformer on an NVIDIA GPU writes one text with "
        "temperature = 0 several times as fast, each step as one kernel; a close decision may fall otherwise than in full precision.",
    )

    @model_validator(mode="after")
    def _check_precision(self) -> SampleOptions:
        if self.precision == "bf16" and (self.temperature != 0 or self.n != 1):
            raise ValueError(
                "precision = 'bf16' writes one text of the most probable symbols: set temperature = 0 and n = 1"
            )
        return self


class ReadOptions(Settings):
    """What ``predict`` takes: nothing but its lines."""


class ScoreOptions(Settings):
    """What ``score`` takes: how a model may learn from the text that it judges, symbol after symbol."""

    dynamic: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="Dynamic evaluation (Krause 2018): after each `dynamic_steps` symbols have been judged, the weights move along "
        "their gradient with this learning rate, such as 0.0003; each coordinate is divided by the root mean square of its gradients. 0 = off.",
    )
    dynamic_steps: int = Field(
        32, ge=1, le=100_000, description="Symbols judged between two steps of dynamic evaluation."
    )
    dynamic_decay: float = Field(
        0.001,
        ge=0,
        lt=1,
        description="Share of the way back to the trained weights that each step of dynamic evaluation goes.",
    )
    cache: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="Neural cache (Grave 2017): so many states before the present one vote for the symbols that followed them, "
        "the more alike the louder; such as 2000. 0 = off.",
    )
    cache_flatness: float = Field(
        0.3,
        ge=0,
        allow_inf_nan=False,
        description="θ: how much louder states that are alike vote, softmax(θ h·hᵢ); 0 = all alike.",
    )
    cache_weight: float = Field(
        0.1, gt=0, lt=1, description="λ: the cache's share of the probability, beside 1 − λ of the model's."
    )

    @property
    def adapts(self) -> bool:
        """Whether the model learns from what it judges."""
        return bool(self.dynamic or self.cache)

    @model_validator(mode="after")
    def _used(self) -> ScoreOptions:
        for owner, keys in (
            ("dynamic", ("dynamic_steps", "dynamic_decay")),
            ("cache", ("cache_flatness", "cache_weight")),
        ):
            given = [key for key in keys if key in self.model_fields_set]
            if given and not getattr(self, owner):
                raise ValueError(f"{given[0]} is about {owner}: set {owner} as well")
        return self


_LETTERS: Mapping[str, Any] = {
    "cell": "lstm",
    "layers": 2,
    "hidden": 640,
    "embedding": 128,
    "bptt": 128,
    "batch_tokens": 16384,
    "dropout": 0.5,
    "input_dropout": 0.1,
    "output_dropout": 0.5,
    "variational": True,
    "lr": 3e-3,
    "warmup": 100,
    "ema": 0.99,
    "valid_every": 0,
    "valid_symbols": 500_000,
    "save_every": 500,
}
_WORDS: Mapping[str, Any] = {
    "vocab_size": 50_000,
    "layers": 3,
    "hidden": 1152,
    "embedding": 400,
    "bptt": 70,
    "batch_tokens": 5600,
    "dropout": 0.25,
    "input_dropout": 0.6,
    "output_dropout": 0.4,
    "embedding_dropout": 0.1,
    "weight_dropout": 0.5,
    "embedding_scale": False,
    "activation_penalty": 2.0,
    "temporal_penalty": 1.0,
    "lr": 5e-3,
    "weight_decay": 0.1,
    "schedule": "one-cycle",
    "warmup": 200,
    "ema": 0.998,
    "save_every": 2000,
    "save_in_background": True,
}


def large_lstm(tokens: str) -> dict[str, Any]:
    """The settings of a large LSTM with dropout everywhere and averaged weights (Merity 2018), by what a symbol is.

    Of words and pieces of words a text has fewer, and more different ones, than of characters. The preset awd-lstm has them; lstm assumes
    them for much text on a GPU (`tasks.suiting.language`).
    """
    return {**_LETTERS, **({} if tokens == "char" else _WORDS)}


def large_lstm_budget(tokens: str) -> dict[str, Any]:
    """How long it trains where ``steps`` are not given. After some 50 to 70 passes it learns few words by heart, dropout or not.

    Words are trained on to the end: their dev loss may stand still while one cycle of lr is at its top, and falls after it.
    """
    if tokens == "char":
        return {"epochs": 25.0, "min_steps": 300, "max_steps": 60_000, "patience": 5}
    return {"epochs": 70.0, "min_steps": 5000, "max_steps": 60_000, "patience": 0}


class LanguageSettings(
    TeacherSettings,
    TextSettings,
    NetworkSettings,
    InitSettings,
    TuningSettings,
    HoldoutSettings,
    TrainingSettings,
    SampleSettings,
):
    model: Annotated[str, Own()] = Field("lstm", description="The preset: `anaphora models` lists them.")
    tokens: Literal["char", "word", "bpe"] = Field(
        "char",
        description="What one symbol is: a character, a word between spaces, or a piece learned by byte pair "
        "encoding (needs no list of words and knows no unknown word).",
    )
    bidirectional: bool = Field(
        False,
        description="Only for models that see the whole input; a model of what comes next cannot read backwards.",
    )
    metric: Literal["loss", "perplexity", "bits_per_character", "accuracy"] = Field(
        "loss", description="The dev measure that decides which weights are best."
    )
    lines: bool = Field(
        False,
        description="Read every line as a text of its own (names, sentences) instead of all lines as one running text, "
        "in which a line break is a symbol like any other.",
    )
    backward: bool = Field(
        False,
        description="Read every line from its end to its beginning (needs lines = true): the other half of the vectors "
        "in context that a tagger may begin with (ELMo).",
    )
    bptt: int = Field(
        64,
        ge=1,
        description="Steps of truncated back-propagation through time: gradients reach so far back, while the state is "
        "carried on through the whole text.",
    )
    context: int = Field(
        256, ge=2, description="How many symbols a Transformer reads at a time, and looks back over at most."
    )
    order: int = Field(
        5,
        ge=1,
        le=32,
        description="n of n-grams and of a window: a symbol is predicted from the n − 1 before it.",
    )
    prune: int = Field(
        0,
        ge=0,
        le=31,
        description="Of n-grams of more symbols than this, those that occur once are left out of the counts; 0 = none are.",
    )
    smoothing: Literal["kneser-ney", "witten-bell", "add-k"] = Field(
        "kneser-ney",
        description="How an n-gram model gives a share of its probability to what it has not seen.",
    )
    direct: bool = Field(
        False,
        description="Connect the window's vectors directly with the output besides the hidden layer (Bengio 2003).",
    )
    tie: bool = Field(
        True, description="Share the vectors of the symbols with the output layer (Press & Wolf 2017)."
    )
    unknown_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the words that occur once in the training text that are read as <unk> there, so that the model learns how often "
        "an unknown word comes; words that the vocabulary leaves out count (tokens = word).",
    )
    mixtures: int = Field(
        1,
        ge=1,
        le=256,
        description="K: softmaxes whose mixture is p of the next symbol (Yang 2018): more than one can tell apart more contexts than "
        "vectors of their width can, and each takes the time of an output layer.",
    )
    embedding_dropout: float = Field(
        0.0, ge=0, lt=1, description="Share of the words left out of a whole batch while training."
    )
    input_dropout: float = Field(
        0.0, ge=0, lt=1, description="Share of values of the symbols' vectors set to zero while training."
    )
    output_dropout: float = Field(
        0.0, ge=0, lt=1, description="Share of values that enter the output layer set to zero while training."
    )
    weight_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the recurrent weights set to zero for a whole batch while training (Merity 2018).",
    )
    variational: bool = Field(
        False,
        description="Drop the same values at every step of a row (Gal & Ghahramani 2016) instead of others each time.",
    )
    activation_penalty: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="α: adds α · mean(y²) of the last layer's outputs to the loss (AR).",
    )
    temporal_penalty: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="β: adds β · mean((y_t − y_{t−1})²) of the last layer's outputs to the loss, for states that change "
        "slowly (TAR).",
    )
    documents: Literal["none", "blank"] = Field(
        "none",
        description="Documents in running text that a Transformer keeps apart: blank = an empty line ends one, and no place attends "
        "to another document of its window (document masks). With lines = true every line is by itself anyway.",
    )
    masked_share: float = Field(
        0.15,
        gt=0,
        lt=1,
        description="Share of the symbols that are hidden and to be guessed from both sides (BERT).",
    )
    output_transform: bool = Field(
        False,
        description="A layer with an activation and a norm before the output layer of a masked language model (BERT).",
    )
    valid_symbols: int = Field(
        0, ge=0, description="Most dev symbols read at each evaluation while training; 0 = all of them."
    )
    compile: Literal["auto", "off"] = Field(
        "auto",
        description="auto replays a Transformer's training step from captured graphs on an NVIDIA GPU; steps that the library has no "
        "kernels for (as those with dropout) are compiled by torch: a minute of waiting, then faster steps.",
    )

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        found = super().implied(given)
        if given.get("model") == "awd-lstm" and given.get("tokens", "char") != "char":
            budget = {} if "steps" in given else large_lstm_budget("word")
            found = {**large_lstm("word"), **budget, **found}
        optimizer = given.get("optimizer")
        if optimizer == "ntasgd":  # as published, for a loss in nats per symbol
            found |= {"lr": 30.0, "clip": 0.25, "warmup": 0, "weight_decay": 1.2e-6}
        if optimizer == "sgd":  # which multiplies weight decay by its lr, thousands of times that of adamw
            found["weight_decay"] = 0.0
        if optimizer in ("sgd", "ntasgd") and given.get("model") not in ("transformer", "masked"):
            found["embedding_scale"] = False
        return found

    @model_validator(mode="after")
    def _fits(self) -> LanguageSettings:
        if self.metrics:
            raise ValueError(
                "metrics compare answers with the truth, but a language model gives none: leave them out"
            )
        if self.bidirectional:
            raise ValueError(
                "a model of the next symbol cannot be bidirectional, since reading backwards it would see the very "
                "symbols it has to predict: leave bidirectional out, or use model = 'masked'"
            )
        if self.documents != "none" and self.lines:
            raise ValueError(
                "documents is about running text: with lines = true every line is by itself anyway"
            )
        if self.backward and not self.lines:
            raise ValueError("backward = true reads single lines from their end: set lines = true as well")
        if self.model == "ngram" and self.prune >= self.order:
            raise ValueError(
                f"prune = {self.prune} is about n-grams of more than {self.prune} symbols, but order = {self.order}: set prune below order"
            )
        if self.unknown_share and self.tokens != "word":
            raise ValueError(
                "unknown_share is about words that occur once: set tokens = 'word', or leave it out"
            )
        if (self.metric == "accuracy") != (self.model == "masked") and self.metric != "loss":
            raise ValueError(
                f"metric = '{self.metric}' is not measured for the preset {self.model}: "
                + (
                    "use loss or accuracy"
                    if self.model == "masked"
                    else "use loss, perplexity or bits_per_character"
                )
            )
        return self
