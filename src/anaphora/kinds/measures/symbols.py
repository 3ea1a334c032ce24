"""How probable texts are to a model: loss, perplexity, and bits per character, which compares all kinds of symbols."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from anaphora.data.symbols import UNK
from anaphora.data.text import Text
from anaphora.data.tokenizers import Tokenizer
from anaphora.data.tokenizers.vocabularies import single_spaced
from anaphora.errors import DataError
from anaphora.kinds.measures.judged import Judged, Measure, columns, counted, digest, mean, values

Numbers = np.ndarray[Any, Any]
Row = Sequence[int] | Numbers


def symbol_measures(
    total: float,
    nats: Sequence[float],
    symbols: Sequence[int],
    characters: Sequence[float],
    basis: str = "",
) -> list[Measure]:
    """Loss in nats per symbol, perplexity, and bits per character of some texts: −log p of each, and how long it is; ``total`` is
    that of all, which has other last bits where texts are cut differently."""
    losses, bits = columns(nats, symbols), columns(np.array(nats) / math.log(2), characters)
    whole, all_bits = np.array([total, sum(symbols)]), np.array([total / math.log(2), sum(characters)])
    return [
        counted("loss", losses, mean, False, basis, whole),
        counted("perplexity", losses, _perplexity, False, basis, whole),
        counted("bits_per_character", bits, mean, False, sums=all_bits),
    ]


def _nats(log_probs: Sequence[Numbers]) -> float:
    return -sum(float(row.sum(dtype=np.float64)) for row in log_probs)


def summary(log_probs: Sequence[Numbers], characters: int) -> dict[str, float]:
    """Return the measures of all texts together, of the log p of their symbols."""
    total = _nats(log_probs)
    return values(symbol_measures(total, [total], [sum(map(len, log_probs))], [characters]))


def lines_judged(
    text: Text,
    rows: Sequence[Row],
    log_probs: Sequence[Numbers],
    seconds: float,
    tokenizer: Tokenizer,
    *,
    by_line: bool,
) -> Judged:
    """Bits per character and perplexity by sums of each line that is not blank; a blank one counts with the line before.

    ``rows`` and ``log_probs`` are those of lines, or of one stream of symbols in which every line ends with a break.
    """
    lines = "".join(text.blocks()).removesuffix("\n").split("\n")
    owners = np.cumsum([bool(single_spaced(line)) for line in lines]) - 1
    kept = np.maximum(owners, 0)  # blank lines before the first go with the first
    count = int(owners[-1]) + 1
    if by_line:
        nats, symbols = [-float(row.sum(dtype=np.float64)) for row in log_probs], list(map(len, log_probs))
    else:
        (ids,), (found,) = rows, log_probs
        breaks = np.cumsum(np.asarray(ids[1:]) == tokenizer.line_break)
        line = np.concatenate([[0], breaks[:-1]])  # of each symbol; a break belongs to the line that it ends
        if len(lines) != breaks[-1]:
            raise DataError(
                "the symbols of the text do not show where its lines end; compare runs with lines=true."
            )
        nats = list(np.bincount(kept[line], -found, count))
        symbols = list(np.bincount(kept[line], minlength=count))
    if not count or count != len(nats):
        raise DataError(f"{text.source.name} has no line with text in it; give at least one.")
    characters = np.bincount(kept, [len(one) + 1 for one in lines], count).tolist()
    unknown = sum(int((np.asarray(row) == UNK).sum()) for row in rows)
    note = f"reads {unknown} symbols as <unk>, which are easy to predict: its bits per character are too few"
    total, basis = _nats(log_probs), digest(tokenizer.spellings)
    _, perplexity, per_character = symbol_measures(total, nats, symbols, characters, basis)
    each = per_character.value(per_character.statistics)
    return Judged(
        [one for one in lines if single_spaced(one)],
        [""] * count,
        [f"{value:.3f} bits per character" for value in each],
        each,
        [per_character, perplexity],
        seconds,
        notes=[note] if unknown else [],
    )


def _perplexity(sums: Numbers) -> Numbers:
    loss = np.minimum(mean(sums), 700.0)
    return np.exp(loss) if loss.ndim else np.array(math.exp(float(loss)))
