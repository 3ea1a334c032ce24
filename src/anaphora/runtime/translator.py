"""A translator out of its two graphs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from anaphora.data.asked import filled
from anaphora.data.seeds import symbols_seed
from anaphora.data.symbols import EOS, PAD
from anaphora.data.tokenizers.vocabularies import Around
from anaphora.errors import DataError
from anaphora.kinds.kind import given_inputs
from anaphora.kinds.text import texts_of
from anaphora.runtime.folder import Exported
from anaphora.runtime.stored import stored_pair
from anaphora.runtime.writer import ROWS, Encoder, Output, Searching, best_of, check_n_best, searched_outputs
from anaphora.search._hypothesis import NBest
from anaphora.settings.search import CompleteSearch, most_symbols


class Translator:
    """`predict` and `search` of an exported `an.Translator`."""

    def __init__(self, exported: Exported, *, threads: int = 0):
        self.preset = exported.preset
        try:
            self.tokenizer = stored_pair(exported)
            self._longest = int(exported.facts["max_tokens"])
        except (LookupError, TypeError, ValueError, AttributeError, DataError) as error:
            raise exported.damaged(error) from None
        self._searching, self._encoder = Searching(exported), Encoder(exported, threads=threads)

    def predict(self, texts: Iterable[str], *, details: bool = False, **options: Any) -> list[Any]:
        """The best output for each text; ``options`` are those of `an.Translator.predict`: ``beam``, ``length_penalty``,
        ``decode`` and others. With ``details`` each is an `Output` with its score."""
        return best_of(self.search(texts, **options), details)

    def search(self, texts: Iterable[str], /, *, n_best: int = 1, **options: Any) -> list[list[Output]]:
        """The ``n_best`` outputs for each text with their scores, different texts and best first; of a text with nothing in it the
        output is empty."""
        pair = self.tokenizer.between(options.pop("source_language", ""), options.pop("target_language", ""))
        asked = self._searching.asked(options)
        check_n_best(n_best)

        def answer(full: list[str]) -> list[list[Output]]:
            encoded = pair.sources(full)
            long = sum(len(ids) > self._longest for ids in encoded)
            if long:
                warnings.warn(
                    f"{long} of {len(encoded)} inputs were longer than max_tokens = {self._longest} symbols and were cut",
                    stacklevel=5,
                )
            return searched_outputs(
                lambda some, wide: self._all(some, asked, wide, pair.around),
                [ids[: self._longest] for ids in encoded],
                n_best,
                self.tokenizer.target.decode,
                drawn=asked.decode == "sample",
            )

        return filled(texts_of(given_inputs(texts, {})), answer, [Output("", 0.0, 0.0, True)])

    def _all(
        self, sources: Sequence[Sequence[int]], s: CompleteSearch, n_best: int, around: Around
    ) -> list[NBest]:
        found: list[Any] = [None] * len(sources)
        order = sorted(range(len(sources)), key=lambda i: (len(sources[i]), i))
        for begin in range(0, len(order), ROWS):
            chosen = order[begin : begin + ROWS]
            some = [sources[i] for i in chosen]
            lengths = np.array([len(ids) + 1 for ids in some], dtype=np.int64)
            table = np.full((len(some), int(lengths.max())), PAD, dtype=np.int64)
            for row, ids in enumerate(some):
                table[row, : len(ids) + 1] = [*ids, EOS]
            state, _ = self._encoder(source=table, lengths=lengths)
            limits = [max(most_symbols(len(ids), s.max_length), s.min_length) for ids in some]
            seeds = [symbols_seed(s.seed, ids) for ids in some]
            for i, nbest in zip(
                chosen,
                self._searching(self._encoder.steps, state, limits, seeds, s, n_best, around),
                strict=True,
            ):
                found[i] = nbest
        return found
