"""Vocabularies: which symbols there are, how they are numbered, what stands around texts, and how rare words are counted."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from anaphora.data.symbols import BOS, EOS, MOST_SYMBOLS, SPELLINGS, UNK
from anaphora.errors import DataError
from anaphora.files.schemas import checked

if TYPE_CHECKING:
    from torch import Tensor

# Symbols that stand around texts, and rules of what is written, where a model of others has its own.


@dataclass(frozen=True)
class Around:
    """``before``: what stands before the symbols of every source. ``start``: what a decoder is given before its first
    symbol. ``first``: what every output begins with, at no cost. ``never``: what no output has. ``ends``: whether an output
    that reaches the greatest length ends with EOS there. ``languages``: of a model that translates between many, the symbol
    of each: that of the source stands before it, that of the target is what an output begins with."""

    before: tuple[int, ...] = ()
    start: int = BOS
    first: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    ends: bool = False
    languages: Mapping[str, int] = field(default_factory=dict)

    @property
    def rules(self) -> bool:
        """Whether anything about outputs is other than usual."""
        return bool(self.first or self.never or self.ends)

    @property
    def open(self) -> str:
        """Which language has not been chosen: ``source_language``, ``target_language``, or nothing."""
        if not self.languages or (self.before and self.first):
            return ""
        return "target_language" if self.before else "source_language"

    def between(self, source: str = "", target: str = "") -> Around:
        """From one language to another; where one is not given it stays as it is. A `DataError` for one that is not known."""
        if not self.languages:
            raise DataError(
                "This model does not choose among languages; leave out source_language and target_language."
            )
        for name, code in (("source_language", source), ("target_language", target)):
            if code and code not in self.languages:
                raise DataError(
                    f"{name} = {code!r} is none of the model's languages: {', '.join(self.languages)}."
                )
        return replace(
            self,
            before=(self.languages[source],) if source else self.before,
            first=(self.languages[target],) if target else self.first,
        )

    def check(self) -> None:
        """A `DataError` where a language has not been chosen yet."""
        if self.open:
            some = ", ".join(list(self.languages)[:8])
            raise DataError(
                f"This model translates between {len(self.languages)} languages: choose both with source_language and "
                f"target_language ({some}, …)."
            )

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        return found if self.languages else {key: one for key, one in found.items() if key != "languages"}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Around:
        """What `to_json` wrote; a ValueError, LookupError or TypeError where it is something else."""
        symbols = {name: tuple(checked(list[int], given[name])) for name in ("before", "first", "never")}
        start, ends = checked(int, given["start"]), checked(bool, given["ends"])
        languages = checked(dict[str, int], given.get("languages", {}))
        if min((start, *languages.values(), *(i for ids in symbols.values() for i in ids))) < 0:
            raise ValueError("around: symbols count from 0")
        return cls(start=start, ends=ends, languages=languages, **symbols)


# Their symbols in our order: ours begin with <pad>, <unk>, <s>, </s>, theirs have them anywhere or not at all.

# Vocabularies: which symbols there are, how they are numbered, and how rare words are counted.

NEVER = -1e4
"""The bias of a symbol that theirs do not have: its probability is 0 in float32, and float16 can write the number."""


@dataclass(frozen=True)
class Numbering:
    """``size`` symbols of theirs; ``special``: which of them are our four special ones, None for one they do not have."""

    size: int
    special: tuple[int | None, int | None, int | None, int | None]

    def __post_init__(self) -> None:
        if not 0 <= self.size <= MOST_SYMBOLS:
            raise ValueError(f"vocab_size: {self.size} symbols, and at most {MOST_SYMBOLS:,} are read")
        given = [i for i in self.special if i is not None]
        if len(set(given)) < len(given) or not all(0 <= i < self.size for i in given):
            raise ValueError(f"special: {self.special} must be different symbols below {self.size}")

    @classmethod
    def ours(cls, size: int) -> Numbering:
        """Symbols that are in our order already."""
        return cls(size, (0, 1, 2, 3))

    @cached_property
    def order(self) -> list[int | None]:
        """For each of our symbols theirs: the special ones, then the others in their order."""
        taken = set(self.special)
        return [*self.special, *(i for i in range(self.size) if i not in taken)]

    @cached_property
    def numbers(self) -> list[int]:
        """For each of their symbols ours."""
        found = [0] * self.size
        for ours, theirs in enumerate(self.order):
            if theirs is not None:
                found[theirs] = ours
        return found

    def inward(self, rows: Tensor, missing: float = 0.0) -> Tensor:
        """``(their symbols, …)`` -> ``(our symbols, …)``; what they do not have is ``missing``."""
        if self.order == list(range(self.size)):
            return rows
        found = rows[[0 if i is None else i for i in self.order]]
        for place, theirs in enumerate(self.special):
            if theirs is None:
                found[place] = missing
        return found

    def outward(self, rows: Tensor) -> Tensor:
        """``(our symbols, …)`` -> ``(their symbols, …)``."""
        if self.order == list(range(self.size)):
            return rows
        return rows[self.numbers]

    def embedded(self, rows: Tensor) -> Tensor:
        """As `inward`, for vectors of symbols: where they have no <s>, it has the vector of </s>, and the reverse."""
        found = self.inward(rows)
        for one, other in ((BOS, EOS), (EOS, BOS)):
            if self.special[one] is None and self.special[other] is not None:
                found[one] = found[other]
        return found


# Tags of words as UniMorph and SIGMORPHON write them, in a bundle with semicolons: ``V;SBJV;PST;1;PL``.

BEFORE = " (?=[^ ;]+;|[A-Z0-9.+/]+{end})"
"""The space between a word and its tags; ``end`` is how a pattern names the end of a text. A single tag is known by its capitals."""
TAG = ";[^ ;]+"
_BUNDLE = re.compile(r"[A-Z0-9{(][A-Z0-9.+/{}()*_:-]*(?:;[A-Z0-9.+/{}()*_:-]+)*")
_BEFORE = re.compile(BEFORE.format(end=r"\Z"))
_MANY = 0.5
"""Bundles of more than one tag, from which on they are tags and not names or numbers."""


def with_tags(text: str) -> str:
    """A word and its tags, single-spaced, as ``char+tags`` reads them.

    >>> with_tags("run up V;PST")
    'run up;V;PST'
    """
    return _BEFORE.sub(";", text)


def are_bundles(values: Sequence[str]) -> bool:
    """Whether texts are bundles of tags, all of them, and most of more than one.

    >>> are_bundles(["V;PST", "V;NFIN", "ADJ"]), are_bundles(["V", "ADJ"]), are_bundles(["went;"])
    (True, False, False)
    """
    several = sum(";" in value for value in values)
    return bool(values) and several >= _MANY * len(values) and all(map(_BUNDLE.fullmatch, values))


def without_tags(texts: Sequence[str]) -> list[str]:
    """The words of texts that all end with a bundle of tags; nothing where one does not.

    >>> without_tags(["run up V;PST", "go V;NFIN"]), without_tags(["go home"])
    (['run up', 'go'], [])
    """
    parts = [text.rstrip().rpartition(" ") for text in texts]
    words = [word.strip() for word, _, _ in parts]
    return words if all(words) and are_bundles([tags for _, _, tags in parts]) else []


# Learning vocabularies, and the rules that cut a text before it is looked up in one.

BYTES = {f"<0x{value:02X}>": bytes([value]) for value in range(256)}
"""Symbols of single bytes, for characters that are not in a bpe vocabulary."""
BYTES_FROM = 1024
"""A bpe vocabulary of at least this many symbols holds all 256 bytes, so that no character is unknown to it.
In a smaller one they would crowd out the pieces; there an unseen character is `<unk>`."""
LONGEST_PIECE = 64
"""Stretches without a space are cut to this many characters before merging, which bounds the work."""
# Unicode's White_Space, written out because every regex engine has its own idea of \s.
_SPACE = "[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
_SPACES = re.compile(_SPACE)
_STOPS = ".,!?:…"
# What bpe merges inside of: a word with the space before it and without the stops that end it ("dog." and "dog"
# share " dog"), or hyphens, which part words ("twenty-one" is made of "twenty" and "one"), or else as much as is
# allowed, or else one character. No stretch begins with "<" and goes on, so no piece can be spelled like a
# special symbol or a byte.
_STRETCH = (
    rf" ?[^ <-]{{0,{LONGEST_PIECE - 1}}}?[^ <{_STOPS}-](?=[{_STOPS}]*(?:[ <-]|\z))"
    rf"| ?-{{1,{LONGEST_PIECE}}}"
    rf"| ?[^ <-]{{1,{LONGEST_PIECE}}}"
    r"|(?m)."
)


# The same for raw text: a line break is a piece of its own, and of several spaces the last goes with the word.
_RAW_STRETCH = (
    "\n"
    rf"| ?[^ \n<-]{{0,{LONGEST_PIECE - 1}}}?[^ \n<{_STOPS}-](?=[{_STOPS}]*(?:[ \n<-]|\z))"
    rf"| ?-{{1,{LONGEST_PIECE}}}"
    rf"| ?[^ \n<-]{{1,{LONGEST_PIECE}}}"
    rf"| {{1,{LONGEST_PIECE}}}(?= )"
    r"|(?m)."
)
_RAW_SPACE = _SPACE.replace("\t-\r", "\t\x0b-\r")
"""White space but the line break."""
_BREAK, _BEGUN, _LAST, _ONE, _WORD = " ?\n ?", "\n(?=[^\n])", r" \z", "(?m).", "\n| [^ \n]*"
# Tags of a word, "go V;PST": the space before them becomes a semicolon, and each is one symbol with the semicolon before it.
_TAGS_FOLLOW, _TAG_OR_ONE = BEFORE.format(end=r"\z"), f"{TAG}|{_ONE}"
PATTERNS = frozenset(
    {
        _SPACE,
        _STRETCH,
        _RAW_STRETCH,
        _RAW_SPACE,
        _BREAK,
        _BEGUN,
        _LAST,
        _ONE,
        _WORD,
        _TAGS_FOLLOW,
        _TAG_OR_ONE,
    }
)
"""Every pattern of ours."""


def single_spaced(text: str) -> str:
    """``text`` as every tokenizer sees it: runs of white space are one space, none at the ends."""
    return _SPACES.sub(" ", text).strip(" ")


def assemble(model: models.Model, kind: str, lowercase: bool, raw: bool = False) -> Tokenizer:
    """The vocabulary ``model`` with the rules of its ``kind`` around it."""
    engine = Tokenizer(model)
    engine.normalizer = normalizer(kind, lowercase, raw)
    engine.pre_tokenizer = _pre_tokenizer(kind, raw)
    if kind in ("char", "char+tags"):
        engine.decoder = decoders.Fuse()
    else:
        engine.decoder = decoders.Sequence(
            [decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    return engine


def normalizer(kind: str, lowercase: bool, raw: bool = False) -> normalizers.Normalizer:
    """What happens to a text before it is cut: single spaces, lower case if wanted, a space in front.

    A ``raw`` text stays as it is; only its words get single spaces, and a space in front of each line.
    """
    folded = [normalizers.Lowercase()] if lowercase else []
    if raw and kind == "word":
        return normalizers.Sequence(
            [
                normalizers.Prepend(" "),
                normalizers.Replace(Regex(_RAW_SPACE), " "),
                normalizers.Replace(Regex(_BREAK), "\n"),
                normalizers.Replace(Regex(_BEGUN), "\n "),
                normalizers.Replace(Regex(_LAST), ""),
                *folded,
            ]
        )
    if raw:
        return normalizers.Sequence(folded)
    marked = [normalizers.Replace(Regex(_TAGS_FOLLOW), ";")] if kind == "char+tags" else []
    steps = [normalizers.Replace(Regex(_SPACE), " "), normalizers.Strip(), *marked, *folded]
    if kind in ("word", "bpe"):
        steps.append(normalizers.Prepend(" "))
    return normalizers.Sequence(steps)


def _pre_tokenizer(kind: str, raw: bool) -> pre_tokenizers.PreTokenizer:
    if kind == "char":
        return pre_tokenizers.Split(Regex(_ONE), "isolated")
    if kind == "char+tags":
        return pre_tokenizers.Split(Regex(_TAG_OR_ONE), "isolated")
    if kind == "word":
        if raw:
            return pre_tokenizers.Split(Regex(_WORD), "isolated")
        return pre_tokenizers.Split(" ", "merged_with_next")
    return pre_tokenizers.Split(Regex(_RAW_STRETCH if raw else _STRETCH), "isolated")


def most_frequent(texts: Iterable[str], kind: str, vocab_size: int, raw: bool = False) -> models.WordLevel:
    """The most frequent characters, or words with the space before them; ties in alphabetical order.

    A vocabulary of ``raw`` text has the line break as its first symbol, however seldom there is one.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        lines = text.split("\n") if raw and kind == "word" else [text]
        for line in lines:
            counts.update(_symbols(line, kind))
    ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
    if raw:
        ranked = ["\n", *(symbol for symbol in ranked if symbol != "\n")]
    return models.WordLevel(_numbered(ranked[: vocab_size - len(SPELLINGS)]), unk_token=SPELLINGS[UNK])


def _symbols(line: str, kind: str) -> Iterable[str]:
    if kind == "char+tags":
        return re.findall(f"{TAG}|.", line, re.DOTALL)
    return line if kind == "char" else [f" {word}" for word in line.split(" ")[1:]]


def byte_pairs(texts: list[str], vocab_size: int, raw: bool = False) -> models.BPE:
    """Characters, and pieces made by joining the most frequent neighbours again and again.

    The trainer breaks ties by symbol id, so the order of the alphabet decides them.
    """
    with_bytes = vocab_size >= BYTES_FROM
    room = vocab_size - len(SPELLINGS) - (len(BYTES) if with_bytes else 0)
    alphabet = _alphabet(texts, at_most=room // 2 if with_bytes else room)
    if raw:
        alphabet = ["\n", *(c for c in alphabet if c != "\n")]
    trainer = trainers.BpeTrainer(
        vocab_size=room,
        min_frequency=2,
        show_progress=False,
        # Given as special symbols the characters get their ids in our order, with the space last: at equal
        # counts a pair inside a word is joined before a pair at its start.
        special_tokens=alphabet,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
    )
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = _pre_tokenizer("bpe", raw)
    learner.train_from_iterator(texts, trainer)
    learnt = json.loads(learner.to_str())["model"]
    pieces = sorted(learnt["vocab"], key=learnt["vocab"].__getitem__)
    merges = [(left, right) for left, right in learnt["merges"]]
    return models.BPE(
        _numbered([*(BYTES if with_bytes else ()), *pieces]),
        merges,
        unk_token=SPELLINGS[UNK],
        byte_fallback=with_bytes,
    )


def _alphabet(texts: list[str], *, at_most: int) -> list[str]:
    """The characters of ``texts`` in order, the space last; when too many, the most frequent ones."""
    seen: set[str] = {" "}
    for text in texts:
        seen.update(text)
    if len(seen) > at_most:
        counts = Counter(itertools.chain.from_iterable(texts))
        seen = set(sorted(seen, key=lambda c: (-counts[c], c))[:at_most])
    return sorted(seen, key=lambda c: (c == " ", c))


def _numbered(symbols: Iterable[str]) -> dict[str, int]:
    return {symbol: i for i, symbol in enumerate([*SPELLINGS, *symbols])}


# Rare words of a training text as unknown ones.

Ids = np.ndarray[Any, Any]


def with_unknown(ids: Ids, share: float, size: int) -> Ids:
    """``ids (symbols,)`` of a vocabulary of ``size`` with <unk> in place of ``share`` of the words that occur once, evenly over the text.

    Words that are unknown already were hardly met more often: they count among those that occur once, and among those that are <unk>.

    >>> with_unknown(np.array([4, 5, 4, 6, 7, 8]), 0.5, 9).tolist()
    [4, 1, 4, 6, 1, 8]
    """
    if not share:
        return ids
    counts = np.bincount(ids, minlength=size)
    once = np.flatnonzero((counts[ids] == 1) & (ids >= len(SPELLINGS)))
    more = round(share * (len(once) + int(counts[UNK]))) - int(counts[UNK])
    if more <= 0:
        return ids
    found = np.array(ids)
    found[once[np.arange(more) * len(once) // more]] = UNK
    return found
