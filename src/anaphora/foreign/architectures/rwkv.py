"""RWKV-4 (Peng et al. 2023): attention that decays by channel, and a feed-forward network that reads the step before as well.

``rescale_every``, which halves states so that 16 bits hold them, changes nothing here, where numbers have 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anaphora.foreign.architectures.parts import affine, untied
from anaphora.foreign.hows import NO_BIAS, SCORES, VECTORS, Sizes
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, UnmappedError, Values

_BLOCK = "recurrent.blocks.{i}."


@dataclass(frozen=True)
class _Rows:
    """Shares of this step and the one before, each ``(1, 1, width)``, as the rows of one matrix."""

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        return torch.cat([one[0] for one in given])

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        return [row[None, None] for row in own]


def _shares(part: str, ours: str, names: Sequence[str]) -> Rule:
    theirs = tuple(f"blocks.{{i}}.{part}.time_mix_{name}" for name in names)
    return Rule(theirs, _BLOCK + ours + ".mixing", _Rows())


def _maps(part: str, ours: str, **names: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(f"blocks.{{i}}.{part}.{theirs}.weight", f"{_BLOCK}{ours}.{name}.weight")
        for theirs, name in names.items()
    )


def _derive(config: Values) -> dict[str, Any]:
    width = config["hidden_size"]
    for name, usual in (("attention_hidden_size", width), ("intermediate_size", 4 * width)):
        if (config.get(name) or usual) != usual:
            raise UnmappedError(f"{name} = {config[name]} beside hidden_size = {width}")
    return {"embedding": width, "tie": bool(config.get("tie_word_embeddings", False)), "heads": 1}


def _complete(s: Values) -> dict[str, Any]:
    width = s["hidden"]
    return {
        "attention_hidden_size": width,
        "intermediate_size": 4 * width,
        "tie_word_embeddings": s["tie"],
        "rescale_every": 6,
    }


RWKV = Architecture(
    model_type="rwkv",
    prefix="rwkv.",
    body=(
        Rule("embeddings.weight", "embedding.weight", VECTORS),
        *affine("blocks.0.pre_ln", "recurrent.norm_inputs"),
        *affine("blocks.{i}.ln1", _BLOCK + "norm"),
        _shares("attention", "mixer", ("key", "value", "receptance")),
        *_maps("attention", "mixer", key="key", value="value", receptance="receive", output="output"),
        Rule("blocks.{i}.attention.time_decay", _BLOCK + "mixer.recurrent.cells.0.decay"),
        Rule("blocks.{i}.attention.time_first", _BLOCK + "mixer.recurrent.cells.0.first"),
        *affine("blocks.{i}.ln2", _BLOCK + "norm_channels"),
        _shares("feed_forward", "channels", ("key", "receptance")),
        *_maps("feed_forward", "channels", key="key", receptance="receive", value="value"),
        *affine("ln_out", "recurrent.norm"),
    ),
    heads={
        "RwkvForCausalLM": Head(
            "language",
            (
                Rule("head.weight", "output.weight", SCORES, untied),
                Rule((), "output.bias", NO_BIAS),
            ),
            {"model": "gla", "cell": "rwkv4"},
        )
    },
    fields=(
        Field("vocab_size", "symbols"),
        Field("hidden_size", "hidden"),
        Field("num_hidden_layers", "layers"),
    ),
    fixed={"feedforward": 0, "embedding_scale": False},
    needs={"layer_norm_epsilon": (1e-5,)},
    silent=("head.weight",),
    special=(("<pad>", "<|padding|>"), ("<unk>",), ("<s>",), ("<|endoftext|>", "</s>")),
    derive=_derive,
    complete=_complete,
)
