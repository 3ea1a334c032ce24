"""``export.json`` and the files that it names, checked."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.errors import AnaphoraError, RunError
from anaphora.files import clause, parse_json, read_bytes
from anaphora.files.parsing import seal_of
from anaphora.files.protobuf import stored_elsewhere

FORMAT = 2
MANIFEST = "export.json"
LARGEST = 1 << 26
"""Bytes of the manifest; that of a tagger holds a table of its tags."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Described:
    """What the manifest says of a graph: for each input its axes (names, numbers where fixed) and its type, its outputs,
    the inputs that stay the same from step to step, and the numbers that states begin with where that is not 0."""

    inputs: dict[str, tuple[str | int, ...]]
    types: dict[str, str]
    outputs: tuple[str, ...]
    kept: tuple[str, ...]
    fills: dict[str, float]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Described:
        inputs = {str(name): tuple(axes) for name, axes in given["inputs"].items()}
        types = {str(name): str(given["types"][name]) for name in inputs}
        fills = {str(name): float(value) for name, value in given["fills"].items()}
        return cls(inputs, types, tuple(map(str, given["outputs"])), tuple(map(str, given["kept"])), fills)


@dataclass(frozen=True)
class Exported:
    """An export folder whose files are whole."""

    path: Path
    task: str
    preset: str
    graphs: dict[str, Described]
    facts: dict[str, Any]
    files: dict[str, bytes]
    trusted: bool = False
    """Whether patterns of its tokenizer may be run that are not known."""

    def text(self, name: str) -> str:
        """A file of the folder as text."""
        return self.content(name).decode("utf-8")

    def content(self, name: str) -> bytes:
        """A file of the folder."""
        if name not in self.files:
            raise RunError(f"{self.path / name}: there is no such file; export the run again.")
        return self.files[name]

    def damaged(self, error: Exception) -> RunError:
        """What to raise where a file does not hold what an export wrote."""
        return RunError(f"{self.path} cannot be used ({error}); export the run again.")


def read_folder(folder: str | Path, *, trust: bool = False) -> Exported:
    """The files of an export, or a `RunError` that says what is wrong with them."""
    path = Path(folder)
    try:
        given = parse_json(read_bytes(path / MANIFEST, most=LARGEST, follow=False))
    except FileNotFoundError:
        what = "is not an export: it has no export.json" if path.is_dir() else "does not exist"
        raise RunError(f"{path} {what}; give the folder that `anaphora export --to onnx` wrote.") from None
    except (OSError, ValueError) as error:
        why = clause(error) if isinstance(error, OSError) else str(error)
        raise RunError(f"{path / MANIFEST} cannot be read ({why}); export the run again.") from None
    try:
        if given["format"] != FORMAT:
            raise RunError(
                f"{path} has format {given['format']!r}, this version reads {FORMAT}; export the run again with it."
            )
        if "sha256" not in given:
            warnings.warn(
                f"{path}: was exported by version 0.2, which did not seal {MANIFEST}; export the run again.",
                stacklevel=3,
            )
        elif given["sha256"] != seal_of(given):
            raise RunError(f"{path / MANIFEST}: was changed since the export; export the run again.")
        files = {
            str(name): _verified(path / Path(str(name)).name, str(digest))
            for name, digest in given["files"].items()
        }
        for name, content in files.items():
            if name.endswith(".onnx") and (outside := stored_elsewhere(content)) is not None:
                raise ValueError(f"the numbers of {outside} in {name} are in another file")
        graphs = {str(name): Described.of(one) for name, one in given["graphs"].items()}
        facts = dict(given["facts"])
        return Exported(path, str(given["task"]), str(given["preset"]), graphs, facts, files, trust)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{path / MANIFEST} is not an export's ({error}); export the run again.") from None


def _verified(path: Path, digest: str) -> bytes:
    try:
        content = read_bytes(path, follow=False)
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({clause(error)}); export the run again.") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise RunError(f"{path}: is not the file that was exported; export the run again.")
    return content


class Session:
    """A graph that runs on the CPU: ``session(symbols=…, lengths=…)`` gives its outputs by name."""

    def __init__(self, exported: Exported, graph: str = "model", *, threads: int = 0):
        try:
            import onnxruntime
        except ModuleNotFoundError:
            raise AnaphoraError(
                "running an exported model needs onnxruntime; install it with `pip install 'anaphora[export]'`."
            ) from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3  # errors are raised as well
        try:
            self.described = exported.graphs[graph]
            self._session = onnxruntime.InferenceSession(
                exported.files[f"{graph}.onnx"], options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime has no base class of its own for what it cannot read
            raise exported.damaged(error) from None

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        outputs = self.described.outputs
        return dict(zip(outputs, self._session.run(list(outputs), inputs), strict=True))
