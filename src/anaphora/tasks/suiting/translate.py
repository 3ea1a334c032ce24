"""Defaults of a translator that depend on what its pairs are: sentences, or words that are spelled out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anaphora.tasks.plan import LOOK
from anaphora.tasks.suiting.sizing import assume

if TYPE_CHECKING:
    from anaphora.data.sources.source import Source
    from anaphora.tasks.translate.estimator import Translator

LEAST = 500
"""Fewer pairs are an example, not data to choose by."""
FEW_WORDS = 3.0
"""Words of a text, on average, up to which it is a word with what is said about it, not a sentence."""
OPEN = 0.2
"""Different words among all of a side, from which on most are met once or twice."""
CLOSED = 0.02
"""The same of a side that is written with a fixed set of symbols with spaces between them, such as phones."""
_SAID = ("tokens", "source_tokens", "target_tokens", "tokenizer", "target_tokenizer", "joint", "vocab_size")


def suit_pairs(m: Translator, data: Source) -> None:
    """Read single words letter by letter, where the user has not said what a symbol is.

    Pieces of words are learned from the words of the training data: of a list of words they are mostly whole words, and a new one falls
    into pieces of which nothing is known. Embedded corpora are left alone.
    """
    s, facts = m.settings_, data.describe()
    embedded = facts.get("of", facts)["kind"] == "corpus"
    if embedded or len(data) < LEAST or s.bpe_dropout or s.teacher or any(key in m._given for key in _SAID):
        return
    rows = data.read(range(0, len(data), max(1, len(data) // LOOK)))
    chosen = _symbols([source for source, _ in rows], [target for _, target in rows])
    if chosen:
        assume(m, chosen, "single words, which are read by their letters")


def _symbols(sources: Sequence[str], targets: Sequence[str]) -> dict[str, Any]:
    (many, new), (many_written, new_written) = _counted(sources), _counted(targets)
    spelled, spelled_too = (
        many <= FEW_WORDS and new >= OPEN,
        many_written <= FEW_WORDS and new_written >= OPEN,
    )
    if spelled and spelled_too:
        return {"tokens": "char"}
    if spelled and new_written <= CLOSED:
        return {"source_tokens": "char", "joint": False}
    if spelled_too and new <= CLOSED:
        return {"target_tokens": "char", "joint": False}
    return {}


def _counted(texts: Sequence[str]) -> tuple[float, float]:
    """Words of a text on average, and how many of all words are different ones."""
    words = [word for text in texts for word in text.split()]
    return len(words) / max(len(texts), 1), len(set(words)) / max(len(words), 1)
