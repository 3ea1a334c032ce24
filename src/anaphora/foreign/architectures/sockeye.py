"""sockeye 3 (Hieber et al. 2022): its Transformer, by the names of its parameters and of its ``config``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anaphora.foreign.architectures import encoder_decoder as parts
from anaphora.foreign.architectures.parts import affine
from anaphora.foreign.hows import Sizes, Symbols
from anaphora.foreign.hows_senses import NOTHING
from anaphora.foreign.mapping import Rule, UnmappedError, Values

SILENT = ("pos_embedding.weight", "embedding_target.embedding.weight", "output_layer.weight")
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish1": "silu"}
_TYING = ("none", "src_trg_softmax", "src_trg", "trg_softmax")
_ALIKE = ("model_size", "attention_heads", "feed_forward_num_hidden", "act_type")
_BIAS = Symbols(target=True)


@dataclass(frozen=True)
class KeysBesideValues:
    """Queries, then the keys and values of a head beside each other, head after head; in one tensor or, for another sequence,
    in two."""

    apart: bool = False

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        hidden, heads = sizes["hidden"], sizes["heads"]
        every = torch.cat(tuple(given))  # (3 · hidden, hidden)
        both = every[hidden:].view(heads, 2, hidden // heads, hidden).transpose(0, 1)
        return torch.cat((every[:hidden], both.reshape(2 * hidden, hidden)))

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        hidden, heads = sizes["hidden"], sizes["heads"]
        both = own[hidden:].view(2, heads, hidden // heads, hidden).transpose(0, 1)
        found = [own[:hidden], both.reshape(2 * hidden, hidden)]
        return found if self.apart else [torch.cat(found)]


@dataclass(frozen=True)
class NoBiases:
    """Theirs have no biases of queries, keys and values: ours are 0, and what became of them is not written."""

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        return torch.zeros(3 * sizes["hidden"])

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        return []


def _attention(theirs: str, ours: str, inputs: tuple[str, ...]) -> list[Rule]:
    names = tuple(f"{theirs}.{one}.weight" for one in inputs)
    return [
        Rule(names, f"{ours}.inward.weight", KeysBesideValues(apart=len(names) > 1)),
        Rule((), f"{ours}.inward.bias", NoBiases()),
        Rule(f"{theirs}.ff_out.weight", f"{ours}.outward.weight"),
        Rule((), f"{ours}.outward.bias", NOTHING),
    ]


def rules(s: Values) -> list[Rule]:
    """Every rule of a model with these settings of ours."""
    found = [
        Rule("embedding_source.embedding.weight", "encoder.embedding.weight", parts.SOURCE),
        Rule("output_layer.bias", "decoder.output.bias", _BIAS),
    ]
    if not s["shares"]:
        found.append(Rule("embedding_target.embedding.weight", "decoder.embedding.weight", parts.TARGET))
    if not s["tie"]:
        found.append(Rule("output_layer.weight", "decoder.output.weight", parts.SCORES))
    place = "pre" if s["norm_first"] else "post"
    for side, layers in (("encoder", s["layers"]), ("decoder", s["decoder_layers"] or s["layers"])):
        if s["norm_first"]:
            found += affine(f"{side}.final_process.layer_norm", f"{side}.stack.norm")
        own = "self_attention" if side == "encoder" else "autoregr_layer"
        for i in range(layers):
            theirs, ours = f"{side}.layers.{i}.", f"{side}.stack.layers.{i}."
            found += [
                *_attention(theirs + own, ours + "attention", ("ff_in",)),
                *affine(f"{theirs}{place}_{own}.layer_norm", ours + "around_attention.norm"),
                *affine(theirs + "ff.ff1", ours + "feedforward.first"),
                *affine(theirs + "ff.ff2", ours + "feedforward.second"),
                *affine(f"{theirs}{place}_ff.layer_norm", ours + "around_feedforward.norm"),
            ]
            if side == "decoder":
                found += [
                    *_attention(theirs + "enc_attention", ours + "cross_attention", ("ff_q", "ff_kv")),
                    *affine(
                        f"{theirs}{place}_enc_attention.layer_norm", ours + "around_cross_attention.norm"
                    ),
                ]
    return found


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings of a ``config``; an `UnmappedError` names everything that has no counterpart, a LookupError what is missing."""
    both = [config["config_encoder"], config["config_decoder"]]
    embedded = [config["config_embed_source"], config["config_embed_target"]]
    odd = _odd(config, both, embedded)
    if odd:
        raise UnmappedError("; ".join(odd))
    tying = config.get("weight_tying_type", "src_trg_softmax")
    shares, tie = tying.startswith("src_trg"), tying.endswith("softmax")
    reading, writing = (int(side["num_layers"]) for side in both)
    return {
        **parts.FIXED,
        "model": "transformer",
        "positions": "sinusoidal",
        "sine_halves": True,
        "norm_eps": 1e-6,
        "hidden": int(both[0]["model_size"]),
        "feedforward": int(both[0]["feed_forward_num_hidden"]),
        "heads": int(both[0]["attention_heads"]),
        "layers": reading,
        "decoder_layers": 0 if writing == reading else writing,
        "activation": _ACTIVATIONS[both[0]["act_type"]],
        "norm_first": _place(both[0]) == "pre",
        "embedding_scale": True,
        "joint": shares,
        "shares": shares,
        "tie": tie,
        "shared_vectors": shares and not tie,
        "dropout": float(both[0].get("dropout_prepost", 0.0)),
        "input_dropout": float(embedded[0].get("dropout", 0.0)),
        "beam": 5,  # what its command translates with
        "normalisation": "power",
        "length_penalty": 1.0,
    }


def _place(side: Mapping[str, Any]) -> str:
    """Where the norms stand: ``pre``, ``post``, or neither; dropout makes no difference to it."""
    before, after = (str(side[f"{name}process_sequence"]).replace("d", "") for name in ("pre", "post"))
    return {("n", "r"): "pre", ("", "rn"): "post"}.get((before, after), "")


def _odd(
    config: Mapping[str, Any], both: Sequence[Mapping[str, Any]], embedded: Sequence[Mapping[str, Any]]
) -> list[str]:
    """What has no counterpart."""
    names = ("lhuc", "neural_vocab_selection", "config_length_task")
    odd = [f"{name} = {config[name]!r}" for name in names if config.get(name)]
    if config.get("dtype", "float32") not in ("float32", "float16", "bfloat16"):
        odd.append(f"dtype = {config['dtype']!r}")
    if (tying := config.get("weight_tying_type", "src_trg_softmax")) not in _TYING:
        odd.append(f"weight_tying_type = {tying!r}")
    for name in _ALIKE:
        one, other = (side[name] for side in both)
        if one != other:
            odd.append(f"{name} = {other!r} of the decoder beside {one!r} of the encoder")
    for side, own, vectors in zip(("encoder", "decoder"), both, embedded, strict=True):
        found = {
            "act_type": own["act_type"] in _ACTIVATIONS,
            "positional_embedding_type": own["positional_embedding_type"] == "fixed",
            "decoder_type": side == "encoder" or own.get("decoder_type", "transformer") == "transformer",
            **{
                name: not own.get(name) for name in ("use_lhuc", "use_glu", "block_prepended_cross_attention")
            },
            "depth_key_value": own.get("depth_key_value") in (None, 0, own["model_size"]),
        }
        odd += [f"{side}: {name} = {own[name]!r}" for name, known in found.items() if not known]
        if vectors["num_embed"] != own["model_size"]:
            odd.append(
                f"{side}: num_embed = {vectors['num_embed']!r} beside model_size = {own['model_size']!r}"
            )
        if vectors.get("factor_configs"):
            odd.append(f"{side}: factors")
    places = [_place(side) for side in both]
    if "" in places or places[0] != places[1]:
        said = (f"{one['preprocess_sequence']!r}, {one['postprocess_sequence']!r}" for one in both)
        odd.append(f"preprocess_sequence, postprocess_sequence = {' and '.join(said)}")
    return odd
