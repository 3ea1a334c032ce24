"""A captioner out of its two graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.pictures import Pixels, given_picture
from anaphora.data.seeds import picture_seed
from anaphora.errors import DataError
from anaphora.runtime.folder import Exported
from anaphora.runtime.stored import stored_tokenizer
from anaphora.runtime.writer import ROWS, Encoder, Output, Searching, best_of, check_n_best, searched_outputs
from anaphora.search._hypothesis import NBest
from anaphora.settings.search import CompleteSearch


class Captioner:
    """`predict` and `search` of an exported `an.Captioner`."""

    def __init__(self, exported: Exported, *, threads: int = 0):
        self.preset = exported.preset
        try:
            self.tokenizer = stored_tokenizer(exported)
            height, width = exported.facts["size"]
            self.size = (int(height), int(width))
        except (LookupError, TypeError, ValueError, AttributeError, DataError) as error:
            raise exported.damaged(error) from None
        self._searching, self._encoder = Searching(exported), Encoder(exported, threads=threads)

    def predict(self, pictures: Iterable[Any], *, details: bool = False, **options: Any) -> list[Any]:
        """The best caption of each picture, a path or an array; ``options`` are those of `an.Captioner.predict`."""
        return best_of(self.search(pictures, **options), details)

    def search(self, pictures: Iterable[Any], /, *, n_best: int = 1, **options: Any) -> list[list[Output]]:
        """The ``n_best`` captions of each picture with their scores, different texts and best first."""
        if isinstance(pictures, str | Path):
            raise DataError("predict takes a list of pictures: write [picture] for a single one.")
        asked = self._searching.asked(options)
        check_n_best(n_best)
        seen = [given_picture(one, number, self.size) for number, one in enumerate(pictures, start=1)]
        drawn = asked.decode == "sample"
        return searched_outputs(
            lambda some, wide: self._all(some, asked, wide), seen, n_best, self.tokenizer.decode, drawn=drawn
        )

    def _all(self, pictures: Sequence[Pixels], s: CompleteSearch, n_best: int) -> list[NBest]:
        found: list[NBest] = []
        limit = max(s.max_length, s.min_length)
        for begin in range(0, len(pictures), ROWS):
            some = pictures[begin : begin + ROWS]
            images = np.stack(some).transpose(0, 3, 1, 2).astype(np.float32) / 255
            state, _ = self._encoder(images=images)
            seeds = [picture_seed(s.seed, picture) for picture in some]
            found += self._searching(self._encoder.steps, state, [limit] * len(some), seeds, s, n_best)
        return found
