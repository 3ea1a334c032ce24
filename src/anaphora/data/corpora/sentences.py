"""Sentences by rules: commands, dates, names in news, film reviews."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from random import Random

from anaphora.data.corpora.corpus import Corpus, Example

# Commands to sequences of actions: "hop twice after wave left" becomes "LEFT WAVE HOP HOP".

VERBS = ("hop", "wave", "clap", "spin", "kneel")
SIDES = ("left", "right")
COUNTS = ("", "twice", *(f"{word} times" for word in ("three", "four", "five", "six", "seven", "eight")))
LONGEST = 16
"""Most actions of a clause, and of a training example of the variant ``length``."""


def clause(verb: str, manner: str, side: str, times: int) -> tuple[str, list[str]]:
    """One command and its actions.

    ``manner``: "" does it where one stands, "toward" turns to the ``side`` first, "behind" turns twice, "circling" turns and
    does it four times over.
    """
    action, turn = verb.upper(), side.upper()
    once = {
        "": [action],
        "toward": [turn, action],
        "behind": [turn, turn, action],
        "circling": [turn, action] * 4,
    }[manner]
    words = [verb, *((manner, side) if manner else ()), COUNTS[times - 1]]
    return " ".join(filter(None, words)), once * times


def draw_command(variant: str, random: Random) -> Example:
    """One clause, or two: *then* keeps their order, *after* swaps them. Single clauses are only in train."""
    parts = []
    for _ in range(1 + (random.randrange(8) > 0)):
        verb = VERBS[random.randrange(len(VERBS))]
        manner = ("", "", "toward", "toward", "behind", "behind", "circling")[random.randrange(7)]
        side = SIDES[random.randrange(len(SIDES))]
        most = LONGEST // len(clause(verb, manner, side, 1)[1])
        parts.append(clause(verb, manner, side, 1 + random.randrange(min(most, len(COUNTS)))))
    if len(parts) == 1:
        return Example(parts[0][0], " ".join(parts[0][1]), None)
    (first, does), (second, does_too) = parts
    if random.randrange(2):
        source, actions = f"{first} then {second}", does + does_too
    else:
        source, actions = f"{first} after {second}", does_too + does
    return Example(source, " ".join(actions), source)


def longer(example: Example) -> bool:
    """Whether an example has more actions than training with ``length`` shows."""
    return len(example.target.split(" ")) > LONGEST


COMMANDS = Corpus(
    name="commands",
    summary="commands to sequences of actions with long runs of equal symbols; SCAN in kind",
    variants={
        "simple": "all lengths in every split",
        "length": f"at most {LONGEST} actions in train, more in dev and test",
    },
    sizes={"train": 20_000, "dev": 500, "test": 1_000},
    draw=draw_command,
    beyond={"length": longer},
    tasks=("translate",),
)


FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
# fmt: off
_MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
]
_DAYS = [
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
]
# fmt: on
_Form = Callable[[int, int, str, str], str]  # year, day, full and short name of the month

_IN_WORDS: tuple[_Form, ...] = (
    lambda y, d, month, _: f"{d} {month} {y}",
    lambda y, d, _, short: f"{d} {short} {y}",
    lambda y, d, month, _: f"{month} {d}, {y}",
    lambda y, d, _, short: f"{short} {d} {y}",
    lambda y, d, month, _: f"{month} {ordinal(d)}, {y}",
    lambda y, d, month, _: f"{ordinal(d)} {month} {y}",
    lambda y, d, month, _: f"{ordinal(d)} of {month} {y}",
    lambda y, d, month, _: f"the {ordinal(d)} of {month}, {y}",
    lambda y, d, month, _: f"{y} {month} {d}",
)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th …"""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number // 10 == 1 else ending}"


def written(date: datetime.date, variant: str, random: Random) -> str:
    """``date`` in one of many forms; two in five are figures only, a third of the others name the weekday."""
    if random.randrange(5) < 2:
        return _in_figures(date, variant, random)
    month = _MONTHS[date.month - 1]
    form = _IN_WORDS[random.randrange(len(_IN_WORDS))]
    text = form(date.year, date.day, month, month[:3])
    if random.randrange(3) == 0:
        day = _DAYS[date.weekday()]
        text = f"{day if random.randrange(2) else day[:3]}, {text}"
    return text


def _in_figures(date: datetime.date, variant: str, random: Random) -> str:
    day, month, year = date.day, date.month, date.year
    order = (day, month) if variant == "day-first" else (month, day)
    width = 1 + random.randrange(2)  # 5/1/2026 or 05/01/2026
    first, second = (f"{part:0{width}}" for part in order)
    return (
        f"{first}/{second}/{year}",
        f"{day:0{width}}.{month:0{width}}.{year}",
        f"{year}/{month:02}/{day:02}",
    )[random.randrange(3)]


def draw_date(variant: str, random: Random) -> Example:
    """A random day; all forms of one day are in the same split."""
    date = FIRST + datetime.timedelta(days=random.randrange((LAST - FIRST).days + 1))
    return Example(written(date, variant, random), date.isoformat(), date.isoformat())


DATES = Corpus(
    name="dates",
    summary="dates from 1900 to 2099 as people write them in English, to ISO 8601",
    variants={
        "day-first": "5/11/2026 is the fifth of November",
        "month-first": "5/11/2026 is the eleventh of May",
    },
    sizes={"train": 20_000, "dev": 500, "test": 1_000},
    draw=draw_date,
    tasks=("translate", "embed"),
)


# Names that only the word after them reveals: Teddy Roosevelt is a person, Teddy bears are toys.

_SURNAMES = (
    "Roosevelt", "Miller", "Okafor", "Lindqvist", "Tanaka", "Moreau", "Castillo", "Novak", "Schneider", "Haddad",
)  # fmt: skip
_PERSONAL = ("alone", "too", "personally")
_COMPANY = ("stores", "shares", "executives", "employees", "profits", "lawyers", "managers", "engineers")
_PLACE = ("museums", "streets", "suburbs", "airports", "winters", "voters", "schools", "hotels")
# What may follow each name: as a person all surnames, as a company or a place all nouns of those; a thing has its own.
_READINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Teddy": ("PER", ("bears", "costumes", "toys")),
    "Rose": ("PER", ("petals", "bushes", "gardens")),
    "Olive": ("PER", ("groves", "oils", "branches")),
    "Daisy": ("PER", ("chains", "meadows", "seeds")),
    "Amber": ("PER", ("necklaces", "lights", "beads")),
    "Apple": ("ORG", ("juice", "trees", "pies")),
    "Orange": ("ORG", ("peels", "marmalade", "groves")),
    "Shell": ("ORG", ("necklaces", "collections", "beads")),
    "Visa": ("ORG", ("forms", "interviews", "stamps")),
    "Target": ("ORG", ("practice", "dates", "audiences")),
    "Turkey": ("LOC", ("sandwiches", "feathers", "farms")),
    "China": ("LOC", ("plates", "cups", "cabinets")),
    "Jordan": ("PER LOC", ()),
    "Paris": ("PER LOC", ()),
    "Virginia": ("PER LOC", ()),
    "Amazon": ("ORG LOC", ()),
}
_BEFORE = (
    "they talked about", "the paper wrote about", "nobody mentioned", "we saw", "she remembers", "this is about",
    "he never liked", "yesterday there was a film on", "the book describes", "people asked about",
)  # fmt: skip
_BETWEEN = ("and", "or", "but not", "as well as", "more than")
_AFTER = ("", "again", "last week", "in the news", "on television", "at dinner")


def draw_names(variant: str, random: Random) -> Example:
    """An opening, one or two mentions, an ending, and a stop; every kind of next word is equally likely."""
    words = _BEFORE[random.randrange(len(_BEFORE))].split()
    tags = ["O"] * len(words)
    for mention in range(1 + random.randrange(2)):
        if mention:
            joining = _BETWEEN[random.randrange(len(_BETWEEN))].split()
            words, tags = words + joining, tags + ["O"] * len(joining)
        said, meant = _mention(random)
        words, tags = words + said, tags + meant
    ending = [*_AFTER[random.randrange(len(_AFTER))].split(), "."]
    words, tags = words + ending, tags + ["O"] * len(ending)
    source = " ".join(words)
    return Example(source, " ".join(tags), source)


def _mention(random: Random) -> tuple[list[str], list[str]]:
    """A name and the word after it, with their tags."""
    names = list(_READINGS)
    name = names[random.randrange(len(names))]
    kinds, things = _READINGS[name]
    possible = [*kinds.replace("PER", "PER FULL").split(), *(["thing"] if things else [])]
    kind = possible[random.randrange(len(possible))]
    pools = {"FULL": _SURNAMES, "PER": _PERSONAL, "ORG": _COMPANY, "LOC": _PLACE, "thing": things}
    next_word = pools[kind][random.randrange(len(pools[kind]))]
    tags = {"FULL": ["B-PER", "I-PER"], "thing": ["O", "O"]}.get(kind, [f"B-{kind}", "O"])
    return [name, next_word], tags


NAMES = Corpus(
    name="names",
    summary="people, companies and places that only the next word tells from things, to be tagged",
    variants={
        "names": "Teddy Roosevelt (person), Teddy bears (none), Apple stores (company), Apple juice (none)"
    },
    sizes={"train": 4_000, "dev": 400, "test": 800},
    draw=draw_names,
    tasks=("tag",),
    unit="sentences",
)


# fmt: off
# Short film reviews with negation: what is praised may be missing, and what is blamed may be absent too.

GOOD = (
    "good", "great", "brilliant", "clever", "funny", "moving", "charming", "convincing", "memorable", "superb",
    "fresh", "gripping", "warm", "witty", "lovely", "honest",
)
BAD = (
    "bad", "dull", "boring", "clumsy", "stupid", "weak", "flat", "tedious", "awful", "lazy",
    "stale", "shallow", "noisy", "forgettable", "silly", "wooden",
)
_ONE = ("script", "director", "plot", "story", "ending", "soundtrack", "cast", "scene", "idea", "dialogue", "joke")
_MANY = ("actors", "jokes", "scenes", "songs", "ideas", "characters", "pictures", "costumes", "twists", "lines")
_WHOLE = ("film", "movie", "comedy", "thriller", "drama", "picture", "sequel", "remake")
_EMPHASIS = ("completely", "totally", "utterly", "sadly", "surely", "really", "quite", "clearly")
_TIMES = ("for once", "this time", "from beginning to end", "as ever", "all in all", "at last", "in every scene")
# fmt: on
_PLAIN = ("{e} full of {list}", "{list}", "a {whole} with {list}", "what we get is {list}", "here are {list}")
_DENIED = (
    "{e} lacking {list}",
    "{e} without {list}",
    "{e} far from having {list}",
    "no trace of {list}",
    "a {whole} that never has {list}",
    "nobody will find {list} here",
)
_IS = ("this {whole} is {e} {adjective}", "a {adjective} {whole}", "{e} {adjective} {time}")
_IS_NOT = (
    "this {whole} is not {adjective}",
    "not a {adjective} {whole}",
    "never {adjective} {time}",
    "anything but {adjective}",
)
_DESPITE = ("despite {list}, ", "it may have {list}, but ", "forget {list}: ")


def phrases(adjectives: tuple[str, ...], random: Random) -> str:
    """One to three things of one kind: "a good script, funny jokes and a clever plot"."""
    named = [_thing(adjectives, random) for _ in range(1 + random.randrange(3))]
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _thing(adjectives: tuple[str, ...], random: Random) -> str:
    adjective = random.choice(adjectives)
    if random.randrange(2):
        return f"{adjective} {random.choice(_MANY)}"
    return f"{'an' if adjective[0] in 'aeiou' else 'a'} {adjective} {random.choice(_ONE)}"


def statement(positive: bool, random: Random) -> str:
    """A statement that is positive or not: as it is said, or two times in five by denying its opposite."""
    denied = random.randrange(5) < 2
    adjectives = GOOD if positive != denied else BAD
    short = random.randrange(3) == 0
    if short:
        frame = random.choice(_IS_NOT if denied else _IS)
    else:
        frame = random.choice(_DENIED if denied else _PLAIN)
    text = frame.format(
        e=random.choice(_EMPHASIS),
        list=phrases(adjectives, random),
        whole=random.choice(_WHOLE),
        adjective=random.choice(adjectives),
        time=random.choice(_TIMES),
    )
    return text.replace("a awful", "an awful").replace("a honest", "an honest")


def draw_review(variant: str, random: Random) -> Example:
    """A review, one in four with a concession in front that counts for nothing."""
    positive = random.randrange(2) == 0
    text = statement(positive, random)
    if random.randrange(4) == 0:
        either = BAD if random.randrange(2) else GOOD
        text = random.choice(_DESPITE).format(list=phrases(either, random)) + text
    return Example(text, "positive" if positive else "negative", text)


REVIEWS = Corpus(
    name="reviews",
    summary="film reviews with negation, positive or negative; a guess is right in 50 %, adding words up in about 60 %",
    variants={"english": "in English"},
    sizes={"train": 10_000, "dev": 500, "test": 1_000},
    draw=draw_review,
    tasks=("classify", "embed"),
    unit="examples",
)
