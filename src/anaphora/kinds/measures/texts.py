"""How good texts are beside their references: BLEU and chrF from counts of each text, so that they can be computed again for any
choice of texts, and exact match.

The counts and the values are those of sacrebleu with its defaults, which the tests compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from anaphora.errors import SettingsError
from anaphora.kinds.measures.judged import (
    Floats,
    Judged,
    Measure,
    Measured,
    counted,
    digest,
    percent,
    share_right,
    values,
)

WORDS = 4
"""BLEU counts n-grams of words up to this length."""
CHARACTERS = 6
"""chrF counts n-grams of characters up to this length."""
_RECALL = 4.0  # β² of chrF: recall counts twice as much as precision


def bleu_defined(references: Iterable[str], tokenize: str) -> bool:
    """Whether any reference has four words in a row. Without them even right outputs have no 4-grams, p_4 is 0/0, and
    BLEU is left out of the measures.

    >>> from anaphora.kinds.measures.texts import bleu_defined
    >>> bleu_defined(["three hundred twelve"], "13a"), bleu_defined(["one", "a cat , asleep"], "13a")
    (False, True)
    """
    from sacrebleu.metrics.bleu import BLEU

    words = BLEU(tokenize=tokenize, force=True).tokenizer
    return any(len(words(reference).split()) >= WORDS for reference in references)


def check_bleu_metric(metric: str, references: Sequence[str], tokenize: str) -> None:
    """Raise `SettingsError` where the best weights are to be chosen by a BLEU that is not defined."""
    if metric == "bleu" and references and not bleu_defined(references, tokenize):
        raise SettingsError(
            [
                "metric: no dev reference has four words, so BLEU is not defined; choose by exact_match or loss."
            ]
        )


def bleu(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str, basis: str = ""
) -> tuple[Measure, str]:
    """BLEU in percent, and sacrebleu's signature; ``references[i]`` are those of output i.

    Statistics: length of the output and of the nearest reference, n-grams that match and n-grams in all, n = 1 … 4.
    """
    from sacrebleu.metrics.bleu import BLEU

    judge = BLEU(tokenize=tokenize, force=True)  # force only silences a warning about tokenized text
    most = max(map(len, references), default=0)
    # sacrebleu wants first references, second references, …; None where an output has fewer.
    streams = [[wanted[i] if i < len(wanted) else None for wanted in references] for i in range(most)]
    whole = judge.corpus_score(list(outputs), streams)  # type: ignore[arg-type]
    sums = np.array([whole.sys_len, whole.ref_len, *whole.counts, *whole.totals], dtype=np.float64)

    def each() -> Floats:
        # effective_order only silences a warning: the counts are the same
        alone = BLEU(tokenize=tokenize, force=True, effective_order=True)
        found = [alone.sentence_score(o, list(wanted)) for o, wanted in zip(outputs, references, strict=True)]
        return np.array([[one.sys_len, one.ref_len, *one.counts, *one.totals] for one in found], np.float64)

    return Measure("bleu", cache(each), bleu_of, basis=basis, sums=sums), str(judge.get_signature())


def bleu_of(sums: Floats) -> Floats:
    """BLEU = BP · exp(Σ_n log p_n / 4) of sums (…, 10), with the smoothing of mteval-v13a where no n-gram matches.

    Of the sums of all examples (10,) it is sacrebleu's own number, to the last bit.
    """
    if sums.ndim == 1:
        from sacrebleu.metrics.bleu import BLEU

        n = [int(value) for value in sums]
        whole = BLEU.compute_bleu(n[2 : 2 + WORDS], n[2 + WORDS :], n[0], n[1], smooth_method="exp")
        return np.array(whole.score)
    given, wanted = sums[..., 0], sums[..., 1]
    right, total = sums[..., 2 : 2 + WORDS], sums[..., 2 + WORDS :]
    none = (right == 0) & (total > 0)
    halved = 2.0 ** np.cumsum(none, axis=-1)
    matches = np.where(none, 1.0 / halved, right)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(matches) - np.log(total)
        shortness = np.minimum(0.0, 1.0 - wanted / given)
        found = 100.0 * np.exp(shortness + logs.mean(axis=-1))
    # without any match, or without an n-gram of some length, BLEU is 0
    sound = (right > 0).any(axis=-1) & (total > 0).all(axis=-1)
    return np.where(sound, found, 0.0)


def chrf(outputs: Sequence[str], references: Sequence[str], *, basis: str) -> Measure:
    """chrF in percent. Statistics: n-grams of the output, of the reference, and those that match, n = 1 … 6."""
    rows = [_characters(output, wanted) for output, wanted in zip(outputs, references, strict=True)]
    statistics = np.array(rows, dtype=np.float64).reshape(-1, 3 * CHARACTERS)
    return counted("chrf", statistics, chrf_of, basis=basis)


def chrf_signature() -> str:
    """Return what sacrebleu says of the chrF that `chrf` is."""
    from sacrebleu.metrics.chrf import CHRF

    judge = CHRF()
    judge.corpus_score(["a"], [["a"]])
    return str(judge.get_signature())


def chrf_of(sums: Floats) -> Floats:
    """F_2 = 5·P·R / (4·P + R) of sums (…, 18); P and R are means over the lengths that both texts have."""
    table = sums.reshape(*sums.shape[:-1], CHARACTERS, 3)
    given, wanted, match = table[..., 0], table[..., 1], table[..., 2]
    there = (given > 0) & (wanted > 0)
    lengths = np.maximum(there.sum(axis=-1), 1)
    precision = np.where(there, match / np.maximum(given, 1), 0.0).sum(axis=-1) / lengths
    recall = np.where(there, match / np.maximum(wanted, 1), 0.0).sum(axis=-1) / lengths
    weighed = _RECALL * precision + recall
    found: Floats = 100.0 * ((1 + _RECALL) * precision * recall / np.where(weighed == 0, 1.0, weighed))
    return found


def _characters(output: str, reference: str) -> list[int]:
    given, wanted = "".join(output.split()), "".join(reference.split())
    row: list[int] = []
    for n in range(1, CHARACTERS + 1):
        mine, theirs = _grams(given, n), _grams(wanted, n)
        # sacrebleu does not count n-grams of an output whose reference has none of that length
        row += [mine.total() if theirs else 0, theirs.total(), (mine & theirs).total()]
    return row


def _grams(text: str, n: int) -> Counter[str]:
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))


def translation_measures(
    outputs: Sequence[str], references: Sequence[str], *, tokenize: str = "13a"
) -> Measured:
    """BLEU and chrF with sacrebleu's signatures, and exact match; all in percent. No BLEU where no reference has
    four words (`bleu_defined`)."""
    basis = digest(tokenize, list(references))
    right = [o == r for o, r in zip(outputs, references, strict=True)]
    measures = [chrf(outputs, references, basis=basis), share_right("exact_match", right, basis, percent)]
    signatures = {"chrf_signature": chrf_signature()}
    if bleu_defined(references, tokenize):
        measure, signature = bleu(outputs, [[one] for one in references], tokenize=tokenize, basis=basis)
        measures, signatures = [measure, *measures], {"bleu_signature": signature, **signatures}
    return Measured(measures, {**values(measures), "examples": len(references), **signatures})


def standard_error(outputs: Sequence[str], references: Sequence[str], metric: str) -> float:
    """s / √n of ``exact_match`` or of ``chrf``, in percent: s is the standard deviation over the n ≥ 2 texts.

    >>> from anaphora.kinds.measures.texts import standard_error
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
    measured: Measured,
    seconds: float,
) -> Judged:
    """Each text with its output, which is as wrong as its chrF is below 100."""
    characters = next(one for one in measured.measures if one.name == "chrf")
    right = np.array([o == r for o, r in zip(outputs, references, strict=True)])
    losses = np.where(right, 0.0, 1.0 - characters.value(characters.statistics) / 100.0)
    return Judged(sources, references, outputs, losses, measured.measures, seconds)
