"""Defaults of a translator that depend on what its pairs are: sentences, or sequences of letters and other symbols of a fixed set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anaphora.data.batches.pairs import BY_LETTERS
from anaphora.data.tokenizers.vocabularies import without_tags
from anaphora.errors import SettingsError
from anaphora.settings.text import SidesSettings
from anaphora.tasks.plan import LOOK
from anaphora.tasks.suiting.sizing import assume, embedded

if TYPE_CHECKING:
    from anaphora.data.table import Table
    from anaphora.tasks.translate.estimator import Translator

LEAST = 500
"""Fewer pairs do not tell a fixed set of symbols from the words of sentences, unless the other side is single words."""
LEAST_WORDS = 100
"""Fewer pairs are an example, not data to choose by."""
FEW_WORDS = 3.0
"""Words of a text, on average, up to which it is a word with what is said about it, not a sentence."""
OPEN = 0.2
"""Different words among all of a side, from which on most are met once or twice."""
CLOSED = 0.02
"""The same of a side that is written with a fixed set of symbols with spaces between them, such as phones."""
CLOSED_OF_FEW = 0.1
"""The same of fewer than `LEAST` pairs, in which each symbol is met less often, and of up to `FEW` whose other side is single words: 500 words have
some 3 000 phones, and an inventory with stress or tone has a hundred different ones."""
_SIDES = {"source_tokens", "target_tokens"}
_SAID = {"tokens", "tokenizer", "target_tokenizer", "vocab_size"}


FEW = 5000
"""Up to so many pairs a batch is smaller, so that a pass has more steps, and pieces of words are shorter, so that each is met often enough."""
SOME = 15_000
"""Up to so many sentences a batch is smaller than that of Multi30k, which has twice as many."""
MANY = 300_000
"""Pairs from which on a training is longer, or it would end after a pass or two."""
OF_SYMBOLS: dict[str, dict[str, Any]] = {"transformer": {"r_drop": 0.0, "input_dropout": 0.0, "dropout": 0.2}}
"""By preset, for outputs of letters, phones or actions: to be right in every symbol takes more steps than a good sentence does,
and noise in the inputs and R-Drop make it slower still."""
SPEAKING: dict[str, dict[str, Any]] = {"lstm-attention": {"lexical": True}}
"""By preset, for words with tags and for few pairs: what is looked at speaks for itself, so that a lexicon is learned from few examples."""
COPYING: dict[str, dict[str, Any]] = {"lstm-attention": {"joint": True, "lexical": True}}
"""By preset, for words with tags, and for few pairs of which much is copied (letters of words; names, placeholders and numbers of messages): it is also one symbol
on both sides."""
COPIED_LETTERS = 0.5
"""The letters of target words that their source has as well, from which on words are copied in part."""
COPIED_WORDS = 0.05
"""The words of target sentences that their source has as well, from which on they are copied in part."""
INVENTED: dict[str, Any] = {"invented": 0.5}
"""For every preset and words with tags, up to `FEW` rows: what an unknown word becomes is learned from its ending, not from words known by heart."""
PASSES_OF_SYMBOLS: dict[str, Any] = {"epochs": 100.0, "min_steps": 3000, "max_steps": 6000}
"""How long every preset trains for such outputs; 1 000 words need more passes than 10 000."""
STEPS_OF_SYMBOLS = {"transformer": {"steps": 6000}}
"""The same for embedded corpora, by preset, where it is more than for sentences."""
FEW_PAIRS: dict[str, Any] = {"batch_tokens": 1024}
FEW_SENTENCES: dict[str, Any] = FEW_PAIRS | {"vocab_size": 1000}
LONGER: dict[str, dict[str, Any]] = {"lstm-attention": {"min_steps": 3000}}
"""By preset, for few pairs of other outputs than letters: after 1 000 steps they still improve fast."""
SOME_SENTENCES: dict[str, Any] = {"batch_tokens": 2048}
MANY_PAIRS: dict[str, Any] = {"max_steps": 24_000}


def suit_pairs(m: Translator, data: Table) -> None:
    """Choose what a symbol is, how large batches are and how long to train, by the pairs, where the user has not.

    Pieces of words are learned from the words of the training data: of a list of words they are mostly whole words, and a new one falls
    into pieces of which nothing is known. Single words are therefore read letter by letter, and tags after them (``go V;PST``) as
    one symbol each; embedded corpora are left as they are. A student has the symbols of its teachers already, and gets the rest.
    """
    s, generated = m.settings_, embedded(data.describe())
    rows = _looked_at(data)
    reads, writes = _sides(rows, len(data))
    tagged = reads == "tagged"
    if not tagged and len(data) < LEAST_WORDS:
        return
    said, sides = m._given.keys() & _SAID, m._given.keys() & _SIDES
    own = bool(
        s.bpe_dropout or said or (sides if tagged else sides == _SIDES)
    )  # what one side is says nothing of the other
    chosen = _tokens(reads, writes, joint="joint" in m._given and s.joint)
    if s.teacher:
        own = own or any(getattr(s, key) != value for key, value in chosen.items() if key != "joint")
    if not generated and not own:
        _assume_symbols(m, data, chosen, tagged=tagged)
        if not tagged and reads == writes != "symbols" and len(data) <= FEW:
            _assume_lexicon(m, copying=_copied(rows, by_letters=writes == "words"))
    letters = writes == "symbols" or "char" in (m.settings_.target_tokens or m.settings_.tokens)
    if letters:
        length = STEPS_OF_SYMBOLS.get(s.model, {}) if generated else PASSES_OF_SYMBOLS
        assume(m, OF_SYMBOLS.get(s.model, {}) | length, "outputs of letters or of a fixed set of symbols")
    if not generated:
        symbols_chosen = own or bool(s.teacher) or reads != "sentences"
        longer = LONGER.get(s.model, {}) if len(data) <= FEW and not letters else {}
        assume(m, _sized(len(data), letters, symbols_chosen) | longer, f"{len(data):,} training pairs")


def _assume_symbols(m: Translator, data: Table, chosen: Mapping[str, Any], *, tagged: bool) -> None:
    """What a symbol is, where it is a letter or a tag, and what else words with tags need."""
    if not tagged:
        _assume_unlearnt(m, chosen, "single words, which are read by their letters")
        return
    copying = COPYING.get(m.settings_.model, {}) if "lexical" not in m._given else {}
    invented = INVENTED if len(data) <= FEW else {}
    _assume_unlearnt(m, {**chosen, **copying, **invented}, "words with tags")


def _assume_lexicon(m: Translator, *, copying: bool) -> None:
    """Let source symbols speak for themselves; with ``copying`` both sides have the same ones."""
    if "lexical" not in m._given:
        chosen = (COPYING if copying else SPEAKING).get(m.settings_.model, {})
        why = "few pairs of which a part is copied" if copying else "few pairs"
        _assume_unlearnt(m, chosen, why)


def _assume_unlearnt(m: Translator, chosen: Mapping[str, Any], why: str) -> None:
    """Assume what is ``chosen``; of a student not what its teachers have learned already."""
    learnt = SidesSettings.model_fields if m.settings_.teacher else {}
    assume(m, {key: value for key, value in chosen.items() if key not in learnt}, why)


def check_invented(m: Translator) -> None:
    """A `SettingsError` for ``invented`` where the symbols of a side are no letters."""
    kinds = m.tokenizer_.source.kind, m.tokenizer_.target.kind
    if m.settings_.invented and not set(kinds) <= set(BY_LETTERS):
        raise SettingsError(
            [
                f"invented = {m.settings_.invented} exchanges letters of words and forms, but a symbol is of the kind {kinds[0]!r} in the source "
                f"and {kinds[1]!r} in the target: set tokens = 'char', or leave invented out."
            ]
        )


def _sized(pairs: int, letters: bool, own: bool) -> dict[str, Any]:
    """What follows from the number of pairs; ``own``: what a symbol is has been chosen by other means."""
    if pairs <= FEW:
        return FEW_PAIRS if letters or own else FEW_SENTENCES
    if pairs >= MANY:
        return MANY_PAIRS
    return SOME_SENTENCES if pairs <= SOME and not letters else {}


def _tokens(reads: str, writes: str, *, joint: bool) -> dict[str, Any]:
    """What a symbol of each side is, where it is a letter; ``joint``: the user wants one vocabulary, which has one kind of symbol, or letters
    and tags."""
    if reads == "tagged":
        return {"source_tokens": "char+tags", "target_tokens": "char", "joint": joint}
    if joint:
        return {"tokens": "char"} if {reads, writes} == {"words"} else {}
    if reads == writes == "words":
        return {"tokens": "char"}
    if (reads, writes) == ("words", "symbols"):
        return {"source_tokens": "char", "joint": False}
    if (reads, writes) == ("symbols", "words"):
        return {"target_tokens": "char", "joint": False}
    return {}


def writes_symbols(data: Table) -> bool:
    """Whether targets are written with a fixed set of symbols with spaces between them, such as phones or actions."""
    return len(data) >= LEAST_WORDS and _sides(_looked_at(data), len(data))[1] == "symbols"


def _looked_at(data: Table) -> Sequence[Sequence[str]]:
    return data.read(range(0, len(data), max(1, len(data) // LOOK)))


def _sides(rows: Sequence[Sequence[str]], pairs: int) -> tuple[str, str]:
    """What the texts of both sides are, by ``rows`` out of so many ``pairs``: words with tags, or as `_side` says."""
    sources, targets = [row[0] for row in rows], [row[1] for row in rows]
    if without_tags(sources):
        return "tagged", "tagged"
    closed = CLOSED if pairs >= LEAST else CLOSED_OF_FEW
    reads, writes = _side(sources, closed), _side(targets, closed)
    if pairs <= FEW and reads == "words":
        writes = _side(targets, CLOSED_OF_FEW)
    if pairs <= FEW and writes == "words":
        reads = _side(sources, CLOSED_OF_FEW)
    if pairs < LEAST and "words" not in (reads, writes):
        return "sentences", "sentences"
    return reads, writes


def _side(texts: Sequence[str], closed: float) -> str:
    """What the texts of a side are: ``words``, ``symbols`` of a fixed set, of which ``closed`` are different at most, or ``sentences``."""
    many, new = _counted(texts)
    if many <= FEW_WORDS and new >= OPEN:
        return "words"
    return "symbols" if new <= closed else "sentences"


def _copied(rows: Sequence[Sequence[str]], *, by_letters: bool) -> bool:
    """Whether targets hold letters or words of their sources, as they are."""
    cut = [("".join(one.split()) if by_letters else one.split() for one in row) for row in rows]
    written = [(set(source), target) for source, target in cut]
    found = sum(one in source for source, target in written for one in target)
    whole = sum(len(target) for _, target in written)
    return found >= whole * (COPIED_LETTERS if by_letters else COPIED_WORDS)


def _counted(texts: Sequence[str]) -> tuple[float, float]:
    """Words of a text on average, and how many of all words are different ones."""
    words = [word for text in texts for word in text.split()]
    return len(words) / max(len(texts), 1), len(set(words)) / max(len(words), 1)
