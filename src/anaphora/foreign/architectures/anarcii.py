"""ANARCII (PyPI ``anarcii``, ``models/*/*.pt``; Greenshields-Watson et al. 2025): the residues of an antibody or a T-cell
receptor to their numbers, a Transformer encoder and decoder as published, with learned positions."""

from __future__ import annotations

from typing import Any

from anaphora.data.around import Around
from anaphora.data.numbering import NEVER
from anaphora.data.symbols import BOS
from anaphora.foreign.architectures.parts import affine
from anaphora.foreign.hows import Symbols
from anaphora.foreign.mapping import Rule
from anaphora.foreign.published import PublishedTranslator
from anaphora.models.seq2seq import Seq2Seq

_PLACES = 210
_RESIDUES = ("<pad>", "<s>", "</s>", "<SKIP>", *"ACDEFGHIKLMNPQRSTVW", "<unk>", "Y")
"""X, as which B, J, O, U and Z are read too, is our unknown symbol."""
_NUMBERS = ("<pad>", "<s>", "</s>", "<SKIP>", *map(str, range(1, 129)), "X")


def _attention(theirs: str, ours: str) -> tuple[Rule, ...]:
    return (
        *(Rule(f"{theirs}.in_proj_{part}", f"{ours}.inward.{part}") for part in ("weight", "bias")),
        *affine(f"{theirs}.out_proj", f"{ours}.outward"),
    )


def _rules(m: Seq2Seq) -> tuple[Rule, ...]:
    found = [
        *affine("decoder.fc_out", "decoder.output", Symbols(target=True), Symbols(NEVER, target=True)),
    ]
    for side in ("encoder", "decoder"):
        layers = [*m.get_submodule(f"{side}.stack.layers").children()]
        vectors = Symbols(embedded=True, target=side == "decoder")
        found += [
            Rule(f"{side}.tok_embedding.weight", f"{side}.embedding.weight", vectors),
            Rule(f"{side}.pos_embedding.weight", f"{side}.positions.weight"),
        ]
        for i in range(len(layers)):
            theirs, ours = f"{side}.layers.{i}.", f"{side}.stack.layers.{i}."
            found += [
                *_attention(theirs + "self_attention.multihead_attn", ours + "attention"),
                *affine(theirs + "self_attn_layer_norm", ours + "around_attention.norm"),
                *affine(theirs + "positionwise_feedforward.fc_1", ours + "feedforward.first"),
                *affine(theirs + "positionwise_feedforward.fc_2", ours + "feedforward.second"),
                *affine(theirs + "ff_layer_norm", ours + "around_feedforward.norm"),
            ]
            if side == "decoder":
                found += [
                    *_attention(theirs + "encoder_attention.multihead_attn", ours + "cross_attention"),
                    *affine(theirs + "enc_attn_layer_norm", ours + "around_cross_attention.norm"),
                ]
    return tuple(found)


def _of(kind: str, chains: str, layers: int) -> PublishedTranslator:
    settings: dict[str, Any] = {
        "model": "transformer",
        "layers": layers,
        "hidden": 128,
        "heads": 4,
        "feedforward": 512,
        "norm_first": False,
        "positions": "learned",
        "max_positions": _PLACES,
        "max_tokens": _PLACES - 2,
        "tie": False,
        "joint": False,
        "dropout": 0.25,
        "input_dropout": 0.25,
        "source_tokens": "char",
        "target_tokens": "word",
        "beam": 1,  # as anarcii decodes
    }
    target = (*_NUMBERS, *chains)
    last = f"encoder.layers.{layers - 1}.self_attention.multihead_attn.in_proj_weight"
    return PublishedTranslator(
        f"anarcii-{kind}",
        ("encoder.tok_embedding.weight", "decoder.pos_embedding.weight", "decoder.fc_out.weight", last),
        settings=settings,
        source=_RESIDUES,
        target=target,
        rules=_rules,
        accepts=lambda tensors: len(tensors["decoder.fc_out.weight"]) == len(target),
        lowercase=False,
        around=Around(before=(BOS,)),
    )


ANARCII = tuple(
    _of(kind, chains, layers) for layers in (2, 1) for kind, chains in (("antibody", "HLK"), ("tcr", "ABGD"))
)
"""The larger ones first, since they have all tensors of the smaller; sharks have the numbers of antibodies."""
