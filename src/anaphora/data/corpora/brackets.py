"""Are all brackets closed, each by its own kind, the last opened first? Order is everything: counts never tell."""

from __future__ import annotations

from random import Random

from anaphora.data.corpora.corpus import Corpus, Example

LONGEST = 20
KINDS = ("()", "[]", "{}")
_LETTERS = "abcdef"
_OPENERS = {kind[1]: kind[0] for kind in KINDS}


def balanced(symbols: list[str]) -> bool:
    """Whether every bracket is closed by its own kind, the last opened first. Letters do not count."""
    opened: list[str] = []
    for symbol in symbols:
        if symbol in _OPENERS:
            if not opened or opened.pop() != _OPENERS[symbol]:
                return False
        elif symbol in _OPENERS.values():
            opened.append(symbol)
    return not opened


def draw(variant: str, random: Random) -> Example:
    """Half of the examples are balanced; both halves hold the same brackets equally often."""
    wanted = random.randrange(2) == 0
    symbols = _nested(random, wanted) if variant == "nested" else _apart(int(variant), random, wanted)
    text = " ".join(symbols)
    return Example(text, "balanced" if wanted else "unbalanced", text)


def _nested(random: Random, wanted: bool) -> list[str]:
    """Up to 20 brackets. What is not balanced differs from what is by two brackets that changed places."""
    while True:
        symbols = _grow(2 + random.randrange(LONGEST // 2 - 1), random)
        if wanted:
            return symbols
        first, second = random.randrange(len(symbols)), random.randrange(len(symbols))
        symbols[first], symbols[second] = symbols[second], symbols[first]
        if not balanced(symbols):
            return symbols


def _grow(pairs: int, random: Random) -> list[str]:
    """A balanced row of ``pairs`` pairs: a pair around some of them, and the others behind it."""
    if pairs == 0:
        return []
    kind = KINDS[random.randrange(len(KINDS))]
    inside = random.randrange(pairs)
    return [kind[0], *_grow(inside, random), kind[1], *_grow(pairs - 1 - inside, random)]


def _apart(lag: int, random: Random, wanted: bool) -> list[str]:
    """Two brackets, ``lag`` letters, the two that close them: nested ``( [ … ] )``, or crossed ``( [ … ) ]``."""
    first = random.randrange(len(KINDS))
    second = (first + 1 + random.randrange(len(KINDS) - 1)) % len(KINDS)
    outer, inner = KINDS[first], KINDS[second]
    letters = [_LETTERS[random.randrange(len(_LETTERS))] for _ in range(lag)]
    closing = (inner[1], outer[1]) if wanted else (outer[1], inner[1])
    return [outer[0], inner[0], *letters, *closing]


CORPUS = Corpus(
    name="brackets",
    summary="are the brackets balanced? a guess is right in 50 %, and so is counting them",
    variants={
        "nested": "4 to 20 brackets of three kinds; two that changed places spoil half of them",
        "10": "two pairs, nested or crossed, with 10 letters between opening and closing",
        "30": "the same with 30 letters between",
        "100": "the same with 100 letters between",
    },
    sizes={"train": 10_000, "dev": 500, "test": 1_000},
    draw=draw,
    tasks=("classify",),
    unit="examples",
)
