"""The cell finder: units that follow something in the text, found on one half of the examples and checked on the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Layer, Trace
from anaphora.views.bars import Bars
from anaphora.views.highlight import Highlight
from anaphora.views.panels import Panels
from anaphora.views.states import facts_line

TITLE = "Units that follow something"
PARTS = {
    "": "For each property of a place the unit that tells it best on one half of the dev examples, and how well it does on the other half, which did not choose it.",
    "There or not": "AUC for what is there or not (0.5 is chance).",
    "Numbers": "R² for numbers (0 is chance).",
    "Layer": "Beside it the same search with the property shuffled: what luck finds among so many units. Below: a text on the shades of the best unit.",
}
READING = " ".join(PARTS.values())
CAUTION = (
    "That a unit follows a property does not show that the model uses it: clamp it and see. Properties go together (a capital often "
    "begins a sentence), so a unit may follow another one than its name here."
)
SHUFFLES, LEAST, MOST_TAGS, SHOWN = 5, 8, 8, 160
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """The unit (from 0) of the layer that tells ``name`` best; scores on the half that chose it, on the other, and by luck."""

    name: str
    layer: Layer
    index: int
    """Of the layer in the array."""
    unit: int
    sign: float
    score: float
    held_out: float
    luck: float
    measure: str


def units(trace: Trace, *, match: str = "", show: str = "", count: int = 12) -> Panels:
    """The best unit for each property; ``match`` adds the property that a symbol is part of this text, ``show`` picks the
    property whose unit is shown on a text, ``count`` how many are listed."""
    found = search(trace, match)
    if not found:
        raise AnaphoraError("Nothing in these examples varies from place to place; train on longer texts.")
    if not 1 <= count <= 50:
        raise AnaphoraError(f"count must be from 1 to 50, not {count}.")
    shown = found[:count]
    chosen = next((one for one in found if one.name == show), None) if show else shown[0]
    if chosen is None:
        raise AnaphoraError(f"{show!r} is none of the properties: {', '.join(one.name for one in found)}.")
    charts: list[Any] = []
    for measure, title in (("AUC", "There or not"), ("R²", "Numbers")):
        some = [one for one in shown if one.measure == measure]
        if some:
            charts.append(
                Bars(
                    title,
                    f"{measure} of the best unit for each property",
                    [f"{one.name} · {one.layer} unit {one.unit + 1}" for one in some],
                    {
                        "held out": [max(one.held_out, 0.0) for one in some],
                        "shuffled": [max(one.luck, 0.0) for one in some],
                    },
                )
            )
    charts.append(_shown(trace, chosen))
    states = trace.array("pooled_states", "layer", "time", "unit")
    notes = [
        f"{states.shape[1]} places of {trace.facts['examples']} dev examples; {states.shape[0] * states.shape[2]} units searched"
    ]
    if match and not any(one.name == f"part of {match}" for one in found):
        notes.append(
            f"{match!r} is in fewer than {LEAST} symbols of one half, so that no unit was looked for"
        )
    return Panels(TITLE, facts_line(trace), charts, notes, READING, CAUTION)


def search(trace: Trace, match: str = "") -> list[Found]:
    """Every property with its best unit, those with the best held-out score above chance first."""
    states = np.asarray(trace.array("pooled_states", "layer", "time", "unit"), np.float64)
    layers, places, width = states.shape
    known = trace.layers("pooled_states")
    flat = states.transpose(1, 0, 2).reshape(places, layers * width)
    examples = np.array([row["example"] for row in trace.tables["places"]])
    kinds = np.unique(examples)
    first = np.isin(examples, kinds[::2])  # every other example: both halves are alike
    draws = np.random.default_rng(1)
    plain = (flat[first], flat[~first])
    ranks = (ranked(plain[0]), ranked(plain[1]))
    found = []
    for name, values in properties(trace, match).items():
        binary = set(np.unique(values)) <= {0.0, 1.0}
        halves_of = [values[half].sum() for half in (first, ~first)]
        enough = min(
            *halves_of, *(half.sum() - n for half, n in zip((first, ~first), halves_of, strict=True))
        )
        enough = enough if binary else LEAST
        if enough < LEAST or values[first].std() == 0 or values[~first].std() == 0:
            continue
        score, halves = (auc, ranks) if binary else (r_squared, plain)
        at, sign, own, held = _best(score, halves, values, first)
        luck = np.mean(
            [_best(score, halves, _shuffled(values, first, draws), first)[3] for _ in range(SHUFFLES)]
        )
        layer, unit = divmod(at, width)
        measure = "AUC" if binary else "R²"
        found.append(Found(name, known[layer], layer, unit, sign, own, held, float(luck), measure))
    chance = {"AUC": 0.5, "R²": 0.0}
    return sorted(found, key=lambda one: -(one.held_out - chance[one.measure]) / (1 - chance[one.measure]))


def _shuffled(values: Floats, first: NDArray[np.bool_], draws: np.random.Generator) -> Floats:
    found = values.copy()
    for half in (first, ~first):
        found[half] = draws.permutation(values[half])
    return found


def _best(
    score: Callable[[Floats, Floats], Floats],
    halves: tuple[Floats, Floats],
    values: Floats,
    first: NDArray[np.bool_],
) -> tuple[int, float, float, float]:
    """Number and sign of the best unit on the first half, its score there and on the other with the same sign. ``halves`` are what
    ``score`` takes of all units: ranks for `auc`, values for `r_squared`."""
    own = score(halves[0], values[first])
    at = int(np.abs(own).argmax())
    sign = 1.0 if own[at] >= 0 else -1.0
    held = float(score(halves[1][:, at : at + 1], values[~first])[0])
    chance = 0.5 if score is auc else 0.0
    return at, sign, chance + sign * float(own[at]), chance + sign * held


def ranked(x: Floats) -> Floats:
    """The rank of each value (from 1) in its column of x (places, units); equal values share the mean of theirs."""
    found = np.empty_like(x)
    for column in range(x.shape[1]):
        _, inverse, counts = np.unique(x[:, column], return_inverse=True, return_counts=True)
        found[:, column] = ((2 * counts.cumsum() - counts + 1) / 2)[inverse.reshape(-1)]
    return found


def auc(ranks: Floats, y: Floats) -> Floats:
    """For each column the probability that a place with y = 1 is above one with y = 0 (ties count a half), less 0.5; ``ranks``
    (places, units) are those of `ranked`."""
    ones = y == 1
    n, m = int(ones.sum()), int((~ones).sum())
    found: Floats = (ranks[ones].sum(0) - n * (n + 1) / 2) / (n * m) - 0.5
    return found


def r_squared(x: Floats, y: Floats) -> Floats:
    """The squared correlation of each column of x (places, units) with y, with the sign of the correlation."""
    a, b = x - x.mean(0), y - y.mean()
    scale = np.sqrt((a**2).sum(0) * (b**2).sum())
    r = (a * b[:, None]).sum(0) / np.where(scale == 0, 1.0, scale)
    found: Floats = np.sign(r) * r**2
    return found


def properties(trace: Trace, match: str = "") -> dict[str, Floats]:
    """Name → a number for each place: 0 and 1 for what is there or not."""
    tokens, rows = trace.tokens["time"], trace.tables["places"]
    plain = [token.replace("▁", "").replace("Ġ", "") for token in tokens]
    tests: Mapping[str, Callable[[str], bool]] = {
        "capital": lambda s: s[:1].isupper(),
        "digit": lambda s: any(char.isdigit() for char in s),
        "punctuation": lambda s: bool(s) and not any(char.isalnum() for char in s),
        "vowel": lambda s: len(s) == 1 and s.lower() in "aeiouäöü",
        "longer than four letters": lambda s: len(s) > 4,
    }
    found = {name: np.array([float(test(s)) for s in plain]) for name, test in tests.items()}
    found["begins a word"] = np.array([float(token[:1] in ("▁", "Ġ", " ")) for token in tokens])
    found["place in the text"] = np.array([float(row["place"]) for row in rows])
    found["symbols to the end"] = np.array([float(row["of"] - 1 - row["place"]) for row in rows])
    found |= _inside(plain, rows)
    if match:
        found[f"part of {match}"] = _part_of(match, tokens, rows)
    tags = Counter(row["tag"] for row in rows if row["tag"])
    for tag, _ in tags.most_common(MOST_TAGS):
        found[f"tag {tag}"] = np.array([float(row["tag"] == tag) for row in rows])
    return found


def _part_of(match: str, tokens: list[str], rows: list[dict[str, Any]]) -> Floats:
    """1 where a symbol is part of an occurrence of ``match`` in its example, which may run over several symbols."""
    found = np.zeros(len(tokens))
    begins = [t for t, row in enumerate(rows) if row["place"] == 0]
    for first, last in zip(begins, [*begins[1:], len(tokens)], strict=True):
        pieces = [token.replace("▁", " ").replace("Ġ", " ").casefold() for token in tokens[first:last]]
        edges = np.cumsum([0, *map(len, pieces)])
        text, needle = "".join(pieces), match.casefold()
        at = text.find(needle)
        while at >= 0:
            overlaps = (edges[:-1] < at + len(needle)) & (edges[1:] > at)
            found[first:last][overlaps] = 1.0
            at = text.find(needle, at + 1)
    return found


def _inside(plain: list[str], rows: list[dict[str, Any]]) -> dict[str, Floats]:
    """Depth of brackets, being inside quotes, and symbols since the last break of a line, each from the left of its example."""
    depths, quotes, line = [], [], []
    depth, quoted, since = 0, False, 0
    for text, row in zip(plain, rows, strict=True):
        if row["place"] == 0:
            depth, quoted, since = 0, False, 0
        depth = max(0, depth + sum(text.count(c) for c in "([{") - sum(text.count(c) for c in ")]}"))
        quoted ^= (text.count('"') + text.count("“") + text.count("”")) % 2 == 1
        since = 0 if "\n" in text else since + 1
        depths.append(float(depth))
        quotes.append(float(quoted))
        line.append(float(since))
    found = {"depth of brackets": np.array(depths), "inside quotes": np.array(quotes)}
    return found | ({"place in the line": np.array(line)} if any("\n" in s for s in plain) else {})


def _shown(trace: Trace, one: Found) -> Highlight:
    """The examples of the half that did not choose the unit, on its shades."""
    states = trace.array("pooled_states", "layer", "time", "unit")[one.index, :, one.unit]
    rows = trace.tables["places"]
    kinds = np.unique([row["example"] for row in rows])
    held = set(kinds[1::2].tolist())
    places = [t for t, row in enumerate(rows) if row["example"] in held][:SHOWN]
    high = float(np.abs(states).max(initial=0.0)) or 1.0
    return Highlight(
        f"{str(one.layer).capitalize()} unit {one.unit + 1}: {one.name}",
        f"held-out {one.measure} {one.held_out:.3f} (chosen with {one.score:.3f}; shuffled {one.luck:.3f}) · examples that did not choose it",
        [trace.tokens["time"][t] for t in places],
        [float(states[t]) for t in places],
        low=-high,
        high=high,
        signed=True,
    )
