"""Captions of pictures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from anaphora.cli.answering.response import Response, output_response
from anaphora.data.pictures import read_picture
from anaphora.errors import DataError
from anaphora.tasks.bulk.windows import Item
from anaphora.tasks.bulk.worker import Answer, Asked
from anaphora.tasks.caption.estimator import Captioner
from anaphora.tasks.caption.inference import named_pictures

TOGETHER = 64
LEFT_OUT = "{bad} of {of} pictures could not be read and were left out"


def asked(model: Captioner, source: str, options: Mapping[str, Any]) -> Iterator[list[Item]]:
    """The pictures that ``source`` names (see `named_pictures`), in order."""
    model._check_trained()
    named = named_pictures(source, model.recipe_.trained_on)
    while some := list(itertools.islice(named, TOGETHER)):
        yield [Item((name, str(path))) for name, path in some]


def answering(model: Captioner, options: Mapping[str, Any]) -> Answer:
    """One response for each picture. With ``n_best`` above 1 each caption is a line ``number⇥score⇥text``."""
    given = dict(options)
    skip, n_best = given.pop("bad_rows", "strict") == "skip", given.pop("n_best", 1)

    def answer(asked: Asked) -> Iterator[Response]:
        seen: list[Any] = []
        for _, (_, path) in asked:
            try:
                seen.append(read_picture(Path(path), size=model.size))
            except DataError as error:
                if not skip:
                    raise
                seen.append(error)
        usable = [one for one in seen if not isinstance(one, DataError)]
        found = iter(model._describe(usable, n_best, given) if usable else [])
        for (number, (name, _)), one in zip(asked, seen, strict=True):
            if isinstance(one, DataError):
                yield Response("", {"line": number, "picture": name, "output": None, "error": str(one)})
            else:
                yield output_response(number, {"picture": name}, next(found), many=n_best > 1)

    return answer
