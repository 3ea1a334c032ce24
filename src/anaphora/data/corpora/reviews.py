"""Short film reviews with negation: what is praised may be missing, and what is blamed may be absent too.

Every review is built of phrases such as "a good script". The words around them decide: said plainly, a phrase
counts as it is; behind "lacking", "without any", "far from" or "never" it counts as its opposite; after
"despite" it does not count at all. The same frames hold praise and blame equally often, so no frame word leans to
a side by itself, and a model that only adds words up follows the adjectives.
"""

from __future__ import annotations

from random import Random

from anaphora.data.corpora.corpus import Corpus, Example

# fmt: off
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


def draw(variant: str, random: Random) -> Example:
    """A review, one in four with a concession in front that counts for nothing."""
    positive = random.randrange(2) == 0
    text = statement(positive, random)
    if random.randrange(4) == 0:
        either = BAD if random.randrange(2) else GOOD
        text = random.choice(_DESPITE).format(list=phrases(either, random)) + text
    return Example(text, "positive" if positive else "negative", text)


CORPUS = Corpus(
    name="reviews",
    summary="film reviews with negation, positive or negative; a guess is right in 50 %, adding words up in about 60 %",
    variants={"english": "in English"},
    sizes={"train": 10_000, "dev": 500, "test": 1_000},
    draw=draw,
    tasks=("classify", "embed"),
    unit="examples",
)
