"""Tiny encoder-decoders of `transformers` with random weights everywhere, and folders of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ["<pad>", "</s>", "<unk>", "<s>", *(f"w{i}" for i in range(40)), "eng_Latn", "fra_Latn"]
TEXTS = ["w1 w2 w3", "w4 w5 w6 w7 w8 w9 w10", "w3", "w2 unheard w2"]
_BART: dict[str, Any] = {
    "vocab_size": len(WORDS),
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
    "forced_eos_token_id": None,
}
_T5: dict[str, Any] = {
    "vocab_size": len(WORDS),
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 24,
    "num_layers": 2,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "t5": ("T5Config", "T5ForConditionalGeneration", _T5),
    "t5-untied-gated": (
        "T5Config",
        "T5ForConditionalGeneration",
        _T5 | {"num_heads": 3, "d_kv": 5, "num_decoder_layers": 1, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "mt5": ("MT5Config", "MT5ForConditionalGeneration", _T5 | {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}),
    "bart": (
        "BartConfig",
        "BartForConditionalGeneration",
        _BART | {"decoder_layers": 1, "bos_token_id": 3, "decoder_start_token_id": 1, "forced_eos_token_id": 1},
    ),
    "marian": ("MarianConfig", "MarianMTModel", _BART | {"scale_embedding": True, "activation_function": "swish"}),
    "mbart": ("MBartConfig", "MBartForConditionalGeneration", _BART | {"scale_embedding": True, "activation_function": "relu"}),
    "m2m": (
        "M2M100Config",
        "M2M100ForConditionalGeneration",
        _BART | {"decoder_layers": 1, "decoder_start_token_id": 1, "bos_token_id": 3},
    ),
    "pegasus": ("PegasusConfig", "PegasusForConditionalGeneration", _BART),
}  # fmt: skip


def word_tokenizer(folder: Path, *, before: str = "") -> None:
    """``tokenizer.json`` of whole words, which puts ``before`` and </s> around a text."""
    engine = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.add_special_tokens([*WORDS[:4], *WORDS[-2:]])
    engine.post_processor = processors.TemplateProcessing(
        single=f"{before} $A </s>".strip(), special_tokens=[("</s>", 1), ("<s>", 3)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    engine.save(str(folder / "tokenizer.json"))


def made(folder: Path, name: str, seed: int = 1, **values: Any) -> Any:
    """A model of theirs, saved in ``folder`` with a tokenizer."""
    import transformers

    config, kind, usual = MODELS[name]
    torch.manual_seed(seed)
    model = getattr(transformers, kind)(getattr(transformers, config)(**(usual | values))).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight += 0.15 * torch.randn_like(weight)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias += 0.3 * torch.randn_like(model.final_logits_bias)
        if name == "t5-untied-gated":
            model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    if name == "bart":
        model.generation_config.forced_bos_token_id = 3
    if name == "m2m":
        model.generation_config.forced_bos_token_id = WORDS.index("fra_Latn")
    model.save_pretrained(folder)
    word_tokenizer(folder, before="<s>" if name == "bart" else "")
    if name == "m2m":
        said = {"tokenizer_class": "NllbTokenizer", "src_lang": "eng_Latn", "unk_token": "<unk>"}
        (folder / "tokenizer_config.json").write_text(json.dumps(said))
    return model


def before(name: str) -> list[int]:
    """What stands before a source of theirs."""
    return {"bart": [3], "m2m": [WORDS.index("eng_Latn")]}.get(name, [])


def first(name: str) -> list[int]:
    """What an output of theirs begins with."""
    return {"bart": [3], "m2m": [WORDS.index("fra_Latn")]}.get(name, [])


def given(name: str, texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of theirs ``(texts, time)`` and the mask of what is real."""
    known = {word: i for i, word in enumerate(WORDS)}
    rows = [[*before(name), *(known.get(word, 2) for word in text.split()), 1] for text in texts]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return ids, (torch.arange(longest) < lengths[:, None]).long()
