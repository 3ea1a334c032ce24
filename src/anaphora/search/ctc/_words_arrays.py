"""What the search for words among CTC frames works on: the tree, the rules, the prefixes, and what may follow them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anaphora.native.jit import njit
from anaphora.ops.prune import new_table

_INF = np.inf


class Paths(NamedTuple):
    """The tree of a lexicon as `search.lexicon.Tree` describes it."""

    symbol: NDArray[np.int32]
    first: NDArray[np.int32]
    word_first: NDArray[np.int32]
    word: NDArray[np.int32]
    credit: NDArray[np.float64]
    """(nodes,): what being at a node adds to the rank."""
    fan: int


class Rules(NamedTuple):
    """How a beam is pruned, and what words bring beside the language model."""

    blank: int
    width: int
    per_node: int
    distance: float
    word_bonus: float
    most: float
    """The most that one word can add to a rank, its credit included."""


PREFIX = np.dtype(
    [
        ("parent", np.int32),
        ("label", np.int32),  # the last one; −1 for the empty prefix
        ("arc", np.int32),  # the node of the lexicon's tree that was entered last
        ("entry", np.int32),  # whose end that was, −1 if the word goes on
        ("child", np.int32),
        ("sibling", np.int32),
        ("place", np.int32),  # in the beam; −1 if it is not there
        ("hot", np.int32),  # the state of the hot words
        ("state", np.int64),  # the state of the language model
        ("extra", np.float64),  # what words have added to the score so far
    ]
)
"""A prefix that was ever kept. All its values lie together, as they are read together."""

EXTENSION = np.dtype(
    [
        ("source", np.int32),
        ("arc", np.int32),
        ("entry", np.int32),
        ("hot", np.int32),
        ("state", np.int64),
        ("gain", np.float64),  # what the end of a word adds
        ("mass", np.float64),
    ]
)
"""A prefix with one label more that may enter the beam."""


class Beam(NamedTuple):
    """All prefixes that were ever kept, as a tree, and those that are kept now."""

    prefixes: NDArray[Any]
    """Records of `PREFIX`; the first is the empty prefix."""
    now: NDArray[np.int32]
    """(width,): the prefixes in the beam, in no order."""
    masses: NDArray[np.float64]
    """(3, width): of their paths that end in a blank, in the last label, and in either."""
    counts: NDArray[np.int64]
    """How many are kept now, and how many prefixes there are."""


class Candidates(NamedTuple):
    """What may follow in one frame: first the prefixes that stay, then their extensions."""

    score: NDArray[np.float64]
    state: NDArray[np.int64]
    """Of the search: where on the tree, and the states of the models."""
    extension: NDArray[Any]
    """Records of `EXTENSION`; empty where a prefix stays."""
    stayed: NDArray[np.float64]
    """(3, width): the masses of those that stay."""
    kid: NDArray[np.int32]
    """(2, width): the first extension of a kept prefix that is kept itself, and the next of the same prefix."""
    chosen: NDArray[np.int64]
    """Those that stay come first."""
    made: NDArray[np.int32]
    """(width,): their prefixes."""
    table: NDArray[np.int64]


@njit(cache=True, nogil=True)
def new_beam(frames, width, state):  # type: ignore[no-untyped-def]
    """A beam that holds the empty prefix, with room for all prefixes of so many frames."""
    prefixes = np.empty(frames * width + 1, PREFIX)
    beam = Beam(prefixes, np.zeros(width, np.int32), np.full((3, width), -_INF), np.ones(2, np.int64))
    root = prefixes[0]
    root.parent = root.label = root.entry = root.child = root.sibling = -1
    root.arc = root.place = root.hot = 0
    root.state = state
    root.extra = 0.0
    beam.masses[0, 0] = beam.masses[2, 0] = 0.0
    return beam


@njit(cache=True, nogil=True)
def new_candidates(width, fan):  # type: ignore[no-untyped-def]
    """Room for what may follow `width` prefixes, each in at most `fan` ways."""
    most = width * (fan + 1)
    return Candidates(
        np.empty(most), np.empty(most, np.int64), np.empty(most, EXTENSION), np.empty((3, width)),
        np.empty((2, width), np.int32), np.empty(most, np.int64), np.empty(width, np.int32), new_table(most),
    )  # fmt: skip


def grown(beam: Beam, frames: int) -> Beam:
    """The same beam with room for the prefixes of so many more frames."""
    needed = int(beam.counts[1]) + frames * len(beam.now)
    if needed <= len(beam.prefixes):
        return beam
    prefixes = np.empty(max(needed, 2 * len(beam.prefixes)), PREFIX)
    prefixes[: beam.counts[1]] = beam.prefixes[: beam.counts[1]]
    return beam._replace(prefixes=prefixes)
