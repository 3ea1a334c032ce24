"""From pictures, as they are named by a file, a folder, a list or a pipe, to hypotheses, and to where the model looked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anaphora.cancellation import each_step
from anaphora.data.asked import list_lines
from anaphora.data.batches.padded import images_of, padded
from anaphora.data.files import beside
from anaphora.data.pictures import PICTURE_ENDINGS, Pixels
from anaphora.data.pictures_readers import ROOMS
from anaphora.data.seeds import picture_seed
from anaphora.data.sources.formats import format_of
from anaphora.data.sources.roles import CAPTIONED
from anaphora.data.symbols import BOS
from anaphora.errors import DataError
from anaphora.models.packed import packed
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn import inside
from anaphora.search import NBest
from anaphora.tasks.decoding import ROWS, items_together, search_memory
from anaphora.tasks.outputs import complete_search


@torch.no_grad()
def describe_pictures(
    model: Seq2Seq, pictures: Sequence[Pixels], *, n_best: int = 1, keep_tree: bool = False, **settings: Any
) -> list[NBest]:
    """The best captions of every picture, in order; ``settings`` are `SearchSettings`."""
    asked = complete_search(model, settings, presets="lstm-attention or transformer")
    device = next(model.parameters()).device
    engine = model if inside.recording() else packed(model, int8=asked.int8)
    found: list[NBest] = []
    limit = max(asked.max_length, asked.min_length)
    together = items_together(asked, n_best)
    for begin in each_step(range(0, len(pictures), together)):
        some = pictures[begin : begin + together]
        memory = engine.encoder(images_of(some, device))
        seeds = [picture_seed(asked.seed, picture) for picture in some]
        limits = [limit] * len(some)
        found += search_memory(engine, memory, limits, seeds, asked, n_best=n_best, keep_tree=keep_tree)
    return found


@torch.no_grad()
def where_it_looked(
    model: Seq2Seq, pictures: Sequence[Pixels], captions: Sequence[Sequence[int]]
) -> list[np.ndarray[Any, Any]]:
    """For every picture the weights ``(symbols and EOS, places)`` while the model writes these symbols about it: of
    several layers the highest, of several heads their mean."""
    device = next(model.parameters()).device
    found: list[np.ndarray[Any, Any]] = []
    for begin in range(0, len(pictures), ROWS):
        some = captions[begin : begin + ROWS]
        images = images_of(pictures[begin : begin + ROWS], device)
        target = padded(some, device, first=BOS)
        weights = model.alignment(images, torch.ones(len(some), dtype=torch.long, device=device), target)
        table = weights.float().cpu().numpy()
        found += [row[: len(symbols) + 1] for row, symbols in zip(table, some, strict=True)]
    return found


def named_pictures(source: str, learnt: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """Names and paths of the pictures that ``source`` names.

    source: a picture; a folder, of which the pictures are taken in order of their names; a list (``.tsv``, ``.txt``)
    whose first column has paths, counted from the list's folder; ``-`` for such a list on standard input; or a table with
    a column of paths. ``learnt``: what `describe` said of the training data.
    """
    path = Path(source)
    if source != "-" and path.is_dir():
        found = sorted(file for file in path.iterdir() if file.suffix.lower() in PICTURE_ENDINGS)
        if not found:
            raise DataError(
                f"{source} holds no pictures ({', '.join(PICTURE_ENDINGS[:4])} …); give another folder."
            )
        yield from ((file.name, file) for file in found)
    elif source == "-" or (path.suffix.lower() not in ("", *PICTURE_ENDINGS) and format_of(path) is not None):
        folder = Path() if source == "-" else path.parent
        for lines in list_lines(source, CAPTIONED[:1], learnt):
            names = (line.split("\t")[0].strip() for line in lines)
            yield from ((name, beside(folder, name, ROOMS)) for name in names if name)
    else:
        yield source, path
