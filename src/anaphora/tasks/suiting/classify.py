"""Whether settings of a classifier fit its data, and defaults that depend on how many texts there are to learn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anaphora.errors import DataError
from anaphora.settings.classify import PICTURES, ClassifierSettings
from anaphora.tasks.plan import LOOK
from anaphora.tasks.suiting.sizing import assume, embedded, forget_preset, take_preset

if TYPE_CHECKING:
    from anaphora.data.labelled_targets import Targets
    from anaphora.data.table import Table
    from anaphora.tasks.classify.estimator import Classifier

LEAST = 200
"""Fewer texts are an example, not data to choose by."""
FEW = 20_000
"""Up to so many texts a network overfits: chosen on five corpora of 1 000 to 7 000 texts."""
_WORDS = {"tokens": "word", "vocab_size": 20_000, "dropout": 0.5}
SMALL: dict[str, dict[str, Any]] = {
    "bow": {**_WORDS, "word_dropout": 0.3, "min_steps": 600},
    "conv": {**_WORDS, "word_dropout": 0.2, "r_drop": 1.0, "min_steps": 400},
    **{name: {**_WORDS, "word_dropout": 0.2} for name in ("rnn", "lstm", "gru", "bilstm")},
}
MANY = 5000
"""Sequences from which on ten thousand features of each take minutes."""
LONGEST = 16_384
"""Steps of the longest sequence of vectors that is read whole."""
OF_LETTERS = {"tokens": "char"}
IN_ORDER = ("conv", "rnn", "lstm", "gru", "bilstm")
"""Presets of few texts that read letters in their order; of a bag of letters little is left."""
OF_TEXTS = ("ngrams", "fasttext")
"""Presets that read n-grams, which vectors do not have."""
SINGLE = 0.9
"""Texts without a space in them, from which on they are names, words or sequences (proteins), and not sentences."""
NEUTRAL = frozenset(
    {"target", "threshold", "tolerance", "metric", "holdout", "bad_rows", "device", "threads"}
)
"""Settings that every preset has: a user who gives others has a network in mind."""
MOST_TEXTS = 100_000
MOST_TEXT = 15_000_000
"""Characters of training text up to which n-grams are fitted in minutes."""
MOST_CLASSES = 200
"""Classes up to which a weight of each n-gram for each of them is fitted in minutes."""
MOST_WEIGHTS = 50_000_000
FEW_WORDS = 2000
"""Single words up to which their n-grams tell more than a network learns of them."""
MOST_NUMBERS = 5_000_000
"""Numbers of all training sequences up to which random convolutions are fitted in a minute or two, and in 2 GB."""


def suit_preset(m: Classifier, data: Table, targets: Targets) -> None:
    """Take a preset that is fitted in one go, `ngrams` for texts and `rocket` for sequences of vectors, where the user has named no model
    and set nothing that is about networks.

    Of 11 sets of at most 4 000 texts, and of 9 of at most 537 sequences, the usual network was worse on all; of sentences also with 64 000.
    Single words, very many texts or classes, and pictures are left to networks, and so are embedded corpora, which are there to show them.
    """
    forget_preset(m, "ngrams", "rocket")
    texts = not data.holds_vectors
    neutral = NEUTRAL | {"class_weight"} if texts else NEUTRAL
    if m._given.keys() - neutral or targets.size > MOST_CLASSES or embedded(data.describe()):
        return
    if data.holds_vectors:
        if len(data) <= MANY and data[0][0].ndim == 2 and sum(x.size for x in data.column(0)) <= MOST_NUMBERS:
            take_preset(m, "rocket", f"{len(data):,} training sequences, which are few for a network")
    elif len(data) <= (FEW_WORDS if single_words(data) else MOST_TEXTS) and data.text_bytes <= MOST_TEXT:
        take_preset(m, "ngrams", f"{len(data):,} training texts, which are few for a network")


def single_words(data: Table) -> bool:
    """Whether most of the texts have no space in them."""
    some = data.read(range(0, len(data), max(1, len(data) // LOOK)))
    return sum(len(text.split()) < 2 for text, _ in some) >= SINGLE * len(some)


def suit_texts(m: Classifier, data: Table) -> None:
    """Give a network what suits the number of its training texts, where the user has set nothing else.

    Of few texts most pieces of words are met too seldom to learn what they mean, and words are learned by heart: the symbols are then words,
    and more of them and of the network is dropped. Where each text is one word, hardly any would be met again: they are read by
    their letters. Embedded corpora and tokenizers of the user's own are left alone.
    """
    if (
        embedded(data.describe())
        or not LEAST <= len(data) <= FEW
        or m.settings_.tokenizer != "auto"
        or "tokens" in m._given
    ):
        return
    if single_words(data):
        if m.settings_.model in IN_ORDER:
            assume(m, OF_LETTERS, "single words, which are read by their letters")
        return
    assume(m, SMALL.get(m.settings_.model, {}), f"{len(data):,} training texts")


def of_ngrams(targets: Targets) -> dict[str, Any]:
    """Settings of `ngrams` for what is to be predicted: a margin tells many classes apart better than a logistic regression of each, above all
    those of few texts, and is no better with two."""
    if targets.kind == "number":
        return {"penalty": 1.0}
    return {"margin": True, "penalty": 1.0} if targets.kind == "class" and targets.size > 2 else {}


def suit_ngrams(m: Classifier, data: Table, targets: Targets) -> None:
    """Give `ngrams` what suits its labels, where the user has set nothing else. Embedded corpora are left alone."""
    if m.settings_.model == "ngrams" and not embedded(data.describe()):
        many = "numbers" if targets.kind == "number" else f"{targets.size} classes"
        assume(m, of_ngrams(targets), many)
        most = max(1, MOST_WEIGHTS // targets.size)
        if most < m.settings_.vocab_size:  # a weight for each class, and two numbers beside it
            assume(m, {"vocab_size": most}, many)


def suit_vectors(m: Classifier, data: Table) -> None:
    """Let a network read the longest of its sequences whole, where the user has not said how long they may be; very long ones, which no
    network reads in an acceptable time, stay left out. Of very many sequences `rocket` counts a quarter of its features, since the time goes with
    their square."""
    if len(data) > MANY:
        assume(m, {"thresholds": 1, "places": False}, f"{len(data):,} training sequences")
    longest = max(len(x) for x in data.column(0))
    if m.settings_.max_tokens < longest <= LONGEST and data[0][0].ndim == 2:
        assume(m, {"max_tokens": longest}, f"sequences of up to {longest:,} steps")


def check_fits(s: ClassifierSettings, data: Table, *, looks: bool) -> None:
    """A `DataError` where ``data`` are not what the settings are about; ``looks``: ``init`` names a model of pictures."""
    vectors = data.holds_vectors
    if looks:
        if not vectors:
            raise DataError(
                f"{s.init}, which init names, looks at pictures, but the data are texts; give pictures."
            )
        return
    if vectors:
        if s.init or s.embeddings:
            raise DataError(
                "init and embeddings are about symbols, but the data are vectors; leave them out."
            )
        if s.model in OF_TEXTS:
            raise DataError(f"the preset {s.model} reads texts, but the data are vectors; choose another.")
        return
    if s.model == "rocket":
        raise DataError("the preset rocket reads vectors, but the data are texts; choose ngrams, or another.")
    if s.features != "none":
        raise DataError("features makes frames of vectors, but the data are texts; leave it out.")
    if s.frontend != "none":
        raise DataError("frontend reads frames of vectors, but the data are texts; leave it out.")
    if s.model in PICTURES:
        raise DataError(
            f"the preset {s.model} looks at pictures, but the data are texts; give arrays (rows, columns) with "
            "their labels, or choose another preset."
        )
