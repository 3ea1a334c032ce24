"""Names that only the word after them reveals: Teddy Roosevelt is a person, Teddy bears are toys.

What stands before a name says nothing about its kind, and all names are capitalised, so a model that reads from left to
right can only guess. The word after a name decides, by itself and always: a surname, or "alone", "too", "personally",
makes it a person, and each noun goes with one kind. Teddy is a person two times out of three (by surname or by
itself), so the best guess without the next word makes persons of Teddy bears.
"""

from __future__ import annotations

from random import Random

from anaphora.data.corpora.corpus import Corpus, Example

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


def draw(variant: str, random: Random) -> Example:
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


CORPUS = Corpus(
    name="names",
    summary="people, companies and places that only the next word tells from things, to be tagged",
    variants={
        "names": "Teddy Roosevelt (person), Teddy bears (none), Apple stores (company), Apple juice (none)"
    },
    sizes={"train": 4_000, "dev": 400, "test": 800},
    draw=draw,
    tasks=("tag",),
    unit="sentences",
)
