"""The words that may be recognised, and how they are spelled in the symbols of a model."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anaphora.data.files import lines_of
from anaphora.errors import AnaphoraError, DataError
from anaphora.search.lexicon._tree import PAUSE, Automaton, Tree, grow, minimal

if TYPE_CHECKING:
    from anaphora.search.lexicon._words import Words


Symbols: TypeAlias = Sequence[str] | Mapping[str, int]
"""The vocabulary of a model: the names of its symbols in order, or the number of each name."""
Spellings: TypeAlias = str | Sequence[str] | Sequence[int] | Sequence[Sequence[str]] | Sequence[Sequence[int]]
"""Of one word: a text with symbols between spaces, a list of such texts, a list of symbol numbers, or lists of either."""
_Spelling: TypeAlias = tuple[str, Sequence[str | int], str]
"""A word, the symbols of one of its spellings, and where it stands, for errors."""
FORMS = ("words", "tab", "cmudict")
_VARIANT = re.compile(r"(.+)\(\d+\)")


class Lexicon:
    """A prefix tree of words: spellings that begin alike share their beginning.

    words: a list of words, spelled by their characters; or a mapping from each word to its spelling or spellings.
        `Lexicon.read` takes a file. Words of the same spelling (homophones) share a node, and a word may have
        several spellings (pronunciations).
    symbols: the names of the model's symbols in order, or a mapping from name to number.
    separator: the symbol (its name or its number) between two words, such as the blank space of a model of
        characters; None where words follow each other without one.

    >>> an.search.Lexicon(["an", "ant"], "ant").saving()["nodes"]
    4
    """

    def __init__(
        self,
        words: Iterable[str] | Mapping[str, Spellings],
        symbols: Symbols,
        *,
        separator: str | int | None = None,
    ):
        if isinstance(words, str | Path):
            raise AnaphoraError(
                f"A Lexicon is made of words, not of {words!r}; read files with Lexicon.read."
            )
        spelled = _of_mapping(words) if isinstance(words, Mapping) else _of_list(words)
        self._build(spelled, symbols, separator)

    @classmethod
    def read(
        cls,
        path: str | Path,
        symbols: Symbols,
        *,
        separator: str | int | None = None,
        form: Literal["words", "tab", "cmudict"] | None = None,
        drop_stress: bool = False,
    ) -> Lexicon:
        """A lexicon from a UTF-8 file (also .gz).

        form: "words", one word per line, spelled by its characters; "tab", ``word⇥symbols`` with spaces between the
            symbols; "cmudict", the form of the CMU Pronouncing Dictionary (``READ(1)  R EH1 D``). None: what the first
            line looks like. A word may have several lines with different spellings in the last two.
        drop_stress: take the digits off the symbols' ends (EH1 → EH); spellings that become equal count once.
        """
        lexicon = cls.__new__(cls)
        lexicon._build(spelled_in_file(path, form, drop_stress), symbols, separator)
        return lexicon

    def _build(self, spelled: Iterable[_Spelling], symbols: Symbols, separator: str | int | None) -> None:
        self._number = _numbers(symbols)
        self.symbols = 1 + max(self._number.values())
        """How many symbols the vocabulary has."""
        self.separator = None if separator is None else self._of_separator(separator)
        """The number of the symbol between two words, None without one."""
        self._ids: dict[str, int] = {}
        entries: list[int] = []
        spellings: list[tuple[int, ...]] = []
        seen: set[tuple[int, tuple[int, ...]]] = set()
        for word, spelling, where in spelled:
            numbers = self._checked(word, spelling, where)
            word_id = self._ids.setdefault(word, len(self._ids))
            if (word_id, numbers) in seen:
                raise DataError(f"{where}: {word!r} is there twice with the same spelling; take one out.")
            seen.add((word_id, numbers))
            entries.append(word_id)
            spellings.append(numbers)
        if not entries:
            raise DataError("A lexicon needs at least one word, but there is none.")
        self.words = list(self._ids)
        """The words in the order they came; a word's number is its place."""
        self._spellings = list(zip(entries, spellings, strict=True))
        self._numbers: tuple[object, NDArray[np.int64]] | None = None

    @cached_property
    def tree(self) -> Tree:
        """The prefix tree. With a separator every spelling ends in it, and it may also stand alone as a pause."""
        return self._grown()

    @cached_property
    def automaton(self) -> Automaton:
        """The tree with the ends of its words merged, too; `lexicon_beam` with ``merged`` searches on it."""
        return minimal(self.__dict__.get("tree") or self._grown())

    def saving(self) -> dict[str, int]:
        """How many nodes the tree and how many states and arcs the automaton has."""
        tree, small = self.__dict__.get("tree") or self._grown(), self.automaton
        return {"nodes": len(tree), "states": len(small), "arcs": len(small.symbol)}

    def _grown(self) -> Tree:
        after = () if self.separator is None else (self.separator,)
        spellings = [(*spelling, *after) for _, spelling in self._spellings]
        words = [word for word, _ in self._spellings]
        if self.separator is not None:
            spellings.append(after)
            words.append(PAUSE)
        return grow(spellings, words, self.symbols)

    @cached_property
    def closing(self) -> NDArray[np.int32]:
        """(nodes,): the node of the separator that would end a word here, 0 where no word can end."""
        found = np.zeros(len(self.tree), dtype=np.int32)
        if self.separator is not None:
            ends = np.flatnonzero((self.tree.symbol == self.separator) & (self.tree.parent > 0))
            found[self.tree.parent[ends]] = ends
        return found

    def numbers_in(self, vocabulary: object, number: Callable[[str], int]) -> NDArray[np.int64]:
        """(words,): ``number(word)`` for each word; kept for the next search with the same vocabulary."""
        if self._numbers is None or self._numbers[0] is not vocabulary:
            found = np.fromiter(map(number, self.words), dtype=np.int64, count=len(self))
            self._numbers = (vocabulary, found)
        return self._numbers[1]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __getitem__(self, word: str) -> int:
        """The number of a word."""
        if word not in self._ids:
            raise AnaphoraError(f"{word!r} is not in the lexicon of {len(self)} words; add it there first.")
        return self._ids[word]

    def spellings(self, word: str) -> list[list[int]]:
        """The spellings of a word in symbol numbers, as they came, without the separator."""
        number = self[word]
        return [list(spelling) for of, spelling in self._spellings if of == number]

    def draw(self) -> str:
        """The tree as text, a symbol per line, and behind it the words that end there."""
        names = {number: name for name, number in self._number.items()}
        tree = grow([s for _, s in self._spellings], [w for w, _ in self._spellings], self.symbols)
        lines: list[str] = []
        waiting = [(n, "") for n in reversed(range(tree.first[0], tree.first[1]))]
        while waiting:
            node, indent = waiting.pop()
            last = node == tree.first[tree.parent[node] + 1] - 1
            ended = tree.word[tree.word_first[node] : tree.word_first[node + 1]]
            line = f"{indent}{'└' if last else '├'} {names[int(tree.symbol[node])]}"
            lines.append(" ".join((line, *(f"[{self.words[word]}]" for word in ended))))
            below = indent + ("  " if last else "│ ")
            waiting += [(n, below) for n in reversed(range(tree.first[node], tree.first[node + 1]))]
        return "\n".join(lines)

    def _checked(self, word: str, spelling: Sequence[str | int], where: str) -> tuple[int, ...]:
        """The spelling in numbers; a sentence that names the place where it cannot be used."""
        if not word:
            raise DataError(f"{where}: the word is empty; give it a name or take it out.")
        if not spelling:
            raise DataError(f"{where}: the word {word!r} has an empty spelling; give it symbols.")
        numbers = []
        for symbol in spelling:
            number = self._number.get(symbol, -1) if isinstance(symbol, str) else int(symbol)
            if not 0 <= number < self.symbols:
                raise DataError(
                    f"{where}: {symbol!r} in the word {word!r} is not among the {len(self._number)} symbols; "
                    "spell it with those or leave the word out."
                )
            if number == self.separator:
                raise DataError(
                    f"{where}: the word {word!r} holds the separator {symbol!r}; separators stand between words."
                )
            numbers.append(number)
        return tuple(numbers)

    def _of_separator(self, separator: str | int) -> int:
        number = self._number.get(separator, -1) if isinstance(separator, str) else separator
        if not 0 <= number < self.symbols:
            raise AnaphoraError(f"The separator {separator!r} is not among the {len(self._number)} symbols.")
        return number


def _numbers(symbols: Symbols) -> dict[str, int]:
    if isinstance(symbols, str):
        symbols = list(symbols)
    pairs = symbols.items() if isinstance(symbols, Mapping) else ((s, i) for i, s in enumerate(symbols))
    numbers: dict[str, int] = {}
    for name, number in pairs:
        if not isinstance(name, str) or isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise AnaphoraError(f"Symbols are names with numbers from 0 on, not {name!r}: {number!r}.")
        if name in numbers:
            raise AnaphoraError(f"The symbol {name!r} is there twice; a lexicon needs different names.")
        numbers[name] = number
    if not numbers:
        raise AnaphoraError("A lexicon needs the symbols of the model, but the list of them is empty.")
    return numbers


def _of_list(words: Iterable[str]) -> Iterator[_Spelling]:
    for number, word in enumerate(words, start=1):
        if not isinstance(word, str):
            raise DataError(f"word {number} is {word!r}; give texts, or a mapping from words to spellings.")
        yield word, list(word), f"word {number}"


def _of_mapping(words: Mapping[str, Spellings]) -> Iterator[_Spelling]:
    for number, (word, given) in enumerate(words.items(), start=1):
        where = f"word {number}"
        if not isinstance(word, str):
            raise DataError(f"{where} is {word!r}; give texts.")
        if isinstance(given, str):
            yield word, given.split(), where
        elif not given or isinstance(given[0], int):
            yield word, list(given), where  # type: ignore[arg-type]
        else:
            for spelling in given:
                yield word, spelling.split() if isinstance(spelling, str) else list(spelling), where  # type: ignore[arg-type]


def spelled_in_file(path: str | Path, form: str | None, drop_stress: bool) -> Iterator[_Spelling]:
    """Every spelling of a file. Empty lines are skipped, in cmudict files comments too."""
    if form is not None and form not in FORMS:
        raise AnaphoraError(f"form must be one of {', '.join(FORMS)}, but is {form!r}.")
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for number, line in lines_of(path):
        if not line.strip() or (form in (None, "cmudict") and line.startswith(";;;")):
            continue
        form = form or _looks_like(line)
        where = f"{path}:{number}"
        word, symbols = _cut(line, form, where)
        if drop_stress:
            symbols = [symbol.rstrip("0123456789") or symbol for symbol in symbols]
            if (word, tuple(symbols)) in seen:
                continue  # spellings that differed in their stress alone
            seen.add((word, tuple(symbols)))
        yield word, symbols, where


def _looks_like(line: str) -> str:
    if "\t" in line:
        return "tab"
    return "cmudict" if len(line.split()) > 1 else "words"


def _cut(line: str, form: str, where: str) -> tuple[str, list[str]]:
    """The word and the symbols of one line."""
    if form == "words":
        return line.strip(), list(line.strip())
    if form == "tab":
        word, tab, spelling = line.partition("\t")
        if not tab:
            raise DataError(f"{where}: there is no tab between the word and its symbols; put one there.")
        return word.strip(), spelling.split()
    word, *symbols = re.split(r"\s#", line, maxsplit=1)[0].split()
    variant = _VARIANT.fullmatch(word)
    return variant[1] if variant else word, symbols


# ----------------------------------------------------------------------------
# Hot words: words and phrases that are expected, and get a bonus.
#
# Phrases are read by an automaton like that of an n-gram model: a state is the beginning of a phrase that has been said,
# an arc reads one more word of it, and where there is none the state is left for its longest suffix that begins a phrase.
# A beginning has a part of the bonus in advance, φ, so that the beam does not drop it before the phrase is complete:
#
#     gain of a word = φ(after) + bonus of the phrases complete now − φ(before)
#
# Whatever happens, what was advanced is given back: over a sentence, with φ of its last state taken off, only the
# bonuses of complete phrases are left.

Floats = NDArray[np.float64]
HotWords: TypeAlias = Mapping[str, float] | Mapping[tuple[str, ...], float]
"""The bonus of each word or phrase: words with spaces between them, or a tuple of words."""


class Hot:
    """The automaton of hot phrases; without any it has one state and costs nothing."""

    def __init__(self, phrases: HotWords | None, lexicon: Lexicon, spelled: bool = False):
        self._lexicon = lexicon
        self._phrases = [(_words_of(p, lexicon, spelled), _finite(p, b)) for p, b in (phrases or {}).items()]
        self._next: list[dict[int, int]] = [{}]
        self._bonus = [0.0]
        self.advanced = [0.0]
        """φ of each state: the part of a bonus that was given in advance."""
        for words, bonus in self._phrases:
            state = 0
            for place, word in enumerate(words, start=1):
                if word not in self._next[state]:
                    self._next[state][word] = len(self._next)
                    self._next.append({})
                    self._bonus.append(0.0)
                    self.advanced.append(0.0)
                state = self._next[state][word]
                if place < len(words):
                    self.advanced[state] = max(self.advanced[state], bonus * place / len(words))
            self._bonus[state] += bonus

    @cached_property
    def _suffix(self) -> list[int]:
        """The state of the longest proper suffix of each state, which is made before those it is a suffix of."""
        suffix = [0] * len(self._next)
        waiting = [(0, word, state) for word, state in self._next[0].items()]
        for parent, word, state in waiting:  # grows while it is read: breadth first
            at = suffix[parent] if parent else -1
            while at > 0 and word not in self._next[at]:
                at = suffix[at]
            suffix[state] = self._next[at].get(word, 0) if at >= 0 else 0
            self._bonus[state] += self._bonus[suffix[state]]  # a phrase may end inside another
            waiting += [(state, following, child) for following, child in self._next[state].items()]
        return suffix

    @cached_property
    def table(self) -> Words:
        """The automaton as kernels read it."""
        from anaphora.ops.ngram import EXIT, SLOT, fill_slots
        from anaphora.search.lexicon._words import Words, no_words

        if not self._phrases:
            return no_words()
        suffix, count, symbols = self._suffix, len(self._next), len(self._lexicon)
        arcs = [(s, word, child) for s in range(count) for word, child in self._next[s].items()]
        state, word, child = (np.array(column, dtype=np.int64) for column in zip(*arcs, strict=True))
        advanced = np.array(self.advanced)
        gain = advanced[child] + np.array(self._bonus)[child] - advanced[state]
        slots = np.zeros(1 << (2 * len(arcs)).bit_length(), SLOT)
        slots["key"] = -1
        inner = state > 0
        fill_slots(slots, state[inner], word[inner], gain[inner], child[inner], 0, symbols)
        unigrams = np.zeros(symbols, SLOT)
        unigrams["log_prob"][word[~inner]], unigrams["after"][word[~inner]] = gain[~inner], child[~inner]
        exits = np.zeros(count, EXIT)
        exits["backoff"], exits["suffix"] = advanced[suffix] - advanced, suffix
        return Words(slots, unigrams, exits, np.arange(symbols), 1.0)

    @property
    def states(self) -> int:
        return len(self._next)

    @cached_property
    def most(self) -> float:
        """The most that one word can gain."""
        self._suffix  # noqa: B018  adds the bonuses of phrases inside others
        ends = [ahead + bonus for ahead, bonus in zip(self.advanced, self._bonus, strict=True)]
        return max(0.0, max(ends) - min(self.advanced))

    def credit(self) -> Floats:
        """(nodes,): inside a word that begins a phrase, the share of its bonus that has been spelled."""
        tree = self._lexicon.tree
        credit = np.zeros(len(tree))
        after = 0 if self._lexicon.separator is None else 1
        for words, bonus in self._phrases:
            for end in tree.end[tree.word == words[0]].tolist():
                letters = int(tree.depth[end]) - after
                node = int(tree.parent[end])
                while node > 0:
                    share = bonus / len(words) * int(tree.depth[node]) / letters
                    credit[node] = max(credit[node], share)
                    node = int(tree.parent[node])
        return credit


def _words_of(phrase: str | tuple[str, ...], lexicon: Lexicon, spelled: bool) -> list[int]:
    words: Sequence[str] = (
        phrase if isinstance(phrase, tuple) else list(phrase) if spelled else phrase.split()
    )
    if not words:
        raise AnaphoraError("A hot phrase is empty; give it at least one word.")
    return [lexicon[word] for word in words]


def _finite(phrase: str | tuple[str, ...], bonus: float) -> float:
    if not math.isfinite(bonus):
        raise AnaphoraError(f"The bonus of the hot phrase {phrase!r} must be a number, but is {bonus}.")
    return float(bonus)


# ----------------------------------------------------------------------------
# A lexicon as the rule of a steered search: which symbols can follow so that only its words come out.


class Spelled:
    """Follows beginnings through the tree of a lexicon; several places at once where a word may have ended or may go on.

    ``end`` is the symbol that ends an output. ``empty``: whether the empty output is one, and one that ends in the
    separator, as frames of CTC may spell them.
    """

    def __init__(self, lexicon: Lexicon, end: int, *, empty: bool = False):
        self.lexicon, self.end, self.empty = lexicon, end, empty
        self._places: dict[tuple[int, ...], frozenset[int]] = {(): frozenset({0})}

    def places(self, beginning: tuple[int, ...]) -> frozenset[int]:
        """The nodes of the tree at which a beginning may be; 0 where a word has ended."""
        known = self._places.get(beginning)
        if known is None:
            tree = self.lexicon.tree
            found: set[int] = set()
            for node in self.places(beginning[:-1]):
                for child in range(int(tree.first[node]), int(tree.first[node + 1])):
                    if tree.symbol[child] == beginning[-1]:
                        if tree.first[child + 1] > tree.first[child]:
                            found.add(child)
                        if tree.word_first[child + 1] > tree.word_first[child]:
                            found.add(0)
            known = self._places[beginning] = frozenset(found)
        return known

    def following(self, beginning: tuple[int, ...]) -> frozenset[int]:
        tree, places = self.lexicon.tree, self.places(beginning)
        found = {
            int(tree.symbol[c]) for n in places for c in range(int(tree.first[n]), int(tree.first[n + 1]))
        }
        ended = 0 in places and (self.empty or (bool(beginning) and self.lexicon.separator is None))
        if ended or any(self.lexicon.closing[node] > 0 for node in places):
            found.add(self.end)
        return frozenset(found)
