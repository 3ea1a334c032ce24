"""Whisper (Radford et al. 2022): norms before the sublayers, keys without a bias, a table of positions on either side."""

from __future__ import annotations

from typing import Any

from anaphora.data.audio.preprocessing import MOST
from anaphora.foreign.architectures.parts import ACTIVATIONS, affine
from anaphora.foreign.hows import NO_BIAS, QKV, QV_BIAS, VECTORS
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, UnmappedError, Values


def _attention(theirs: str, ours: str) -> tuple[Rule, ...]:
    return (
        Rule(tuple(f"{theirs}.{one}_proj.weight" for one in "qkv"), f"{ours}.inward.weight", QKV),
        Rule((f"{theirs}.q_proj.bias", f"{theirs}.v_proj.bias"), f"{ours}.inward.bias", QV_BIAS),
        *affine(f"{theirs}.out_proj", f"{ours}.outward"),
    )


def _layers(theirs: str, ours: str) -> tuple[Rule, ...]:
    return (
        *_attention(theirs + "self_attn", ours + "attention"),
        *affine(theirs + "self_attn_layer_norm", ours + "around_attention.norm"),
        *affine(theirs + "fc1", ours + "feedforward.first"),
        *affine(theirs + "fc2", ours + "feedforward.second"),
        *affine(theirs + "final_layer_norm", ours + "around_feedforward.norm"),
    )


_READING, _WRITING = (
    ("encoder.layers.{i}.", "encoder.body.stack.layers.{i}."),
    ("decoder.layers.{j}.", "decoder.stack.layers.{j}."),
)


def _derive(config: Values) -> dict[str, Any]:
    problems = []
    for name in ("attention_heads", "ffn_dim"):
        one, other = config.get(f"encoder_{name}"), config.get(f"decoder_{name}")
        if one != other:
            problems.append(f"decoder_{name} = {other} beside encoder_{name} = {one}")
    places = config.get("max_source_positions", 1500)
    if not isinstance(places, int) or not 4 <= places <= MOST // 2:
        problems.append(f"max_source_positions = {places!r}")
    if problems:
        raise UnmappedError("; ".join(problems))
    reading, writing = config["encoder_layers"], config["decoder_layers"]
    return {"decoder_layers": 0 if writing == reading else writing, "max_tokens": 2 * places}


def _complete(s: Values) -> dict[str, Any]:
    return {
        "decoder_layers": s["decoder_layers"] or s["layers"],
        "decoder_attention_heads": s["heads"],
        "decoder_ffn_dim": s["feedforward"],
        "max_source_positions": s["max_tokens"] // 2,
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
    }


WHISPER = Architecture(
    model_type="whisper",
    prefix="model.",
    body=(
        *affine("encoder.conv1", "encoder.front.first"),
        *affine("encoder.conv2", "encoder.front.second"),
        Rule("encoder.embed_positions.weight", "encoder.body.positions.weight"),
        *_layers(*_READING),
        *affine("encoder.layer_norm", "encoder.body.stack.norm"),
        Rule("decoder.embed_tokens.weight", "decoder.embedding.weight", VECTORS),
        Rule("decoder.embed_positions.weight", "decoder.positions.weight"),
        *_layers(*_WRITING),
        *_attention(_WRITING[0] + "encoder_attn", _WRITING[1] + "cross_attention"),
        *affine(_WRITING[0] + "encoder_attn_layer_norm", _WRITING[1] + "around_cross_attention.norm"),
        *affine("decoder.layer_norm", "decoder.stack.norm"),
    ),
    heads={
        "WhisperForConditionalGeneration": Head(
            "transcribe", (Rule((), "decoder.output.bias", NO_BIAS),), {"model": "whisper"}
        )
    },
    fields=(
        Field("vocab_size", "symbols", default=51865),
        Field("num_mel_bins", "bins", default=80),
        Field("d_model", "hidden"),
        Field("encoder_layers", "layers"),
        Field("encoder_attention_heads", "heads"),
        Field("encoder_ffn_dim", "feedforward"),
        Field("max_target_positions", "written_positions", default=448),
        Field("activation_function", "activation", ACTIVATIONS, "gelu"),
        Field("dropout", "dropout", default=0.0),
    ),
    fixed={
        "features": "whisper",
        "norm_first": True,
        "kv_heads": 0,
        "positions": "learned",
        "attention_window": 0,
        "subsample": 2,
        "tie": True,
    },
    needs={"scale_embedding": (False,), "tie_word_embeddings": (True, None)},
    silent=("proj_out.weight",),
    special=((), (), ("<|startoftranscript|>",), ("<|endoftext|>",)),
    derive=_derive,
    complete=_complete,
)
