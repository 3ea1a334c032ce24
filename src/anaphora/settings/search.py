"""Settings of searching for the best output, and of drawing outputs at random.

:class:`SearchSettings` is the only list of decoding options: name, default, bounds, meaning, and by :class:`Option` the ways
of decoding that know it. Every search takes it whole, so that a new option is a field here and the line of a search
that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator
from pydantic.fields import FieldInfo

from anaphora.settings.base import Settings, written
from anaphora.settings.own import Own

Normalisation: TypeAlias = Literal["power", "gnmt", "reward"]
Stopping: TypeAlias = Literal["exact", "first", "likely"]


@dataclass(frozen=True)
class Option:
    """Mark a decoding option that some ways of decoding do not know, or that a server bounds.

    ``ways``: the only values of ``decode`` it means something to; empty: all. ``bound``: which limit of a server applies,
    that of hypotheses or that of symbols. ``scores``: it is a part of the score, and not of how outputs are found.
    """

    ways: tuple[str, ...] = ()
    bound: Literal["", "hypotheses", "symbols"] = ""
    scores: bool = False


_BEAM, _DRAWN, _RISK = ("beam",), ("sample", "mbr"), ("mbr",)


class DrawSettings(Settings):
    """How the next symbol is drawn at random."""

    temperature: Annotated[float, Option(_DRAWN)] = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="T in p ∝ exp(log p / T) when sampling: below 1 keeps to what is probable, 0 takes the best symbol.",
    )
    top_k: Annotated[int, Option(_DRAWN)] = Field(
        0, ge=0, description="Sample among the k most probable symbols; 0 = among all."
    )
    top_p: Annotated[float, Option(_DRAWN)] = Field(
        1.0,
        gt=0,
        le=1,
        description="Sample among the fewest most probable symbols that hold this share of the probability.",
    )
    min_p: Annotated[float, Option(_DRAWN)] = Field(
        0.0,
        ge=0,
        le=1,
        description="Sample among the symbols at least this many times as probable as the best one.",
    )


class SearchSettings(DrawSettings):
    decode: Literal["beam", "sample", "mbr"] = Field(
        "beam",
        description="beam searches for the best output; sample draws outputs at random, as probable as the model "
        "thinks they are; mbr (minimum Bayes risk) draws many and takes the one most like all of them.",
    )
    samples: Annotated[int, Option(_RISK, "hypotheses")] = Field(
        32,
        ge=2,
        le=1000,
        description="Outputs drawn for each input with decode = mbr, among which the one that agrees best is taken.",
    )
    beam: Annotated[int, Option(bound="hypotheses")] = Field(
        5, ge=1, le=1000, description="Hypotheses kept at each step; 1 is greedy."
    )
    length_penalty: float = Field(
        1.0,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="α in score = log p / lengthᵅ; 0 prefers short outputs, 1 is the mean per symbol.",
    )
    normalisation: Annotated[Normalisation, Option(_BEAM, scores=True)] = Field(
        "power",
        description="How a beam's score makes up for length n: power is log p / nᵅ, gnmt log p / ((5 + n) / 6)ᵅ "
        "(Wu 2016), reward log p + α n (He 2016), with α the length_penalty.",
    )
    max_length: Annotated[int, Option(bound="symbols")] = Field(
        0,
        ge=0,
        description="Most symbols in an output; 0 = 3 × the source’s symbols + 20, or, where training pairs have more, half as "
        "many again as the longest of them.",
    )
    min_length: Annotated[int, Option(bound="symbols")] = Field(
        0, ge=0, description="Fewest symbols in an output, its end counted."
    )
    stopping: Annotated[Stopping, Option(_BEAM)] = Field(
        "exact",
        description="When a beam ends: exact as soon as nothing can beat what is finished, first when as many are "
        "finished as the beam is wide, which is quicker and may miss a better one, likely when besides the best one "
        "alive scores no better than the worst of them (transformers).",
    )
    refill: Annotated[bool, Option(_BEAM)] = Field(
        False,
        description="As many hypotheses go on as the beam is wide, beside those that end, and one cut at max_length counts as "
        "ended (transformers, fairseq); else what has ended leaves its place empty.",
    )
    no_repeat: Annotated[int, Option(_BEAM, "symbols")] = Field(
        0,
        ge=0,
        description="n: no n symbols in a row may come twice in an output of a beam; 0 allows repeats.",
    )
    repeat_penalty: Annotated[float, Option(_BEAM, scores=True)] = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="λ: a symbol costs an output of a beam λ in log p for each time the output has it already; 0: nothing.",
    )
    groups: Annotated[int, Option(_BEAM, "hypotheses")] = Field(
        1,
        ge=1,
        le=1000,
        description="Diverse beams (Vijayakumar 2016): the beam is shared among so many groups, each of which avoids "
        "what those before it chose.",
    )
    diversity: float = Field(
        0.5,
        ge=0,
        allow_inf_nan=False,
        description="What a symbol costs a group of a diverse beam for each time the groups before took it, in log p.",
    )
    coverage: Annotated[float, Option(_BEAM, scores=True)] = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="β: adds β Σⱼ log min(Σₜ αₜⱼ, 1) to a beam's score, below 0 while a source symbol j has got less than "
        "one whole look (Wu 2016); needs a model with attention.",
    )
    seed: int = Field(
        1,
        ge=0,
        lt=2**32,
        description="Everything random (weights, order, dropout, sampling) follows from it.",
    )
    int8: bool = Field(
        False,
        description="Decode on a CPU with weights rounded to eight bits: a quarter of the memory and, on a CPU with "
        "VNNI, two to four times as fast, for a little accuracy; older processors gain no speed.",
    )


class SeveralOutputs(Settings):
    """How many outputs ``predict`` gives."""

    n_best: Annotated[int, Option(bound="hypotheses")] = Field(
        1, ge=1, le=1000, description="Outputs given for each input, best first."
    )


class LanguageChoice(Settings):
    """Which languages a model that knows many translates between."""

    source_language: str = Field(
        "",
        description="The language of the input, by the model's own code (en, eng_Latn), of a model that knows many.",
    )
    target_language: str = Field(
        "",
        description="The language of the output, by the model's own code (fr, fra_Latn), of a model that knows many.",
    )


class OwnSearchSettings(Settings):
    """A search and a language model of the user's own, for one call of ``predict``."""

    search: Annotated[Literal["auto"], Own()] = Field(
        "auto",
        description="How outputs are searched for: as the other settings say, or yours: a function called as an.search.beam "
        "is, (step, state, start=…, eos=…, max_length=…), that gives each item's hypotheses, best first.",
    )
    lm: Annotated[str, Own(objects=True)] = Field(
        "",
        description="A language model whose log p of each symbol is added: the run of a LanguageModel of lines with the same "
        "symbols, the model itself, or your own object with start(rows) and step(symbols, state).",
    )
    lm_weight: float = Field(
        0.3, ge=0, allow_inf_nan=False, description="What log p of the language model counts in the score."
    )


def _known_to(ways: tuple[str, ...]) -> Mapping[str, Any]:
    fields = SearchSettings.model_fields.items()
    return {name: info.default for name, info in fields if any(one.ways == ways for one in _marks(info))}


def _marks(info: FieldInfo) -> list[Option]:
    return [mark for mark in info.metadata if isinstance(mark, Option)]


BEAM_ONLY, SAMPLE_ONLY, RISK_ONLY = _known_to(_BEAM), _known_to(_DRAWN), _known_to(_RISK)
"""Settings that mean nothing to the other ways of decoding, at the values with which they do nothing."""
BOUNDS: Mapping[str, str] = {
    name: mark.bound
    for settings in (SearchSettings, SeveralOutputs)
    for name, info in settings.model_fields.items()
    for mark in _marks(info)
    if mark.bound
}
"""Which limit of a server bounds an option."""
FOUND_BY: Mapping[str, Any] = {
    name: usual
    for name, usual in BEAM_ONLY.items()
    if not any(one.scores for one in _marks(SearchSettings.model_fields[name]))
}
"""Settings of a beam that change what is found and no score, at the values with which they do nothing."""
USUAL = SearchSettings()
HF_BEAM: Mapping[str, Any] = {"stopping": "likely", "refill": True}
"""How the beams of `transformers` go on and end, for models that come from there."""
_WAYS: tuple[tuple[Mapping[str, Any], tuple[str, ...]], ...] = (
    (BEAM_ONLY, _BEAM),
    (SAMPLE_ONLY, _DRAWN),
    (RISK_ONLY, _RISK),
)


def search_problem(s: SearchSettings) -> str | None:
    """What contradicts what among the search settings, in a sentence without its full stop."""
    for group, ways in _WAYS:
        for key, usual in group.items() if s.decode not in ways else ():
            value = getattr(s, key)
            if value != usual:
                return (
                    f'{key} = {written(value)} belongs to decode = "{ways[0]}", but decode = "{s.decode}": '
                    f"set decode = {ways[0]}, or leave {key} out"
                )
    if s.decode == "beam" and s.beam % s.groups:
        return f"groups = {s.groups} cannot share beam = {s.beam} equally: make beam a multiple of groups"
    if s.max_length and s.min_length > s.max_length:
        return f"min_length = {s.min_length} is above max_length = {s.max_length}"
    return None


class CompleteSearch(SearchSettings, OwnSearchSettings):
    """All search settings together, which must not contradict each other."""

    @model_validator(mode="after")
    def _no_contradiction(self) -> CompleteSearch:
        problem = search_problem(self)
        if self.coverage and (self.lm or self.search != "auto"):
            problem = "coverage is for the built-in beam alone: leave it out, or search and lm"
        if self.search != "auto" and self.decode != "beam":
            problem = f'search = {self.search!r} takes the place of decode = "{self.decode}": leave one of the two out'
        if problem:
            raise ValueError(problem)
        return self


def most_symbols(source_length: int, max_length: int) -> int:
    """Most symbols in the output for a source of this length; see the setting ``max_length``."""
    return max_length or 3 * source_length + 20
