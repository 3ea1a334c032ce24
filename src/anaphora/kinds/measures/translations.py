"""How good outputs are, by the measures people publish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from anaphora.kinds.measures.judged import Judged, digest, share_right
from anaphora.kinds.measures.overlap import bleu, bleu_defined, chrf


def exact_match(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Share of outputs equal to their reference, in percent."""
    if not references:
        return 0.0
    return 100.0 * sum(o == r for o, r in zip(outputs, references, strict=True)) / len(references)


def translation_scores(
    outputs: Sequence[str], references: Sequence[str], *, tokenize: str = "13a"
) -> dict[str, Any]:
    """BLEU and chrF by sacrebleu with their signatures, and exact match; all in percent. No BLEU where no reference has
    four words (`bleu_defined`)."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    # force=True only silences a warning about text that looks tokenized; it changes no number.
    bleu, chrf = BLEU(tokenize=tokenize, force=True), CHRF()
    bleu_score = bleu.corpus_score(list(outputs), [list(references)])
    chrf_score = chrf.corpus_score(list(outputs), [list(references)])
    scores = {
        "bleu": bleu_score.score,
        "chrf": chrf_score.score,
        "exact_match": exact_match(outputs, references),
        "examples": len(references),
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }
    if not bleu_defined(references, tokenize):
        del scores["bleu"], scores["bleu_signature"]
    return scores


def standard_error(outputs: Sequence[str], references: Sequence[str], metric: str) -> float:
    """s / √n of ``exact_match`` or of ``chrf``, in percent: s is the standard deviation over the n ≥ 2 texts.

    >>> from anaphora.kinds.measures.translations import standard_error
    >>> round(standard_error(["a", "b", "c", "d"], ["a", "b", "c", "x"], "exact_match"), 2)
    25.0
    """
    if metric == "exact_match":
        each = [100.0 * (o == r) for o, r in zip(outputs, references, strict=True)]
    else:
        found = chrf(outputs, references, basis="")
        each = list(found.value(found.statistics))
    return float(np.std(each, ddof=1) / np.sqrt(len(each)))


def translations_judged(
    sources: Sequence[str],
    references: Sequence[str],
    outputs: Sequence[str],
    seconds: float,
    *,
    tokenize: str,
) -> Judged:
    """BLEU (where it is defined), chrF and exact match by counts of each text; an output is as wrong as its chrF is below 100."""
    basis = digest(tokenize, list(references))
    characters = chrf(outputs, references, basis=basis)
    right = [o == r for o, r in zip(outputs, references, strict=True)]
    wanted = [[one] for one in references]
    defined = bleu_defined(references, tokenize)
    bleus = [bleu(outputs, wanted, tokenize=tokenize, basis=basis)] if defined else []
    return Judged(
        sources,
        references,
        outputs,
        np.where(right, 0.0, 1.0 - characters.value(characters.statistics) / 100.0),
        [
            *bleus,
            characters,
            replace(share_right("exact_match", right), basis=basis),
        ],
        seconds,
    )
