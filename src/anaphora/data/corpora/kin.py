"""Kings, aunts and capitals: sentences whose words differ along a few lines, for vectors to find.

Every noun is a place on two lines that are expressed independently of each other. A person has a rank or a part in the
family (king and queen rule, uncle and aunt visit) and is a man or a woman (he and his, she and her, names). A name
on the map belongs to a country (its river, its coin, its dish) and is the country, its capital or its language. So
king − man + woman is where queen is, and paris − france + spain is where madrid is.
"""

from __future__ import annotations

from random import Random

from anaphora.data.corpora.corpus import Corpus, Example

PEOPLE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "court": ("king", "queen", ("rules the realm", "wears the crown", "sits on the throne", "signs the decree")),
    "heirs": ("prince", "princess", ("inherits the palace", "waits to reign", "rides the royal horse", "learns to rule")),
    "dukes": ("duke", "duchess", ("owns the estate", "hunts deer in the forest", "collects the rents", "dines with nobles")),
    "empire": ("emperor", "empress", ("commands the legions", "conquers a province", "receives tribute", "builds a temple")),
    "adults": ("man", "woman", ("works in the office", "buys the newspaper", "pays the bill", "drives to town")),
    "children": ("boy", "girl", ("plays in the yard", "does homework", "climbs the old tree", "goes to school")),
    "parents": ("father", "mother", ("raises the children", "tells bedtime stories", "packs lunch boxes", "wakes the baby")),
    "offspring": ("son", "daughter", ("grows up quickly", "leaves home to study", "calls on birthdays", "asks for pocket money")),
    "siblings": ("brother", "sister", ("shares the bunk bed", "borrows the bicycle", "quarrels about toys", "keeps the secret")),
    "relatives": ("uncle", "aunt", ("visits on sunday", "brings presents", "sends a postcard", "spoils the little cousins")),
    "cousins": ("nephew", "niece", ("unwraps presents", "stays for the holidays", "writes a thank-you note", "misses the train")),
    "elders": ("grandfather", "grandmother", ("remembers the war", "naps in the armchair", "feeds the pigeons", "wears old slippers")),
    "couples": ("husband", "wife", ("celebrates the anniversary", "plans the wedding", "polishes the ring", "dances at midnight")),
    "stage": ("actor", "actress", ("rehearses the play", "bows on stage", "learns the lines", "stars in the film")),
    "tables": ("waiter", "waitress", ("serves the soup", "carries the tray", "clears the table", "takes the order")),
    "cloister": ("monk", "nun", ("prays at dawn", "copies the scripture", "tends the cloister garden", "keeps the silence")),
}  # fmt: skip
"""By rank or part in the family: who he is, who she is, and what they do."""
SEXES = (
    ("he", "his", "himself", ("john", "peter", "paul", "henry", "martin", "oscar", "felix", "hugo")),
    ("she", "her", "herself", ("mary", "anna", "clara", "emma", "laura", "julia", "helen", "alice")),
)
COUNTRIES: dict[str, tuple[str, str, str, str, str]] = {
    "spain": ("madrid", "spanish", "ebro", "peseta", "paella"),
    "france": ("paris", "french", "loire", "franc", "ratatouille"),
    "italy": ("rome", "italian", "tiber", "lira", "risotto"),
    "germany": ("berlin", "german", "spree", "mark", "sauerkraut"),
    "austria": ("vienna", "austrian", "danube", "schilling", "strudel"),
    "poland": ("warsaw", "polish", "vistula", "zloty", "pierogi"),
    "russia": ("moscow", "russian", "volga", "rouble", "borscht"),
    "portugal": ("lisbon", "portuguese", "tagus", "escudo", "bacalhau"),
    "england": ("london", "english", "thames", "pound", "pudding"),
    "ireland": ("dublin", "irish", "liffey", "punt", "colcannon"),
    "greece": ("athens", "greek", "evros", "drachma", "moussaka"),
    "turkey": ("ankara", "turkish", "bosporus", "kurus", "baklava"),
    "egypt": ("cairo", "arabic", "nile", "piastre", "falafel"),
    "japan": ("tokyo", "japanese", "sumida", "yen", "sushi"),
    "india": ("delhi", "hindi", "ganges", "rupee", "dal"),
    "sweden": ("stockholm", "swedish", "torne", "krona", "gravlax"),
}
"""Capital, language, and what is found there alone: river, coin, dish."""
_WHEN = (
    "today",
    "every day",
    "in spring",
    "in winter",
    "once more",
    "at last",
    "as always",
    "in the evening",
)
_CARE = ("own", "old", "new", "best", "whole", "dear")
_PRIDE = ("work", "luck", "life", "heart", "day", "time")


def draw(variant: str, random: Random) -> Example:
    """A sentence about a person or a place, both alike; the target is what it is about."""
    if random.randrange(2):
        topic = _one(list(PEOPLE), random)
        text = _person(topic, random)
    else:
        topic = _one(list(COUNTRIES), random)
        text = _place(topic, random)
    return Example(text, topic, text)


def _one(choices: list[str] | tuple[str, ...], random: Random) -> str:
    return choices[random.randrange(len(choices))]


def _person(topic: str, random: Random) -> str:
    """One deed or two, between words that tell the sex."""
    deeds = PEOPLE[topic][2]
    sex = random.randrange(2)
    noun = PEOPLE[topic][sex]
    he, his, himself, names = SEXES[sex]
    name, deed, other, when = (
        _one(names, random),
        _one(deeds, random),
        _one(deeds, random),
        _one(_WHEN, random),
    )
    care = f"{his} {_one(_CARE, random)} {_one(_PRIDE, random)}"
    return (
        f"the {noun} {deed} {himself} and {he} loves {care} {when}",
        f"{he} is a {noun} and {deed} for {care} {when}",
        f"{name} the {noun} {deed} and then {he} {other}",
        f"{when} {name} is the {noun} and {he} {deed}",
        f"with {care} the {noun} {deed} says {name} {himself}",
        f"when the {noun} {deed} {he} {other} {himself}",
    )[random.randrange(6)]


def _place(country: str, random: Random) -> str:
    """The country, its capital or its language, between words that tell which of the three and words of the country."""
    capital, language, *own = COUNTRIES[country]
    own = [f"the {own[0]}", f"the {own[1]}", own[2]]
    thing, another, when = _one(own, random), _one(own, random), _one(_WHEN, random)
    kind = random.randrange(3)
    if kind == 0:
        return (
            f"the border and the army of {country} guard {thing} {when}",
            f"the government of {country} is proud of {thing} and {another}",
            f"{when} the whole nation of {country} votes on {thing}",
            f"farmers across {country} praise {thing} and {another} {when}",
        )[random.randrange(4)]
    if kind == 1:
        return (
            f"the streets of {capital} are near {thing} {when}",
            f"the mayor opens the station in {capital} with {thing}",
            f"{when} the city of {capital} shows {thing} in its museum",
            f"suburbs around {capital} lie between {thing} and {another} {when}",
        )[random.randrange(4)]
    return (
        f"they speak {language} about {thing} {when}",
        f"the grammar of {language} has a word for {thing}",
        f"{when} we translate {language} verses on {thing} and {another}",
        f"she reads and he writes {language} beside {thing} {when}",
    )[random.randrange(4)]


def questions() -> dict[str, list[tuple[str, str, str, str]]]:
    """All analogies that the rule implies, by section: a is to b as c is to d."""
    couples = [(male, female) for male, female, _ in PEOPLE.values()]
    capitals = [(country, facts[0]) for country, facts in COUNTRIES.items()]
    languages = [(country, facts[1]) for country, facts in COUNTRIES.items()]
    sections = {"he-she": couples, "country-capital": capitals, "country-language": languages}
    return {
        name: [(a, b, c, d) for a, b in pairs for c, d in pairs if a != c] for name, pairs in sections.items()
    }


CORPUS = Corpus(
    name="kin",
    summary="kings, aunts and capitals in sentences whose words differ along a few lines, for vectors and analogies",
    variants={"kin": "a sentence, to what it is about (a rank, a part in the family, a country)"},
    sizes={"train": 20_000, "dev": 500, "test": 1_000},
    draw=draw,
    tasks=("classify", "embed"),
    unit="sentences",
)
