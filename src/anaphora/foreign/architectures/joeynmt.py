"""Joey NMT (Kreutzer et al. 2019): its Transformer, by the names of its checkpoints and of its ``config.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.foreign.architectures import encoder_decoder as parts
from anaphora.foreign.architectures.parts import affine, joined
from anaphora.foreign.hows import NO_BIAS, QKV
from anaphora.foreign.mapping import Rule, UnmappedError, Values

SILENT = ("pe.pe", "trg_embed.lut.weight", "decoder.output_layer.weight")
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu"}


def _attention(theirs: str, ours: str) -> tuple[Rule, ...]:
    return (
        *joined(tuple(f"{theirs}.{one}_layer" for one in "qkv"), f"{ours}.inward", QKV),
        *affine(f"{theirs}.output_layer", f"{ours}.outward"),
    )


def rules(s: Values) -> list[Rule]:
    """Every rule of a model with these settings of ours."""
    found = [
        Rule("src_embed.lut.weight", "encoder.embedding.weight", parts.SOURCE),
        Rule((), "decoder.output.bias", NO_BIAS),
    ]
    if not s["shares"]:
        found.append(Rule("trg_embed.lut.weight", "decoder.embedding.weight", parts.TARGET))
    if not s["tie"]:
        found.append(Rule("decoder.output_layer.weight", "decoder.output.weight", parts.SCORES))
    for side, layers in (("encoder", s["layers"]), ("decoder", s["decoder_layers"] or s["layers"])):
        if s["norm_first"]:
            found += affine(f"{side}.layer_norm", f"{side}.stack.norm")
        for i in range(layers):
            theirs, ours = f"{side}.layers.{i}.", f"{side}.stack.layers.{i}."
            own, norm = (
                ("src_src_att", "layer_norm") if side == "encoder" else ("trg_trg_att", "x_layer_norm")
            )
            found += [
                *_attention(theirs + own, ours + "attention"),
                *affine(theirs + norm, ours + "around_attention.norm"),
                *affine(theirs + "feed_forward.pwff_layer.0", ours + "feedforward.first"),
                *affine(theirs + "feed_forward.pwff_layer.3", ours + "feedforward.second"),
                *affine(theirs + "feed_forward.layer_norm", ours + "around_feedforward.norm"),
            ]
            if side == "decoder":
                found += [
                    *_attention(theirs + "src_trg_att", ours + "cross_attention"),
                    *affine(theirs + "dec_layer_norm", ours + "around_cross_attention.norm"),
                ]
    return found


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings of the ``model`` in a ``config.yaml``; an `UnmappedError` names what has no counterpart, a LookupError what
    is missing."""
    model = config["model"]
    both = [model["encoder"], model["decoder"]]
    odd = [
        f"{side}: type = {one.get('type', 'recurrent')!r}"
        for side, one in zip(("encoder", "decoder"), both, strict=True)
        if one.get("type") != "transformer"
    ]
    odd += [f"alpha = {one['alpha']}" for one in both if one.get("alpha", 1.0) != 1.0]
    for key in ("hidden_size", "ff_size", "num_heads", "activation", "layer_norm"):
        one, other = (side.get(key) for side in both)
        if one != other:
            odd.append(f"{key} = {other!r} of the decoder beside {one!r} of the encoder")
    scales = [bool(side["embeddings"].get("scale", False)) for side in both]
    odd += ["embeddings: scale of one side alone"] if scales[0] != scales[1] else []
    place, activation = both[0].get("layer_norm"), both[0].get("activation", "relu")
    if place not in ("pre", "post"):
        odd.append(f"layer_norm = {place!r} (it must be 'pre' or 'post' on both sides)")
    if activation not in _ACTIVATIONS:
        odd.append(f"activation = {activation!r}")
    if odd:
        raise UnmappedError("; ".join(odd))
    shares, tie = bool(model.get("tied_embeddings", False)), bool(model.get("tied_softmax", False))
    reading, writing = (int(side["num_layers"]) for side in both)
    return {
        **parts.FIXED,
        "model": "transformer",
        "positions": "sinusoidal",
        "norm_eps": 1e-6,
        "hidden": int(both[0]["hidden_size"]),
        "feedforward": int(both[0]["ff_size"]),
        "heads": int(both[0]["num_heads"]),
        "layers": reading,
        "decoder_layers": 0 if writing == reading else writing,
        "activation": _ACTIVATIONS[activation],
        "norm_first": place == "pre",
        "embedding_scale": scales[0],
        "joint": shares,
        "shares": shares,
        "tie": tie,
        "shared_vectors": shares and not tie,
        "dropout": float(both[0].get("dropout", 0.0)),
        "input_dropout": float(both[0]["embeddings"].get("dropout", 0.0)),
        **_search(config.get("testing") or {}),
    }


def _search(said: Mapping[str, Any]) -> dict[str, Any]:
    """Its beam divides by the length as Wu et al. (2016) do."""
    alpha = float(said.get("beam_alpha", -1))
    return {
        "beam": int(said.get("beam_size", 1)),
        "normalisation": "gnmt",
        "length_penalty": max(alpha, 0.0),
    }
