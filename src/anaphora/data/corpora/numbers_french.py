"""French number words, in the traditional spelling (hyphens only inside a number below 100, none around "et").

Tens go by twenty from 60 on: "soixante-dix", "quatre-vingts". "vingt" and "cent" take an s when they are
multiplied and end the numeral ("quatre-vingts", "deux cents millions"), and lose it before another number or
"mille", which is part of the numeral and never changes ("quatre-vingt mille"). "million" is a noun, so the s stays
before it.
"""

from __future__ import annotations

# fmt: off
_SMALL = [
    "zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze",
    "douze", "treize", "quatorze", "quinze", "seize", "dix-sept", "dix-huit", "dix-neuf",
]
_TENS = [
    "", "", "vingt", "trente", "quarante", "cinquante", "soixante",
]
# fmt: on


def french(number: int) -> str:
    """``number`` (0 … 999 999 999) in words."""
    if number == 0:
        return _SMALL[0]
    millions, thousands, rest = number // 10**6, number // 1000 % 1000, number % 1000
    words = []
    if millions:
        words.append(f"{_below_1000(millions)} million{'s' if millions > 1 else ''}")
    if thousands:
        words.append("mille" if thousands == 1 else f"{_below_1000(thousands, ends=False)} mille")
    if rest:
        words.append(_below_1000(rest))
    return " ".join(words)


def _below_1000(number: int, *, ends: bool = True) -> str:
    """1 … 999; ``ends``: nothing follows inside the numeral, so a multiplied vingt or cent takes its s."""
    hundreds, rest = divmod(number, 100)
    words = [_SMALL[hundreds]] if hundreds > 1 else []
    if hundreds:
        words.append("cents" if hundreds > 1 and not rest and ends else "cent")
    if rest:
        words.append(_below_100(rest, ends=ends))
    return " ".join(words)


def _below_100(number: int, *, ends: bool) -> str:
    if number < 20:
        return _SMALL[number]
    if number >= 80:
        return f"quatre-vingt-{_SMALL[number - 80]}" if number > 80 else f"quatre-vingt{'s' if ends else ''}"
    tens = min(number // 10, 6)
    rest = number - 10 * tens  # up to 19 for the sixties
    if rest == 0:
        return _TENS[tens]
    joint = " et " if rest in (1, 11) else "-"
    return f"{_TENS[tens]}{joint}{_SMALL[rest]}"
