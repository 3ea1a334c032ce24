"""Transcripts of recordings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anaphora.cli.answering.response import Response
from anaphora.errors import DataError
from anaphora.tasks.bulk.windows import Item
from anaphora.tasks.bulk.worker import Answer, Asked
from anaphora.tasks.transcribe.estimator import Transcriber
from anaphora.tasks.transcribe.inference.asking import listening_of
from anaphora.tasks.transcribe.inference.reading import sources
from anaphora.tasks.transcribe.inference.words import Transcript

TOGETHER = 8
LEFT_OUT = "{bad} of {of} recordings could not be read and were left out"


def asked(model: Transcriber, source: str, options: Mapping[str, Any]) -> Iterator[list[Item]]:
    """The recordings that a file, a folder or a list of files names, in order."""
    model._options(options)
    files = sources(model, source)
    for file in files:
        yield [Item((str(file), len(files) > 1))]


def answering(model: Transcriber, options: Mapping[str, Any]) -> Answer:
    """One response for each recording. Of a folder or a list each line is ``path⇥text``; with ``n_best`` above 1
    ``path⇥score⇥text``."""
    chosen = model._options(options)
    listening = listening_of(model, chosen)

    def answer(asked: Asked) -> Iterator[Response]:
        for number, (file, several) in asked:
            try:
                heard = model._hear(Path(file), number, chosen.voices)
            except DataError as error:
                if chosen.bad_rows == "strict":
                    raise
                yield Response(f"{file}\t", {"file": file, "output": None, "error": str(error)})
                continue
            (found,) = model._transcribed(listening, [heard])
            frames = len(heard[0] if isinstance(heard, list) else heard)
            yield _response(file, found, frames * model.settings_.hop, several=several)

    return answer


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
