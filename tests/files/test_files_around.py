"""Nothing goes around the one door for files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import anaphora

SOURCE = Path(anaphora.__file__).parent
READING = {
    ("np", "load"), ("np", "loadtxt"), ("np", "genfromtxt"), ("np", "fromfile"), ("np", "memmap"), ("mmap", "mmap"),
    ("os", "open"), ("io", "open"), ("io", "FileIO"), ("gzip", "open"), ("bz2", "open"), ("lzma", "open"),
    ("zipfile", "ZipFile"), ("tarfile", "open"), ("wave", "open"), ("shelve", "open"), ("sqlite3", "connect"),
    ("shutil", "unpack_archive"), ("json", "load"), ("json", "loads"), ("tomllib", "load"), ("pickle", "load"),
    ("pickle", "loads"), ("torch", "load"), ("Image", "open"), ("soundfile", "SoundFile"), ("soundfile", "read"),
}  # fmt: skip
FUNCTIONS = {"open", "load_file", "safe_open", "ZipFile", "GzipFile"}
TABLES = {
    "read_csv", "read_table", "read_parquet", "scan_parquet", "scan_csv", "read_feather", "read_ipc", "scan_ipc",
    "read_json", "read_ndjson", "read_excel", "read_pickle", "ParquetFile", "ParquetDataset", "OSFile", "memory_map",
}  # fmt: skip
NAMED = re.compile(
    rf"\b(?:{'|'.join(sorted({*FUNCTIONS, *TABLES, *(name for _, name in READING)}))}|read_text|read_bytes)\b"
)
"""In the text of every module that reads; the others need no parsing."""
AROUND = {
    # of what the door opened
    "data/pictures.py": {"Image.open"},
    "data/audio/files.py": {"soundfile.SoundFile"},
    "data/sources/formats/columnar.py": {".ParquetFile()"},
    "foreign/weights.py": {"torch.load", "zipfile.ZipFile"},
    # of nameless files and arrays that the program itself has just written
    "data/batches/stream.py": {"np.memmap"},
    "models/classical/ngram/counts.py": {"np.memmap"},
    "models/embeddings/glove.py": {"np.memmap"},
    "data/tokenizers/vocabularies.py": {"json.loads"},
    "data/bpe_dropout.py": {"json.loads"},
    "learn/pictures.py": {".read_text()"},
    "data/tokenizers/__init__.py": {"json.loads"},
    "training/state.py": {"json.loads"},
    "training/launch.py": {"json.loads"},  # what another process of the job kept in torchrun's store
    "training/learner.py": {"json.loads"},
    "training/callbacks.py": {"json.loads"},
    "foreign/words.py": {"json.loads"},
    "tasks/begun/language.py": {"json.loads"},
    "ops/packed.py": {"mmap.mmap", ".read_text()"},  # memory without a file
    "cli/writing.py": {"json.loads"},
    "tasks/bulk/outfile.py": {"json.loads"},
    "tasks/bulk/values.py": {"json.loads"},
    "tasks/exporting/ctranslate2.py": {".read_text()", "json.loads"},
    # the package's own files
    "native/c.py": {".read_text()"},
    "native/jit.py": {".read_bytes()", "pickle.loads"},  # and what numba put into the cache of kernels
    "studio/app.py": {".read_bytes()"},
    "serving/pages.py": {".read_bytes()"},
    "ops/decode/cuda.py": {".read_text()"},
    "ops/selective.py": {".read_text()"},
    "engine/backends/scan/source.py": {".read_text()"},
    "ops/ctc_loss.py": {".read_text()"},
    "ops/transducer_loss.py": {".read_text()"},
    "ops/transducer_sums.py": {".read_text()"},
    "models/embeddings/windows.py": {".read_text()"},
    "engine/backends/c/source.py": {".read_text()"},
    "engine/backends/persistent/source.py": {".read_text()"},
    # files of the kernel and devices, by names that are written here
    "_cpu.py": {".read_text()"},
    "native/isa.py": {".read_text()"},
    "cli/health.py": {".read_text()"},
    "cli/output.py": {"os.open"},
    # doors of their own
    "native/cache.py": {
        "os.open",
        "open",
    },  # stricter: also the owner and the mode of every folder
}
DOOR = {"files"}
READS_NOTHING = {"journal", "self", "again", "RunFolder"}
"""Objects of ours whose ``open`` goes through the door."""


def calls(tree):
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name):
            if function.id in FUNCTIONS and not writes(node.args[1:2], node.keywords):
                yield function.id
            continue
        if not isinstance(function, ast.Attribute):
            continue
        name = function.attr
        owner = function.value.id if isinstance(function.value, ast.Name) else ""
        if (owner, name) in READING:
            if not writes(node.args[1:2], node.keywords):
                yield f"{owner}.{name}"
        elif name in TABLES:
            yield f".{name}()"
        elif name in ("read_text", "read_bytes"):
            if not node.args:  # RunFolder.read_text has a name, and goes through the door
                yield f".{name}()"
        elif (
            name == "open"
            and owner not in READS_NOTHING
            and not writes(node.args[:1], node.keywords)
            and not (len(node.args) == 1 and not isinstance(node.args[0], ast.Constant))
        ):
            yield ".open()"


def writes(mode, keywords):
    """Whether a file is opened for writing alone."""
    mode = [*mode, *(keyword.value for keyword in keywords if keyword.arg == "mode")]
    text = mode[0].value if mode and isinstance(mode[0], ast.Constant) else ""
    return isinstance(text, str) and bool(set(text) & set("wax")) and "+" not in text


def test_files_are_read_through_the_door_only():
    around = {}
    for path in SOURCE.rglob("*.py"):
        name, text = path.relative_to(SOURCE).as_posix(), path.read_text("utf-8")
        if name.partition("/")[0] in DOOR or not NAMED.search(text):
            continue
        if found := set(calls(ast.parse(text))):
            around[name] = found
    assert around == AROUND


def test_the_check_of_the_door_sees_what_it_forbids():
    for text in ("open('x')", "open(p, 'r+b')", "np.load(p)", "p.read_text()", "p.read_bytes()", "p.open('rb')", "p.open()", "gzip.open(p)", "json.loads(s)", "p.open(encoding='utf-8')", "load_file(p)", "wave.open(p)", "pl.read_parquet(p)", "np.memmap(p, mode='r+')", "open(p, mode='r')"):  # fmt: skip
        assert list(calls(ast.parse(text))), text
    for text in (
        "journal.open(mark)",
        "RunFolder.open(path)",
        "p.open('wb')",
        "open(p, 'w', encoding='utf-8')",
        "wave.open(p, 'wb')",
        "run.read_text('config.json')",
        "archive.open(entry)",
    ):
        assert not list(calls(ast.parse(text))), text
