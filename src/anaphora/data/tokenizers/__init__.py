"""Texts as symbol ids: characters, words, or pieces learned from pairs of neighbours (BPE)."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from tokenizers import Encoding, models
from tokenizers import Tokenizer as Engine

from anaphora.data.symbols import BOS, EOS, PAD, SPELLINGS, UNK, check_ids
from anaphora.data.table import Table
from anaphora.data.tokenizers import vocabularies
from anaphora.data.tokenizers.vocabularies import Around, with_tags
from anaphora.errors import DataError
from anaphora.files import parse_json

KINDS = ("char", "word", "bpe", "char+tags")
Learner = Callable[[Iterable[str]], "Tokenizer"]
ENOUGH_TEXT = 32_000_000
"""Bytes of training text that vocabularies are learned from; of more, evenly spaced rows are taken."""


class Tokenizer:
    """Turns text into symbol ids and back. Made by `train` or `from_json`."""

    def __init__(self, engine: Engine, kind: str, lowercase: bool, raw: bool = False):
        self._engine = engine
        self._spell(
            [engine.id_to_token(i) or "" for i in range(engine.get_vocab_size())], kind, lowercase, raw
        )

    def _spell(self, spellings: list[str], kind: str, lowercase: bool, raw: bool) -> None:
        self.kind = kind
        self.lowercase = lowercase
        self.raw = raw
        self._spellings = spellings
        self._bytes = [self._bytes_of(i, spelling) for i, spelling in enumerate(spellings)]

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        kind: str,
        vocab_size: int,
        lowercase: bool = False,
        raw: bool = False,
    ) -> Tokenizer:
        """Learn a vocabulary of at most ``vocab_size`` symbols; the same texts always give the same one.

        ``char`` and ``word`` keep the most frequent (ties in the order of the alphabet). ``bpe`` starts from
        characters and again and again joins the most frequent neighbours (Sennrich et al. 2016). ``char+tags``: tags after a word,
        with semicolons between them (``go V;PST``), are one symbol each, and everything else is read by character.
        """
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
        normalize = vocabularies.normalizer(kind, lowercase, raw).normalize_str
        prepared = (normalize(sound_text(text)) for text in texts)
        model: models.Model
        if kind == "bpe":
            model = vocabularies.byte_pairs(list(prepared), vocab_size, raw)
        else:
            model = vocabularies.most_frequent(prepared, kind, vocab_size, raw)
        return cls(vocabularies.assemble(model, kind, lowercase, raw), kind, lowercase, raw)

    def extended(self, spellings: Iterable[str]) -> Tokenizer:
        """The same kind of tokenizer with the symbols of ``spellings`` that it does not have after its own."""
        known = dict.fromkeys((*self._spellings, *spellings))
        vocabulary = {spelling: i for i, spelling in enumerate(known)}
        model = models.WordLevel(vocabulary, unk_token=SPELLINGS[UNK])
        engine = vocabularies.assemble(model, self.kind, self.lowercase, self.raw)
        return Tokenizer(engine, self.kind, self.lowercase, self.raw)

    def by_letters(self) -> Tokenizer:
        """The vocabulary of a tokenizer of words with tags for texts without: every character is a symbol."""
        vocabulary = {spelling: i for i, spelling in enumerate(self._spellings)}
        model = models.WordLevel(vocabulary, unk_token=SPELLINGS[UNK])
        return Tokenizer(
            vocabularies.assemble(model, "char", self.lowercase, self.raw), "char", self.lowercase, self.raw
        )

    @property
    def spellings(self) -> list[str]:
        """How every symbol is written, in the order of the ids."""
        return list(self._spellings)

    @property
    def size(self) -> int:
        """Number of symbols, the four special ones included."""
        return len(self._spellings)

    def __len__(self) -> int:
        return self.size

    @functools.cached_property
    def line_break(self) -> int:
        """The symbol of a line break, which every tokenizer of raw text has."""
        return self._spellings.index("\n")

    def normalized(self, text: str) -> str:
        """``text`` as it comes back from a perfect round trip: single spaces, lower case if that is the setting."""
        if self.raw and self.kind == "word":
            lines = map(vocabularies.single_spaced, text.split("\n"))
            kept = "\n".join(lines)
        else:
            kept = text if self.raw else vocabularies.single_spaced(text)
            kept = with_tags(kept) if self.kind == "char+tags" else kept
        return kept.lower() if self.lowercase else kept

    def encode(self, text: str) -> list[int]:
        """Symbol ids of ``text``, without BOS and EOS."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts at once, on all cores."""
        return [encoding.ids for encoding in self._encoded(texts, self._engine.encode_batch_fast)]

    def words_of(self, texts: Sequence[str]) -> list[tuple[list[int], list[int]]]:
        """The symbols of each text, and for each of them the number of the word (of what pieces never cross) that it is in."""
        found = self._encoded(texts, self._engine.encode_batch)
        return [(encoding.ids, encoding.word_ids) for encoding in found]  # type: ignore[misc]

    def _encoded(self, texts: Sequence[str], encode: Callable[..., list[Encoding]]) -> list[Encoding]:
        try:
            return encode(list(texts), add_special_tokens=False)
        except TypeError:
            for text in texts:
                sound_text(text)
            raise

    def encode_array(self, text: str) -> np.ndarray[Any, np.dtype[np.int32]]:
        """`encode` for a long text, as an array ``(symbols,)``."""
        if not (self.raw and self.kind == "char"):
            pieces = _pieces(text)
            return np.concatenate([np.array(row, dtype=np.int32) for row in self.encode_batch(pieces)])
        folded = (
            self._engine.normalizer.normalize_str(sound_text(text)) if self.lowercase else sound_text(text)
        )
        points = np.frombuffer(folded.encode("utf-32-le"), dtype=np.uint32)
        table = self._characters
        known = np.minimum(points, len(table) - 1)
        return table[known]

    @functools.cached_property
    def _characters(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """The symbol of each code point; the last entry stands for all that are higher."""
        points = {ord(spelling): i for i, spelling in enumerate(self._spellings) if i >= len(SPELLINGS)}
        table = np.full(max(points, default=0) + 2, UNK, dtype=np.int32)
        for point, i in points.items():
            table[point] = i
        return table

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids`` up to the first EOS. PAD and BOS are left out, UNK reads ``<unk>``."""
        wanted = itertools.takewhile(lambda i: i != EOS, ids)
        text = b"".join([self._bytes[i] for i in wanted]).decode("utf-8", errors="replace")
        if self.drops_space_after_breaks:
            text = text.replace("\n ", "\n")
        return text.removeprefix(" ") if self.drops_first_space else text

    @property
    def drops_first_space(self) -> bool:
        """Whether a text begins without the space that its first symbol is spelled with."""
        return not (self.kind in ("char", "char+tags", "own") or (self.raw and self.kind == "bpe"))

    @property
    def drops_space_after_breaks(self) -> bool:
        """Whether a line begins so, too."""
        return self.raw and self.kind == "word"

    def bytes_of(self, symbol: int) -> bytes:
        """What a symbol adds to a decoded text; of a character it may be a part."""
        return self._bytes[symbol]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One readable label per id, for pictures: a space is shown as ``▁``, special symbols as spelled."""
        return [self._spellings[i].replace(" ", "▁") for i in ids]

    def _bytes_of(self, index: int, spelling: str) -> bytes:
        """What a symbol adds to the decoded text."""
        if index in (PAD, BOS, EOS):
            return b""
        if index == UNK:
            return b" <unk>" if self.kind == "word" else b"<unk>"
        if self.kind == "bpe" and spelling in vocabularies.BYTES:
            return vocabularies.BYTES[spelling]
        return spelling.encode("utf-8")

    def to_json(self) -> str:
        """The vocabulary in the format of the `tokenizers` library."""
        return str(self._engine.to_str())

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """Read what `to_json` wrote; anything else is refused with a `DataError`.

        Only the vocabulary and the merges are taken from the text. The rules around them are built again and
        compared, so that a file from elsewhere cannot bring a rule (say, a costly pattern) of its own.
        """
        try:
            given = parse_json(text)
            kind, lowercase, raw = _kind_of(given)
            known = given["model"]["vocab"].values()
            check_ids(known)  # before the library takes memory for them
            engine = vocabularies.assemble(_model_of(given["model"]), kind, lowercase, raw)
            same = json.loads(engine.to_str()) == given and sorted(known) == list(range(len(known)))
            if same and all(engine.id_to_token(i) == spelling for i, spelling in enumerate(SPELLINGS)):
                return cls(engine, kind, lowercase, raw)
            reason = "it was not written by anaphora, or was changed"
        except Exception as error:  # the engine raises plain Exception for a vocabulary it cannot use
            reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"The tokenizer cannot be used ({reason}); restore the file or train again.")


class PairTokenizer:
    """The tokenizers of both sides of a translation; one object for both when ``joint``. ``around``: what stands around the
    symbols of a text."""

    def __init__(self, source: Tokenizer, target: Tokenizer, joint: bool, around: Around | None = None):
        self.source = source
        self.target = target
        self.joint = joint
        self.around = around or Around()

    def sources(self, texts: Sequence[str]) -> list[list[int]]:
        """The symbols that an encoder reads of each text, without EOS; a `DataError` where a language is to be chosen."""
        self.around.check()
        return [[*self.around.before, *ids] for ids in self.source.encode_batch(texts)]

    def targets(self, texts: Sequence[str]) -> list[list[int]]:
        """The symbols that a decoder writes for each text, without EOS."""
        return [[*self.around.first, *ids] for ids in self.target.encode_batch(texts)]

    def between(self, source: str = "", target: str = "") -> PairTokenizer:
        """The same from one language to another, of a model that knows many; one that is not given stays as it is."""
        if not (source or target):
            return self
        return PairTokenizer(self.source, self.target, self.joint, self.around.between(source, target))

    @classmethod
    def train(
        cls, pairs: Table, *, kind: str, vocab_size: int, joint: bool = False, lowercase: bool = False
    ) -> PairTokenizer:
        """Learn the vocabularies from ``pairs``, or from evenly spaced ones when there is a lot of text."""
        learn = functools.partial(Tokenizer.train, kind=kind, vocab_size=vocab_size, lowercase=lowercase)
        return cls.learnt(pairs, learn, None if joint else learn)

    @classmethod
    def learnt(cls, pairs: Table, source: Learner, target: Learner | None) -> PairTokenizer:
        """The tokenizers that functions of texts make of each side; without ``target``, one of both sides."""
        rows = pairs.read(range(0, len(pairs), 1 + pairs.text_bytes // ENOUGH_TEXT))
        sources, targets = (source for source, _ in rows), (target for _, target in rows)
        if target is None:
            shared = source(itertools.chain(sources, targets))
            return cls(shared, shared, True)
        return cls(source(sources), target(targets), False)

    @classmethod
    def of_letters(cls, pairs: Table, *, vocab_size: int, lowercase: bool = False) -> PairTokenizer:
        """One vocabulary of words with tags (``char+tags``) and of forms without: a letter is the same symbol on both sides."""
        learn = functools.partial(Tokenizer.train, vocab_size=vocab_size, lowercase=lowercase)
        apart = cls.learnt(
            pairs, functools.partial(learn, kind="char+tags"), functools.partial(learn, kind="char")
        )
        shared = apart.source.extended(apart.target.spellings)
        return cls(shared, shared.by_letters(), True)

    def to_json(self) -> str:
        """The text of a run's ``tokenizer.json``: each side in the format of the `tokenizers` library."""
        sides = {
            "format": 1,
            "joint": self.joint,
            "source": json.loads(self.source.to_json()),
            "target": None if self.joint else json.loads(self.target.to_json()),
        }
        if self.around != Around():
            sides["around"] = self.around.to_json()
        return json.dumps(sides, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, read: Callable[[str, bool], Tokenizer] | None = None) -> PairTokenizer:
        """Read what `to_json` wrote; ``read(text, of the target)`` reads a side, by default `Tokenizer.from_json`."""
        try:
            sides = parse_json(text)
            if not isinstance(sides, dict):
                raise ValueError("it is not an object")
            if sides.get("format") != 1:
                raise ValueError(f"its format is {sides.get('format')!r}, this version reads format 1")
            joint, source, target = sides["joint"] is True, sides["source"], sides["target"]
            around = Around.from_json(sides["around"]) if "around" in sides else Around()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"The tokenizer cannot be used ({error}); restore tokenizer.json or train again."
            ) from None
        read = read or (lambda side, _: Tokenizer.from_json(side))
        shared = read(json.dumps(source), False)
        if joint and shared.kind == "char+tags":
            return cls(shared, shared.by_letters(), True, around)
        return cls(shared, shared if joint else read(json.dumps(target), True), joint, around)


def _pieces(text: str, size: int = 1 << 15) -> list[str]:
    """``text`` in pieces of whole lines of about ``size`` characters, which are encoded side by side."""
    pieces, begin = [], 0
    while begin < len(text):
        end = text.find("\n", begin + size) + 1
        pieces.append(text[begin : end or None])
        begin = end or len(text)
    return pieces or [""]


def sound_text(text: str) -> str:
    """``text`` itself, or a `DataError` when it is none or cannot be written as UTF-8."""
    if not isinstance(text, str):
        raise DataError(f"A {type(text).__name__} was given where a text belongs; give a str.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"A text holds half a character (lone surrogate U+{ord(text[error.start]):04X} at position "
            f"{error.start}); decode it with the right encoding."
        ) from None
    return text


def _kind_of(given: dict[str, Any]) -> tuple[str, bool, bool]:
    """Kind, lower case, raw: from the steps that prepare a text."""
    steps = [step["type"] for step in given["normalizer"]["normalizers"]]
    lowercase, raw = "Lowercase" in steps, "Strip" not in steps
    if given["model"]["type"] == "BPE":
        return "bpe", lowercase, raw
    if steps.count("Replace") == 2 and not raw:  # the second finds where tags begin
        return "char+tags", lowercase, raw
    return ("word" if "Prepend" in steps else "char"), lowercase, raw


def _model_of(given: dict[str, Any]) -> models.Model:
    vocabulary, unknown = given["vocab"], SPELLINGS[UNK]
    if given["type"] != "BPE":
        return models.WordLevel(vocabulary, unk_token=unknown)
    merges = [(left, right) for left, right in given["merges"]]
    return models.BPE(vocabulary, merges, unk_token=unknown, byte_fallback=given["byte_fallback"] is True)
