"""Embedded corpora: words checked by hand and by reading them back, disjoint splits, the same everywhere."""

from __future__ import annotations

import datetime
import hashlib
import json
import random
import re

import pytest

from anaphora.data.corpora import CORPORA, SPLITS, Corpus, find, generate
from anaphora.data.corpora import sentences as dates
from anaphora.data.corpora.numbers import english, french, german
from anaphora.errors import DataError

ENGLISH = {
    0: "zero",
    11: "eleven",
    14: "fourteen",
    40: "forty",
    85: "eighty-five",
    100: "one hundred",
    110: "one hundred ten",
    1_000: "one thousand",
    1_000_000: "one million",
    1_000_001: "one million one",
    321_405_006: "three hundred twenty-one million four hundred five thousand six",
    100_000_000: "one hundred million",
}
GERMAN = {
    0: "null",
    1: "eins",
    11: "elf",
    12: "zwölf",
    16: "sechzehn",
    17: "siebzehn",
    20: "zwanzig",
    21: "einundzwanzig",
    30: "dreißig",
    31: "einunddreißig",
    60: "sechzig",
    66: "sechsundsechzig",
    70: "siebzig",
    77: "siebenundsiebzig",
    99: "neunundneunzig",
    100: "einhundert",
    101: "einhunderteins",
    111: "einhundertelf",
    121: "einhunderteinundzwanzig",
    200: "zweihundert",
    1_000: "eintausend",
    1_001: "eintausendeins",
    1_100: "eintausendeinhundert",
    2_017: "zweitausendsiebzehn",
    21_000: "einundzwanzigtausend",
    101_000: "einhunderteintausend",
    101_101: "einhunderteintausendeinhunderteins",
    325_000: "dreihundertfünfundzwanzigtausend",
    1_000_000: "eine Million",
    1_000_001: "eine Million eins",
    1_001_000: "eine Million eintausend",
    2_000_000: "zwei Millionen",
    21_000_000: "einundzwanzig Millionen",
    101_000_000: "einhunderteine Millionen",
    201_001_001: "zweihunderteine Millionen eintausendeins",
    999_999_999: "neunhundertneunundneunzig Millionen "
    "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
}
FRENCH = {
    0: "zéro",
    1: "un",
    16: "seize",
    17: "dix-sept",
    20: "vingt",
    21: "vingt et un",
    22: "vingt-deux",
    31: "trente et un",
    61: "soixante et un",
    69: "soixante-neuf",
    70: "soixante-dix",
    71: "soixante et onze",
    72: "soixante-douze",
    77: "soixante-dix-sept",
    80: "quatre-vingts",
    81: "quatre-vingt-un",
    88: "quatre-vingt-huit",
    90: "quatre-vingt-dix",
    91: "quatre-vingt-onze",
    99: "quatre-vingt-dix-neuf",
    100: "cent",
    101: "cent un",
    171: "cent soixante et onze",
    180: "cent quatre-vingts",
    200: "deux cents",
    201: "deux cent un",
    280: "deux cent quatre-vingts",
    1_000: "mille",
    1_001: "mille un",
    1_100: "mille cent",
    1_200: "mille deux cents",
    2_000: "deux mille",
    21_000: "vingt et un mille",
    80_000: "quatre-vingt mille",
    80_080: "quatre-vingt mille quatre-vingts",
    200_000: "deux cent mille",
    200_200: "deux cent mille deux cents",
    280_000: "deux cent quatre-vingt mille",
    1_000_000: "un million",
    1_001_000: "un million mille",
    2_000_000: "deux millions",
    21_000_000: "vingt et un millions",
    80_000_000: "quatre-vingts millions",
    200_000_000: "deux cents millions",
    201_000_000: "deux cent un millions",
    999_999_999: "neuf cent quatre-vingt-dix-neuf millions neuf cent quatre-vingt-dix-neuf mille "
    "neuf cent quatre-vingt-dix-neuf",
}


@pytest.mark.parametrize(("say", "table"), [(english, ENGLISH), (german, GERMAN), (french, FRENCH)])
def test_numbers_by_hand(say: object, table: dict[int, str]) -> None:
    assert {number: say(number) for number in table} == table  # type: ignore[operator]


def read_english(words: str) -> int:
    """Add small words up; hundred multiplies what was said last, thousand and million close a group."""
    values = {"hundred": 100, "thousand": 1000, "million": 10**6}
    units = "zero one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
    values |= {word: i for i, word in enumerate(units)}
    teens = {"thir": 3, "four": 4, "fif": 5, "six": 6, "seven": 7, "eigh": 8, "nine": 9}
    values |= {f"{stem}teen": 10 + i for stem, i in teens.items()}
    tens = {"twen": 2, "thir": 3, "for": 4, "fif": 5, "six": 6, "seven": 7, "eigh": 8, "nine": 9}
    values |= {f"{stem}ty": 10 * i for stem, i in tens.items()}
    total = group = 0
    for word in re.split("[ -]", words):
        if word == "hundred":
            group *= 100
        elif word in ("thousand", "million"):
            total, group = total + group * values[word], 0
        else:
            group += values[word]
    return total + group


UNITS_DE = {"eins": 1, "eine": 1, "ein": 1, "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8, "neun": 9}  # fmt: skip
SMALL_DE = UNITS_DE | {"zehn": 10, "elf": 11, "zwölf": 12, "sechzehn": 16, "siebzehn": 17}
SMALL_DE |= {f"{unit}zehn": 10 + UNITS_DE[unit] for unit in ("drei", "vier", "fünf", "acht", "neun")}
TENS_DE = {"zwanzig": 20, "dreißig": 30, "vierzig": 40, "fünfzig": 50, "sechzig": 60, "siebzig": 70, "achtzig": 80, "neunzig": 90}  # fmt: skip


def read_german(words: str) -> int:
    """Cut at Million, tausend, hundert and und; the parts are read from tables."""
    if words == "null":
        return 0
    match = re.fullmatch(
        r"(?:(\w+) (Million|Millionen)(?: |$))?(?:(\w+?)tausend)?(?:(\w+?)hundert)?(\w*)", words
    )
    assert match, words
    millions, noun, thousands, hundreds, rest = match.groups()
    assert (noun == "Million") == (millions == "eine"), words
    below = 1000 * below_1000_de(thousands or "", "ein") + below_1000_de(
        (f"{hundreds}hundert" if hundreds else "") + rest, "eins"
    )
    return 10**6 * below_1000_de(millions or "", "eine") + below


def below_1000_de(word: str, one: str) -> int:
    match = re.fullmatch(r"(?:([a-zäöüß]+?)hundert)?(?:([a-zäöüß]+?)und(?=[a-zäöüß]+ig))?([a-zäöüß]*)", word)
    assert match, word
    hundreds, units, rest = match.groups()
    assert "eins" not in (hundreds, units)
    assert "eine" not in (hundreds, units)
    if rest in ("ein", "eins", "eine"):
        assert rest == one, word
    last = TENS_DE[rest] if rest in TENS_DE else SMALL_DE[rest] if rest else 0
    return 100 * (UNITS_DE[hundreds] if hundreds else 0) + (UNITS_DE[units] if units else 0) + last


SMALL_FR = {
    word: value
    for value, word in enumerate(
        "un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize".split(), 1  # noqa: SIM905
    )
} | {"vingt": 20, "vingts": 20, "trente": 30, "quarante": 40, "cinquante": 50, "soixante": 60}  # fmt: skip


def read_french(words: str) -> int:
    """Add up from the left; quatre-vingt multiplies, cent, mille and million multiply what was said."""
    if words == "zéro":
        return 0
    total = group = 0
    tokens = [token for token in re.split("[ -]", words.replace("quatre-vingt", "QV")) if token != "et"]
    for i, token in enumerate(tokens):
        last = i + 1 == len(tokens) or tokens[i + 1] in ("million", "millions")
        if token in ("QV", "QVs"):
            assert (token == "QVs") == last, words
            group += 80
        elif token in ("cent", "cents"):
            assert (token == "cents") == (last and group > 1), words
            group = 100 * max(group, 1)
        elif token == "mille":
            assert group != 1
            total, group = total + 1000 * max(group, 1), 0
        elif token in ("million", "millions"):
            assert (token == "million") == (group == 1), words
            total, group = total + 10**6 * group, 0
        else:
            group += SMALL_FR[token]
    return total + group


@pytest.mark.parametrize(
    ("say", "read"), [(english, read_english), (german, read_german), (french, read_french)]
)
def test_numbers_can_be_read_back(say: object, read: object) -> None:
    draw = random.Random(7)
    some = [draw.randrange(10 ** draw.randrange(4, 10)) for _ in range(4000)]
    round_ones = [n * 10**zeros for n in range(1, 1000) for zeros in (3, 6)]
    for number in [*range(10_000), *some, *round_ones]:
        assert read(say(number)) == number  # type: ignore[operator]


def test_ordinals() -> None:
    written = {n: dates.ordinal(n) for n in (1, 2, 3, 4, 10, 11, 12, 13, 20, 21, 22, 23, 30, 31)}
    assert " ".join(written.values()) == "1st 2nd 3rd 4th 10th 11th 12th 13th 20th 21st 22nd 23rd 30th 31st"


@pytest.mark.parametrize("variant", ["day-first", "month-first"])
def test_dates_can_be_read_back(variant: str) -> None:
    """By the standard library's own parser, after taking the ornaments off."""
    order = "%d/%m/%Y" if variant == "day-first" else "%m/%d/%Y"
    forms = (order, "%d.%m.%Y", "%Y/%m/%d", "%d %B %Y", "%d %b %Y", "%B %d %Y", "%b %d %Y", "%Y %B %d")
    used = set()
    for source, target in generate("dates", variant, size=2000):
        wanted = datetime.date.fromisoformat(target)
        plain = source
        if weekday := re.match("(Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*, ", source):
            assert weekday[1] == wanted.strftime("%a")
            plain = source[weekday.end() :]
        plain = re.sub(r"(?<=\d)(st|nd|rd|th)\b|,|\bof |\bthe ", "", plain)
        for form in forms:
            try:
                found = datetime.datetime.strptime(plain, form).date()
            except ValueError:
                continue
            used.add(form)
            assert found == wanted, source
            break
        else:
            pytest.fail(f"nobody can read {source!r}")
    assert used == set(forms)


def test_copying() -> None:
    same, reverse = generate("copy", size=300), generate("copy", "reverse", size=300)
    assert all(source == target for source, target in same)
    assert [" ".join(reversed(s.split())) for s, _ in reverse] == [t for _, t in reverse]
    assert {len(source.split()) for source, _ in same} == set(range(1, 41))


@pytest.mark.parametrize("name", [name for name, corpus in CORPORA.items() if isinstance(corpus, Corpus)])
def test_splits_are_disjoint_and_dev_and_test_hold_nothing_twice(name: str) -> None:
    size = min(1000, CORPORA[name].sizes["dev"], CORPORA[name].sizes["test"])
    found = {split: generate(name, split=split, size=size) for split in SPLITS}
    assert not set(found["train"]) & set(found["dev"])
    assert not set(found["train"]) & set(found["test"])
    assert not set(found["dev"]) & set(found["test"])
    assert len(set(found["dev"])) == len(set(found["test"])) == size
    assert generate(name, split="dev", size=10) == found["dev"][:10]
    assert generate(name, split="dev", size=10, seed=2) != found["dev"][:10]


def test_a_date_is_in_one_split_in_all_its_forms() -> None:
    found = {split: {target for _, target in generate("dates", split=split, size=5000)} for split in SPLITS}
    assert not found["train"] & (found["dev"] | found["test"])


def test_training_numbers_hold_all_building_blocks_and_all_lengths() -> None:
    numbers = [read_english(source) for source, _ in generate("numbers")]
    assert set(range(100)) <= set(numbers)
    lengths = [sum(len(str(n)) == digits for n in numbers) for digits in range(1, 10)]
    assert min(lengths) > 1000
    assert sum(n % 1000 == 0 for n in numbers) > 500


@pytest.mark.parametrize(("name", "digest"), [
    ("numbers", "e6cd6f4c70c85a8e"), ("numbers:fr", "254f2933f107c67c"), ("dates", "bc9f6f198c6ac9c5"), ("copy", "6a830dde029a7104"),
    ("commands", "52ed00c3ff357b1d"), ("commands:length", "ad37009de8b5c0f2"),
])  # fmt: skip
def test_the_same_pairs_for_ever(name: str, digest: str) -> None:
    """Published results name a corpus and a seed; the pairs behind them must not move."""
    corpus, _, variant = name.partition(":")
    pairs = [generate(corpus, variant or None, split, size=200) for split in SPLITS]
    assert hashlib.sha256(json.dumps(pairs).encode()).hexdigest()[:16] == digest


def test_what_does_not_exist() -> None:
    with pytest.raises(DataError, match="number is not an embedded corpus; did you mean numbers"):
        find("number")
    with pytest.raises(DataError, match="numbers:nl does not exist; numbers has de, fr"):
        generate("numbers", "nl")
    with pytest.raises(DataError, match="no split valid; choose train, dev, test"):
        generate("numbers", split="valid")


def test_asking_for_more_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anaphora.data.corpora.corpus._PATIENCE", 2000)
    monkeypatch.setattr(dates, "LAST", datetime.date(1900, 3, 1))
    with pytest.raises(DataError, match=r"dates has no more than .* different dev examples; ask for fewer"):
        generate("dates", split="dev", size=5000)


def test_a_corpus_shows_itself() -> None:
    for corpus in CORPORA.values():
        assert len(corpus.show(corpus.default_variant, "train", 3)) >= 3
        assert corpus.summary
        assert corpus.default_variant in corpus.variants
