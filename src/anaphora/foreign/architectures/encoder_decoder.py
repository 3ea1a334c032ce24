"""What Marian, Pegasus and BART share: the layers of an encoder and a decoder, and the settings of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anaphora.data.numbering import NEVER
from anaphora.foreign.architectures.parts import ACTIVATIONS, PLAIN, affine, joined
from anaphora.foreign.hows import QKV, SAME, Symbols
from anaphora.foreign.mapping import Field, Rule, UnmappedError, Values

_SOURCE = Symbols(embedded=True)
_TARGET = Symbols(embedded=True, target=True)
_SCORES = Symbols(target=True)
_BIAS = Symbols(missing=NEVER, target=True, row=True)


def _attention(theirs: str, ours: str) -> tuple[Rule, ...]:
    return (
        *joined(tuple(f"{theirs}.{one}_proj" for one in "qkv"), f"{ours}.inward", QKV),
        *affine(f"{theirs}.out_proj", f"{ours}.outward"),
    )


def _side(side: str) -> tuple[Rule, ...]:
    theirs, ours = f"model.{side}.layers.{{i}}.", f"{side}.stack.layers.{{i}}."
    return (
        Rule(f"model.{side}.embed_positions.weight", f"{side}.positions.weight"),
        *_attention(theirs + "self_attn", ours + "attention"),
        *affine(theirs + "self_attn_layer_norm", ours + "around_attention.norm"),
        *affine(theirs + "fc1", ours + "feedforward.first"),
        *affine(theirs + "fc2", ours + "feedforward.second"),
        *affine(theirs + "final_layer_norm", ours + "around_feedforward.norm"),
    )


def rules(shares: Callable[[Values], bool]) -> tuple[Rule, ...]:
    """The rules of a translator; ``shares``: whether one table serves as vectors of both sides and as output."""

    def apart(s: Values) -> bool:
        return not shares(s)

    across = "layers.{i}."
    return (
        Rule("model.shared.weight", "encoder.embedding.weight", _SOURCE, shares),
        Rule("model.encoder.embed_tokens.weight", "encoder.embedding.weight", _SOURCE, apart),
        Rule("model.decoder.embed_tokens.weight", "decoder.embedding.weight", _TARGET, apart),
        Rule("lm_head.weight", "decoder.output.weight", _SCORES, apart),
        Rule("final_logits_bias", "decoder.output.bias", _BIAS),
        *_side("encoder"),
        *_side("decoder"),
        *_attention(f"model.decoder.{across}encoder_attn", f"decoder.stack.{across}cross_attention"),
        *affine(
            f"model.decoder.{across}encoder_attn_layer_norm",
            f"decoder.stack.{across}around_cross_attention.norm",
        ),
    )


def last_norms() -> tuple[Rule, ...]:
    """Those of stacks that normalise first."""
    return tuple(
        Rule(f"model.{side}.layer_norm.{part}", f"{side}.stack.norm.{part}", SAME)
        for side in ("encoder", "decoder")
        for part in ("weight", "bias")
    )


FIELDS = (
    Field("vocab_size", "symbols"),
    Field("d_model", "hidden"),
    Field("encoder_layers", "layers"),
    Field("encoder_attention_heads", "heads"),
    Field("encoder_ffn_dim", "feedforward"),
    Field("max_position_embeddings", "max_positions", default=1024),
    Field("activation_function", "activation", ACTIVATIONS, "gelu"),
    Field("scale_embedding", "embedding_scale", default=False),
)
FIXED = {
    **{key: value for key, value in PLAIN.items() if key != "embedding_scale"},
    "norm_eps": 1e-5,
    "positions": "learned",
    "kv_heads": 0,
}
SPECIAL = (("<pad>",), ("<unk>",), ("<s>",), ("</s>",))


def derive(config: Values) -> dict[str, Any]:
    for name in ("layers", "attention_heads", "ffn_dim"):
        one, other = config[f"encoder_{name}"], config[f"decoder_{name}"]
        if one != other:
            raise UnmappedError(f"decoder_{name} = {other} beside encoder_{name} = {one}")
    tie = config.get("tie_word_embeddings", True)
    return {
        "tie": tie,
        "joint": True,
        "shares": tie,
        "max_tokens": config.get("max_position_embeddings", 1024) - 2,
    }


def complete(s: Values) -> dict[str, Any]:
    return {
        "decoder_layers": s["layers"],
        "decoder_attention_heads": s["heads"],
        "decoder_ffn_dim": s["feedforward"],
        "decoder_vocab_size": s["symbols"],
        "num_hidden_layers": s["layers"],
        "tie_word_embeddings": s["shares"],
        "share_encoder_decoder_embeddings": s["shares"],
        "is_encoder_decoder": True,
    }
