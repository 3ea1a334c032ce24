"""minGPT (Karpathy) as llm-viz publishes it (GitHub bbycroft/llm-viz, ``public/gpt-nano-sort-model.json``): it sorts six letters."""

from __future__ import annotations

from functools import partial

from torch.nn import functional as F

from anaphora.foreign.architectures.parts import affine
from anaphora.foreign.gates import Zero
from anaphora.foreign.mapping import Rule
from anaphora.foreign.published import PublishedModule
from anaphora.foreign.weights import Weights
from anaphora.models.language import Language, TransformerBody
from anaphora.nn import EncoderLayer, FeedForward, TransformerEncoder
from anaphora.nn.attention import MultiHead
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.positions import Learned


def _build(given: Weights) -> Language:
    """GPT-2's layers: ``m(symbols)`` ``(batch, time)`` -> logits ``(batch, time, symbols)``; the heads are those of its config."""
    width, heads, places = (int(given.config[key]) for key in ("n_embd", "n_head", "block_size"))
    symbols, layers = int(given.config["vocab_size"]), int(given.config["n_layer"])
    for name, shape in (
        ("wte", (symbols, width)),
        ("wpe", (places, width)),
    ):  # before memory is taken for them
        if given.tensors[f"transformer.{name}.weight"].shape != shape:
            raise ValueError(f"its {name} is not {shape}")
    if not 0 < layers <= len(given.tensors):
        raise ValueError(f"n_layer = {layers}")
    layer = EncoderLayer(
        MultiHead(width, heads),
        FeedForward(width, 4 * width, activation=partial(F.gelu, approximate="tanh")),
        norm_first=True,
    )
    body = TransformerBody(
        Embedding(symbols, width),
        TransformerEncoder(layer, layers),
        positions=Learned(width, places),
        context=places,
    )
    return Language(body, Output(width, symbols))


def _rules(m: Language) -> tuple[Rule, ...]:
    found = [
        Rule("transformer.wte.weight", "body.embedding.weight"),
        Rule("transformer.wpe.weight", "body.positions.weight"),
        *affine("transformer.ln_f", "body.stack.norm"),
        Rule("lm_head.weight", "output.weight"),
        Rule((), "output.bias", Zero(m.output.symbols)),
    ]
    for i in range(len(m.body.stack.layers)):
        theirs, ours = f"transformer.h.{i}.", f"body.stack.layers.{i}."
        found += [
            *affine(theirs + "ln_1", ours + "around_attention.norm"),
            *affine(theirs + "attn.c_attn", ours + "attention.inward"),
            *affine(theirs + "attn.c_proj", ours + "attention.outward"),
            *affine(theirs + "ln_2", ours + "around_feedforward.norm"),
            *affine(theirs + "mlp.c_fc", ours + "feedforward.first"),
            *affine(theirs + "mlp.c_proj", ours + "feedforward.second"),
        ]
    return tuple(found)


MIN_GPT = PublishedModule(
    "llm-viz",
    (
        "transformer.wte.weight",
        "transformer.wpe.weight",
        "transformer.h.0.attn.c_attn.weight",
        "lm_head.weight",
    ),
    _build,
    _rules,
    silent=(".attn.bias",),
    needs=("n_embd", "n_head", "n_layer", "block_size", "vocab_size"),
)
