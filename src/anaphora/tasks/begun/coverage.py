"""How many words of the training texts the language model of ``init`` knows: the others are all one symbol to it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from itertools import islice

from anaphora.data.symbols import UNK
from anaphora.tasks.pretrained import Donors

FEW = 0.05
"""Share of unknown words up to which nothing is said."""
SAMPLE = 5000
"""Texts that are looked at."""


def warn_of_unknown(donors: Donors, texts: Iterable[str]) -> None:
    """Warn where more than `FEW` of the words of ``texts`` are unknown to a language model of words."""
    if donors.models[0].settings_.tokens != "word":
        return
    rows = donors.tokenizer.encode_batch(list(islice(texts, SAMPLE)))
    words = sum(map(len, rows))
    unknown = sum(row.count(UNK) for row in rows)
    if words and unknown > FEW * words:
        warnings.warn(
            f"{donors.paths[0]} does not know {100 * unknown / words:.0f} % of the words of the training texts, and reads them all "
            "as <unk>; train it on these texts as well, with a larger vocab_size, or with tokens=bpe",
            stacklevel=2,
        )
