"""All settings of a classifier. Nothing here imports torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from anaphora.settings import (
    HoldoutSettings,
    NetworkSettings,
    PretrainedSettings,
    Settings,
    TextSettings,
    TrainingSettings,
    TuningSettings,
)
from anaphora.settings.encoder import EncoderSettings
from anaphora.settings.frames import FrameSettings
from anaphora.settings.looking import LookingSettings
from anaphora.settings.own import Own, OwnMetric
from anaphora.settings.teaching import TeacherSettings
from anaphora.settings.text import InputColumn

PICTURES = ("glimpse", "draw", "grid-lstm", "vit")
"""Presets that look at pictures; the others read sequences."""


class TargetSettings(Settings):
    """What a label is, and how answers are judged."""

    target: Literal["class", "classes", "number"] = Field(
        "class",
        description="What a label is: one class; any number of classes, written a|b|c, or - for none; or a number.",
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="Share of the target probability spread over all classes."
    )
    class_weight: Literal["none", "balanced"] = Field(
        "none",
        description="balanced: a mistake counts more the rarer its class is, so that all classes weigh alike.",
    )
    threshold: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Of several classes (target = classes) those whose probability is at least this are given; 0 = the dev data "
        "choose it, where F1 over all labels is best.",
    )
    tolerance: float = Field(
        0.04,
        gt=0,
        allow_inf_nan=False,
        description="A number nearer to the true one than this counts as right.",
    )
    metric: Annotated[Literal["auto", "accuracy", "micro_f1", "macro_f1", "loss"], OwnMetric()] = Field(
        "auto",
        description="The dev measure that decides which weights are best; auto is the loss for numbers, micro_f1 for "
        "several classes whose threshold the dev data choose, else accuracy.",
    )


class RegularSettings(Settings):
    """What makes a model of few examples steadier; each takes a second pass over the batch, and half as much time again or more."""

    r_drop: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="How much two passes with other dropout must agree: the weight of the divergence of their answers beside "
        "the mean of their losses (R-Drop); 0 = one pass.",
    )
    adversarial: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Train half on embeddings that are moved in the direction in which the loss rises most, by this share of "
        "their length; 0 = off.",
    )
    mixup: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="α of the Beta distribution that says in what shares two examples, after pooling, and their losses are mixed while "
        "training; 0 = off.",
    )

    @classmethod
    def problem(cls, s: Any) -> str | None:
        if s.mixup and (s.r_drop or s.adversarial):
            return "mixup has no place beside r_drop or adversarial: set it to 0"
        return None


class NgramSettings(Settings):
    """Counts of n-grams under a linear model."""

    word_ngrams: int = Field(3, ge=1, le=8, description="Most words of an n-gram of words.")
    char_ngrams: int = Field(
        8,
        ge=0,
        le=16,
        description="Most characters of an n-gram of characters, which has at least 2; below 2: words only.",
    )
    apart: bool = Field(
        False,
        description="Weigh the n-grams of words and those of characters by two regressions, whose scores are averaged, instead of by one over both.",
    )
    rare_words: float = Field(
        0.0,
        ge=0,
        le=10,
        description="How much single words, of any count and weighted by how rare they are, count beside the n-grams, which are weighted by how much "
        "more often texts of a class have them; 0 leaves them out.",
    )
    margin: bool = Field(
        False,
        description="Weigh n-grams by a margin between each class and the rest (a linear support vector machine) instead of by logistic regression: more right "
        "answers where there are three classes or more, for which it is assumed. Takes twice the time, because how sure the answers are is found on parts of the texts.",
    )
    min_count: int = Field(2, ge=1, description="N-grams that fewer training texts have are left out.")
    penalty: float = Field(
        0.3,
        gt=0,
        allow_inf_nan=False,
        description="How much large weights of n-grams cost: ½ penalty |w|² beside the summed loss of all texts.",
    )


class RocketSettings(Settings):
    """Random convolutions under a linear model."""

    thresholds: int = Field(
        4,
        ge=1,
        le=64,
        description="At how many heights what each random convolution answers is counted; the model has 2 688 features for each.",
    )
    places: bool = Field(
        False,
        description="Also learn from where in a sequence each random convolution answers most, unless examples that were not seen are predicted better without: "
        "it tells what happens first, which counts do not.",
    )


class ClassifierSettings(
    TeacherSettings,
    EncoderSettings,
    NgramSettings,
    RocketSettings,
    RegularSettings,
    TargetSettings,
    TextSettings,
    NetworkSettings,
    LookingSettings,
    FrameSettings,
    PretrainedSettings,
    TuningSettings,
    HoldoutSettings,
    TrainingSettings,
):
    model: Annotated[str, Own()] = Field("lstm", description="The preset: `anaphora models` lists them.")
    pooling: Literal[
        "last", "max", "mean", "attention", "concat", "first", "first-tanh", "first-relu", "first-gelu"
    ] = Field(
        "last",
        description="How the states of a sequence become one vector: the last state, the largest value of each unit, "
        "their mean, a mean weighted by attention, the first three side by side (concat; what a recurrent language model "
        "of init is read by), or the state of a <s> put first (BERT's [CLS]), by itself or through a layer of its own with that "
        "activation (first-tanh is BERT's pooler).",
    )
    two_scores: bool = Field(
        False,
        description="A score for each of two classes, as models of others have, instead of one for the second.",
    )
    kernel: int = Field(
        5,
        ge=1,
        le=64,
        description="Widest window of a convolution; windows from 3 symbols up to it are used.",
    )
    word_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of symbols replaced by <unk> while training, so that no single word decides.",
    )
    scan: Literal["rows", "pixels", "picture"] = Field(
        "rows",
        description="How an image becomes a sequence: a row at each step, or a pixel at each step; picture: it does not, "
        "and is looked at as it is (always so in glimpse, draw, grid-lstm and vit, and only there).",
    )
    features: Annotated[Literal["none"], Own()] = Field(
        "none",
        description="What a sequence of vectors becomes before it is scaled and read: itself, or yours: a function of an "
        "array (time, features) that makes another.",
    )
    scale: Literal["features", "all", "none"] = Field(
        "features",
        description="Vectors are shifted and scaled to mean 0 and variance 1, as measured on the training data: each "
        "feature (of pictures each channel) by itself, all with the same numbers (as suits images), or not at all.",
    )
    max_tokens: int = Field(
        1024,
        ge=2,
        description="Longer texts are cut, with a warning, in training and at prediction. Longer training sequences of vectors are left out (and "
        "counted), and cut at prediction.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> ClassifierSettings:
        if self.scan == "picture" and self.model not in PICTURES:
            raise ValueError(
                f"scan = 'picture' is for {', '.join(PICTURES)}; {self.model} reads sequences: 'rows' or 'pixels'"
            )
        if self.target != "class" and self.margin:
            raise ValueError("margin needs exactly one class per example: set target = 'class'")
        if self.target == "number" and self.class_weight != "none":
            raise ValueError("class_weight = 'balanced' needs classes, but target = 'number'")
        if self.target != "class" and self.label_smoothing:
            raise ValueError("label_smoothing needs exactly one class per example: set target = 'class'")
        if self.target == "number" and self.metric in ("micro_f1", "macro_f1"):
            raise ValueError(f"metric = '{self.metric}' needs classes, but target = 'number'")
        if self.target == "class" and self.metric == "micro_f1":
            raise ValueError(
                "metric = 'micro_f1' is the accuracy where each text has one class; set metric = 'accuracy'"
            )
        if self.model == "vit" and (self.positions in ("rotary", "alibi") or self.attention_window):
            raise ValueError(
                "vit reads a grid: positions = 'learned', 'sinusoidal' or 'none', and attention_window = 0"
            )
        if self.pooling.startswith("first") and (self.model not in ("transformer", "vit") or self.causal):
            raise ValueError(
                f"pooling = '{self.pooling}' asks the first place about the whole, but only a Transformer that is not causal "
                "sees the whole from there"
            )
        return self


class ClassifyOptions(InputColumn):
    """What ``predict`` takes."""

    top: int = Field(1, ge=1, le=1000, description="Classes given for each input, the most probable first.")
    threshold: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Of several classes those whose probability is at least this are given; as trained if left out.",
    )
