"""English number words: "three hundred twenty-one million five", without "and", tens and units hyphenated."""

from __future__ import annotations

# fmt: off
_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
_TENS = [
    "", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
]
# fmt: on


def english(number: int) -> str:
    """``number`` (0 … 999 999 999) in words."""
    if number == 0:
        return _SMALL[0]
    millions, thousands, rest = number // 10**6, number // 1000 % 1000, number % 1000
    words: list[str] = []
    for group, name in ((millions, "million"), (thousands, "thousand"), (rest, "")):
        if group:
            words += [*_below_1000(group), name]
    return " ".join(filter(None, words))


def _below_1000(number: int) -> list[str]:
    hundreds, rest = divmod(number, 100)
    words = [_SMALL[hundreds], "hundred"] if hundreds else []
    if rest >= 20:
        tens, units = divmod(rest, 10)
        words.append(_TENS[tens] + (f"-{_SMALL[units]}" if units else ""))
    elif rest:
        words.append(_SMALL[rest])
    return words
