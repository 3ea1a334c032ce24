"""Settings of training on from weights that were learned before: which of them move, and how far."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from anaphora.settings.base import Settings, written


class TuningSettings(Settings):
    freeze: bool | int | str = Field(
        False,
        description="Which of the weights that init gives stay as they are: true all of them, so that only what is new is "
        "trained; a number so many layers, the lowest, and the embeddings; or names, separated by commas, of parts of the model "
        "(`encoder.embedding`, `attention`).",
    )
    layer_decay: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Layer-wise learning rates: what is new learns with lr, the highest layer that init gives with lr times "
        "this, the next lower one with that times this again, and so on down to the embeddings; 1 = all alike.",
    )
    unfreeze: Literal["all", "gradual"] = Field(
        "all",
        description="When the weights that init gives begin to move: all from the first step; gradual: what is new first, "
        "then one layer after the other from the top, the embeddings last (Howard & Ruder 2018).",
    )
    unfreeze_every: int = Field(
        0,
        ge=0,
        description="Steps between one layer and the next of unfreeze = gradual; 0 = one pass over the data.",
    )
    lora: int = Field(
        0,
        ge=0,
        description="Rank of the low-rank changes (LoRA, Hu 2022) that are trained in place of the matrices of init: W + (alpha/rank) "
        "B A. Checkpoints then hold these alone; a loaded or exported model has them added up. 0 = none.",
    )
    lora_alpha: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="How much a low-rank change counts: it is multiplied by alpha/rank; 0 = twice the rank.",
    )
    lora_targets: str = Field(
        "",
        description="Names of the parts whose matrices get a low-rank change, separated by commas; empty = every attention and "
        "every feed-forward layer.",
    )

    @field_validator("freeze")
    @classmethod
    def _layers(cls, value: bool | int | str) -> bool | int | str:
        if isinstance(value, int) and not isinstance(value, bool) and value < 0:
            raise ValueError("it must be true, a number of layers, or names of parts")
        return value

    @property
    def tunes(self) -> bool:
        """Whether any setting asks for something else than that all weights move alike."""
        return bool(self.freeze or self.layer_decay != 1 or self.unfreeze != "all" or self.lora)

    @property
    def lora_scale(self) -> float:
        """What a low-rank change is multiplied by."""
        return (self.lora_alpha or 2.0 * self.lora) / max(self.lora, 1)

    @classmethod
    def problem(cls, s: Any) -> str | None:
        changed = {
            key: getattr(s, key)
            for key, one in cls.model_fields.items()
            if getattr(s, key) != one.default and getattr(s, key) != 0
        }
        if changed and s.donates != "weights":
            key, value = next(iter(changed.items()))
            return f"{key} = {written(value)} is about the weights that init gives: set init to the model they come from"
        if s.lora and (
            other := next((key for key in ("freeze", "layer_decay", "unfreeze") if key in changed), "")
        ):
            return f"lora trains low-rank changes and leaves the rest of init as it is: leave {other} out"
        if not s.lora and (
            other := next((key for key in ("lora_alpha", "lora_targets") if key in changed), "")
        ):
            return f"{other} is about lora: set lora to a rank, such as 8"
        if s.freeze is True and (
            other := next((key for key in ("layer_decay", "unfreeze") if key in changed), "")
        ):
            return f"freeze = true leaves nothing of init to train: leave {other} out"
        if s.unfreeze_every and s.unfreeze == "all":
            return "unfreeze_every is about unfreeze = 'gradual'"
        if s.shard == "full" and (s.lora or s.unfreeze == "gradual"):
            return "shard = 'full' divides weights that move together: leave lora and unfreeze out"
        return None
