"""From what a user names (files, a folder, an embedded corpus, texts in Python) to `Text`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from anaphora.data import corpora
from anaphora.data.corpora import CORPUS_SEED
from anaphora.data.files import TextFile
from anaphora.data.reopening import check_kept, check_same, found_again, reopen_both
from anaphora.data.spilling import written_whole
from anaphora.data.text import Source, Text, hold_out_end, hold_out_lines
from anaphora.errors import DataError

Data = str | Path | tuple[str | Path, ...] | Iterable[str]
"""What `open_text` takes."""
_SPLITS = {"train": "train", "dev": "dev", "valid": "dev", "test": "test"}


def open_text(
    data: Data, *, role: str = "train", bad_rows: str = "strict", spill: Path | None = None
) -> Text:
    """The text that ``data`` names.

    data: path of a text file (also ``.gz``), or of a folder whose files are read in the order of their names;
        a tuple of such paths; the name of an embedded corpus, of which ``role`` picks the split; or an iterable
        of texts, each of which is a line (or several).
    bad_rows: "strict" raises a `DataError` that names the first line that is not text; "skip" leaves them out.
    spill: folder into which an iterable is written (as ``<role>.txt``) so that it can be opened again.
    """
    if isinstance(data, str | Path):
        name, _, variant = str(data).partition(":")
        if isinstance(data, str) and name in corpora.CORPORA:
            return _generated(name, variant or None, _SPLITS[role], spill)
        return _files(_found(Path(data)), bad_rows, spill)
    if isinstance(data, tuple) and data and all(isinstance(one, str | Path) for one in data):
        return _files([path for one in data for path in _found(Path(one))], bad_rows, spill)
    if not isinstance(data, Iterable):
        raise DataError(
            f"A {type(data).__name__} cannot be read as text; give a path, a corpus or a list of texts."
        )
    return _examples(data, role, spill)


def open_training_text(
    data: Data,
    valid: Data | None,
    *,
    by_line: bool,
    hold_out: float,
    seed: int,
    bad_rows: str,
    spill: Path | None,
) -> tuple[Text, Text]:
    """``(train, dev)``: dev text is what was given, an embedded corpus's own, or a part held out: of separate lines
    (``by_line``) some chosen by ``seed``, of running text its end."""
    text = open_text(data, role="train", bad_rows=bad_rows, spill=spill)
    if valid is None and text.describe()["kind"] == "corpus":
        valid = data
    if valid is not None:
        return text, open_text(valid, role="dev", bad_rows=bad_rows, spill=spill)
    return hold_out_lines(text, hold_out, seed) if by_line else hold_out_end(text, hold_out)


def reopen_texts(descriptions: dict[str, dict[str, Any]], *, spill: Path | None = None) -> tuple[Text, Text]:
    """``(train, dev)`` of a run again, as its config describes them, or a `DataError` that says what changed."""

    def held_out(whole: Text, held: dict[str, Any]) -> tuple[Text, Text]:
        if "seed" in held:
            return hold_out_lines(whole, held["hold_out"], held["seed"])
        return hold_out_end(whole, held["hold_out"])

    return reopen_both(descriptions, lambda one: _reopen(one, spill), held_out)


def _reopen(description: dict[str, Any], spill: Path | None) -> Text:
    kind = description["kind"]
    check_kept(kind, "texts")
    if kind == "corpus":
        place = f"The corpus {description['name']}"
        text = _generated(description["name"], description["variant"], description["split"], spill)
    else:
        paths = [found_again(path, spill) for path in description["paths"]]
        place = " or ".join(map(str, paths[:3]))
        text = _files(paths, description["bad_rows"], spill)
    check_same(text, description, place)
    return text


def _found(path: Path) -> list[Path]:
    """The file itself, or the files of a folder; hidden ones are left alone."""
    if path.is_dir():
        inside = (p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
        files = sorted(inside, key=lambda p: p.relative_to(path).as_posix())
        if not files:
            raise DataError(f"{path} is an empty folder; give a text file, or a folder of text files.")
        return files
    if not path.exists():
        near = difflib.get_close_matches(str(path).partition(":")[0], corpora.CORPORA, n=1)
        hint = f"did you mean {near[0]}?" if near else "`anaphora corpora` lists the embedded ones."
        raise DataError(f"{path} is neither a file nor an embedded corpus; {hint}")
    return [path]


def _files(paths: list[Path], bad_rows: str, spill: Path | None) -> Text:
    files = [TextFile(path, spill) for path in paths]
    facts = {"kind": "text", "paths": [file.path for file in files]}
    return Text(Source(files, facts, bad_rows), folder=spill)


def _generated(name: str, variant: str | None, split: str, spill: Path | None) -> Text:
    corpus, variant = corpora.find(name, variant)
    if "language" not in corpus.tasks:
        raise DataError(f"{name} is no running text; it is for `train {corpus.tasks[0]}`.")
    facts = {"kind": "corpus", "name": name, "variant": variant, "split": split, "seed": CORPUS_SEED}
    text = corpus.text(variant, split, corpus.sizes[split])
    return Text(Source([text.encode()], facts), folder=spill)


def _examples(data: Iterable[Any], role: str, spill: Path | None) -> Text:
    lines = []
    for number, text in enumerate(data, start=1):
        if not isinstance(text, str):
            raise DataError(
                f"{role} text {number} is a {type(text).__name__}; give a list of str, or a path."
            )
        lines.append(text.removesuffix("\n") + "\n")
    try:
        content = "".join(lines).encode()
    except UnicodeEncodeError:
        raise DataError(
            f"The {role} texts hold half a character; decode them with the right encoding."
        ) from None
    if not content:
        raise DataError(f"There is no {role} text; give at least one.")
    if spill is None:
        return Text(Source([content], {"kind": "memory", "name": f"{role} texts"}))
    path = spill / f"{role}.txt"
    with written_whole(path) as file:
        file.writelines(lines)
    return _files([path], "strict", spill)
