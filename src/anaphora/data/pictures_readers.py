"""From what a user names (a list of pictures with texts, an embedded corpus, examples in Python) to a `PictureList`."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from anaphora.data.corpora import CORPORA, CORPUS_SEED, find
from anaphora.data.files import Verdict, beside, save_arrays
from anaphora.data.opening import Reader
from anaphora.data.pictures import PictureList, Pixels, Size, Texts, as_picture, read_picture
from anaphora.data.sources.formats import format_of, open_file
from anaphora.data.sources.formats.tabs import TsvTable
from anaphora.data.sources.opening import SPLITS
from anaphora.data.sources.roles import CAPTIONED, QUESTIONS, BadRow, checked, choose_columns, text_problem
from anaphora.data.sources.sheet import Hints, Record, Sheet, table_of
from anaphora.errors import DataError
from anaphora.files import parse_json
from anaphora.files.arrays import load_npz

Kind = Literal["captions", "questions"]
_COLUMNS = {"captions": "path⇥caption", "questions": "path⇥question⇥answer"}
_FEWEST = {"captions": 2, "questions": 3}
_MOST = {"captions": 1 << 10, "questions": 4}
ROOMS = ("Images", "images", "pictures")
"""Folders beside a list that may hold its pictures."""
_ROLES = {"captions": CAPTIONED, "questions": QUESTIONS}


def open_pictures(
    data: Any,
    *,
    role: str,
    size: Size,
    texts: Kind,
    bad_rows: str = "strict",
    spill: Path | None = None,
    learnt: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    **fields: str | None,
) -> PictureList:
    """The pictures that ``data`` names, and what is said about them.

    data: a list, ``.tsv`` or ``.txt``: ``path⇥caption`` (any number of captions, in columns or in rows), or
        ``path⇥question⇥answer`` and perhaps a kind of question; or a table with such columns (CSV, JSON lines, a data
        frame: ``image,caption``), which ``fields`` name where they have no usual names. Paths count from the folder of
        the list (or a folder ``images`` in it), and rows with the same path are about the same picture. Or an embedded
        corpus, of which ``role`` picks the split; or an iterable of ``(picture, caption or captions)`` or ``(picture, question, answer)``, a picture being a path or an
        array.
    size: height and width that every picture is fitted into.
    bad_rows: "strict" raises a `DataError` for the first row whose picture or text cannot be used; "skip" leaves such
        rows out and counts them by reason in ``describe``.
    spill: folder into which pictures from Python are written, so that a run can be resumed.
    """
    size = (size[0], size[1])  # a description has it as a list
    if isinstance(data, str | Path):
        name, _, variant = str(data).partition(":")
        if isinstance(data, str) and name in CORPORA:
            scenes = facts["scenes"] if facts else None
            return _generated(name, variant or None, SPLITS[role], size, texts, scenes)
        if str(data).endswith(".npz"):
            return _unspilled(Path(data), size)
        return _listed(Path(data), size, texts, bad_rows, fields, learnt)
    if (table := table_of(data, f"the {role} table")) is not None:
        names = choose_columns(table.name, table.names, _ROLES[texts], fields, learnt)
        data = [tuple(table.cell(record.values, name) for name in names) for record in table.records()]
    if isinstance(data, Iterable):
        return _given(data, role, size, texts, bad_rows, spill)
    raise DataError(
        f"A {type(data).__name__} does not hold pictures; give a list ({_COLUMNS[texts]}), an embedded corpus, or examples."
    )


def _listed(
    path: Path,
    size: Size,
    texts: Kind,
    bad_rows: str,
    fields: Mapping[str, str | None],
    learnt: Mapping[str, Any] | None,
) -> PictureList:
    if path.is_dir() or format_of(path) is None:
        what = "is not there" if not path.exists() else "does not end in .tsv"
        raise DataError(
            f"{path} {what}; give a list of pictures with a row for each text: {_COLUMNS[texts]}."
        )
    table = open_file(path, None, Hints(tuple(filter(None, fields.values()))))
    verdict = Verdict(table.name, bad_rows)
    names = None
    if table.names and not (isinstance(table, TsvTable) and not table.header):
        names = choose_columns(table.name, table.names, _ROLES[texts], fields, learnt)
    by_path: dict[str, list[tuple[int, list[str]]]] = {}
    for record in table.records():
        try:
            name, *rest = _cells(table, record, names, texts)
        except BadRow as bad:
            verdict.reject(record.number, bad.reason, bad.detail)
        else:
            by_path.setdefault(name, []).append((record.number, rest))
    facts: dict[str, Any] = {
        "kind": "list",
        "path": os.path.abspath(path),
        "texts": texts,
        "bad_rows": bad_rows,
    }
    chosen = {} if names is None else dict(zip([role.field for role in _ROLES[texts]], names, strict=True))
    found = PictureList(size, facts | chosen)
    for name, rows in by_path.items():
        place = beside(path.parent, name, ROOMS)
        try:
            pixels = read_picture(place, size=size)
        except DataError as error:
            for line, _ in rows:
                verdict.reject(
                    line, "a picture that cannot be used", str(error).partition(";")[0].rstrip(".")
                )
            continue
        found.add(pixels, [row for _, rest in rows for row in _rows(rest, texts)], place)
    return _judged(found, verdict)


def _cells(table: Sheet, record: Record, names: Sequence[str] | None, texts: Kind) -> Sequence[str]:
    """A path and the texts about the picture. Rows without names may have texts in any number of columns."""
    if names is not None:
        if record.problem:
            raise BadRow(*record.problem)
        return [cell.strip() for cell in checked(partial(table.cell, record.values), names, _ROLES[texts])]
    cells: list[str] = record.values
    if cells is None:
        raise BadRow(*(record.problem or ("", "")))
    if not _FEWEST[texts] <= len(cells) <= _MOST[texts]:
        raise BadRow("wrong number of columns", f"{len(cells)} where {_COLUMNS[texts]} is wanted")
    if not all(cell.strip() for cell in cells[: _FEWEST[texts]]):
        raise BadRow("an empty column")
    return cells


def _rows(cells: Sequence[str], texts: Kind) -> list[Texts]:
    """Captions are a row each; a question goes with its answer."""
    return [(cell,) for cell in cells if cell.strip()] if texts == "captions" else [tuple(cells)]


def _given(
    examples: Iterable[Any], role: str, size: Size, texts: Kind, bad_rows: str, spill: Path | None
) -> PictureList:
    verdict = Verdict(f"{role} examples", bad_rows)
    pictures: dict[str, tuple[Pixels, list[Texts]]] = {}
    for number, example in enumerate(examples, start=1):
        try:
            picture, rows = _checked(example, texts)
            pixels = _pixels(picture, f"{role} example {number}", size)
        except DataError as error:
            verdict.reject(number, "an example that cannot be used", str(error).partition(";")[0].rstrip("."))
            continue
        key = hashlib.sha256(pixels.tobytes()).hexdigest()
        pictures.setdefault(key, (pixels, []))[1].extend(rows)
    found = PictureList(size, {"kind": "memory", "texts": texts, "bad_rows": bad_rows})
    for pixels, rows in pictures.values():
        found.add(pixels, rows)
    _judged(found, verdict)
    if spill is None:
        return found
    path = spill / f"{role}.npz"
    about = json.dumps({"texts": found.texts, "facts": found.facts}, ensure_ascii=False)
    save_arrays(path, pictures=np.stack([found.load(i) for i in range(len(found))]), about=np.array(about))
    return _unspilled(path, size)


def _unspilled(path: Path, size: Size) -> PictureList:
    """What `_given` wrote."""
    try:
        kept = load_npz(path)
        pictures, about = kept["pictures"], parse_json(str(kept["about"]))
        texts, facts = about["texts"], dict(about["facts"])
        if len(texts) != len(pictures) or not all(
            isinstance(text, str) for rows in texts for row in rows for text in row
        ):
            raise ValueError("its texts do not belong to its pictures")
    except (OSError, ValueError, EOFError, LookupError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path} does not hold pictures that were kept for a run ({error}); start a new run."
        ) from None
    found = PictureList(size, {**facts, "kind": "kept", "path": os.path.abspath(path)})
    for pixels, rows in zip(pictures, texts, strict=True):
        found.add(as_picture(pixels, str(path), size=size), [tuple(row) for row in rows])
    return found


def _checked(example: Any, texts: Kind) -> tuple[Any, list[Texts]]:
    if not isinstance(example, tuple | list) or len(example) < 2:
        raise DataError(f"it is a {type(example).__name__}, not a picture with its texts.")
    picture, *rest = example
    if texts == "captions" and len(rest) == 1 and isinstance(rest[0], list | tuple):
        rest = list(rest[0])
    if not _FEWEST[texts] <= len(rest) + 1 <= _MOST[texts]:
        raise DataError(f"it has {len(rest)} texts where (picture, {_COLUMNS[texts][5:]}) is wanted.")
    for text in rest:
        problem = (
            text_problem(text) if isinstance(text, str) else f"a {type(text).__name__} where a text is wanted"
        )
        if problem:
            raise DataError(f"it has {problem}.")
    return picture, _rows(rest, texts)


def _pixels(picture: Any, where: str, size: Size) -> Pixels:
    if isinstance(picture, str | Path):
        return read_picture(picture, size=size)
    return as_picture(picture, where, size=size)


def _generated(
    name: str, variant: str | None, split: str, size: Size, texts: Kind, count: int | None = None
) -> PictureList:
    corpus, variant = find(name, variant)
    if not {"caption", "answer"} & set(corpus.tasks):
        raise DataError(f"{name} holds no pictures; it is for `train {corpus.tasks[0]}`.")
    count = corpus.sizes[split] if count is None else count
    facts: dict[str, Any] = {
        "kind": "corpus",
        "name": name,
        "variant": variant,
        "split": split,
        "texts": texts,
    }
    found = PictureList(size, {**facts, "scenes": count, "seed": CORPUS_SEED})
    for number, scene in enumerate(_scenes(corpus, variant, split, count), start=1):
        rows = [(caption,) for caption in scene.captions] if texts == "captions" else scene.questions
        found.add(as_picture(scene.picture, f"{name} {number}", size=size), [tuple(row) for row in rows])
    return found


def _scenes(corpus: Any, variant: str, split: str, count: int) -> Iterator[Any]:
    return iter(corpus.generate(variant, split, count))


def _judged(found: PictureList, verdict: Verdict) -> PictureList:
    """The same with what was left out among its facts; nothing left is an error."""
    verdict.require(len(found))
    found.facts["skipped"] = dict(verdict.skipped)
    return found


PICTURE_READER = Reader(
    open_pictures, ("size", "texts", "bad_rows", "picture_field", "source_field", "target_field")
)
