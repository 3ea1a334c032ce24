"""Every place that reads a file, with what bounds it and what hostile files it is tested with.

`READERS` is compared with the source: a new place fails the test until it is listed, with the targets of
tests/fuzz/fuzz_targets.py that feed it, or the reason why no stranger's file gets there.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import anaphora

SOURCE = Path(anaphora.__file__).parent
ROOT = Path(__file__).resolve().parents[1]
FUNCTIONS = {
    "read_bytes", "streamed", "open_plain", "open_stream", "unpacking", "unpacked", "read_tail", "load_npy", "load_npz",
    "read_safetensors", "load_safetensors", "parse_tensors", "parse_arrays", "from_str", "ParquetFile", "SoundFile",
}  # fmt: skip
NAMED = re.compile(rf"\b(?:{'|'.join(sorted(FUNCTIONS))}|torch\.load|Image\.open)\b")
"""In the text of every module that reads; the others need no parsing."""
OWN = "this package's own files, or what it has just written"
GENERAL = "limits(): ANAPHORA_MAX_BYTES, or 16 GiB"
READERS: dict[str, tuple[str, tuple[str, ...] | str]] = {
    # file: (what bounds it, the targets that are fuzzed or why there is none)
    "cli/commands/inspect.py": ("1 MiB", "a text that the user names, taken as it is"),
    "cli/commands/serve.py": ("10 kB", "a token that the user names, taken as it is"),
    "data/audio/files.py": ("frames by the size of the file, before they are read", ("wav", "flac")),
    "data/audio/recordings.py": ("the same, and a list of sounds of a limited size", ("wav", "flac", "kept sounds")),
    "data/corpora/corpus.py": (GENERAL, OWN),
    "data/files.py": ("read piece by piece, lines of a limited length", ("tsv", "csv", "jsonl", "text", "gz", "zst", "zip")),
    "data/pictures.py": ("MOST_BYTES, and 67 Mpx by its head", ("png",)),
    "data/pictures_readers.py": ("load_npz: sizes of the heads against the file", ("kept pictures",)),
    "data/sources/formats/__init__.py": ("the first bytes", ("tsv", "parquet", "arrow")),
    "data/sources/formats/columnar.py": ("unpacked size against the limits, by the metadata", ("parquet", "arrow")),
    "data/asked.py": ("lines of a limited length", ("lines",)),
    "data/tokenizers/own.py": ("256 MiB, every id against their number", ("own tokenizer", "library tokenizer")),
    "data/sources/arrays.py": ("sizes of the heads against the file", ("npy", "npz", "idx", "labelled ts")),
    "foreign/pairs.py": ("256 MiB", ("published config",)),
    "foreign/folder.py": ("256 MiB of JSON, its numbers below 2**31", ("published config", "foreign weights")),
    "foreign/weights.py": (
        "its first bytes; unpacked size, 256 MiB of JSON, 2,000,000 fields of ONNX, each tensor against its storage",
        ("json tensors", "state dict", "gru npz", "onnx", "foreign weights"),
    ),
    "foreign/words.py": ("256 MiB, every id against their number", ("library tokenizer",)),
    "kinds/doors.py": ("the size of a request, and the heads against it", ("npy",)),
    "learn/page.py": (GENERAL, OWN),
    "learn/site/build.py": ("4 MiB of a list of files", OWN),
    "models/classical/arrays.py": ("8 MiB of header, shapes against the file", ("hmm", "kalman", "var", "words", "word2vec")),
    "models/classical/ngram/files.py": ("8 MiB of header, the table's links in range", ("ngram.json", "ngram table", "arpa")),
    "models/embeddings/formats.py": ("read piece by piece, words and lines of a limited length", ("vectors",)),
    "models/embeddings/pretrained.py": ("the first bytes", ("vectors",)),
    "models/seeing.py": ("8 MiB of header, shapes against the file", ("foreign weights",)),
    "native/c.py": (GENERAL, OWN),
    "probe/trace.py": ("MAX_JSON_BYTES and MAX_BYTES", ("trace",)),
    "runtime/folder.py": ("64 MiB of JSON, its seal, the hash of each file", ("export.json", "export graph")),
    "serving/served.py": ("1 MiB at a time, to be hashed", "nothing in it is parsed"),
    "settings/files.py": ("_LARGEST", ("toml",)),
    "studio/runs.py": ("_BIGGEST_CONFIG and the last bytes of journals", ("studio", "studio metrics")),
    "studio/starting.py": ("4 kB", "what a training that the studio started says, shown as text"),
    "tasks/artifacts.py": (GENERAL, ("tokenizer.json", "run, tokenizer.json", "tags learnt")),
    "tasks/bulk/outfile.py": ("lines that are checked before they are used", OWN),
    "tasks/recipe.py": ("16 MiB, settings and facts about data by schema", ("config.json", "run, config.json")),
    "tasks/exporting/archive.py": (GENERAL, OWN),
    "tasks/exporting/ctranslate2.py": (GENERAL, OWN),
    "tasks/exporting/export.py": ("64 MiB of JSON", ("export.json",)),
    "tasks/importing_words.py": ("read piece by piece", ("vectors",)),
    "tasks/seeds.py": ("_LARGEST", ("seeds.json",)),
    "tasks/studies/parts.py": ("JSON of at most 256 MiB", OWN),
    "tasks/study.py": ("16 MiB", OWN),
    "training/checkpoint.py": ("the size that the manifest says, then its hash and schemas", ("manifest.json", "state.json")),
    "training/journal.py": ("lines of at most 16 MiB, each by schema", ("metrics.jsonl", "timings.jsonl")),
    "training/lock.py": ("4 kB", ("lock",)),
    "training/run.py": ("hashed, or JSON of at most 256 MiB", ("tokenizer.json", "run, tokenizer.json", "tags learnt")),
    "training/saving.py": (GENERAL, "compared with bytes that are known"),
    "training/signature.py": ("_LARGEST, and 1 MiB at a time to be hashed", ("signature",)),
    "training/weights.py": ("8 MiB of header, its hash and schema", ("safetensors", "run, model.safetensors")),
}  # fmt: skip


def readers(tree: ast.AST) -> Iterator[str]:
    """Yield the functions by which a module reads files, and those that parse what is in them."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        owner = getattr(getattr(function, "value", None), "id", "")
        by_path = isinstance(function, ast.Attribute) and name in ("read_bytes", "unpacked")
        if (name in FUNCTIONS and not by_path) or (owner, name) in (("torch", "load"), ("Image", "open")):
            yield name


def test_every_place_that_reads_has_its_bounds_and_its_hostile_files() -> None:
    sys.path.insert(0, str(ROOT / "fuzz"))
    try:
        from fuzz_targets import targets
    finally:
        sys.path.pop(0)
    found = set()
    for path in SOURCE.rglob("*.py"):
        name, text = path.relative_to(SOURCE).as_posix(), path.read_text("utf-8")
        if name.startswith("files/") or not NAMED.search(text):
            continue
        if set(readers(ast.parse(text))) - {"unpacked"}:
            found.add(name)
    assert found == set(READERS)
    fed = {target for _, what in READERS.values() if not isinstance(what, str) for target in what}
    known = set(targets())
    assert fed <= known
    beside = {"rolls", "series csv", "columns", "labelled npz", "pictures", "sequences", "conllu", "json array", "json", "pair tokenizer"}  # fmt: skip
    assert known - fed <= beside  # other forms of what the readers above open
