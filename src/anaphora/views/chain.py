"""A CRF at work: what each word says by itself, what may follow what, and what comes of both."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.chain import Chain
from anaphora.probe.trace import Trace
from anaphora.views.heatmap import Heatmap
from anaphora.views.panels import Panels
from anaphora.views.states import facts_line, proof

TITLE = "Conditional random field"
READING = (
    "Marginals: how probable each tag (row) is at each word (column), over all taggings of the sentence; the line is the best tagging as "
    "a whole. Emissions: what each word says for a tag by itself. Transitions: what the chain adds when the column's tag follows the "
    "row's. Forbid a move (forbid=B-PER>I-LOC, several with commas) and the line and the marginals follow."
)
CAUTION = (
    "The best tagging need not take the most probable tag of each word. Emissions and transitions are scores, of which only "
    "differences count. Where tags have rules (B- before I-), the line keeps to them; marginals do not know them."
)
MOST = 60


def crf(trace: Trace, *, forbid: str = "", first: int = 1) -> Panels:
    """Marginals with the best path, emissions and transitions; ``forbid`` is ``A>B``, or several with commas between."""
    names = trace.tokens["state"]
    emissions = trace.array("chain_emissions", "place", "state")
    places = trace.tokens.get("place", trace.tokens["time"])
    chain, ruled = _chains(trace, forbidden(names, forbid))
    marginals, total = chain.marginals()
    path, _score = ruled.best()
    if not 1 <= first <= len(path):
        raise AnaphoraError(f"There are words 1 to {len(path)}, not {first}.")
    shown = slice(first - 1, first - 1 + MOST)
    own = trace.facts.get("tags")
    found = [names[s] for s in path]
    notes = [f"the best tagging: log p = {score_of(chain, path) - total:.4f}"]
    if forbid and isinstance(own, list) and len(own) == len(found):
        changed = [f"{p}: {a} → {b}" for p, a, b in zip(places, own, found, strict=True) if a != b]
        notes.append(f"without {forbid}: " + ("; ".join(changed[:12]) or "the same tagging"))
    if len(path) > MOST:
        notes.append(f"words {first} to {min(first - 1 + MOST, len(path))} of {len(path)}")
    charts: list[Any] = [
        _heat("Marginals", "p(tag | sentence)", marginals.T[:, shown], names, places[shown], path[shown]),
        _scores(
            "Emissions", "score of a tag by the word itself", emissions.T[:, shown], names, places[shown]
        ),
        _scores(
            "Transitions",
            "score that is added when the column's tag follows the row's; what is forbidden stands at the lowest",
            chain.moves,
            names,
            names,
            ("after", "comes"),
        ),
    ]
    return Panels(TITLE, facts_line(trace), charts, [*notes, *proof(trace)], READING, CAUTION)


def forbidden(names: list[str], forbid: str) -> list[tuple[int, int]]:
    """``A>B,C>D`` as pairs of numbers of tags."""
    found = []
    for part in filter(None, (one.strip() for one in forbid.split(","))):
        ends = [end.strip() for end in part.split(">")]
        if len(ends) != 2 or not set(ends) <= set(names):
            raise AnaphoraError(
                f"forbid is a move between tags such as {names[0]}>{names[-1]}, not {part!r}."
            )
        found.append((names.index(ends[0]), names.index(ends[1])))
    return found


def score_of(chain: Chain, path: list[int]) -> float:
    """s(y) of one tagging."""
    moved = sum(float(chain.moves[a, b]) for a, b in itertools.pairwise(path))
    emitted = sum(float(chain.emissions[t, s]) for t, s in enumerate(path))
    return float(chain.start[path[0]]) + emitted + moved + float(chain.end[path[-1]])


def _chains(trace: Trace, without: list[tuple[int, int]]) -> tuple[Chain, Chain]:
    """The chain as it was learned, and with the rules of the tags; both without the forbidden moves."""

    def get(name: str, *axes: str) -> NDArray[np.float64]:
        return np.array(trace.array(f"chain_{name}", *axes), np.float64)

    moves = get("moves", "state", "to")
    for a, b in without:
        moves[a, b] = -np.inf
    chain = Chain(get("emissions", "place", "state"), moves, get("start", "state"), get("end", "state"))
    rules = {name: get(f"{name}_rule", *axes) for name, axes in _RULES.items()}
    ruled = replace(
        chain,
        moves=moves + rules["move"],
        start=chain.start + rules["start"],
        end=chain.end + rules["end"],
    )
    return chain, ruled


_RULES = {"move": ("state", "to"), "start": ("state",), "end": ("state",)}


def _heat(
    title: str,
    subtitle: str,
    values: NDArray[Any],
    rows: list[str],
    columns: list[str],
    path: list[int],
) -> Heatmap:
    return Heatmap(
        title,
        subtitle,
        np.asarray(values, np.float32),
        rows,
        columns,
        "tag",
        "word",
        "probability",
        path=path,
    )


def _scores(
    title: str,
    subtitle: str,
    values: NDArray[Any],
    rows: list[str],
    columns: list[str],
    titles: tuple[str, str] = ("tag", "word"),
) -> Heatmap:
    finite = values[np.isfinite(values) & (values > -1e29)]
    high = float(np.abs(finite).max(initial=0.0)) or 1.0
    shown = np.clip(values, -high, high)
    return Heatmap(
        title,
        subtitle,
        np.asarray(shown, np.float32),
        rows,
        columns,
        *titles,
        "score",
        low=-high,
        high=high,
        signed=True,
    )
