"""Transcripts of recordings."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from anaphora.cli.answering.response import Response
from anaphora.errors import DataError
from anaphora.tasks.transcribe.estimator import Transcriber
from anaphora.tasks.transcribe.inference.reading import sources
from anaphora.tasks.transcribe.inference.words import Transcript


def respond(model: Transcriber, source: str, options: Mapping[str, Any]) -> Iterator[Response]:
    """One response for each recording that a file, a folder or a list of files names, in order.

    Of a folder or a list each line is ``path⇥text``; with ``n_best`` above 1 ``path⇥score⇥text``.
    """
    asked = model._options(options)
    listening, files = model._listening(asked), sources(source, model._trained_on)
    skipped = 0
    for number, file in enumerate(files, start=1):
        try:
            heard = model._hear(file, number)
        except DataError as error:
            if asked.bad_rows == "strict":
                raise
            skipped += 1
            yield Response(f"{file}\t", {"file": str(file), "output": None, "error": str(error)})
            continue
        (found,) = model._transcribed(listening, [heard])
        yield _response(str(file), found, len(heard) * model.settings_.hop, several=len(files) > 1)
    if skipped:
        warnings.warn(
            f"{skipped} of {len(files)} recordings could not be read and were left out", stacklevel=2
        )


def _response(file: str, found: Sequence[Transcript], seconds: float, *, several: bool) -> Response:
    """The answer for one recording."""
    best = found[0]
    if len(found) > 1:
        text = "\n".join(f"{file}\t{t.score:.4f}\t{t.text}" for t in found)
    else:
        text = f"{file}\t{best.text}" if several else best.text
    record = {
        "file": file,
        "output": best.text,
        "seconds": round(seconds, 3),
        "words": [asdict(word) for word in best.words],
        "outputs": [{"text": t.text, "score": t.score, "log_prob": t.log_prob} for t in found],
    }
    return Response(text, record)
