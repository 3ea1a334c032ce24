"""What `TranscribeOptions` ask of a trained transcriber: how it searches, and how it listens."""

from __future__ import annotations

from typing import Any

from anaphora.models.ctc import CTCModel
from anaphora.models.transducer import TransducerModel
from anaphora.settings.own import Part
from anaphora.settings.transcribe import TranscribeOptions
from anaphora.tasks.transcribe.build import TRAIN, make_lexicon, read_language_model
from anaphora.tasks.transcribe.inference.decoding import LEAST_WORDS, PLAIN, WORDS, Search
from anaphora.tasks.transcribe.inference.listening import Listening
from anaphora.tasks.transcribe.inference.unsaid import never_by


def search_of(m: Any, asked: TranscribeOptions) -> Search:
    """The search of the `Transcriber` ``m``, with the lexicon and the language model that ``asked`` names."""
    lexicon = None
    if asked.lexicon or asked.lm or asked.hot_words:
        lexicon = make_lexicon(asked.lexicon or TRAIN, m.tokenizer_, m.words_)
    width = asked.beam or max(PLAIN if lexicon is None else WORDS, asked.n_best)
    if lexicon is not None and isinstance(m.model_, CTCModel | TransducerModel):
        width = max(width, LEAST_WORDS)
    return Search(
        width=width,
        n_best=asked.n_best,
        lexicon=lexicon,
        lm=read_language_model(asked.lm) if asked.lm else None,
        lm_weight=asked.lm_weight,
        word_bonus=asked.word_bonus,
        hot_words=asked.expected(),
        ctc_weight=m.settings_.ctc_weight,
        never=never_by(m.model_, m.unsaid_),
        own=asked.search.bring(where="search = ") if isinstance(asked.search, Part) else None,
    )


def listening_of(m: Any, asked: TranscribeOptions) -> Listening:
    """How the `Transcriber` ``m`` reads frames and searches, as ``asked``."""
    s, search = m.settings_, search_of(m, asked)
    return Listening(m.model_, m.tokenizer_, search, s.hop, s.subsample, asked.window, asked.overlap)
