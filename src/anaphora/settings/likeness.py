"""Settings of vectors of whole sequences: what is alike, and how states become one vector."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from anaphora.settings.base import Settings
from anaphora.settings.own import OwnMetric

Positives = Literal["auto", "pairs", "labels", "views"]


class LikenessSettings(Settings):
    """What is alike, and how vectors are distinguished."""

    positives: Positives = Field(
        "auto",
        description="What is alike: the two texts of a row (pairs), inputs of one label (labels), or two views of the same "
        "input, cut and dropped out differently (views); auto: what the data have.",
    )
    vector_size: int = Field(128, ge=2, description="How many numbers a vector has.")
    similarity_temperature: float = Field(
        0.05,
        gt=0,
        allow_inf_nan=False,
        description="Cosines are divided by it before the softmax; less: the nearest wrong inputs count more.",
    )
    crop: float = Field(
        0.7,
        gt=0,
        le=1,
        description="Least share of an input that a view keeps: a stretch of it at random; 1: views differ by dropout alone.",
    )
    metric: Annotated[Literal["mrr", "recall_at_1", "recall_at_10", "loss"], OwnMetric()] = Field(
        "mrr", description="The dev measure that decides which weights are best."
    )


class PooledSettings(Settings):
    """How states become one vector, and how vectors of numbers are scaled before."""

    pooling: Literal["last", "max", "mean", "attention", "concat", "first"] = Field(
        "max",
        description="How the states of a sequence become one vector: the last state, the largest value of each unit, "
        "their mean, a mean weighted by attention, the first three side by side (concat), or the state of a <s> put first.",
    )
    scale: Literal["features", "all", "none"] = Field(
        "features",
        description="Vectors are shifted and scaled to mean 0 and variance 1, as measured on the training data: each "
        "feature by itself, all with the same numbers, or not at all.",
    )
