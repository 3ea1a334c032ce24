"""wav2vec 2.0 (Baevski et al. 2020) and HuBERT (Hsu et al. 2021) with CTC: convolutions over samples, positions by a convolution,
norms after the sublayers or ("stable layer norm") before them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from anaphora.foreign.architectures.parts import ACTIVATIONS, affine, joined
from anaphora.foreign.hows import BIAS, NOTHING, QKV, SCORES
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, UnmappedError, Values

_MOST = 16
_LAYER, _OURS = "encoder.layers.{i}.", "body.stack.layers.{i}."
_POSITIONS = "encoder.pos_conv_embed.conv."


def _count(s: Values) -> int:
    return len(s["kernels"].split())


def _convolution(number: int) -> tuple[Rule, ...]:
    theirs, ours = f"feature_extractor.conv_layers.{number}.", f"front.convolutions.{number}."

    def normed(s: Values) -> bool:
        return number < _count(s) and (s["filter_norm"] == "layer" or number == 0)

    return (
        Rule(theirs + "conv.weight", ours + "conv.weight", when=lambda s: number < _count(s)),
        Rule(
            theirs + "conv.bias",
            ours + "conv.bias",
            when=lambda s: number < _count(s) and bool(s["filter_bias"]),
        ),
        Rule(theirs + "layer_norm.weight", ours + "norm.weight", when=normed),
        Rule(theirs + "layer_norm.bias", ours + "norm.bias", when=normed),
    )


def _before(s: Values) -> bool:
    return bool(s["norm_first"])


def _after(s: Values) -> bool:
    return not s["norm_first"]


def _derive(config: Values) -> dict[str, Any]:
    kernels, strides, widths = (
        list(config.get(f"conv_{one}") or usual)
        for one, usual in (
            ("kernel", (10, 3, 3, 3, 3, 2, 2)),
            ("stride", (5, 2, 2, 2, 2, 2, 2)),
            ("dim", (512,) * 7),
        )
    )
    problems = []
    if len(set(widths)) != 1:
        problems.append(f"conv_dim = {widths}")
    if not len(kernels) == len(strides) == len(widths) <= _MOST:
        problems.append(
            f"conv_kernel, conv_stride and conv_dim of {len(kernels)}, {len(strides)} and {len(widths)}"
        )
    if problems:
        raise UnmappedError("; ".join(problems))
    return {
        "kernels": " ".join(map(str, kernels)),
        "strides": " ".join(map(str, strides)),
        "filters": widths[0],
        "subsample": math.prod(strides),
        "embedding_norm": not config.get("do_stable_layer_norm", False),
        "hidden_share": float(config.get("mask_time_prob", 0.05)),
        "hidden_length": int(config.get("mask_time_length", 10)),
    }


def _complete(s: Values) -> dict[str, Any]:
    count = _count(s)
    return {
        "conv_kernel": list(map(int, s["kernels"].split())),
        "conv_stride": list(map(int, s["strides"].split())),
        "conv_dim": [s["filters"]] * count,
        "num_feat_extract_layers": count,
        "mask_time_prob": s["hidden_share"],
        "mask_time_length": s["hidden_length"],
        "mask_feature_prob": 0.0,
        "hidden_dropout": s["dropout"],
    }


WAV2VEC2 = Architecture(
    model_type="wav2vec2",
    prefix="wav2vec2.",
    body=(
        *(rule for number in range(_MOST) for rule in _convolution(number)),
        *affine("feature_projection.layer_norm", "front.norm"),
        *affine("feature_projection.projection", "front.linear"),
        Rule("masked_spec_embed", "front.hidden", when=lambda s: s["hidden_share"] > 0),
        Rule((), "front.hidden", NOTHING, when=lambda s: not s["hidden_share"]),
        Rule(_POSITIONS + "parametrizations.weight.original0", "body.positions.size"),
        Rule(_POSITIONS + "parametrizations.weight.original1", "body.positions.direction"),
        Rule(_POSITIONS + "bias", "body.positions.bias"),
        *(Rule(f"encoder.layer_norm.{one}", f"body.norm.{one}", when=_after) for one in ("weight", "bias")),
        *(
            Rule(f"encoder.layer_norm.{one}", f"body.stack.norm.{one}", when=_before)
            for one in ("weight", "bias")
        ),
        *joined(tuple(f"{_LAYER}attention.{one}_proj" for one in "qkv"), _OURS + "attention.inward", QKV),
        *affine(_LAYER + "attention.out_proj", _OURS + "attention.outward"),
        *affine(_LAYER + "layer_norm", _OURS + "around_attention.norm"),
        *affine(_LAYER + "feed_forward.intermediate_dense", _OURS + "feedforward.first"),
        *affine(_LAYER + "feed_forward.output_dense", _OURS + "feedforward.second"),
        *affine(_LAYER + "final_layer_norm", _OURS + "around_feedforward.norm"),
    ),
    heads={
        "Wav2Vec2ForCTC": Head(
            "transcribe", affine("lm_head", "frames.linear", SCORES, BIAS), {"model": "wav2vec2"}
        ),
        "Wav2Vec2Model": Head("hear", (), {"model": "wav2vec2"}, bare=True),
        "Wav2Vec2ForPreTraining": Head("hear", (), {"model": "wav2vec2"}),
    },
    fields=(
        Field("vocab_size", "symbols", default=32),
        Field("hidden_size", "hidden", default=768),
        Field("num_hidden_layers", "layers", default=12),
        Field("num_attention_heads", "heads", default=12),
        Field("intermediate_size", "feedforward", default=3072),
        Field("num_conv_pos_embeddings", "position_kernel", default=128),
        Field("num_conv_pos_embedding_groups", "position_groups", default=16),
        Field("feat_extract_norm", "filter_norm", {"group": "group", "layer": "layer"}, "group"),
        Field("conv_bias", "filter_bias", default=False),
        Field("do_stable_layer_norm", "norm_first", default=False),
        Field("hidden_act", "activation", ACTIVATIONS, "gelu"),
        Field("layer_norm_eps", "norm_eps", default=1e-5),
        Field("hidden_dropout", "dropout", default=0.1),
    ),
    fixed={
        "features": "samples",
        "kv_heads": 0,
        "positions": "none",
        "attention_window": 0,
        "masks": 0,
        "speed": 0.0,
    },
    needs={
        "feat_extract_activation": ("gelu",),
        "add_adapter": (False, None),
        "adapter_attn_dim": (None,),
    },
    silent=(
        "masked_spec_embed",
        "quantizer.codevectors",  # of pre-training
        *(
            f"{one}.{part}"
            for one in ("quantizer.weight_proj", "project_hid", "project_q")
            for part in ("weight", "bias")
        ),
    ),
    renamed={
        "wav2vec2." + _POSITIONS + f"weight_{old}": "wav2vec2."
        + _POSITIONS
        + f"parametrizations.weight.{new}"
        for old, new in (("g", "original0"), ("v", "original1"))
    },
    special=(("<pad>", "[PAD]"), ("<unk>", "[UNK]"), ("<s>",), ("</s>",)),
    derive=_derive,
    complete=_complete,
)
HUBERT = replace(
    WAV2VEC2,
    model_type="hubert",
    prefix="hubert.",
    heads={
        "HubertForCTC": WAV2VEC2.heads["Wav2Vec2ForCTC"],
        "HubertModel": WAV2VEC2.heads["Wav2Vec2Model"],
    },
    needs={
        "feat_extract_activation": ("gelu",),
        "conv_pos_batch_norm": (False, None),
        "feat_proj_layer_norm": (True, None),
    },
    renamed={
        old.replace("wav2vec2.", "hubert."): new.replace("wav2vec2.", "hubert.")
        for old, new in WAV2VEC2.renamed.items()
    },
)
