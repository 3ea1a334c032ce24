"""What an output must and must not contain: a forced beginning, required and forbidden phrases, no repeats."""

from __future__ import annotations

from collections.abc import Sequence

from anaphora.errors import AnaphoraError
from anaphora.search._hypothesis import BeamNode
from anaphora.search._steering import Steering

Phrases = Sequence[Sequence[int]]


class Constraints:
    """The rules for one input, read as a machine that every hypothesis carries along.

    A hypothesis knows, for each phrase, how many of its first symbols stand at the hypothesis's end
    (`BeamNode.progress`). A forbidden phrase may not take its last symbol; a required one stays complete
    once it was, and EOS has to wait for all of them. Inside the forced beginning nothing else counts.
    """

    def __init__(
        self,
        eos: int,
        prefix: Sequence[int],
        forbid: Phrases,
        require: Phrases,
        no_repeat: int,
        steering: Steering | None = None,
    ) -> None:
        _check(prefix, *require, *forbid, empty=not all(map(len, (*require, *forbid))))
        if any(eos in phrase for phrase in (prefix, *require)):
            raise AnaphoraError(f"EOS = {eos} cannot stand in a prefix or in a required phrase.")
        self.eos, self.prefix, self.no_repeat = eos, list(prefix), no_repeat
        self.forbidden_phrases = [_Phrase(phrase) for phrase in forbid]
        self.required = [_Phrase(phrase) for phrase in require]
        self.start = (0,) * (len(self.required) + len(self.forbidden_phrases))
        self.steering = steering
        self.greatest = max((max(p, default=0) for p in (prefix, *forbid, *require)), default=0)
        self.greatest = max(self.greatest, steering.greatest if steering else 0)

    def after(self, progress: tuple[int, ...], symbol: int) -> tuple[int, ...]:
        """The progress of all phrases, required ones first, when `symbol` follows."""
        count = len(self.required)
        required = zip(self.required, progress[:count], strict=True)
        forbidden = zip(self.forbidden_phrases, progress[count:], strict=True)
        return (
            *(n if n == len(phrase) else phrase.after(n, symbol) for phrase, n in required),
            *(phrase.after(n, symbol) for phrase, n in forbidden),
        )

    def only(self, node: BeamNode) -> frozenset[int] | None:
        """The symbols of which one must follow; None where any may."""
        if node.length < len(self.prefix):
            return frozenset({self.prefix[node.length]})
        return self.steering.only(_symbols(node)) if self.steering else None

    def forbidden(self, node: BeamNode) -> set[int]:
        """The symbols that may not follow."""
        if node.length < len(self.prefix):
            return set()
        steered = self.steering.banned(_symbols(node)) if self.steering else set()
        count = len(self.required)
        phrases = zip(self.forbidden_phrases, node.progress[count:], strict=True)
        symbols = {phrase.symbols[-1] for phrase, n in phrases if phrase.one_missing(n)}
        if self.wanted(node) or (self.steering and node.length < max(self.steering.force, default=0)):
            symbols.add(self.eos)  # what is forced or required has to come first
        return symbols | steered | self._repeats(node)

    def wanted(self, node: BeamNode) -> set[int]:
        """The symbols that bring a required phrase forward: the search must look at them however improbable."""
        if node.length < len(self.prefix):
            return set()
        required = zip(self.required, node.progress, strict=False)
        return {phrase.symbols[n] for phrase, n in required if n < len(phrase)}

    def met(self, node: BeamNode) -> int:
        """Symbols of required phrases that are in place: complete phrases and the longest one begun.

        Going on with the longest one begun always adds to it, so the hypothesis that leads cannot stand still.
        """
        required = list(zip(self.required, node.progress, strict=False))
        begun = max((n for phrase, n in required if n < len(phrase)), default=0)
        return begun + sum(n for phrase, n in required if n == len(phrase))

    def _repeats(self, node: BeamNode) -> set[int]:
        """Symbols that would make the last `no_repeat` symbols equal to some earlier ones."""
        n = self.no_repeat
        if not n or node.length < n:
            return set()
        tokens = [earlier.symbol for earlier in node.path()]
        last = tokens[len(tokens) - n + 1 :]
        return {tokens[i + n - 1] for i in range(len(tokens) - n + 1) if tokens[i : i + n - 1] == last}


def _symbols(node: BeamNode) -> tuple[int, ...]:
    return tuple(earlier.symbol for earlier in node.path())


class _Phrase:
    """Finds its symbols in a stream (Knuth, Morris & Pratt 1977)."""

    def __init__(self, symbols: Sequence[int]):
        self.symbols = list(symbols)
        self._shorter = [0]  # at n − 1: the longest proper beginning that also ends the first n symbols
        for n in range(1, len(symbols)):
            self._shorter.append(self.after(self._shorter[-1], self.symbols[n]))

    def __len__(self) -> int:
        return len(self.symbols)

    def after(self, n: int, symbol: int) -> int:
        """How many first symbols are matched after `symbol`, if it was n before."""
        while n and (n == len(self.symbols) or self.symbols[n] != symbol):
            n = self._shorter[n - 1]
        return n + 1 if self.symbols[n] == symbol else 0

    def one_missing(self, n: int) -> bool:
        """Whether its last symbol would complete it; a complete one may be about to come again."""
        return (self._shorter[-1] if n == len(self.symbols) else n) == len(self.symbols) - 1


def _check(*phrases: Sequence[int], empty: bool) -> None:
    if empty:
        raise AnaphoraError("A required or forbidden phrase is empty; give at least one symbol.")
    for phrase in phrases:
        if any(symbol < 0 for symbol in phrase):
            raise AnaphoraError(f"The phrase {list(phrase)} has a negative symbol; symbols count from 0.")
