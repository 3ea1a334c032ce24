"""From what a user names (a list of pictures with texts, an embedded corpus, examples in Python) to a `PictureList`."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from anaphora.data.corpora import CORPORA, CORPUS_SEED, find
from anaphora.data.files import TextFile, Verdict
from anaphora.data.lines import Lines, scan
from anaphora.data.pictures import Pixels, Size, as_picture, read_picture
from anaphora.data.pictures_list import PictureList, Texts
from anaphora.data.reopening import check_kept, check_same, found_again, reopen_both
from anaphora.data.sources.holdout import hold_out, open_both
from anaphora.data.sources.roles import text_problem
from anaphora.errors import DataError
from anaphora.files import parse_json
from anaphora.files.arrays import load_npz

Kind = Literal["captions", "questions"]
_COLUMNS = {"captions": "path⇥caption, and further captions", "questions": "path⇥question⇥answer"}
_FEWEST = {"captions": 2, "questions": 3}
_MOST = {"captions": 1 << 10, "questions": 4}
_SPLITS = {"train": "train", "dev": "dev", "test": "test"}


def open_pictures(
    data: Any,
    *,
    role: str,
    size: Size,
    texts: Kind,
    bad_rows: str = "strict",
    spill: Path | None = None,
) -> PictureList:
    """The pictures that ``data`` names, and what is said about them.

    data: a list, ``.tsv`` or ``.txt``: ``path⇥caption`` (any number of captions, in columns or in rows), or
        ``path⇥question⇥answer`` and perhaps a kind of question; paths count from the folder of the list, and rows with
        the same path are about the same picture. Or an embedded corpus, of which ``role`` picks the split; or an
        iterable of ``(picture, caption or captions)`` or ``(picture, question, answer)``, a picture being a path or an
        array.
    size: height and width that every picture is fitted into.
    bad_rows: "strict" raises a `DataError` for the first row whose picture or text cannot be used; "skip" leaves such
        rows out and counts them by reason in ``describe``.
    spill: folder into which pictures from Python are written, so that a run can be resumed.
    """
    if isinstance(data, str | Path):
        name, _, variant = str(data).partition(":")
        if isinstance(data, str) and name in CORPORA:
            return _generated(name, variant or None, _SPLITS[role], size, texts)
        if str(data).endswith(".npz"):
            return _unspilled(Path(data), size)
        return _listed(Path(data), size, texts, bad_rows)
    if isinstance(data, Iterable):
        return _given(data, role, size, texts, bad_rows, spill)
    raise DataError(
        f"A {type(data).__name__} does not hold pictures; give a list ({_COLUMNS[texts]}), an embedded corpus, or examples."
    )


def open_training_pictures(
    data: Any, valid: Any | None, *, seed: int, holdout: float, **read: Any
) -> tuple[PictureList, PictureList]:
    """``(train, dev)``: dev data are those given, an embedded corpus's own, or ``holdout`` of the pictures held out."""
    return open_both(
        data,
        valid,
        lambda one, role: open_pictures(one, role=role, **read),
        lambda whole: hold_out(whole, seed=seed, holdout=holdout),
    )


def reopen_training_pictures(
    descriptions: dict[str, Any], *, spill: Path | None
) -> tuple[PictureList, PictureList]:
    """``(train, dev)`` of a run again, as its config describes them, or a sentence on what changed."""
    return reopen_both(
        descriptions,
        lambda one: _reopen(one, spill),
        lambda whole, held: hold_out(whole, seed=held["seed"], holdout=held["count"]),
    )


def reopen_dev_pictures(descriptions: dict[str, Any], *, spill: Path | None) -> PictureList:
    """The dev data alone: of a corpus, or of lists of their own, the training data need not be read again."""
    if descriptions.get("valid", {}).get("kind") in (None, "held-out"):
        return reopen_training_pictures(descriptions, spill=spill)[1]
    return _reopen(descriptions["valid"], spill)


def _reopen(description: dict[str, Any], spill: Path | None) -> PictureList:
    kind, size = description["kind"], (description["size"][0], description["size"][1])
    check_kept(kind, "examples")
    if kind == "corpus":
        place = f"The corpus {description['name']}"
        name, variant, split = (description[key] for key in ("name", "variant", "split"))
        found = _generated(name, variant, split, size, description["texts"], description["scenes"])
    else:
        path = found_again(description["path"], spill)
        place = f"{path} or one of its pictures"
        read = {"texts": description["texts"], "bad_rows": description["bad_rows"]}
        found = open_pictures(path, role="train", size=size, **read)
    check_same(found, description, place)
    return found


def _listed(path: Path, size: Size, texts: Kind, bad_rows: str) -> PictureList:
    if path.suffix.lower() not in (".tsv", ".txt"):
        what = "is not there" if not path.exists() else "does not end in .tsv"
        raise DataError(
            f"{path} {what}; give a list of pictures with a row for each text: {_COLUMNS[texts]}."
        )
    file = TextFile(path)
    verdict = Verdict(file.name, bad_rows)
    table = scan(file, verdict, lambda lines: _judge(lines, texts), keep_all=True)
    by_path: dict[str, list[tuple[int, list[str]]]] = {}
    for number in np.flatnonzero(table.good).tolist():
        name, *rest = file.at(int(table.starts[number]), int(table.sizes[number])).decode().split("\t")
        if rest:
            by_path.setdefault(name, []).append((number + 1, rest))
    facts: dict[str, Any] = {
        "kind": "list",
        "path": os.path.abspath(path),
        "texts": texts,
        "bad_rows": bad_rows,
    }
    found = PictureList(size, facts)
    for name, rows in by_path.items():
        try:
            pixels = read_picture(path.parent / name, size=size)
        except DataError as error:
            for line, _ in rows:
                verdict.reject(
                    line, "a picture that cannot be used", str(error).partition(";")[0].rstrip(".")
                )
            continue
        found.add(pixels, [row for _, rest in rows for row in _rows(rest, texts)], path.parent / name)
    return _judged(found, verdict)


def _judge(lines: Lines, texts: Kind) -> None:
    """Rejects rows with too few or too many columns, or with nothing in one of them; blank lines are no rows."""
    for index in range(len(lines)):
        row = lines.text(index)
        if not row.strip():
            continue
        cells = row.split(b"\t")
        if not _FEWEST[texts] <= len(cells) <= _MOST[texts]:
            wanted = f"{len(cells)} where {_COLUMNS[texts]} is wanted"
            lines.reject(index, "wrong number of columns", wanted)
        elif not all(cell.strip() for cell in cells[: _FEWEST[texts]]):
            lines.reject(index, "an empty column")


def _rows(cells: list[str], texts: Kind) -> list[Texts]:
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
    try:
        spill.mkdir(parents=True, exist_ok=True)
        facts = json.dumps({"texts": found.texts, "facts": found.facts}, ensure_ascii=False)
        np.savez(path, pictures=np.stack([found.load(i) for i in range(len(found))]), about=np.array(facts))
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror or error}; free space or choose another folder."
        ) from None
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
