"""Folders of `transformers` made for tests: a tokenizer of byte pairs, and files with other values."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers


def byte_pairs(folder: Path) -> int:
    """Save a tokenizer of byte pairs with three merges in ``folder``; how many symbols it has."""
    import transformers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    known = {one: i for i, one in enumerate([*alphabet, "Ġt", "th", "at", "<|endoftext|>"])}
    engine = Tokenizer(models.BPE(known, [("Ġ", "t"), ("t", "h"), ("a", "t")]))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens(["<|endoftext|>"])
    end = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **end).save_pretrained(folder)
    return len(known)


def changed(file: str, **values: Any) -> Callable[[Path], None]:
    """What gives a JSON file of a folder other values."""

    def damage(folder: Path) -> None:
        found = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(found | values))

    return damage


def tensors(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """What changes the tensors of a folder."""

    def damage(folder: Path) -> None:
        found = load_file(folder / "model.safetensors")
        change(found)
        save_file(found, folder / "model.safetensors")

    return damage
