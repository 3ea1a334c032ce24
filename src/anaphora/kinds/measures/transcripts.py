"""How good transcripts are: word and character errors, and where they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.kinds.measures.judged import (
    Judged,
    Measure,
    columns,
    counted,
    digest,
    percent,
    share_right,
    values,
)

Edit = tuple[str | None, str | None]
"""A word of the reference and the word given for it; None where one of them has none."""
COMMONEST = 12
SHOWN = 5


def edit_distance(reference: Sequence[Hashable], output: Sequence[Hashable]) -> int:
    """The fewest substitutions, insertions and deletions that make ``output`` of ``reference`` (Levenshtein)."""
    for before in _rows(reference, output):
        last = before
    return int(last[-1])


def align(reference: Sequence[str], output: Sequence[str]) -> list[Edit]:
    """The words of both, side by side, with the fewest edits; of equal ways one with substitutions before the rest."""
    cost = np.stack(list(_rows(reference, output)))
    i, j = len(reference), len(output)
    edits: list[Edit] = []
    while i or j:
        step = int(i > 0 and j > 0 and reference[i - 1] != output[j - 1])
        if i and j and cost[i, j] == cost[i - 1, j - 1] + step:
            i, j = i - 1, j - 1
            edits.append((reference[i], output[j]))
        elif i and cost[i, j] == cost[i - 1, j] + 1:
            i -= 1
            edits.append((reference[i], None))
        else:
            j -= 1
            edits.append((None, output[j]))
    return edits[::-1]


def spelled(edits: Sequence[Edit]) -> str:
    """``one (two→too) (−three) (+four)``: what was right as it is, errors in brackets."""
    words = []
    for wanted, given in edits:
        if wanted == given:
            words.append(str(wanted))
        elif given is None:
            words.append(f"(−{wanted})")
        else:
            words.append(f"(+{given})" if wanted is None else f"({wanted}→{given})")
    return " ".join(words)


def error_measures(references: Sequence[str], outputs: Sequence[str]) -> list[Measure]:
    """WER and CER over all texts together, and the share of texts without an error, in percent:

    WER = (substitutions + insertions + deletions) / words of the references, CER the same of characters.

    They are more than 100 where much was invented.
    """
    wanted, given = [text.split() for text in references], [text.split() for text in outputs]
    rows = list(zip(wanted, given, strict=True))
    words = columns([edit_distance(r, o) for r, o in rows], [len(r) for r in wanted])
    spaced = [(" ".join(r), " ".join(o)) for r, o in rows]
    characters = columns([edit_distance(r, o) for r, o in spaced], [len(r) for r, _ in spaced])
    basis = digest(list(references))
    return [
        counted("wer", words, percent, False, basis),
        counted("cer", characters, percent, False, basis),
        share_right("exact_match", [r == o for r, o in rows], basis, percent),
    ]


def transcription_report(
    names: Sequence[str], references: Sequence[str], outputs: Sequence[str]
) -> dict[str, Any]:
    """The measures with counts of each kind of error; the commonest errors, and the worst texts with their errors."""
    aligned = [align(r.split(), o.split()) for r, o in zip(references, outputs, strict=True)]
    wrong = [[edit for edit in edits if edit[0] != edit[1]] for edits in aligned]
    every = Counter(edit for edits in wrong for edit in edits)
    worst = sorted(range(len(wrong)), key=lambda i: (-len(wrong[i]), i))[:SHOWN]
    return {
        **values(error_measures(references, outputs)),
        "examples": len(aligned),
        "words": sum(len(reference.split()) for reference in references),
        "substitutions": sum(count for (wanted, given), count in every.items() if wanted and given),
        "deletions": sum(count for (_, given), count in every.items() if given is None),
        "insertions": sum(count for (wanted, _), count in every.items() if wanted is None),
        "errors": {spelled([edit]): count for edit, count in _commonest(every)},
        "worst": {names[i]: spelled(aligned[i]) for i in worst if wrong[i]},
    }


def _commonest(every: Counter[Edit]) -> list[tuple[Edit, int]]:
    return sorted(every.items(), key=lambda item: (-item[1], spelled([item[0]])))[:COMMONEST]


def _rows(reference: Sequence[Hashable], output: Sequence[Hashable]) -> Any:
    """Rows (len(output) + 1,) of the table of distances between beginnings, one for each beginning of ``reference``.

        d(i, j) = min(d(i−1, j) + 1, d(i−1, j−1) + [r_i ≠ o_j], d(i, j−1) + 1)

    The last term is a running minimum: min_k≤j (c_k + j − k), with c the other two.
    """
    numbers: dict[Hashable, int] = {}
    wanted = [numbers.setdefault(x, len(numbers)) for x in reference]
    given = np.array([numbers.setdefault(x, len(numbers)) for x in output], dtype=np.int64)
    places = np.arange(len(given) + 1)
    before: NDArray[np.int64] = places
    yield before
    for x in wanted:
        now = before + 1
        np.minimum(now[1:], before[:-1] + (given != x), out=now[1:])
        before = np.minimum.accumulate(now - places) + places
        yield before


def transcripts_judged(
    names: Sequence[str],
    references: Sequence[str],
    outputs: Sequence[str],
    measures: Sequence[Measure],
    seconds: float,
) -> Judged:
    """Each recording with its transcript, which is as wrong as its characters are."""
    characters = next(one for one in measures if one.name == "cer").statistics
    losses = characters[:, 0] / np.maximum(characters[:, 1], 1)
    return Judged(names, references, outputs, losses, measures, seconds)
