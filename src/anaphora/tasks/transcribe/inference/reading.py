"""What ``predict`` was asked to listen to, and how it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from anaphora.data.audio.files import AUDIO_ENDINGS
from anaphora.data.streams import check_readable, line_batches
from anaphora.data.vectors_files import ENDINGS
from anaphora.errors import DataError
from anaphora.tasks.response import Response
from anaphora.tasks.transcribe.inference.words import Transcript

LISTS = (".tsv", ".txt", ".lst")


def sources(name: str | Path) -> list[Path]:
    """The files that ``name`` means: itself; those of a folder, by name; or those of a list (``.tsv``, ``.txt``, or
    standard input for ``-``), one per line, paths counting from the list's folder, further columns not mattering."""
    path = Path(name)
    if path.is_dir():
        endings = (*AUDIO_ENDINGS, *ENDINGS)
        found = sorted(file for file in path.iterdir() if file.suffix.lower() in endings)
        if not found:
            raise DataError(
                f"{name} is a folder without recordings ({', '.join(endings)}); name another one."
            )
        return found
    if str(name) == "-" or path.suffix.lower() in LISTS:
        lines = [line for batch in line_batches(str(name)) for line in batch if line.strip()]
        if not lines:
            raise DataError(f"{name} names no recordings; write one path per line.")
        folder = Path() if str(name) == "-" else path.parent
        return [folder / line.split("\t")[0].strip() for line in lines]
    check_readable(str(path))
    return [path]


def response(file: str, found: Sequence[Transcript], seconds: float, *, several: bool) -> Response:
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
