"""Weights as safetensors files that can tell whether they are intact.

The format itself has no checksum: a flipped bit in the data loads silently. So one metadata key,
``anaphora``, holds JSON ``{"format", "facts", "tied", "sha256"}``, where the hash runs over the format, the
facts, the tied names and every tensor's name, dtype, shape and bytes. One key only, because the
order of several would not be the same in every file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as read_safetensors
from safetensors.torch import save as write_safetensors
from torch import Tensor, nn

from anaphora.errors import RunError
from anaphora.files import clause, parse_json, read_bytes, streamed
from anaphora.files.arrays import LONGEST_HEADER, check_header
from anaphora.files.parsing import canonical
from anaphora.files.schemas import problem
from anaphora.files.writing import replace_file, writing
from anaphora.training.schemas import Note, Schema

FORMAT = 1
KEY = "anaphora"


def save_weights(path: Path | str, tensors: Mapping[str, Tensor], *, facts: Mapping[str, Any]) -> None:
    """Write ``tensors`` and JSON-able ``facts`` to ``path`` in one step; same input, same bytes."""
    path = Path(path)
    with writing(path):
        replace_file(path, pack(tensors, facts=facts))


def load_weights(
    path: Path | str, device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read ``(tensors, facts)`` and verify them; ``RunError`` in one sentence where the file is damaged."""
    path = Path(path)
    try:
        data = read_bytes(path, follow=False)
    except FileNotFoundError:
        raise RunError(f"{path}: there is no such file; the run has not written its weights yet.") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({clause(error)}).") from error
    tensors, facts = unpack(data, where=str(path))
    return {name: tensor.to(device) for name, tensor in tensors.items()}, facts


def pack(tensors: Mapping[str, Tensor], *, facts: Mapping[str, Any]) -> bytes:
    """The bytes of a self-verifying safetensors file. Tied tensors are stored once."""
    kept, tied = _untie(tensors)
    head = {"format": FORMAT, "facts": dict(facts), "tied": tied}
    note = canonical({**head, "sha256": _digest(head, kept)})
    return bytes(write_safetensors(kept, metadata={KEY: note}))


def unpack(data: bytes, *, where: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The ``(tensors, facts)`` in ``data``; ``where`` is the file's name for the error's sentence."""
    note = _note(data, where)
    try:
        head = parse_json(note)
        version = head.get("format") if isinstance(head, dict) else None
        reason = problem(Note, head)
    except ValueError as error:
        version, reason = None, str(error)
    if isinstance(version, int) and version > FORMAT:
        raise RunError(
            f"{where}: written in format {version}, but this version reads up to {FORMAT}; "
            "install a newer anaphora."
        )
    if reason:
        raise RunError(f"{where}: damaged (its note cannot be read: {reason}); use another copy.")
    sealed = head.pop("sha256")
    try:
        kept: dict[str, Tensor] = read_safetensors(data)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise RunError(f"{where}: damaged ({_first_line(error)}); use another copy.") from None
    if _digest(head, kept) != sealed or canonical({**head, "sha256": sealed}) != note:
        raise RunError(f"{where}: damaged (its checksum does not match its content); use another copy.")
    for alias, name in head["tied"].items():
        if alias in kept or name not in kept:
            raise RunError(f"{where}: damaged (its note ties {alias} to {name}); use another copy.")
    return kept | {alias: kept[name] for alias, name in head["tied"].items()}, head["facts"]


def check_facts(schema: type[Schema], facts: Mapping[str, Any], where: Path | str) -> None:
    """A `RunError` that names the fact that is not as ``schema`` wants it."""
    if reason := problem(schema, facts):
        raise RunError(f"{where}: damaged (facts.{reason}); use another copy.")


def seal(path: Path) -> str:
    """The sha256 that a file of weights says of its content, read without the content."""
    with streamed(path, follow=False) as file:
        size = file.read(8)
        head = size + file.read(min(int.from_bytes(size, "little"), LONGEST_HEADER))
    try:
        return str(parse_json(_note(head, str(path)))["sha256"])
    except (ValueError, LookupError, TypeError):
        raise RunError(f"{path}: damaged (its note cannot be read); use another copy.") from None


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters and buffers by name, detached; tied ones still share their storage."""
    return {name: value.detach() for name, value in model.state_dict().items()}


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor with a NaN or an infinity, if there is one."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return name
    return None


def mismatch(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> str | None:
    """A clause that names the first tensor that differs in name, shape or type, or None."""
    if set(ours) != set(theirs):
        return f"{sorted(set(ours) ^ set(theirs))[0]} is in one of them only"
    for name, value in ours.items():
        other = theirs[name]
        if (value.shape, value.dtype) != (other.shape, other.dtype):
            return f"{name} is {tuple(other.shape)} {other.dtype} there and {tuple(value.shape)} {value.dtype} here"
    return None


def digest_of(head: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """sha256 of ``head`` and of every tensor, wherever it lies."""
    return _digest(head, _untie(tensors)[0])


def _untie(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    kept: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    seen: dict[tuple[Any, ...], str] = {}
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        place = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, str(tensor.device))
        if tensor.numel() and place in seen:
            tied[name] = seen[place]
            continue
        seen[place] = name
        # a copy, so that two views of one storage (a flattened RNN's weights) are stored as two tensors
        kept[name] = tensor.to("cpu").clone(memory_format=torch.contiguous_format)
    return kept, tied


def _digest(head: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(canonical(head).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(canonical([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _note(data: bytes, where: str) -> str:
    """The metadata under our key, read from the header: 8 bytes of length, then JSON."""
    try:
        check_header(data)
    except ValueError as error:
        raise RunError(f"{where}: damaged ({error}); use another copy.") from None
    try:
        header = parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")])
        note = header.get("__metadata__", {}).get(KEY)
    except (ValueError, AttributeError):
        raise RunError(f"{where}: damaged (its header cannot be read); use another copy.") from None
    if not isinstance(note, str):
        raise RunError(f"{where}: not written by anaphora, or its note is damaged; use another copy.")
    return note


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
