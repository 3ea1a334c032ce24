"""Turn what a case produced into JSON that is the same whenever the product is the same.

Floats are written by their bits, arrays and tensors as a SHA-256, files by what they hold. What may differ between two runs
of one program (times, versions, temporary names, hashes of files whose contents are compared anyway) is left out here and
nowhere else.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np

TIMES = re.compile(r"seconds|.*_seconds|.*_per_second|created|uptime|pid|port|anaphora|timings")
"""Names of fields that hold times, speeds, processes or the version."""
SMALL = 48
"""Arrays of so many numbers are written out."""
SHA256 = re.compile(r"\b[0-9a-f]{64}\b")


def plain(value: Any) -> Any:
    """Return ``value`` as JSON: floats by their bits, objects by the name of their class."""
    if value is None or isinstance(value, bool | int):
        return value if type(value) in (bool, int, type(None)) else {type(value).__name__: int(value)}
    if isinstance(value, np.generic):
        return {value.dtype.name: plain(value.item())}
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()[:16]}"
    if isinstance(value, dict):
        return {text(str(key)): plain(one) for key, one in value.items() if not TIMES.fullmatch(str(key))}
    if isinstance(value, Path):
        return text(str(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {type(value).__name__: plain(dict(zip(value._fields, value, strict=True)))}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(one) for one in value), key=repr)
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float().numpy() if value.dtype.itemsize == 2 else value.numpy()
    if isinstance(value, np.ndarray):
        return array(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {type(value).__name__: plain(fields)}
    if hasattr(value, "to_dict"):  # data frames
        return {type(value).__name__: plain(value.to_dict())}
    if isinstance(value, type) or callable(value):
        return f"<{getattr(value, '__name__', type(value).__name__)}>"
    if hasattr(value, "shape"):
        return {type(value).__name__: array(np.asarray(value))}
    raise TypeError(f"there is no plain form of a {type(value).__name__}")


def array(values: np.ndarray[Any, Any]) -> Any:
    """Return dtype, shape and the numbers, or their SHA-256 where there are many."""
    head = f"{values.dtype} {values.shape}"
    if values.dtype == object or values.size <= SMALL:
        return {head: plain(values.tolist())}
    held = np.ascontiguousarray(values)
    first = ", ".join(f"{x:.6g}" if held.dtype.kind == "f" else str(x) for x in held.ravel()[:3])
    return f"{head} {first} … sha256 {hashlib.sha256(held.tobytes()).hexdigest()[:16]}"


# ---------------------------------------------------------------------- text
def text(value: str) -> str:
    """Return a text without paths of the sources and of the case, temporary names, addresses and the version."""
    for pattern, instead in _names():
        value = pattern.sub(instead, value)
    return value


def said(value: str) -> list[str]:
    """Return the lines that a program printed, without times, speeds and process ids, too."""
    for pattern, instead in PRINTED:
        value = pattern.sub(instead, value)
    return [text(line.rpartition("\r")[2].rstrip()) for line in value.splitlines()]


_NUMBER = r"\d+(?:\.\d+)?(?:e-?\d+)?"
PRINTED = [
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?", "<time>"),
        (rf"{_NUMBER}k? ?(\w+ ){{0,2}}(per second|/s\b|/ ?min\b)", "<speed>"),
        (rf"\b{_NUMBER} ?(ms|µs|s|seconds?|min|minutes?)\b", "<time>"),
        (r"\b(pid|process) \d+", "<process>"),
    )
]


@functools.cache
def _names() -> list[tuple[re.Pattern[str], str]]:
    """What stands for what; found out when anaphora can be imported."""
    from anaphora import __file__ as here
    from anaphora import __version__

    source = Path(str(here)).resolve().parents[1]
    return [
        (re.compile(re.escape(str(source))), "<src>"),
        (re.compile(re.escape(str(Path.cwd()))), "<folder>"),
        (re.compile(rf"(?<![\d.]){re.escape(__version__)}(?![\d.]\d)"), "<version>"),
        (re.compile(r"/tmp/(tmp|pymp-)?[A-Za-z0-9_.-]+"), "<temporary>"),
        (re.compile(r"(127\.0\.0\.1|localhost):\d+"), "<server>"),
        (re.compile(r"0x[0-9a-f]{9,}"), "<address>"),
    ]


# ---------------------------------------------------------------------- files
def folder(path: Path) -> dict[str, Any]:
    """Return what every file below a folder holds, by its name."""
    files = sorted(one for one in path.rglob("*") if one.is_file())
    return {one.relative_to(path).as_posix(): file(one) for one in files}


def file(path: Path) -> Any:
    """Return what a file holds in a form of its kind: tensors, records, text, or the SHA-256 of its bytes."""
    if path.suffix == ".safetensors":
        return tensors(path)
    if path.name in ("timings.jsonl", "lock"):
        return None
    if path.suffix == ".npy":
        return array(np.load(path))
    content = path.read_bytes()
    if path.suffix in (".json", ".jsonl"):
        lines = content.decode().splitlines() if path.suffix == ".jsonl" else [content.decode()]
        records = [json.loads(line) for line in lines]
        if path.name in ("manifest.json", "export.json", "state.json"):
            records = [without_hashes(one) for one in records]
        records = [_without_machine(one) for one in records]
        return plain(records if path.suffix == ".jsonl" else records[0])
    try:
        return said(SHA256.sub("<sha256>", content.decode()))
    except UnicodeDecodeError:
        return plain(content)


def without_hashes(value: Any) -> Any:
    """Leave hashes and sizes of files out: they follow from contents that are compared themselves."""
    if isinstance(value, dict):
        return {
            SHA256.sub("<sha256>", key): without_hashes(one)
            for key, one in value.items()
            if key not in ("sha256", "bytes")
        }
    if isinstance(value, list):
        return [without_hashes(one) for one in value]
    return SHA256.sub("<sha256>", value) if isinstance(value, str) else value


def _without_machine(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_machine(one) for key, one in value.items() if key not in ("made_with", "versions")
        }
    return [_without_machine(one) for one in value] if isinstance(value, list) else value


def tensors(path: Path) -> dict[str, Any]:
    """Return a SHA-256 for each tensor of a safetensors file, and the facts kept beside them."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    facts = {key: _facts(one) for key, one in header.pop("__metadata__", {}).items()}
    found: dict[str, Any] = {}
    for name, one in sorted(header.items()):
        start, end = (8 + size + place for place in one["data_offsets"])
        held = content[start:end]
        sample = ""
        if one["dtype"] in ("F32", "F64") and held:
            first = np.frombuffer(held, "<f4" if one["dtype"] == "F32" else "<f8")[:2]
            sample = " ".join(f"{x:.6g}" for x in first) + " … "
        digest = hashlib.sha256(held).hexdigest()[:16]
        found[name] = f"{one['dtype']} {tuple(one['shape'])} {sample}sha256 {digest}"
    return {"tensors": found, "facts": facts}


def _facts(value: str) -> Any:
    try:
        return plain(without_hashes(json.loads(value)))
    except ValueError:
        return text(value)
