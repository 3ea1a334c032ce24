"""The tokenizer of a `transformers` folder, with the ids it has there: ``tokenizer.json``, or a vocabulary of word pieces or
byte pairs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, pre_tokenizers

from anaphora.data.symbols import SPELLINGS, check_ids
from anaphora.data.tokenizers import Tokenizer
from anaphora.data.tokenizers.own import CutTokenizer, EngineTokenizer, engine_of, strange_patterns
from anaphora.data.tokenizers.vocabularies import Numbering
from anaphora.errors import AnaphoraError, RunError
from anaphora.files import read_bytes
from anaphora.foreign.folder import read_json
from anaphora.foreign.mapping import Architecture

_LARGEST = 1 << 28
_NAMES = (("mask_token", "pad_token"), ("unk_token",), ("cls_token", "bos_token"), ("sep_token", "eos_token"))
"""What tokenizer_config.json calls our special symbols, in models that read both sides."""
_WRITING = (("pad_token",), ("unk_token",), ("bos_token",), ("eos_token",))
"""The same in models that write."""


def read_words(
    folder: Path, architecture: Architecture, config: dict[str, Any], *, writes: bool, trust: bool
) -> EngineTokenizer:
    """The tokenizer, its special symbols in our places; a `RunError` where there is none that can be read."""
    engine = read_engine(folder, trust)
    known = engine.get_vocab(with_added_tokens=True)
    said = {**read_json(folder / "special_tokens_map.json"), **read_json(folder / "tokenizer_config.json")}
    found: list[int | None] = []
    size = int(config["vocab_size"])
    for names, usual in zip(_WRITING if writes else _NAMES, architecture.special, strict=True):
        spelled = [*(spelling_of(said.get(name)) for name in names), *usual]
        numbers = [config.get(name.replace("_token", "_token_id")) for name in names]
        ids = [known.get(one) for one in spelled if one] + [i for i in numbers if isinstance(i, int)]
        fitting = (i for i in ids if i is not None and 0 <= i < size and i not in found)
        found.append(next(fitting, None))
    if found[2] is not None and found[3] is None:  # one symbol for beginning and end is the end
        found[2], found[3] = None, found[2]
    try:
        numbering = Numbering(size, (found[0], found[1], found[2], found[3]))
        return EngineTokenizer(engine, lowercase=False, raw=False, numbering=numbering)
    except Exception as error:
        raise RunError(f"{folder}: its tokenizer does not fit its model ({error}).") from None


def spelling_of(value: Any) -> str:
    """A special token is written as a text, or as an object with its content."""
    return (
        str(value.get("content", "")) if isinstance(value, dict) else value if isinstance(value, str) else ""
    )


def read_engine(folder: Path, trust: bool) -> Engine:
    """The tokenizer of the library in ``folder``; a `RunError` where there is none."""
    if (folder / "tokenizer.json").is_file():
        path = folder / "tokenizer.json"
        given = read_json(path)
        if not trust and strange_patterns(given):
            raise RunError(
                f"{path} has patterns of its own, which are run on every text; allow them with trust=True (--trust-parts) if "
                "you trust the model."
            )
        return engine_of(_text(path), str(path))
    if (folder / "vocab.txt").is_file():
        return _word_pieces(folder)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _byte_pairs(folder)
    raise RunError(
        f"{folder} has no tokenizer.json, vocab.txt, or vocab.json with merges.txt; save it with a fast tokenizer of `transformers`."
    )


def _word_pieces(folder: Path) -> Engine:
    """BERT's: basic tokenization, then the longest pieces that are known."""
    pieces = _text(folder / "vocab.txt").removesuffix("\n").split("\n")
    said = read_json(folder / "tokenizer_config.json")
    lower = said.get("do_lower_case", True) is not False
    engine = Engine(
        models.WordPiece(
            {one: i for i, one in enumerate(pieces)}, unk_token="[UNK]", max_input_chars_per_word=100
        )
    )
    engine.normalizer = normalizers.BertNormalizer(
        lowercase=lower,
        strip_accents=said.get("strip_accents"),
        handle_chinese_chars=said.get("tokenize_chinese_chars", True) is not False,
    )
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix="##")
    engine.add_special_tokens(
        [one for one in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if one in pieces]
    )
    return engine


def _byte_pairs(folder: Path) -> Engine:
    """GPT-2's and RoBERTa's: bytes, and pieces of them."""
    vocabulary = read_json(folder / "vocab.json")
    lines = _text(folder / "merges.txt").splitlines()
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    try:
        check_ids(vocabulary.values())
        engine = Engine(models.BPE(vocabulary, merges))  # type: ignore[arg-type]
    except Exception as error:
        raise RunError(
            f"{folder / 'merges.txt'} does not fit vocab.json ({error}); download them again."
        ) from None
    said = read_json(folder / "tokenizer_config.json")
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=said.get("add_prefix_space") is True)
    engine.decoder = decoders.ByteLevel()
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>")
    engine.add_special_tokens([one for one in special if one in vocabulary])
    return engine


def _text(path: Path) -> str:
    try:
        return read_bytes(path, most=_LARGEST).decode("utf-8")
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}); download it again.") from None


# ----------------------------------------------------------------------------
# A tokenizer as ``tokenizer.json`` for others: our ids, and what stands round every text.

_SHIFT = len(SPELLINGS)


def tokenizer_json(
    tokenizer: Tokenizer, *, before: int | None = None, after: int | None = None
) -> dict[str, Any]:
    """The tokenizer in the format of the `tokenizers` library, with the symbols of the model; ``before`` and ``after`` each
    text it puts the symbols of these ids. One that came from others is written as it came."""
    if isinstance(tokenizer, CutTokenizer):
        raise AnaphoraError(
            "the tokenizer is a function of your own, which no file can hold; export to onnx instead."
        )
    if isinstance(tokenizer, EngineTokenizer):
        found: dict[str, Any] = json.loads(tokenizer.engine.to_str())
        if any(i is not None for i in tokenizer.numbering.special):
            return found
        found = _shifted(found)
    else:
        found = json.loads(tokenizer.to_json())
    found["post_processor"] = _template(tokenizer, before, after)
    found["added_tokens"] = _added(found)
    return found


def _template(tokenizer: Tokenizer, before: int | None, after: int | None) -> dict[str, Any] | None:
    """What the library calls TemplateProcessing."""
    if before is None and after is None:
        return None
    spellings = tokenizer.spellings
    first, last = (
        [] if i is None else [{"SpecialToken": {"id": spellings[i], "type_id": 0}}] for i in (before, after)
    )
    one: list[dict[str, Any]] = [*first, {"Sequence": {"id": "A", "type_id": 0}}, *last]
    used = {i for i in (before, after) if i is not None}
    return {
        "type": "TemplateProcessing",
        "single": one,
        "pair": [*one, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            spellings[i]: {"id": spellings[i], "ids": [i], "tokens": [spellings[i]]} for i in sorted(used)
        },
    }


def _added(found: dict[str, Any]) -> list[dict[str, Any]]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    ours = [{"id": i, "content": spelling, **flags} for i, spelling in enumerate(SPELLINGS)]
    return [*ours, *(one for one in found.get("added_tokens", []) if one["id"] >= _SHIFT)]


def _shifted(found: dict[str, Any]) -> dict[str, Any]:
    """Every id four higher, with our special symbols before them."""
    vocabulary = found["model"]["vocab"]
    known = (
        vocabulary if isinstance(vocabulary, dict) else {piece: i for i, (piece, _) in enumerate(vocabulary)}
    )
    if taken := [one for one in SPELLINGS if one in known]:
        raise AnaphoraError(
            f"the tokenizer has a symbol {taken[0]} beside ours of that name, which one file cannot hold; export to onnx instead."
        )
    model = dict(found["model"])
    if isinstance(vocabulary, dict):
        model["vocab"] = {
            **{one: i for i, one in enumerate(SPELLINGS)},
            **{k: i + _SHIFT for k, i in vocabulary.items()},
        }
    else:
        model["vocab"] = [*([one, -1e9] for one in SPELLINGS), *vocabulary]
        if model.get("unk_id") is not None:
            model["unk_id"] += _SHIFT
    added = [{**one, "id": one["id"] + _SHIFT} for one in found.get("added_tokens", [])]
    return {**found, "model": model, "added_tokens": added}
