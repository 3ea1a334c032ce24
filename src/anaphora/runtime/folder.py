"""``export.json`` and the files that it names, checked."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from anaphora.errors import AnaphoraError, RunError
from anaphora.files import clause, parse_json, read_bytes
from anaphora.files.parsing import seal_of
from anaphora.files.protobuf import stored_elsewhere
from anaphora.files.schemas import problem

FORMAT = 2
MANIFEST = "export.json"
LARGEST = 1 << 26
"""Bytes of the manifest; that of a tagger holds a table of its tags."""
Array = np.ndarray[Any, Any]


Count = Annotated[int, Field(ge=0, lt=1 << 31)]
Positive = Annotated[int, Field(ge=1, lt=1 << 31)]


class Facts(BaseModel):
    """What the manifest says of any task, as far as a single number or word; each task takes apart what is its own."""

    model_config = ConfigDict(strict=True, extra="allow")

    window: Count = 1
    """0: as many steps as there are."""
    horizon: Positive = 1
    max_tokens: Count | None = None
    history: Count = 0
    size: list[Annotated[int, Field(ge=1, lt=1 << 16)]] = [1, 1]
    outputs: Annotated[int, Field(ge=1, lt=1 << 24)] = 1
    scan: str = ""
    begin: Count | None = None
    end: Count | None = None
    lines: bool = False
    backward: bool = False
    context: Count | None = None
    sample: dict[str, Any] = {}
    search: dict[str, Any] = {}
    factor: Positive = 1
    ctc_weight: FiniteFloat = 0.0
    never: list[Count] = []
    voices: Positive = 1
    places: Count | None = None
    attends: bool = False


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

    def damaged(self, error: Exception | str) -> RunError:
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
        if reason := problem(Facts, facts):
            raise ValueError(f"facts.{reason}")
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


def first_line(error: Exception) -> str:
    """Return the reason of an error of onnxruntime, for the middle of a sentence."""
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


class OnnxGraph:
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
            raise exported.damaged(first_line(error)) from None
        known = {one.name for one in self._session.get_outputs()}
        wanted = {one.name for one in self._session.get_inputs()}
        if wanted - set(self.described.inputs) or not set(self.described.outputs) <= known:
            raise exported.damaged(f"{graph}.onnx has other inputs or outputs than {MANIFEST} says")
        if not self.described.outputs or len(set(self.described.outputs)) < len(self.described.outputs):
            raise exported.damaged(f"{MANIFEST} names no outputs of {graph}.onnx, or one twice")
        self._damaged = exported.damaged

    def __call__(self, **inputs: Array) -> dict[str, Array]:
        outputs = self.described.outputs
        try:
            found = self._session.run(list(outputs), inputs)
        except Exception as error:  # as above: inputs that were checked, and do not fit the graph
            raise self._damaged(first_line(error)) from None
        return dict(zip(outputs, found, strict=True))
