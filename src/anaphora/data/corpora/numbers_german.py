"""German number words, in the full form: "einhundert" and "eintausend", not "hundert" and "tausend".

Everything below a million is one word with the units before the tens. "Million" is a noun of its own, feminine,
with a plural: "eine Million", "zwei Millionen", "einhunderteine Millionen". One is "eins" at the end of a word,
"ein" inside, "eine" before Million.
"""

from __future__ import annotations

# fmt: off
_SMALL = [
    "null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn",
    "elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn",
    "neunzehn",
]
_TENS = [
    "", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig",
    "neunzig",
]
# fmt: on


def german(number: int) -> str:
    """``number`` (0 … 999 999 999) in words."""
    if number == 0:
        return _SMALL[0]
    millions, below = divmod(number, 10**6)
    words = []
    if millions:
        words += [_below_1000(millions, one="eine"), "Million" if millions == 1 else "Millionen"]
    if below:
        thousands, rest = divmod(below, 1000)
        words.append(
            (_below_1000(thousands, one="ein") + "tausend" if thousands else "")
            + (_below_1000(rest, one="eins") if rest else "")
        )
    return " ".join(words)


def _below_1000(number: int, *, one: str) -> str:
    """1 … 999 as one word; ``one`` is the form of a 1 at its end."""
    hundreds, rest = divmod(number, 100)
    word = _unit(hundreds, one="ein") + "hundert" if hundreds else ""
    if rest >= 20:
        tens, units = divmod(rest, 10)
        return word + (_unit(units, one="ein") + "und" if units else "") + _TENS[tens]
    return word + (_unit(rest, one=one) if rest else "")


def _unit(number: int, *, one: str) -> str:
    return one if number == 1 else _SMALL[number]
