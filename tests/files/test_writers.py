"""E2, E10, B8, B9, B12: whatever is written below a folder of a stranger goes through the one door for writing.

`ALLOWED` lists what the source does elsewhere, and why; any other place that writes, renames or removes fails the test.
"""

from __future__ import annotations

import ast
import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import anaphora
from anaphora.errors import AnaphoraError, RunError
from anaphora.files import Refused
from anaphora.files import writing as door

SOURCE = Path(anaphora.__file__).parent
METHODS = {
    "write_text", "write_bytes", "mkdir", "makedirs", "mkdtemp", "mkstemp", "TemporaryDirectory", "TemporaryFile",
    "NamedTemporaryFile", "SpooledTemporaryFile", "unlink", "rmdir", "removedirs", "rmtree", "renames", "symlink",
    "symlink_to", "hardlink_to", "link_to", "touch", "mkfifo", "mknod", "copy2", "copyfile", "copytree", "copymode",
    "copystat", "chown", "lchown", "chmod", "lchmod", "utime", "truncate", "extractall", "savez", "savez_compressed",
    "savetxt", "tofile", "save_file", "serialize_file", "write_parquet", "write_table", "write_feather", "to_parquet",
    "to_csv", "to_pickle", "to_feather", "open_memmap", "quantize_dynamic", "dump_all",
}  # fmt: skip
OWNED = {
    ("os", "replace"), ("os", "rename"), ("os", "remove"), ("os", "link"), ("shutil", "copy"), ("shutil", "move"),
    ("np", "save"), ("numpy", "save"), ("torch", "save"), ("json", "dump"), ("pickle", "dump"), ("marshal", "dump"),
    ("shelve", "open"), ("sqlite3", "connect"), ("tarfile", "open"), ("logging", "FileHandler"), ("onnx", "save"),
}  # fmt: skip
"""A function of a module: elsewhere the name means something else."""
MODES = (
    "open",
    "fdopen",
    "ZipFile",
    "GzipFile",
    "BZ2File",
    "LZMAFile",
    "FileIO",
    "memmap",
    "SoundFile",
    "open_code",
)
"""Functions that write where their mode says so."""
ALLOWED = {
    "native/cache.py": {"mkdtemp", "rmtree", "mkdir", "mkstemp", "replace", "unlink", "fdopen"},
    "engine/tuning.py": {"mkstemp", "replace", "fdopen", "dump"},
    # the cache of kernels, which only this user can write: it looks at the owner and the mode of every folder
    "models/classical/ngram/counts.py": {"memmap"},
    "models/embeddings/glove.py": {"tofile"},
    "data/files.py": {"savez"},
    "data/corpora/sound_corpus.py": {"open"},
    "models/embeddings/formats.py": {"GzipFile"},
    "studio/starting.py": {"fdopen"},
    "training/lock.py": {"open_plain"},
    # into a file that the door has opened, or a lock that is looked at again before it is changed
    "tasks/exporting/graph.py": {"program.save"},
    "tasks/exporting/archive.py": {"export.save"},
    "tasks/exporting/eight_bits.py": {"quantize_dynamic"},
    "tasks/exporting/ctranslate2.py": {"spec.save"},
    # by other libraries, into a folder that the door has just made
    "views/png.py": {"image.save"},  # into memory
    "engine/backends/persistent/stages.py": {"touch"},  # no file
}
NAMED = re.compile(
    rf"\b(?:{'|'.join(sorted({*METHODS, *MODES, *(name for _, name in OWNED)}))}|open_plain|rename)\b"
)
"""In the text of every module that writes; the others need no parsing."""
SAVES = {"program", "spec", "export", "image"}
"""Objects of other libraries whose `save` takes a path or a file."""


def writers(tree: ast.AST) -> Iterator[str]:
    """Yield what writes, renames or removes in a module, by the names of the functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil", "tempfile", "numpy", "torch"):
            for one in node.names:
                if one.name in METHODS or (node.module, one.name) in OWNED:
                    yield one.name
        if not isinstance(node, ast.Call):
            continue
        owner, name = named(node.func)
        if (owner, name) == ("os", "open") or name == "open_plain":
            where, *flags = map(ast.unparse, (*node.args, *(one.value for one in node.keywords)))
            changes = any(re.search("O_(CREAT|WRONLY|RDWR|APPEND|TRUNC)", text) for text in flags)
            if changes and where != "os.devnull":
                yield name
        elif (
            (name in MODES and for_writing(node))
            or name in METHODS
            or (owner, name) in OWNED
            or (name in ("rename", "replace") and owner not in ("os", "") and moves(node))
        ):
            yield name
        elif name == "save" and owner in SAVES:
            yield f"{owner}.save"


def named(function: ast.expr) -> tuple[str, str]:
    """The object and the name of what is called; of `a.b.c` they are b and c."""
    if isinstance(function, ast.Name):
        return "", function.id
    if isinstance(function, ast.Attribute):
        value = function.value
        owner = value.id if isinstance(value, ast.Name) else getattr(value, "attr", "?")
        return owner, function.attr
    return "?", ""


def for_writing(call: ast.Call) -> bool:
    """Return True if a mode among the arguments says so; a mode that is not a constant counts."""
    keywords = [one.value for one in call.keywords if one.arg == "mode"]
    texts = [
        one.value
        for one in (*call.args, *keywords)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]
    if any(not isinstance(one, ast.Constant) for one in keywords):
        return True
    return any(set(text) & set("wax+") and set(text) <= set("rwaxbtU+") for text in texts)


def moves(call: ast.Call) -> bool:
    """Return True for `Path.rename(to)` and `Path.replace(to)`; `str.replace` takes two, others take keywords."""
    return len(call.args) == 1 and not call.keywords


def test_nothing_is_written_around_the_door() -> None:
    found = {}
    for path in SOURCE.rglob("*.py"):
        name, text = path.relative_to(SOURCE).as_posix(), path.read_text("utf-8")
        if name == "files/writing.py" or not NAMED.search(text):
            continue
        if what := set(writers(ast.parse(text))):
            found[name] = what
    assert found == ALLOWED


@pytest.mark.parametrize(
    "text",
    [
        "open(p, 'w')", "open(p, mode='ab')", "open(p, 'r+b')", "open(p, mode=m)", "p.open('x')", "p.write_text(t)",
        "p.write_bytes(t)", "p.mkdir()", "os.makedirs(p)", "tempfile.mkdtemp()", "p.unlink()", "shutil.rmtree(p)",
        "os.replace(a, b)", "a.rename(b)", "a.replace(b)", "np.save(p, x)", "np.savez(p, x)", "torch.save(x, p)",
        "save_file(x, p)", "json.dump(x, f)", "os.open(p, os.O_WRONLY | os.O_CREAT)", "from shutil import rmtree",
        "from os import replace", "wave.open(p, 'wb')", "zipfile.ZipFile(p, 'w')", "x.tofile(p)", "os.remove(p)",
        "from tempfile import mkdtemp", "p.touch()", "os.truncate(p, 0)", "program.save(p)", "p.symlink_to(q)",
        "np.memmap(p, mode='w+')", "archive.extractall(p)", "os.link(a, b)", "p.chmod(0o700)",
    ],
)  # fmt: skip
def test_the_check_sees_what_it_forbids(text: str) -> None:
    assert list(writers(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    ["open(p)", "open(p, 'rb')", "text.replace('a', 'b')", "dataclasses.replace(x, a=1)", "os.open(p, os.O_RDONLY)",
     "replace_file(p, b'')", "os.fdopen(d, 'rb')", "model.save(folder)", "parts.remove(x)", "json.dumps(x)"],
)  # fmt: skip
def test_the_check_lets_other_calls_pass(text: str) -> None:
    assert not list(writers(ast.parse(text)))


# ---------------------------------------------------------------------- what stands in the way
TRAPS = ("link", "dangling", "hard link", "pipe", "folder")
Write = Callable[[Path], object]


def piecewise(path: Path) -> None:
    with door.replacing(path) as file:
        file.write(b"new")


def log(path: Path) -> None:
    descriptor = door.open_replaced(path)
    os.write(descriptor, b"new")
    os.close(descriptor)


def kept(path: Path) -> None:
    descriptor = door.open_kept(path)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, b"new")
    os.close(descriptor)


def trap(kind: str, path: Path, outside: Path) -> None:
    outside.mkdir(exist_ok=True)
    target = outside / "precious"
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind != "dangling":
        target.write_bytes(b"years of work")
    if kind in ("link", "dangling"):
        path.symlink_to(target)
    elif kind == "hard link":
        path.hardlink_to(target)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
        (path / "inside").write_bytes(b"years of work")


def untouched(kind: str, path: Path, outside: Path) -> None:
    """Nothing outside was made or changed, and no folder of others was emptied."""
    assert {one.name: one.read_bytes() for one in outside.iterdir()} == (
        {} if kind == "dangling" else {"precious": b"years of work"}
    )
    if kind == "folder":
        assert (path / "inside").read_bytes() == b"years of work"


def asides(folder: Path) -> list[Path]:
    return [one for one in folder.rglob("*") if one.name.startswith(".tmp-") or ".part" in one.name]


@pytest.mark.parametrize("kind", TRAPS)
@pytest.mark.parametrize(
    ("write", "refused"),
    [
        (lambda path: door.replace_file(path, b"new"), {"folder"}),
        (piecewise, {"folder"}),
        (log, {"folder"}),
        (kept, {"link", "dangling", "pipe", "folder"}),
        (lambda path: door.write_new(path, b"new"), set(TRAPS)),
        (lambda path: door.write_synced(path, b"new"), set(TRAPS)),
    ],
    ids=["replace_file", "replacing", "open_replaced", "open_kept", "write_new", "write_synced"],
)
def test_a_trap_is_replaced_or_refused_and_never_entered(
    tmp_path: Path, kind: str, write: Write, refused: set[str]
) -> None:
    path, outside = tmp_path / "given" / "file", tmp_path / "outside"
    trap(kind, path, outside)
    if kind in refused:
        with pytest.raises(OSError) as caught:
            write(path)
        assert isinstance(caught.value, Refused | FileExistsError)
    else:
        write(path)
        assert path.read_bytes() == b"new"
        assert stat.S_ISREG(path.lstat().st_mode)
    untouched(kind, path, outside)
    assert not asides(tmp_path)


def test_a_device_is_never_replaced() -> None:
    for write in (piecewise, log, lambda path: door.replace_file(path, b"new")):
        with pytest.raises(Refused, match="is a device"):
            write(Path("/dev/null"))
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.skipif(not Path("/dev/stdout").is_symlink(), reason="the system has no such link")
def test_a_link_of_the_system_is_never_replaced() -> None:
    before = os.readlink("/dev/stdout")
    for write in (piecewise, log, lambda path: door.replace_file(path, b"new")):
        with pytest.raises(Refused, match="is a link of the system"):
            write(Path("/dev/stdout"))
    assert os.readlink("/dev/stdout") == before


@pytest.mark.parametrize("write", [piecewise, lambda path: door.replace_file(path, b"new")])
def test_what_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "a")
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"a": b"old"}


def test_a_new_file_that_cannot_be_finished_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        door.write_new(tmp_path / "a", b"new")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["link", "dangling", "file"])
def test_a_folder_inside_a_given_one_is_never_a_link(tmp_path: Path, kind: str) -> None:
    (tmp_path / "outside").mkdir()
    inner = tmp_path / "inner"
    if kind == "file":
        inner.write_text("")
    else:
        inner.symlink_to(tmp_path / ("outside" if kind == "link" else "nowhere"))
    with pytest.raises(Refused, match="is a link or a file"):
        door.make_inner_folder(inner)
    assert not (tmp_path / "nowhere").exists()


# ---------------------------------------------------------------------- the places
def trace(folder: Path) -> None:
    from anaphora.probe.trace import Array, Trace

    arrays = {"x": Array(("target",), np.zeros(1, np.float32))}
    Trace({"target": ["a"]}, arrays, {"run": "r"}, {}).save(folder / "t")


def arpa(folder: Path) -> None:
    grams().write_arpa(folder / "out.arpa")


def grams():
    from anaphora.models.classical.ngram import NGram

    return NGram(order=2).fit(["a b", "b a"])


def hmm(folder: Path) -> None:
    from anaphora.models.classical.arrays import save_arrays

    save_arrays(folder / "m.safetensors", "hmm", {"x": np.zeros(2)}, {})


def vectors(folder: Path) -> None:
    from anaphora.models.embeddings import formats

    formats.write(folder / "v.txt", ["a"], np.zeros((1, 2)))


def packed_vectors(folder: Path) -> None:
    from anaphora.models.embeddings import formats

    formats.write(folder / "v.bin.gz", ["a"], np.zeros((1, 2)))


def picture(folder: Path) -> None:
    from anaphora.cli.pictures import write_files

    class Drawn:
        def html(self) -> str:
            return "<p>"

    write_files(Drawn(), {"html": str(folder / "p.html")})


def corpus(folder: Path) -> None:
    from anaphora.data.corpora import CORPORA

    CORPORA["parity"].write(folder / "c.jsonl", CORPORA["parity"].default_variant, "dev", 3)


def scenes(folder: Path) -> None:
    from anaphora.data.corpora import CORPORA

    CORPORA["shapes"].write(folder / "shapes", CORPORA["shapes"].default_variant, "dev", 1)


def sounds(folder: Path) -> None:
    from anaphora.data.corpora.sound_corpus import write_wav

    write_wav(folder / "a.wav", np.zeros(10), 8000)


def spilled(folder: Path) -> None:
    from anaphora.data.files import save_arrays

    save_arrays(folder / "rows.npz", x=np.zeros(2))


def film(folder: Path) -> None:
    import torch

    from anaphora.training.film import Film
    from anaphora.training.run import RunFolder

    Film(RunFolder(folder), 1, 1)._write(3, {"w": torch.zeros(2)})


def lesson(folder: Path) -> None:
    from anaphora.cli.commands.learn import _written

    _written(folder / "l.md", 1, True)


def weights(folder: Path) -> None:
    import torch

    from anaphora.training.weights import save_weights

    save_weights(folder / "model.safetensors", {"w": torch.zeros(2)}, facts={})


def journal(folder: Path) -> None:
    from anaphora.training.journal import Journal

    one = Journal(folder / "metrics.jsonl")
    one.append({"step": 1})
    one.close()


def answers(folder: Path) -> None:
    from anaphora.tasks.bulk.outfile import OutFile
    from anaphora.tasks.bulk.windows import Item

    with OutFile(folder / "answers.txt", {"model": "x"}, replace=True) as out:
        out.write(list(out.rest([Item("a")])), b"A\n")
        out.finish()


PLACES: dict[str, tuple[Write, tuple[str, ...]]] = {
    "trace": (trace, ("t.trace/trace.json", "t.trace/arrays.safetensors", "t.trace/.trace.json.tmp")),
    "arpa": (arpa, ("out.arpa", "out.arpa.part")),
    "n-grams": (lambda folder: grams().save(folder / "n"), ("n/ngram.json", "n/.ngram.json.PID")),
    "classical": (hmm, ("m.safetensors", ".m.safetensors.PID.part")),
    "vectors": (vectors, ("v.txt", ".v.txt.PID.part")),
    "packed vectors": (packed_vectors, ("v.bin.gz",)),
    "picture": (picture, ("p.html",)),
    "corpus": (corpus, ("c.jsonl",)),
    "scenes": (scenes, ("shapes/00000.png", "shapes/captions.tsv")),
    "sounds": (sounds, ("a.wav",)),
    "spilled": (spilled, ("rows.npz",)),
    "film": (film, ("film/step-00000003.safetensors", "film/.tmp-frame")),
    "lesson": (lesson, ("l.md",)),
    "weights": (weights, ("model.safetensors",)),
    "journal": (journal, ("metrics.jsonl",)),
    "answers": (answers, ("answers.txt", "answers.txt.part", "answers.txt.journal")),
}


@pytest.mark.parametrize("kind", TRAPS)
@pytest.mark.parametrize(
    ("name", "place"), [(name, place) for name, (_, places) in PLACES.items() for place in places]
)
def test_every_place_that_writes_is_safe_from_traps(tmp_path: Path, name: str, place: str, kind: str) -> None:
    path, outside = tmp_path / "given" / place.replace("PID", str(os.getpid())), tmp_path / "outside"
    trap(kind, path, outside)
    with contextlib.suppress(AnaphoraError, Refused):  # a caller turns the latter into a sentence
        PLACES[name][0](tmp_path / "given")
    untouched(kind, path, outside)


# ---------------------------------------------------------------------- folders
def test_a_site_is_replaced_only_where_it_was_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B9: a folder of the user's own was deleted where it had a file site.css."""
    from importlib import import_module

    site = import_module("anaphora.learn.site.build")

    docs = tmp_path / "docs"
    (docs / "learn").mkdir(parents=True)
    (docs / "README.md").write_text("# Contents\n\n## Learn\n\n## Measured\n")
    (docs / "guide.md").write_text("# A page\n")
    monkeypatch.setattr(site, "documentation", lambda: docs)
    monkeypatch.setattr("anaphora.learn.site.reference.pages", dict)
    mine = tmp_path / "mine"
    (mine / "photos").mkdir(parents=True)
    (mine / "site.css").write_text("body {}")
    (mine / "photos" / "a.png").write_text("years of work")
    with pytest.raises(AnaphoraError, match="no site"):
        site.build(mine)
    assert sorted(path.name for path in mine.rglob("*")) == ["a.png", "photos", "site.css"]

    out = tmp_path / "out"
    site.build(out)
    assert (out / "guide.html").is_file()
    (out / "CNAME").write_text("mine")
    (docs / "guide.md").unlink()
    site.build(out)
    assert not (out / "guide.html").exists()  # as its list names it
    assert (out / "CNAME").read_text() == "mine"

    (tmp_path / "precious").write_text("years of work")
    head = (out / ".anaphora-site").read_text().splitlines()[0]
    (out / ".anaphora-site").write_text(f"{head}\n../precious\n{tmp_path}/precious\na/../../precious\n")
    site.build(out)
    assert (tmp_path / "precious").exists()  # a list of a stranger names nothing outside
    (tmp_path / "link").symlink_to(out)
    with pytest.raises(AnaphoraError, match="no site"):
        site.build(tmp_path / "link")


@pytest.mark.parametrize(
    "manifest",
    [
        None,
        "years of work",
        "{}",
        '{"name": "mine"}',
        '{"format": 1, "anaphora": "0.3", "task": "tag", "files": {}}',
    ],
)
def test_an_export_gives_way_only_if_it_is_one(tmp_path: Path, manifest: str | None) -> None:
    """E10: a folder of the user's own was deleted where it had a file export.json."""
    from anaphora.tasks.exporting.export import export_folder

    place = tmp_path / "place"
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")
    if manifest is not None:
        (place / "export.json").write_text(manifest)
    with pytest.raises(RunError, match="something else than an export"), export_folder(place):
        pass
    assert (place / "thesis.txt").read_text() == "years of work"
    assert not asides(tmp_path)


def test_an_export_replaces_an_older_one_whole(tmp_path: Path) -> None:
    from anaphora.tasks.exporting.export import export_folder, is_export

    place = tmp_path / "place"
    for number in range(2):
        with export_folder(place, {"task": "tag"}) as (folder, manifest):
            manifest["facts"] = {"number": number}
            (folder / f"{number}.txt").write_text("x")
            (folder / "target").mkdir()
            (folder / "target" / "t.txt").write_text("y")
        assert is_export(place)
    assert sorted(path.name for path in place.iterdir()) == ["1.txt", "export.json", "target"]
    assert sorted(json.loads((place / "export.json").read_text())["files"]) == ["1.txt", "target/t.txt"]
    with pytest.raises(ValueError, match="fails"), export_folder(place, {"task": "tag"}) as (folder, _):
        raise ValueError("fails")
    assert (place / "1.txt").exists()
    (tmp_path / "link").symlink_to(place)
    with pytest.raises(RunError, match="is a link to a folder"), export_folder(tmp_path / "link"):  # B12
        pass
    assert not asides(tmp_path)


def test_a_folder_is_claimed_by_what_its_mark_says(tmp_path: Path) -> None:
    door.claim(tmp_path / "new", "study")
    door.claim(tmp_path / "new", "study")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "study").write_text("years of work")
    with pytest.raises(RunError, match="did not write it"):
        door.claim(tmp_path / "mine", "study")
    with pytest.raises(RunError, match="did not write it"):
        door.claim(tmp_path / "new", "demo")


# ---------------------------------------------------------------------- the studio
@pytest.fixture
def starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from anaphora import processes
    from anaphora.studio.starting import Starter

    def started(command: list[str], **options: object) -> object:
        os.write(options["stdout"].fileno(), b"said")  # type: ignore[attr-defined]

        class Ended:
            def poll(self) -> int:
                return 0

        return Ended()

    monkeypatch.setattr(processes, "start", started)
    (tmp_path / "given").mkdir()
    return Starter(tmp_path / "given", allowed=True)


ORDER = {"task": "classify", "data": "parity", "model": "lstm", "name": "first", "settings": {"steps": 2}}


@pytest.mark.parametrize("kind", TRAPS)
def test_a_log_of_the_studio_enters_no_trap(starter, tmp_path: Path, kind: str) -> None:
    """E2: a link was followed and its target overwritten; a pipe stopped all that came after."""
    path, outside = tmp_path / "given" / ".studio" / "first.log", tmp_path / "outside"
    trap(kind, path, outside)
    if kind == "folder":
        with pytest.raises(AnaphoraError, match="cannot be started"):
            starter.start(ORDER)
    else:
        assert starter.start(ORDER)["said"] == "said"
    untouched(kind, path, outside)
    assert starter.facts()["allowed"]


@pytest.mark.parametrize("name", [".studio", ".uploads"])
def test_the_folders_of_the_studio_are_no_links(starter, tmp_path: Path, name: str) -> None:
    """E2: the files behind a link were listed to the page, and an order could train on them."""
    from anaphora.errors import DataError
    from anaphora.studio.orders import read_order

    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.tsv").write_text("a\tb\n")
    (tmp_path / "given" / name).symlink_to(outside)
    if name == ".studio":
        with pytest.raises(AnaphoraError, match="is a link"):
            starter.start(ORDER)
    else:
        assert starter.files() == []
        with pytest.raises(DataError, match="was not dropped here"):
            read_order({**ORDER, "data": "secret.tsv", "upload": True}, tmp_path / "given")
        with pytest.raises(DataError, match="is a link"):
            starter.keep("new.tsv", b"x")
    assert [one.name for one in outside.iterdir()] == ["secret.tsv"]


@pytest.mark.parametrize("kind", TRAPS)
def test_a_dropped_file_replaces_nothing(starter, tmp_path: Path, kind: str) -> None:
    path, outside = tmp_path / "given" / ".uploads" / "a.tsv", tmp_path / "outside"
    trap(kind, path, outside)
    with pytest.raises(AnaphoraError, match="already"):
        starter.keep("a.tsv", b"x")
    untouched(kind, path, outside)
