"""The tokenizers of an encoder-decoder of others: ``tokenizer.json``, or models of sentencepiece with their vocabularies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from anaphora.data.symbols import BOS, EOS
from anaphora.data.tokenizers import PairTokenizer, Tokenizer
from anaphora.data.tokenizers.own import EngineTokenizer
from anaphora.data.tokenizers.pieces import PieceTokenizer, SentencePieces
from anaphora.data.tokenizers.vocabularies import Around, Numbering
from anaphora.errors import DataError, RunError
from anaphora.files import read_bytes
from anaphora.foreign.folder import Writing, read_json
from anaphora.foreign.words import read_engine, spelling_of

_LARGEST = 1 << 28
_MODELS = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "sentencepiece.model")
_EXTRA = 100
"""Sentinels ``<extra_id_0>`` … of T5."""
_PEGASUS = 103
"""Symbols of Pegasus before those of its model."""


def read_pair(
    folder: Path, kind: str, sizes: tuple[int, int], writing: Writing, *, shares: bool, trust: bool
) -> PairTokenizer:
    """Both tokenizers, with the ids they have there and their special symbols in our places.

    ``kind``: the model_type; ``sizes``: how many symbols the tables of source and target have; ``shares``: whether these are
    one table. A `RunError` where there is no tokenizer, or where a text is framed as none is here.
    """
    with fitting(folder):
        if (folder / "source.spm").is_file():
            return _marian(folder, sizes, writing, shares)
        if (folder / "tokenizer.json").is_file():
            return _engines(folder, sizes, writing, shares, trust)
        found = next((folder / name for name in _MODELS if (folder / name).is_file()), None)
        if found is not None:
            return _sentencepiece(folder, found, kind, sizes, writing, shares)
        return _engines(
            folder, sizes, writing, shares, trust
        )  # vocab.json and merges.txt, or the sentence about none


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Inside, what does not fit becomes a `RunError` that names the folder."""
    try:
        yield
    except (DataError, ValueError) as error:
        if isinstance(error, RunError):
            raise
        said = str(error).rstrip(".")
        raise RunError(f"{folder}: its tokenizer does not fit its model ({said}).") from None


def numbering_for(size: int, writing: Writing, unknown: int | None) -> Numbering:
    """Where our special symbols are: what is given first is our <s>, unless that is the end; each is one symbol only."""
    found: list[int | None] = [writing.pad, unknown, writing.start, writing.end]
    if writing.start == writing.end:
        found[BOS] = None
    for place in (0, 1):
        if found[place] in (found[BOS], found[EOS]) or (place and found[1] == found[0]):
            found[place] = None
    for name, i in (("decoder_start_token_id", writing.start), ("eos_token_id", writing.end)):
        if not 0 <= i < size:
            raise ValueError(f"{name} = {i}, but there are {size} symbols")
    return Numbering(size, tuple(i if i is not None and 0 <= i < size else None for i in found))  # type: ignore[arg-type]


def around_of(writing: Writing, numbering: Numbering, before: Sequence[int]) -> Around:
    """What stands around texts as the generation config has it, ``before`` a source."""
    ours = numbering.numbers
    for i in (*before, *writing.first, *writing.never):
        if not 0 <= i < numbering.size:
            raise ValueError(f"a rule of its generation names the symbol {i} of {numbering.size}")
    return Around(
        before=tuple(ours[i] for i in before),
        start=EOS if writing.start == writing.end else BOS,
        first=tuple(ours[i] for i in writing.first),
        never=tuple(ours[i] for i in writing.never),
        ends=writing.ends,
    )


def _paired(source: Tokenizer, target: Tokenizer | None, around: Around) -> PairTokenizer:
    return PairTokenizer(source, target or source, target is None, around)


def _engines(
    folder: Path, sizes: tuple[int, int], writing: Writing, shares: bool, trust: bool
) -> PairTokenizer:
    """One ``tokenizer.json``, or another of the target in the folder ``target``, as our exports have it."""
    made: list[EngineTokenizer] = []
    frames: list[list[int]] = []
    places = [folder, *([folder / "target"] if (folder / "target").is_dir() else [])]
    for place, size in zip(places, sizes, strict=False):
        engine = read_engine(place, trust)
        known = engine.get_vocab(with_added_tokens=True)
        said = {**read_json(place / "special_tokens_map.json"), **read_json(place / "tokenizer_config.json")}
        unknown = known.get(spelling_of(said.get("unk_token")) or "<unk>", writing.unknown)
        frames.append(engine.encode("", add_special_tokens=True).ids)
        numbering = numbering_for(size, writing, unknown)
        made.append(EngineTokenizer(engine, lowercase=False, raw=False, numbering=numbering, quiet=True))
    if not frames[0] or frames[0][-1] != writing.end:
        after = ", ".join(made[0].engine.id_to_token(i) or str(i) for i in frames[0][-2:]) or "nothing"
        raise ValueError(f"it puts {after} around a text, where eos_token_id = {writing.end} must come last")
    around = around_of(writing, made[0].numbering, frames[0][:-1])
    if len(made) == 1 and not shares:
        raise ValueError("source and target have symbols of their own, but there is one tokenizer")
    return _paired(made[0], made[1] if len(made) > 1 else None, around)


def _marian(folder: Path, sizes: tuple[int, int], writing: Writing, shares: bool) -> PairTokenizer:
    """Two models that cut, and a vocabulary that numbers the pieces of both, or one for each."""
    said = read_json(folder / "tokenizer_config.json")
    apart = said.get("separate_vocabs") is True and (folder / "target_vocab.json").is_file()
    if apart == shares:
        raise ValueError("share_encoder_decoder_embeddings and separate_vocabs contradict each other")
    files = ("vocab.json", "target_vocab.json" if apart else "vocab.json")
    made = []
    for spm, file, size in zip(("source.spm", "target.spm"), files, sizes, strict=True):
        vocabulary = listed(read_json(folder / file), size)
        unknown = vocabulary.index("<unk>") if "<unk>" in vocabulary else None
        numbering = numbering_for(size, writing, unknown)
        made.append(PieceTokenizer(file_data(folder / spm), vocabulary, numbering, codes=True))
    return _paired(made[0], made[1], around_of(writing, made[1].numbering, ()))


def listed(vocabulary: Mapping[str, Any], size: int) -> list[str]:
    """The pieces of ``vocab.json`` by their number."""
    numbers = [i for i in vocabulary.values() if isinstance(i, int) and 0 <= i < size]
    if len(set(numbers)) != len(vocabulary) or not numbers:
        raise ValueError(f"vocab.json does not number its {len(vocabulary)} pieces below {size}")
    found = [""] * (max(numbers) + 1)
    for piece, i in vocabulary.items():
        found[i] = piece
    return found


def _sentencepiece(
    folder: Path, path: Path, kind: str, sizes: tuple[int, int], writing: Writing, shares: bool
) -> PairTokenizer:
    if not shares:
        raise ValueError("source and target have symbols of their own, but there is one tokenizer")
    data = file_data(path)
    try:
        pieces = [piece.text for piece in SentencePieces.parse(data).pieces]
    except (ValueError, LookupError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}); download it again.") from None
    said = read_json(folder / "tokenizer_config.json")
    whole: list[str] = []
    if kind in ("t5", "mt5"):
        extra = said.get("extra_ids", _EXTRA if kind == "t5" else 0)
        whole = [f"<extra_id_{i}>" for i in range(int(extra) - 1, -1, -1)]
        vocabulary = [*pieces, *whole]
    elif kind == "pegasus":
        offset = int(said.get("offset", _PEGASUS))
        marks = ("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, offset)))
        vocabulary = [*marks, *pieces[2:]]
    else:
        raise RunError(
            f"{folder} numbers the pieces of {path.name} in a way that is not read; save it with a tokenizer.json of `transformers`."
        )
    unknown = vocabulary.index("<unk>") if "<unk>" in vocabulary else None
    numbering = numbering_for(sizes[0], writing, unknown)
    return _paired(
        PieceTokenizer(data, vocabulary, numbering, whole=whole), None, around_of(writing, numbering, ())
    )


def file_data(path: Path) -> bytes:
    """The bytes of a file of bounded size; a `RunError` where it cannot be read."""
    try:
        return read_bytes(path, most=_LARGEST)
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}); download it again.") from None


# ----------------------------------------------------------------------------
# Tokenizers of models that translate between many languages, M2M-100 and NLLB: a symbol for each language among the others.

MODEL = "sentencepiece.bpe.model"
_CODE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")  # eng_Latn, as NLLB writes them
_M2M = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy id ig "
    "ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so "
    "sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
)
CODES = {"m2m100": _M2M.split(), "wmt21": ["en", "ha", "is", "ja", "cs", "ru", "zh", "de"]}
"""In the order in which `transformers` numbers them behind the pieces of ``vocab.json``."""


def many_languages(folder: Path, size: int, writing: Writing, *, trust: bool) -> PairTokenizer:
    """The tokenizer of a model with ``size`` symbols. The languages are those that ``tokenizer_config.json`` and the generation
    config name, if any; others are chosen later. Raises as `read_pair`."""
    with fitting(folder):
        return _read(folder, size, writing, trust)


def _read(folder: Path, size: int, writing: Writing, trust: bool) -> PairTokenizer:
    said = read_json(folder / "tokenizer_config.json")
    if said.get("legacy_behaviour"):
        raise ValueError(
            "legacy_behaviour = true puts the language behind a text, where the end must come last"
        )
    side, ids = (
        _pieces(folder, size, writing, said)
        if (folder / MODEL).is_file() and (folder / "vocab.json").is_file()
        else _engine(folder, size, writing, said, trust)
    )
    ours = side.numbering.numbers  # type: ignore[attr-defined]
    around = replace(
        around_of(writing, side.numbering, ()),  # type: ignore[attr-defined]
        languages={code: ours[i] for code, i in ids.items()},
    )
    source, target = (str(said.get(name) or "") for name in ("src_lang", "tgt_lang"))
    around = around.between(source, "" if around.first else target)
    return PairTokenizer(side, side, True, around)


def _pieces(
    folder: Path, size: int, writing: Writing, said: Mapping[str, Any]
) -> tuple[Tokenizer, dict[str, int]]:
    """M2M-100: a model of sentencepiece, a vocabulary that numbers its pieces, and the languages behind it."""
    vocabulary = listed(read_json(folder / "vocab.json"), size)
    kind = str(said.get("language_codes", "m2m100"))
    if kind not in CODES:
        raise ValueError(f"language_codes = {kind!r} (known: {', '.join(CODES)})")
    ids = {code: len(vocabulary) + i for i, code in enumerate(CODES[kind])}
    if len(vocabulary) + len(ids) > size:
        raise ValueError(f"{len(vocabulary)} pieces and {len(ids)} languages are more than {size} symbols")
    marks = [f"__{code}__" for code in ids]
    if "<unk>" not in vocabulary:
        raise ValueError("vocab.json has no <unk>")
    numbering = numbering_for(size, writing, vocabulary.index("<unk>"))
    return PieceTokenizer(file_data(folder / MODEL), [*vocabulary, *marks], numbering, whole=marks), ids


def _engine(
    folder: Path, size: int, writing: Writing, said: Mapping[str, Any], trust: bool
) -> tuple[Tokenizer, dict[str, int]]:
    """NLLB: ``tokenizer.json``, whose languages are special symbols."""
    if not (folder / "tokenizer.json").is_file():
        raise RunError(
            f"{folder} has neither {MODEL} with vocab.json (M2M-100) nor a tokenizer.json (NLLB); save it with a tokenizer of "
            "`transformers`."
        )
    engine = read_engine(folder, trust)
    known = engine.get_vocab(with_added_tokens=True)
    ids = {one: i for one, i in sorted(known.items(), key=lambda pair: pair[1]) if _CODE.fullmatch(one)}
    if not ids:
        raise ValueError("it has no symbols of languages such as eng_Latn")
    numbering: Numbering = numbering_for(size, writing, known.get("<unk>", writing.unknown))
    return EngineTokenizer(engine, lowercase=False, raw=False, numbering=numbering, quiet=True), ids
