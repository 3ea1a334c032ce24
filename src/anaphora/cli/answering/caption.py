"""Captions of pictures."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from anaphora.cli.answering.response import Response, output_response
from anaphora.errors import DataError
from anaphora.tasks.caption.estimator import Captioner
from anaphora.tasks.caption.inference import picture_batches


def respond(model: Captioner, source: str, options: Mapping[str, Any]) -> Iterator[Response]:
    """One response for each picture that ``source`` names (see `picture_batches`), in order.

    With ``n_best`` above 1 each caption is a line ``number⇥score⇥text``.
    """
    model._check_trained()
    given = dict(options)
    skip, n_best = given.pop("bad_rows", "strict") == "skip", given.pop("n_best", 1)
    number = bad = 0
    for some in picture_batches(source, model.size, model._trained_on):
        for _, seen in some:
            if isinstance(seen, DataError) and not skip:
                raise seen
        usable = [seen for _, seen in some if not isinstance(seen, DataError)]
        found = iter(model._describe(usable, n_best, given) if usable else [])
        for name, seen in some:
            number += 1
            if isinstance(seen, DataError):
                bad += 1
                yield Response("", {"line": number, "picture": name, "output": None, "error": str(seen)})
            else:
                yield output_response(number, {"picture": name}, next(found), many=n_best > 1)
    if bad:
        warnings.warn(f"{bad} of {number} pictures could not be read and were left out", stacklevel=2)
