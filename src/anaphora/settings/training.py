"""Settings of the training loop, the same for every task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from anaphora.settings.base import Settings
from anaphora.settings.own import Own, OwnMany

HARMLESS = frozenset(
    {"accumulate", "batch_invariant", "checkpoint_activations", "device", "film", "keep", "log_every", "on_nan", "precision", "save_every", "seed", "shard", "threads"}
)  # fmt: skip
"""Settings that decide how something is computed and kept, not what is learned: where they have no effect, that is a warning."""


NT_ASGD = 5
"""Evaluations that the trigger of `optimizer = ntasgd` looks back over, as published."""


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class TrainingSettings(Settings):
    steps: int = Field(
        4000,
        ge=1,
        description="Number of optimizer steps to train for. Where it is not given, presets count it from their `epochs`; the default is "
        "that of models of your own. Embedded corpora have a number of their own by preset, which is reported.",
    )
    epochs: float = Field(
        0,
        ge=0,
        allow_inf_nan=False,
        description="Passes over the training data to train for, instead of `steps`, which are then counted from the data, between "
        "`min_steps` and `max_steps`; 0 = as `steps` says. A preset's bounds do not apply to `epochs` that you give.",
    )
    min_steps: int = Field(0, ge=0, description="Fewest steps that `epochs` may come to.")
    max_steps: int = Field(0, ge=0, description="Most steps that `epochs` may come to; 0 = no limit.")
    batch_tokens: int = Field(
        4096,
        ge=1,
        description="Symbols in one batch (padded, the longer side counts), over all devices together. "
        "Larger is smoother and, on a GPU, faster per symbol.",
    )
    accumulate: int = Field(
        1,
        ge=1,
        description="Work through each batch in this many parts, to save memory; the result is the same.",
    )
    checkpoint_activations: bool = Field(
        False,
        description="Keep only the input of each block (of a Transformer, or a linear recurrence) for the backward pass and compute "
        "the block again there: less memory, about a third more time, the same gradients.",
    )
    shard: Literal["none", "full"] = Field(
        "none",
        description="full: each process of torchrun keeps a part of the weights, gradients and optimizer state (FSDP2), "
        "instead of all of them (DDP). Checkpoints are then one file per process, and resume on any number of them.",
    )
    optimizer: Annotated[Literal["adam", "adamw", "sgd", "muon", "ntasgd"], Own()] = Field(
        "adamw",
        description="How weights follow gradients. muon: orthogonalised momentum for hidden matrices, AdamW for the rest, with "
        "the lr of adamw (Jordan 2024); ntasgd: sgd whose weights are averaged from when the dev metric stops improving (Merity "
        "2018). Or your own: a class called with (groups, lr=…), or a function of the parameter groups.",
    )
    lr: float = Field(
        1e-3, gt=0, allow_inf_nan=False, description="Learning rate: the peak value of the schedule."
    )
    weight_decay: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="Shrinks weight matrices each step (not biases or norms)."
    )
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum of sgd; ignored by the others.")
    schedule: Annotated[Literal["constant", "noam", "cosine", "plateau", "one-cycle", "wsd"], Own()] = Field(
        "cosine",
        description="How lr moves: constant; noam (inverse square root); cosine down to 1 % at `steps`; plateau "
        "(halved when the dev metric stops improving); one-cycle (up, then down); wsd (warm-up, stable, and down to 0 over "
        "the last fifth). All but one-cycle first rise linearly over `warmup` steps. Or your own: a function of (step, steps) that gives the factor of lr.",
    )
    warmup: int = Field(
        0,
        ge=0,
        description="Steps over which lr rises from 0 to its peak; where `epochs` says how long to train, at most a quarter of the steps.",
    )
    clip: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="Gradients longer than this (true global L2 norm) are scaled back to it, direction kept; 0 = off.",
    )
    clip_by: Literal["global", "group"] = Field(
        "global",
        description="What clip compares with: the norm of the whole gradient, or that of each group of parameters by itself "
        "(a layer, an embedding, an output), so that only the part whose gradient explodes is scaled back.",
    )
    ema: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Decay of a moving average of the weights, used for evaluation and export; 0 = off.",
    )
    average_after: int = Field(
        0,
        ge=0,
        description="Begin to use the mean of all later weights for evaluation and export when a dev metric is worse than the "
        "best of those at least so many evaluations before (the non-monotonic trigger of NT-ASGD); 0 = off, with optimizer = ntasgd "
        "5. Takes the place of ema.",
    )
    swa: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the steps after which the mean of all later weights is used for evaluation and export (stochastic "
        "weight averaging, Izmailov 2018), such as 0.75; 0 = off. Takes the place of ema; goes well with schedule = constant or wsd.",
    )
    loss: Annotated[Literal["auto"], Own()] = Field(
        "auto",
        description="What is minimised: the task's own loss, or yours: a function of (outputs, targets) that gives one "
        "number per item; the loop sums and weights them.",
    )
    metrics: Annotated[dict[str, str], OwnMany(named=True)] = Field(
        {},
        description="Your own dev measures by name, functions of (truth, answers); `metric` may name one, with a minus "
        "before it where less is better.",
    )
    callbacks: Annotated[tuple[str, ...], OwnMany()] = Field(
        (),
        description="Your own objects that are called while training (see `an.Callback`), and may stop it.",
    )
    valid_every: int = Field(
        500,
        ge=0,
        description="Steps between evaluations on the dev data; 0 = a twentieth of the training (a tenth in translate, transcribe and caption, which search for outputs), at most 1000 steps.",
    )
    save_every: int = Field(500, ge=1, description="Steps between checkpoints.")
    save_in_background: bool = Field(
        False,
        description="Copy the state at its step and write the checkpoint in a thread of its own while training goes on: for "
        "large models and slow disks. Takes memory for up to two copies. Off, a checkpoint is on the disk before the next step.",
    )
    log_every: int = Field(50, ge=1, description="Steps between lines of metrics.jsonl.")
    keep: int = Field(
        2,
        ge=1,
        description="Newest checkpoints to keep; the best weights are kept besides, as model.safetensors.",
    )
    keep_best: int = Field(
        0,
        ge=0,
        description="Checkpoints to keep besides the newest: those with the best dev metrics, each written right after its "
        "evaluation. `resume` and `predict` take one by --checkpoint STEP.",
    )
    average_best: int = Field(
        0,
        ge=0,
        description="At the end, also judge the mean of the weights of so many of the best evaluations (checkpoint averaging, "
        "Vaswani 2017), and keep it where it is better than each of them; their checkpoints are kept (`keep_best`). 0 = off.",
    )
    film: int = Field(
        32,
        ge=0,
        le=1 << 20,
        description="MiB that small snapshots of the weights at evaluations may take (at most 24 of them, in half precision): the "
        "studio and `an.load(RUN, frame=STEP)` follow the training with them. Those of models of which fewer than 3 fit are not taken; 0 = none.",
    )
    patience: int = Field(
        0,
        ge=0,
        description="Stop after this many evaluations with neither a better dev metric nor a lower dev loss; 0 = never stop early.",
    )
    on_nan: Literal["stop", "skip"] = Field(
        "stop",
        description="When loss or gradient is not finite: stop with a report, or skip that batch (at most 10 in a row).",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto", description="Arithmetic of the matrix products: auto is bf16 on a GPU that has it, else fp32."
    )
    batch_invariant: bool = Field(
        True,
        description="On a GPU, compute predictions and scores so that an output never depends, bit for bit, on the batch it "
        "is in; slower than the libraries' own kernels. Training and CPUs do not need it.",
    )
    device: str = Field(
        "auto", description='"auto" takes a GPU where there is one; or "cpu", "cuda", "cuda:1", "mps".'
    )
    threads: int = Field(
        0,
        ge=0,
        le=1024,
        description="CPU threads to compute with; 0 = as many as torch takes. Small models are often fastest with 1, and "
        "on a busy machine many times faster.",
    )
    seed: int = Field(
        1,
        ge=0,
        lt=2**32,  # what every generator takes
        description="Everything random (weights, order, dropout, sampling) follows from it.",
    )

    @property
    def trigger(self) -> int:
        """Evaluations that the non-monotonic trigger of averaging looks back over; 0 = it is off."""
        return self.average_after or (NT_ASGD if self.optimizer == "ntasgd" else 0)

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        found = super().implied(given)
        if given.get("steps") is not None and not given.get("epochs"):
            found["epochs"] = 0.0
        if given.get("epochs"):  # a preset's bounds are about its own epochs
            found |= {"min_steps": 0, "max_steps": 0}
        if given.get("average_best"):
            found["keep_best"] = max(3, given["average_best"]) if _count(given["average_best"]) else 0
        if given.get("optimizer") == "ntasgd":
            found["schedule"] = "constant"
        return found

    @classmethod
    def problem(cls, s: Any) -> str | None:
        if s.average_best == 1 or s.average_best > s.keep_best:
            return f"average_best = {s.average_best} is a mean of at least 2 and at most keep_best = {s.keep_best} evaluations: set another one"
        if s.swa and not s.epochs and math.ceil(s.swa * s.steps) >= s.steps:
            return f"swa = {s.swa:g} of {s.steps} steps leaves none to average: lower swa, or train longer"
        if s.swa and s.trigger:
            return "swa and average_after (or optimizer = 'ntasgd') both say when averaging begins: leave one of them out"
        return super().problem(s)
