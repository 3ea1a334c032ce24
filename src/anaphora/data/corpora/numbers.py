"""Numbers in words: English, French and German."""

from __future__ import annotations

from random import Random

from anaphora.data.corpora.corpus import Corpus, Example

# fmt: off
# English number words: "three hundred twenty-one million five", without "and", tens and units hyphenated.

_ENGLISH_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
_ENGLISH_TENS = [
    "", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
]
# fmt: on


def english(number: int) -> str:
    """``number`` (0 … 999 999 999) in words."""
    if number == 0:
        return _ENGLISH_SMALL[0]
    millions, thousands, rest = number // 10**6, number // 1000 % 1000, number % 1000
    words: list[str] = []
    for group, name in ((millions, "million"), (thousands, "thousand"), (rest, "")):
        if group:
            words += [*_english_below_1000(group), name]
    return " ".join(filter(None, words))


def _english_below_1000(number: int) -> list[str]:
    hundreds, rest = divmod(number, 100)
    words = [_ENGLISH_SMALL[hundreds], "hundred"] if hundreds else []
    if rest >= 20:
        tens, units = divmod(rest, 10)
        words.append(_ENGLISH_TENS[tens] + (f"-{_ENGLISH_SMALL[units]}" if units else ""))
    elif rest:
        words.append(_ENGLISH_SMALL[rest])
    return words


# fmt: off
# French number words, in the traditional spelling (hyphens only inside a number below 100, none around "et").

_FRENCH_SMALL = [
    "zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze",
    "douze", "treize", "quatorze", "quinze", "seize", "dix-sept", "dix-huit", "dix-neuf",
]
_FRENCH_TENS = [
    "", "", "vingt", "trente", "quarante", "cinquante", "soixante",
]
# fmt: on


def french(number: int) -> str:
    """``number`` (0 … 999 999 999) in words."""
    if number == 0:
        return _FRENCH_SMALL[0]
    millions, thousands, rest = number // 10**6, number // 1000 % 1000, number % 1000
    words = []
    if millions:
        words.append(f"{_french_below_1000(millions)} million{'s' if millions > 1 else ''}")
    if thousands:
        words.append("mille" if thousands == 1 else f"{_french_below_1000(thousands, ends=False)} mille")
    if rest:
        words.append(_french_below_1000(rest))
    return " ".join(words)


def _french_below_1000(number: int, *, ends: bool = True) -> str:
    """1 … 999; ``ends``: nothing follows inside the numeral, so a multiplied vingt or cent takes its s."""
    hundreds, rest = divmod(number, 100)
    words = [_FRENCH_SMALL[hundreds]] if hundreds > 1 else []
    if hundreds:
        words.append("cents" if hundreds > 1 and not rest and ends else "cent")
    if rest:
        words.append(_below_100(rest, ends=ends))
    return " ".join(words)


def _below_100(number: int, *, ends: bool) -> str:
    if number < 20:
        return _FRENCH_SMALL[number]
    if number >= 80:
        return (
            f"quatre-vingt-{_FRENCH_SMALL[number - 80]}"
            if number > 80
            else f"quatre-vingt{'s' if ends else ''}"
        )
    tens = min(number // 10, 6)
    rest = number - 10 * tens  # up to 19 for the sixties
    if rest == 0:
        return _FRENCH_TENS[tens]
    joint = " et " if rest in (1, 11) else "-"
    return f"{_FRENCH_TENS[tens]}{joint}{_FRENCH_SMALL[rest]}"


# fmt: off
# German number words, in the full form: "einhundert" and "eintausend", not "hundert" and "tausend".

_GERMAN_SMALL = [
    "null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn",
    "elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn",
    "neunzehn",
]
_GERMAN_TENS = [
    "", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig",
    "neunzig",
]
# fmt: on


def german(number: int) -> str:
    """``number`` (0 … 999 999 999) in words."""
    if number == 0:
        return _GERMAN_SMALL[0]
    millions, below = divmod(number, 10**6)
    words = []
    if millions:
        words += [_german_below_1000(millions, one="eine"), "Million" if millions == 1 else "Millionen"]
    if below:
        thousands, rest = divmod(below, 1000)
        words.append(
            (_german_below_1000(thousands, one="ein") + "tausend" if thousands else "")
            + (_german_below_1000(rest, one="eins") if rest else "")
        )
    return " ".join(words)


def _german_below_1000(number: int, *, one: str) -> str:
    """1 … 999 as one word; ``one`` is the form of a 1 at its end."""
    hundreds, rest = divmod(number, 100)
    word = _unit(hundreds, one="ein") + "hundert" if hundreds else ""
    if rest >= 20:
        tens, units = divmod(rest, 10)
        return word + (_unit(units, one="ein") + "und" if units else "") + _GERMAN_TENS[tens]
    return word + (_unit(rest, one=one) if rest else "")


def _unit(number: int, *, one: str) -> str:
    return one if number == 1 else _GERMAN_SMALL[number]


# Number words: English to German, which turns tens and units round, or to French, which counts in twenties.

MOST_DIGITS = 9
_TARGETS = {"de": german, "fr": french}


def draw(variant: str, random: Random) -> Example:
    """A number in words. Numbers below 100 are what all others are made of, so they are only in train."""
    number = draw_number(random)
    key = str(number) if number >= 100 else None
    return Example(english(number), _TARGETS[variant](number), key)


def draw_number(random: Random) -> int:
    """A number below 10⁹ such that short, long and round ones all occur.

    One third each: any number; all counts of digits alike; the same with about half of the digits zero.
    """
    style = random.randrange(3)
    if style == 0:
        return random.randrange(10**MOST_DIGITS)
    digits = 1 + random.randrange(MOST_DIGITS)
    if style == 1:
        return random.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)
    number = 1 + random.randrange(9)
    for _ in range(digits - 1):
        number = 10 * number + (1 + random.randrange(9) if random.randrange(2) else 0)
    return number


CORPUS = Corpus(
    name="numbers",
    summary="number words up to 999 999 999, from English to German or French",
    variants={"de": "into German", "fr": "into French"},
    sizes={"train": 20_000, "dev": 500, "test": 1_000},
    draw=draw,
    tasks=("translate", "embed"),
)
