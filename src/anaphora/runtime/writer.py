"""What all tasks share that write symbol by symbol: an encoder's graph gives the first states, a step's graph goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anaphora.data.symbols import EOS
from anaphora.data.tokenizers.vocabularies import Around
from anaphora.errors import DataError, SettingsError
from anaphora.runtime.folder import Array, Exported, OnnxGraph
from anaphora.runtime.ruled import RuledSteps
from anaphora.runtime.searching import Stepping, beam, least_risk, named_when_not_finite, sample
from anaphora.runtime.states import State, Steps
from anaphora.search._draws import Filters
from anaphora.search._hypothesis import NBest, different, widths
from anaphora.search._plan import Plan
from anaphora.settings import build
from anaphora.settings.search import SAMPLE_ONLY, CompleteSearch

BEGIN = "begin_"
USUAL = Around()
ROWS = 64
"""Inputs that are searched together; results do not depend on it."""


@dataclass(frozen=True)
class Output:
    """One hypothesis as text. ``score`` = log p / lengthᵅ decides the order; ``log_prob`` = log p(y|x), of several outputs that of
    the text: the sum over those found that read so."""

    text: str
    score: float
    log_prob: float
    finished: bool

    def __str__(self) -> str:
        return self.text


class Encoder:
    """The graph of what is read, and the steps of what is written of it."""

    def __init__(self, exported: Exported, *, threads: int = 0):
        self._encoder = OnnxGraph(exported, "encoder", threads=threads)
        self.steps = Steps(OnnxGraph(exported, "step", threads=threads))

    def __call__(self, **inputs: Array) -> tuple[State, dict[str, Array]]:
        """The first states, a row for each input, and what else the encoder says."""
        found = self._encoder(**inputs)
        begins = {name.removeprefix(BEGIN): value for name, value in found.items() if name.startswith(BEGIN)}
        others = {name: value for name, value in found.items() if not name.startswith(BEGIN)}
        return self.steps.start(len(found["places"]), begins), others


class Searching:
    """How outputs are searched for: as in training, and as this call asks."""

    def __init__(self, exported: Exported):
        try:
            self._usual: Mapping[str, Any] = dict(exported.facts["search"])
            places = exported.facts["places"]
            self._places = None if places is None else int(places)
            self._attends = bool(exported.facts["attends"])
        except (LookupError, TypeError, ValueError) as error:
            raise exported.damaged(error) from None

    def asked(self, options: Mapping[str, Any]) -> CompleteSearch:
        """The settings checked; what needs torch is refused."""
        given = {key: value for key, value in options.items() if value is not None}
        found = build(CompleteSearch, {**self._usual, **given}, owner="predict")
        for key, why in (
            ("lm", "a language model beside the search needs the run itself"),
            ("int8", "eight bits are chosen when a model is exported"),
        ):
            if getattr(found, key):
                raise SettingsError([f"{key} cannot be asked of an exported model: {why}."])
        if found.search != "auto":
            raise SettingsError(
                ["search cannot be asked of an exported model: a search of your own needs the run itself."]
            )
        if found.coverage and not self._attends:
            raise SettingsError([f"coverage = {found.coverage:g} needs a model with attention."])
        return found

    def __call__(
        self,
        steps: Steps,
        state: State,
        limits: Sequence[int],
        seeds: Sequence[int],
        s: CompleteSearch,
        n_best: int,
        around: Around = USUAL,
    ) -> list[NBest]:
        """The hypotheses of each item, as `anaphora.tasks.decoding.search_memory` finds them."""
        shortest = s.min_length
        if self._places is not None:
            limits = [min(limit, self._places) for limit in limits]
            shortest = min(shortest, self._places)
        ruled: Stepping = steps
        if around.rules:
            ruled = RuledSteps(steps, around, limits, scaled=s.decode != "beam")
        if s.decode != "beam":
            drawn = sample(
                ruled,
                state,
                start=[around.start] * len(limits),
                eos=EOS,
                limits=limits,
                seeds=seeds,
                filters=Filters(**{key: getattr(s, key) for key in SAMPLE_ONLY}),
                n=n_best if s.decode == "sample" else s.samples,
                min_length=shortest,
                length_penalty=s.length_penalty,
            )
            return drawn if s.decode == "sample" else least_risk(drawn, n_best)
        width = max(s.beam, -(-n_best // s.groups) * s.groups)
        return beam(
            ruled,
            state,
            Plan(s, EOS, width, n_best),
            start=around.start,
            limits=limits,
            min_length=shortest,
            looking=("attention", "places") if s.coverage else None,
        )


def check_n_best(n_best: int) -> None:
    if not 1 <= n_best <= 1000:
        raise SettingsError([f"n_best = {n_best!r} cannot be used: it must be from 1 to 1000."])


def searched_outputs(
    search: Callable[[Sequence[Any], int], list[NBest]],
    inputs: Sequence[Any],
    n_best: int,
    decode: Callable[[Sequence[int]], str],
    *,
    drawn: bool,
) -> list[list[Output]]:
    """What ``search(inputs, n)`` finds as ``n_best`` different texts, as `anaphora.tasks.outputs.searched_outputs`."""

    def searched(rows: Sequence[int], wide: int) -> list[NBest]:
        numbers = [row + 1 for row in rows]
        return named_when_not_finite(lambda some: search(some, wide), [inputs[row] for row in rows], numbers)

    if n_best == 1 or drawn:
        return outputs_of(searched(range(len(inputs)), n_best), decode)
    found = different(searched, len(inputs), n_best, widths(n_best), lambda h: decode(h.tokens))
    return outputs_of(found, decode)


def outputs_of(found: Sequence[NBest], decode: Any) -> list[list[Output]]:
    """The hypotheses of each input as texts, best first."""
    return [[Output(decode(h.tokens), h.score, h.log_prob, h.finished) for h in nbest] for nbest in found]


def best_of(found: Sequence[Sequence[Output]], details: bool) -> list[Any]:
    """The first output of each input, as text or whole."""
    if any(not each for each in found):
        raise DataError("no output was found for an input; raise max_length.")
    return [each[0] if details else each[0].text for each in found]
