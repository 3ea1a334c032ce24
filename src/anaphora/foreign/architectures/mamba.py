"""Mamba (Gu & Dao 2023) and Mamba-2 (Dao & Gu 2024): selective state spaces in residual blocks."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from anaphora.foreign.architectures.parts import affine, untied
from anaphora.foreign.hows import NO_BIAS, SCORES, VECTORS
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, UnmappedError, Values
from anaphora.settings.network import state_heads

_BLOCK = "recurrent.blocks.{i}."


def _derive(config: Values) -> dict[str, Any]:
    width = config["hidden_size"]
    rank = config.get("time_step_rank", "auto")
    if (-(-width // 16) if rank == "auto" else rank) != max(1, width // 16):
        raise UnmappedError(f"time_step_rank = {rank!r} beside hidden_size = {width}")
    return {"embedding": width, "tie": config.get("tie_word_embeddings", True), "heads": 1}


def _derive_2(config: Values) -> dict[str, Any]:
    width, heads = config["hidden_size"], config.get("num_heads", 128)
    if heads * config.get("head_dim", 64) != 2 * width or width % heads:
        raise UnmappedError(
            f"num_heads = {heads} of head_dim = {config.get('head_dim', 64)} beside hidden_size = {width}"
        )
    limit = config.get("time_step_limit") or (0.0, float("inf"))
    if [_number(one) for one in limit] != [0.0, float("inf")]:
        raise UnmappedError(f"time_step_limit = {limit!r}")
    tie = config.get("tie_word_embeddings", False)
    return {"embedding": width, "tie": tie, "heads": 1, "state_heads": heads}


def _complete(s: Values) -> dict[str, Any]:
    return {"tie_word_embeddings": s["tie"], "state_size": s["state_size"] or 16}


def _complete_2(s: Values) -> dict[str, Any]:
    heads = state_heads(SimpleNamespace(**s))
    return {
        "tie_word_embeddings": s["tie"],
        "state_size": s["state_size"] or 64,
        "num_heads": heads,
        "head_dim": 2 * s["hidden"] // heads,
    }


def _number(given: Any) -> float:
    """Infinity is written as an object, since JSON has no word for it."""
    return float(given["__float__"] if isinstance(given, dict) else given)


_AROUND = (
    Rule("embeddings.weight", "embedding.weight", VECTORS),
    Rule("layers.{i}.norm.weight", _BLOCK + "norm.weight"),
    Rule("layers.{i}.mixer.in_proj.weight", _BLOCK + "mixer.project.weight"),
    *affine("layers.{i}.mixer.conv1d", _BLOCK + "mixer.convolution"),
    Rule("layers.{i}.mixer.A_log", _BLOCK + "mixer.rate"),
    Rule("layers.{i}.mixer.D", _BLOCK + "mixer.skip"),
    Rule("layers.{i}.mixer.out_proj.weight", _BLOCK + "mixer.output.weight"),
    Rule("norm_f.weight", "recurrent.norm.weight"),
)


def _head(name: str, cell: str) -> dict[str, Head]:
    rules = (
        Rule("lm_head.weight", "output.weight", SCORES, untied),
        Rule((), "output.bias", NO_BIAS),
    )
    return {name: Head("language", rules, {"model": "mamba", "cell": cell})}


MAMBA = Architecture(
    model_type="mamba",
    prefix="backbone.",
    body=(
        *_AROUND,
        Rule("layers.{i}.mixer.x_proj.weight", _BLOCK + "mixer.select.weight"),
        *affine("layers.{i}.mixer.dt_proj", _BLOCK + "mixer.step_size"),
    ),
    heads=_head("MambaForCausalLM", "mamba"),
    fields=(
        Field("vocab_size", "symbols"),
        Field("hidden_size", "hidden"),
        Field("num_hidden_layers", "layers"),
        Field("state_size", "state_size", default=16),
    ),
    fixed={"feedforward": 0, "embedding_scale": False},
    needs={
        "expand": (2,),
        "conv_kernel": (4,),
        "use_bias": (False,),
        "use_conv_bias": (True,),
        "hidden_act": ("silu", "swish"),
        "layer_norm_epsilon": (1e-5,),
    },
    silent=("lm_head.weight",),
    special=(("<pad>", "<|padding|>"), ("<unk>",), ("<s>",), ("<|endoftext|>", "</s>")),
    derive=_derive,
    complete=_complete,
)
MAMBA2 = replace(
    MAMBA,
    model_type="mamba2",
    body=(
        *_AROUND,
        Rule("layers.{i}.mixer.dt_bias", _BLOCK + "mixer.offset"),
        Rule("layers.{i}.mixer.norm.weight", _BLOCK + "mixer.scale"),
    ),
    heads=_head("Mamba2ForCausalLM", "mamba2"),
    fields=(*MAMBA.fields[:3], Field("state_size", "state_size", default=128)),
    needs={**MAMBA.needs, "n_groups": (1,)},
    derive=_derive_2,
    complete=_complete_2,
)
