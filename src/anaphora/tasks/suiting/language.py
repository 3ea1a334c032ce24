"""Defaults of a language model that depend on how much text there is to learn from, and on what it is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anaphora.data.sources.report import say
from anaphora.settings.language import LanguageSettings, large_lstm, large_lstm_budget
from anaphora.tasks.suiting.sizing import assume, embedded
from anaphora.training.precision import choose_device

if TYPE_CHECKING:
    from anaphora.data.text import Text
    from anaphora.tasks.language.estimator import LanguageModel

MUCH = 500_000
"""Symbols from which on a GPU trains a large LSTM in minutes that is better than a small one."""
LITTLE = 20_000
"""Symbols of which a training is an example rather than a model of a language."""
LOOK = 1_000_000
"""Characters of which the words are counted."""
FEW_WORDS = {"input_dropout": 0.4, "output_dropout": 0.4}
"""What keeps a small network of one layer from learning fewer than `MUCH` words by heart, which it reads ten times and more."""
FEW_LETTERS = {"input_dropout": 0.1, "output_dropout": 0.3}
"""The same for fewer than `LETTERS` characters, read twenty times."""
LETTERS = 200_000
FEWEST_LETTERS = {"input_dropout": 0.2, "output_dropout": 0.5}
"""The same for `LEAST_LETTERS` to `LITTLE` characters."""
LEAST_LETTERS = 5000
SOME_WORDS = 1_500_000
"""Words below which the best step of a large LSTM comes before the end of its cycle of lr: it learns them by heart."""
FIRM = {"weight_decay": 0.3}
"""What delays that: of 150 000 to 930 000 words the best step is better and comes later than with the 0.1 for more text."""
LONG = {"order": 8, "prune": 5}
"""Counts of characters that are better than those of five in a row; of longer ones that occur once nothing is learned."""
LEAST_COUNTED, MOST_COUNTED = 10_000, 20_000_000
"""Characters between which longer ones are worth their memory."""
_COUNTING = ("order", "prune", "smoothing")
RARE = {"unknown_share": 0.5}
"""What lets a model of words learn how often an unknown one comes, where the vocabulary holds all of its text."""
LEAST_WORDS = 2000
"""Fewer words are an example, and each of them is wanted."""
_SIZES = ("cell", "layers", "hidden", "embedding")
_RECURRENT = ("rnn", "lstm", "gru")
_PLAIN = ("elman", "lstm", "gru")


def suit_text(m: LanguageModel, data: Text) -> None:
    """Give a recurrent network what suits the amount of its text; a user who sets a size has a network of their own in mind.

    - ``lstm`` has the sizes, dropout and budget of ``awd-lstm`` where it learns from much running text on a GPU. On a CPU that would take
      hours, and of little text a large network learns no more than a small one.
    - Few words are learned by heart within three passes: more of the network is then dropped, so that it goes on learning.
    - A large LSTM has more weight decay where it learns from fewer than `SOME_WORDS` words by AdamW.

    - Counts of characters are of up to eight in a row, and without the long ones that occur once.
    - Of 2 000 to `MUCH` words half of those that occur once are read as unknown words, in every preset that says what comes next.

    Dropout between layers has no effect where there is one layer, which is said if the user asks for it.
    """
    s = m.settings_
    if (
        s.layers == 1
        and s.cell in _PLAIN
        and s.model in (*_RECURRENT, "awd-lstm")
        and m._given.get("dropout")
    ):
        say(
            f"warning: dropout = {s.dropout:g} acts between layers, and there is one: it has no effect. "
            "Set input_dropout and output_dropout, or more layers"
        )
    _suit_rare_words(m, data)
    if s.model == "ngram" and not any(key in m._given for key in _COUNTING):
        assume(m, counting(s, data), f"{data.characters:,} training characters")
    if s.model not in (*_RECURRENT, "awd-lstm") or any(key in m._given for key in _SIZES):
        return
    letters = s.tokens == "char" and s.tokenizer == "auto"
    symbols = data.characters if letters else _words(data)
    tokens, what = ("char", "characters") if letters else ("word", "words")
    firm = FIRM if not letters and symbols < SOME_WORDS and s.optimizer == "adamw" else {}
    if s.model == "awd-lstm":
        if symbols >= LITTLE:
            assume(m, firm, f"{symbols:,} training {what}")
        return
    if LITTLE <= symbols < (LETTERS if letters else MUCH):
        assume(m, FEW_LETTERS if letters else FEW_WORDS, f"{symbols:,} training {what}")
    elif letters and LEAST_LETTERS <= symbols < LITTLE:
        assume(m, FEWEST_LETTERS, f"{symbols:,} training characters")
    if s.model != "lstm" or s.lines or symbols < MUCH or choose_device(s.device).type != "cuda":
        return
    follows = LanguageSettings.implied(m._given)  # such as the lr of the optimizer that was given
    budget = {} if "steps" in m._given else large_lstm_budget(tokens)
    chosen = {key: value for key, value in (large_lstm(tokens) | firm | budget).items() if key not in follows}
    assume(m, chosen, f"{symbols:,} training {what} on a GPU")


def counting(s: LanguageSettings, data: Text) -> dict[str, int]:
    """Settings of `ngram` that suit the amount of text of ``data``, where its symbols are characters."""
    letters = s.tokens == "char" and s.tokenizer == "auto"
    return dict(LONG) if letters and LEAST_COUNTED <= data.characters <= MOST_COUNTED else {}


def _suit_rare_words(m: LanguageModel, data: Text) -> None:
    s = m.settings_
    if s.tokens != "word" or s.tokenizer != "auto" or embedded(data.describe()):
        return
    if LEAST_WORDS <= (words := _words(data)) < MUCH:
        assume(m, RARE, f"{words:,} training words")


def _words(data: Text) -> int:
    """How many words the text has, by those of its beginning."""
    seen = words = 0
    for block in data.blocks():
        seen, words = seen + len(block), words + len(block.split())
        if seen >= LOOK:
            break
    return words if seen >= data.characters else round(words / max(1, seen) * data.characters)
