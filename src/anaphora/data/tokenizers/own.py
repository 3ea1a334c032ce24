"""Tokenizers of others: letters, spoken characters, and the files and functions that users bring."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine
from tokenizers import models

from anaphora.data.symbols import BOS, EOS, MOST_SYMBOLS, PAD, SPELLINGS, UNK, check_ids
from anaphora.data.tokenizers import Tokenizer, sound_text
from anaphora.data.tokenizers.pieces import PieceTokenizer
from anaphora.data.tokenizers.vocabularies import PATTERNS, Numbering, assemble, single_spaced
from anaphora.errors import DataError, SettingsError
from anaphora.files import clause, parse_json, read_bytes
from anaphora.files.schemas import checked
from anaphora.settings.own import Part

# The symbols of a published recogniser of letters: a list of them, one of which stands between words.


class LetterTokenizer(Tokenizer):
    """``letters``: their spellings by their numbers, of which ``space`` stands between words and ``numbering`` says which have
    the place of our special symbols.

    Where all letters are large, or all small, texts are spelled so.
    """

    def __init__(self, letters: Mapping[str, int], numbering: Numbering, space: str):
        self.letters, self.numbering, self.space = dict(letters), numbering, space
        by_number = {number: one for one, number in letters.items()}
        rest = [by_number.get(i, "") for i in numbering.order[len(SPELLINGS) :] if i is not None]
        spelled = [" " if one == space else one for one in rest]
        self.case = _case("".join(one for one in spelled if len(one) == 1))
        self._spell([*SPELLINGS, *spelled], "char", self.case == "lower", raw=False)
        self._table = {one: i for i, one in enumerate(self._spellings) if i >= len(SPELLINGS) and one}
        self._longest = max(map(len, self._table), default=1)

    def normalized(self, text: str) -> str:
        text = single_spaced(text)
        return text.upper() if self.case == "upper" else text.lower() if self.case == "lower" else text

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._spelled(self.normalized(sound_text(text))) for text in texts]

    def _spelled(self, text: str) -> list[int]:
        """The longest symbol at each place; a character that none begins with is <unk>."""
        found, place = [], 0
        while place < len(text):
            ends = range(min(place + self._longest, len(text)), place, -1)
            end = next((end for end in ends if text[place:end] in self._table), place + 1)
            found.append(self._table.get(text[place:end], UNK))
            place = end
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``; special symbols are left out, UNK reads ``<unk>``."""
        kept = (self._spellings[i] for i in ids if i == UNK or i >= len(SPELLINGS))
        return "".join(kept).strip()

    def plain(self) -> Tokenizer:
        """The same symbols as a tokenizer of characters, in our order; it does not know theirs."""
        named = {one or f"<{i}>": i for i, one in enumerate(self._spellings)}
        model = models.WordLevel(named, unk_token=SPELLINGS[UNK])
        return Tokenizer(assemble(model, "char", self.lowercase), "char", self.lowercase)

    def to_json(self) -> str:
        facts = {"own": "letters", "lowercase": self.lowercase, "raw": False, "space": self.space}
        order = {"size": self.numbering.size, "special": list(self.numbering.special)}
        return json.dumps({**facts, **order, "letters": self.letters}, ensure_ascii=False)

    @classmethod
    def from_facts(cls, found: Mapping[str, object]) -> LetterTokenizer:
        """What `to_json` wrote, parsed."""
        letters = checked(dict[str, int], found["letters"])
        ids = checked(tuple[int | None, int | None, int | None, int | None], found["special"])
        numbering = Numbering(checked(int, found["size"]), ids)
        if sorted(letters.values()) != sorted(set(letters.values())) or not all(
            0 <= number < numbering.size for number in letters.values()
        ):
            raise ValueError("letters: each must have a number of its own below size")
        return cls(letters, numbering, checked(str, found["space"]))


def _case(letters: str) -> str:
    """Whether all letters that have a case have the same one."""
    upper, lower = letters.upper(), letters.lower()
    if upper == lower:
        return ""
    return "upper" if letters == upper else "lower" if letters == lower else ""


# Tokenizers of the user's own: a file or an object of the `tokenizers` library, or a function that cuts a text.

OWN = len(SPELLINGS)  # the first symbol that is not a special one
_LARGEST = 1 << 28  # bytes of a tokenizer file
Cut = Callable[[str], Sequence[str]]


class CutTokenizer(Tokenizer):
    """Pieces as a function cuts them, each with the space before it where pieces are joined by spaces."""

    def __init__(self, cut: Cut, spellings: list[str], *, spaced: bool, lowercase: bool, raw: bool):
        self._cut = cut
        self._spell(spellings, "word" if spaced else "own", lowercase, raw)
        self._table = {one: i for i, one in enumerate(spellings) if i >= OWN}

    @classmethod
    def learn(
        cls, cut: Cut, texts: Iterable[str], *, vocab_size: int, lowercase: bool, raw: bool
    ) -> CutTokenizer:
        """The most frequent pieces, ties in the order of the alphabet. Where the pieces of every text put together give it
        back they are joined by nothing, else by single spaces."""
        counts: Counter[str] = Counter()
        spaced = False
        for text in texts:
            for line in _lines(text, raw):
                line = line.lower() if lowercase else line
                found = _pieces(cut, line)
                counts.update(found)
                spaced = spaced or "".join(found) != line
        ranked = [one for one in sorted(counts, key=lambda one: (-counts[one], one)) if one != "\n"]
        first = [*SPELLINGS, "\n"] if raw else [*SPELLINGS]
        kept = [f" {piece}" if spaced else piece for piece in ranked]
        return cls(cut, [*first, *kept][:vocab_size], spaced=spaced, lowercase=lowercase, raw=raw)

    def _spelled(self, text: str) -> Iterator[str]:
        """The pieces of ``text`` with their spaces, and a line break between lines of raw text."""
        space = " " if self.kind == "word" else ""
        for number, line in enumerate(_lines(sound_text(text), self.raw)):
            if number:
                yield "\n"
            for piece in _pieces(self._cut, line.lower() if self.lowercase else line):
                yield space + piece

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self._table.get(piece, UNK) for piece in self._spelled(text)] for text in texts]

    def normalized(self, text: str) -> str:
        whole = "".join(self._spelled(text))
        return whole.replace("\n ", "\n").removeprefix(" ") if self.kind == "word" else whole

    def to_json(self) -> str:
        facts = {"spaced": self.kind == "word", "lowercase": self.lowercase, "raw": self.raw}
        return json.dumps({"own": "cut", **facts, "pieces": self._spellings[OWN:]}, ensure_ascii=False)


class EngineTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` library, its symbols numbered from 4 on.

    ``numbering``: those that have the place of our special symbols are not numbered again, and there may be more symbols
    than the tokenizer makes, since tables of vectors are often longer than they need to be. ``quiet``: its own special
    symbols, but the unknown one, leave no text.
    """

    def __init__(
        self,
        engine: Engine,
        lowercase: bool,
        raw: bool,
        numbering: Numbering | None = None,
        quiet: bool = False,
    ):
        self.quiet = quiet
        engine.no_padding()
        engine.no_truncation()
        self._engine = engine
        size = 1 + max(engine.get_vocab().values(), default=-1)
        if not size:
            raise DataError("The tokenizer has no symbols; train it first.")
        self.numbering = numbering or Numbering(size, (None, None, None, None))
        if self.numbering.size < size:
            raise DataError(f"The tokenizer has {size} symbols, but the model {self.numbering.size}.")
        rest = self.numbering.order[OWN:]
        self._spell(
            [*SPELLINGS, *(engine.id_to_token(i) or "" for i in rest if i is not None)],
            "tokenizers",
            lowercase,
            raw,
        )

    @property
    def engine(self) -> Engine:
        """The tokenizer of the library."""
        return self._engine

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        given = [text.lower() if self.lowercase else text for text in texts]
        ours = self.numbering.numbers
        return [[ours[i] for i in ids] for ids in super().encode_batch(given)]

    def decode(self, ids: Sequence[int]) -> str:
        kept = [int(i) for i in takewhile(lambda i: i != EOS, ids)]
        if UNK not in kept or self.numbering.special[UNK] is not None:
            found = (self.numbering.order[i] for i in kept if i not in (PAD, BOS))
            theirs = [i for i in found if i is not None and i not in self._silent]
            return str(self._engine.decode(theirs, skip_special_tokens=False))
        place = kept.index(UNK)
        parts = (self.decode(kept[:place]), "<unk>", self.decode(kept[place + 1 :]))
        return " ".join(part for part in parts if part)

    @cached_property
    def _silent(self) -> frozenset[int]:
        if not self.quiet:
            return frozenset()
        special = (i for i, one in self._engine.get_added_tokens_decoder().items() if one.special)
        return frozenset(i for i in special if i != self.numbering.special[UNK])

    def normalized(self, text: str) -> str:
        return self.decode(self.encode(text))

    @cached_property
    def line_break(self) -> int:
        (ids,) = self.encode_batch(["\n"])
        if len(ids) != 1:
            raise DataError(
                "The tokenizer has no symbol for a line break, which running text needs; set lines = true."
            )
        return ids[0]

    def to_json(self) -> str:
        facts: dict[str, Any] = {"own": "tokenizers", "lowercase": self.lowercase, "raw": self.raw}
        if any(i is not None for i in self.numbering.special):
            facts |= {"size": self.numbering.size, "special": list(self.numbering.special)}
        if self.quiet:
            facts["quiet"] = True
        return json.dumps(
            {**facts, "engine": parse_json(self._engine.to_str(), numbers=False)}, ensure_ascii=False
        )


def own_tokenizer(
    given: str, texts: Iterable[str], *, vocab_size: int, lowercase: bool, raw: bool = False
) -> Tokenizer:
    """The tokenizer that the setting ``tokenizer`` names or holds; the vocabulary of a function is learned from ``texts``."""
    if not isinstance(given, Part):
        return EngineTokenizer(engine_of(_file_text(given), given), lowercase, raw)
    thing = given.made()
    if isinstance(thing, Tokenizer):
        if thing.raw != raw:
            raise SettingsError(
                ["tokenizer is that of another kind of text: set lines = true, or leave it out."]
            )
        return thing
    engine = getattr(thing, "backend_tokenizer", thing)  # of a fast tokenizer of transformers
    if isinstance(engine, Engine):
        try:
            return EngineTokenizer(engine_of(engine.to_str(), given), lowercase, raw)
        except Exception as error:
            if isinstance(error, DataError):
                raise
            raise SettingsError(
                [f"tokenizer = {given} cannot be written to a file ({error}), so no run could keep it."]
            ) from None
    return CutTokenizer.learn(_cut(given), texts, vocab_size=vocab_size, lowercase=lowercase, raw=raw)


def read_own_tokenizer(text: str, given: str, *, trust: bool) -> Tokenizer:
    """What ``to_json`` of any tokenizer wrote; ``given`` is the setting of the run, with the function where it has one.

    Patterns of a run's tokenizer are run on every text, and one made for it takes hours: they need ``trust``.
    """
    try:
        found = parse_json(text)
        own = found.get("own") if isinstance(found, dict) else None
        if own is None:
            return Tokenizer.from_json(text)
        flags = {name: checked(bool, found[name]) for name in ("lowercase", "raw")}
        if own == "cut":
            pieces, spaced = checked(list[str], found["pieces"]), checked(bool, found["spaced"])
            return CutTokenizer(_cut(given), [*SPELLINGS, *pieces], spaced=spaced, **flags)
        if own == "letters":
            return LetterTokenizer.from_facts(found)
        if own == "sentencepiece":
            return PieceTokenizer.from_json_facts(found, MOST_SYMBOLS)
        if own == "tokenizers":
            if not trust and strange_patterns(found["engine"]):
                raise DataError(
                    "The tokenizer has patterns of its own, which are run on every text; allow them with trust=True "
                    "(--trust-parts) if you trust the run."
                )
            numbering = None
            if "special" in found:
                ids = checked(tuple[int | None, int | None, int | None, int | None], found["special"])
                numbering = Numbering(checked(int, found["size"]), ids)
            kind: type[EngineTokenizer] = EngineTokenizer
            if found.get("spoken"):
                kind = SpokenTokenizer
            return kind(
                engine_of(json.dumps(found["engine"]), "tokenizer"),
                **flags,
                numbering=numbering,
                quiet=checked(bool, found.get("quiet", False)),
            )
        reason = f"own = {own!r} is unknown"
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        reason = str(error)
    raise DataError(f"The tokenizer cannot be used ({reason}); restore the file or train again.")


_KNOWN = frozenset(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
    + digits
    + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    for digits in (r"\p{N}", r"\p{N}{1,3}")
) | {" {2,}", r"\n"}
"""Patterns of Qwen, Llama 3 and T5, which take no longer than a text is long."""


def strange_patterns(given: Any) -> bool:
    """Whether a tokenizer has patterns that are not known."""
    if isinstance(given, dict) and "Regex" in given:
        return given["Regex"] not in _KNOWN | PATTERNS
    inside = given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()
    return any(map(strange_patterns, inside))


def _file_text(path: str) -> str:
    try:
        return read_bytes(Path(path), most=_LARGEST).decode("utf-8")
    except OSError as error:
        raise SettingsError([f"tokenizer = {path!r} cannot be read: {clause(error)}."]) from None
    except ValueError as error:
        raise SettingsError([f"tokenizer = {path!r} is not a tokenizer.json ({error})."]) from None


def engine_of(text: str, name: str) -> Engine:
    """A copy of its own, so that nothing changes the user's."""
    try:
        check_ids(_ids_of(parse_json(text, numbers=False)))
        return Engine.from_str(text)
    except Exception as error:  # the library raises plain Exception
        raise DataError(
            f"{name} is not a tokenizer of the `tokenizers` library ({(str(error).splitlines() or [''])[0]}); give its "
            "tokenizer.json."
        ) from None


def _ids_of(document: Any) -> Iterator[Any]:
    """Yield every id that a ``tokenizer.json`` gives to a symbol; a list of pieces numbers them by itself."""
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise ValueError("it has no model")
    vocabulary = document["model"].get("vocab")
    yield from vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary or ()))
    for one in document.get("added_tokens") or ():
        yield one.get("id") if isinstance(one, dict) else None


def _cut(given: str) -> Cut:
    if not isinstance(given, Part):
        raise DataError("The run was trained with a function that cuts texts; give it again as tokenizer=….")
    thing = given.made()
    found = getattr(thing, "tokenize", thing)
    if not callable(found):
        raise SettingsError(
            [f"tokenizer = {given} must be a function of a text, or have a method tokenize(text)."]
        )

    def cut(text: str) -> Sequence[str]:
        pieces = found(text)
        if not isinstance(pieces, list | tuple) or not all(isinstance(piece, str) for piece in pieces):
            got = "other things" if isinstance(pieces, list | tuple) else f"a {type(pieces).__name__}"
            raise SettingsError(
                [f"tokenizer = {given} must cut a text into a list of texts, but gave {got}."]
            )
        return pieces

    return cut


def _pieces(cut: Cut, line: str) -> list[str]:
    return [piece for piece in cut(line) if piece] if line else []


def _lines(text: str, raw: bool) -> list[str]:
    return text.split("\n") if raw else [text]


# The tokenizer of a published recogniser that writes pieces of words: every text begins with a space.


class SpokenTokenizer(EngineTokenizer):
    """Whisper's: special symbols are no part of a text, and the space before its first word is not written."""

    def _spell(self, spellings: list[str], kind: str, lowercase: bool, raw: bool) -> None:
        theirs = self.numbering.order[len(SPELLINGS) :]
        marks = set(self._engine.get_added_tokens_decoder())
        plain = self._engine.decode
        spelled = [
            one if i is None or i in marks or not one else plain([i], skip_special_tokens=False)
            for i, one in zip(theirs, spellings[len(SPELLINGS) :], strict=True)
        ]
        super()._spell([*spellings[: len(SPELLINGS)], *spelled], kind, lowercase, raw)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        spaced = (single_spaced(text) for text in texts)
        return super().encode_batch([f" {text}" if text else "" for text in spaced])

    def decode(self, ids: Sequence[int]) -> str:
        order = self.numbering.order
        found = (order[int(i)] for i in takewhile(lambda i: i != EOS, ids) if int(i) >= len(SPELLINGS))
        theirs = [i for i in found if i is not None]
        return str(self._engine.decode(theirs, skip_special_tokens=True)).strip()

    def normalized(self, text: str) -> str:
        return single_spaced(text)

    def to_json(self) -> str:
        found: dict[str, Any] = parse_json(super().to_json(), numbers=False)
        return json.dumps({**found, "spoken": True}, ensure_ascii=False)
