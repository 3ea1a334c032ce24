"""A trace: the numbers of one run of a model, with names for every axis, in memory and on disk."""

from __future__ import annotations

import errno
import hashlib
import importlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as pack_arrays

from anaphora.errors import AnaphoraError, DataError
from anaphora.files import parse_json, read_bytes
from anaphora.files.arrays import check_header
from anaphora.files.writing import make_folder, replace_file
from anaphora.kinds.result import html_table

SCHEMA = 2
AXES = frozenset(
    {"layer", "time", "unit", "head", "query", "key", "beam", "step", "symbol", "state"}
    | {"target", "source", "fed", "rank", "output", "to"}
    | {"frame", "feature", "row", "column", "channel", "place", "coordinate", "label"}
)
"""The names of axes; a view asks for an array by them. ``fed`` are the symbols that a decoder reads, from the start mark on,
``target`` those that it writes: its state at a step has read the one and not yet the other."""
ALONG = {
    ("encoder_attention", "query"): "source",
    ("encoder_attention", "key"): "source",
    ("self_attention", "key"): "fed",
    **{(name, axis): "time" for name in ("attention", "") for axis in ("query", "key")},
    **{
        (name, "step"): "loss"
        for name in ("input_gradients", "state_gradients", "integrated_gradients", "occlusion")
    },
}
"""What stands along an axis of an array that is no axis of tokens itself; of arrays not named here that of ``""``. ``loss``
names what each of several losses is of: a symbol to come, a tag; where it is not given, they are of the places themselves."""
MAX_DIFFERENCE = 1e-4
"""A probe whose numbers are further than this from the model's own is refused."""
MAX_BYTES = 256 * 2**20
"""Most bytes all arrays of a trace may take together."""
MAX_TOKENS = 4096
"""Most symbols on one axis of tokens."""
MAX_JSON_BYTES = 32 * 2**20
"""Most bytes of trace.json: tokens, facts and tables."""


class Array(NamedTuple):
    """Numbers with one name per dimension, such as ``("target", "source")``.

    ``axes``: the names; ``values``: the numbers, as many dimensions as names.

    >>> from anaphora.probe.trace import Array
    >>> Array(("time", "unit"), np.zeros((3, 4))).values.shape
    (3, 4)
    """

    axes: tuple[str, ...]
    values: NDArray[Any]


class Layer(NamedTuple):
    """One entry along an axis ``layer``: a layer's number, and which way it reads where there are two ways.

    ``number``: from 1. ``direction``: ``forward``, ``backward``, or empty where the model has but one.

    >>> from anaphora.probe.trace import Layer
    >>> str(Layer(1, "backward")), str(Layer(2))
    ('layer 1, backward', 'layer 2')
    """

    number: int
    direction: str = ""

    def __str__(self) -> str:
        return f"layer {self.number}" + (f", {self.direction}" if self.direction else "")


@dataclass(repr=False)
class Trace:
    """Everything seen inside one run of a model.

    `tokens` names the places along an axis (``tokens["source"]`` along every axis ``source``), `arrays`
    holds the numbers, `facts` what is known about the run (model hash, seed, dtype, ``max_difference``),
    `tables` lists of records, such as the nodes of a beam tree. What stands at the places of an array, and which
    layer an entry of it is, say `names` and `layers`; every view asks these two.

    A trace has proved itself equal to the model: ``facts["max_difference"]`` is the greatest distance of a
    number from what the model computes without a recorder, and above 1e-4 there is no trace but an error.
    Limits: 256 MiB of arrays, 4096 symbols on one axis, 32 MiB of JSON.

    Raises an `AnaphoraError` for arrays that do not fit their axes, and above the limits.

    >>> from anaphora.probe.trace import Array, Trace
    >>> trace = Trace({"time": ["a", "b"]}, {"states": Array(("time", "unit"), np.zeros((2, 3)))}, {"model": "toy"})
    >>> trace.array("states", "unit", "time").shape
    (3, 2)
    >>> Trace.load(trace.save("toy")).tokens
    {'time': ['a', 'b']}
    """

    tokens: dict[str, list[str]]
    arrays: dict[str, Array]
    facts: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrays = {name: Array(tuple(axes), values) for name, (axes, values) in self.arrays.items()}
        _check_difference(self.facts)
        _check_sizes(self.tokens, self.arrays)
        for name, array in self.arrays.items():
            _check_axes(name, array, self.tokens)

    def __repr__(self) -> str:
        """What there is to look at, not the numbers themselves."""
        lines = [f"  {name} ({', '.join(tokens)})" for name, tokens in self.tokens.items()]
        for name, (axes, values) in sorted(self.arrays.items()):
            sizes = ", ".join(f"{axis} {size}" for axis, size in zip(axes, values.shape, strict=True))
            lines.append(f"  {name}: {sizes}")
        lines += [f"  {name}: {len(rows)} records" for name, rows in sorted(self.tables.items())]
        return "\n".join(["Trace", *lines])

    def _repr_html_(self) -> str:
        """The same as a table for a notebook."""
        facts: dict[str, Any] = {name: " ".join(tokens) for name, tokens in self.tokens.items()}
        for name, (axes, values) in sorted(self.arrays.items()):
            facts[name] = " × ".join(f"{axis} {size}" for axis, size in zip(axes, values.shape, strict=True))
        facts |= {name: f"{len(rows)} records" for name, rows in sorted(self.tables.items())}
        return html_table(facts, "Trace")

    @property
    def max_difference(self) -> float | None:
        """Probe against model: max |Δ|; None for a trace that was not probed from a model."""
        value = self.facts.get("max_difference")
        return None if value is None else float(value)

    def array(self, name: str, *axes: str) -> NDArray[Any]:
        """The values of an array, its dimensions in the order of `axes` if they are given."""
        if name not in self.arrays:
            raise AnaphoraError(
                f"This trace has no {name!r}; it holds {', '.join(sorted(self.arrays)) or 'no arrays'}."
            )
        found = self.arrays[name]
        if axes and set(axes) != set(found.axes):
            raise AnaphoraError(f"{name!r} has the axes {', '.join(found.axes)}, not {', '.join(axes)}.")
        return found.values.transpose([found.axes.index(axis) for axis in axes]) if axes else found.values

    def names(self, name: str, axis: str) -> list[str]:
        """What stands at each place of an axis of an array: for an array of states the symbols that had been read last.

        An axis without names has the numbers of its places.
        """
        found = self.arrays[name]
        count = found.values.shape[found.axes.index(axis)]
        sequence = ALONG.get((name, axis)) or ALONG.get(("", axis), axis)
        own = self.tokens.get(sequence) or (self.tokens.get("time", []) if sequence == "loss" else [])
        if sequence == "loss" and count == 1:
            return ["the whole"]
        return list(own) if len(own) == count else [str(place + 1) for place in range(count)]

    def layers(self, name: str) -> list[Layer]:
        """The layer and the direction of each entry along the axis ``layer`` of an array."""
        known = self.facts.get("layers", {}).get(name, [])
        count = self.arrays[name].values.shape[self.arrays[name].axes.index("layer")]
        if len(known) != count:
            return [Layer(number + 1) for number in range(count)]
        return [Layer(int(number), str(direction)) for number, direction in known]

    def view(self, name: str, **options: Any) -> Any:
        """The picture `name` of this trace (a `views.Picture`): shows itself in a notebook, saves to a file.

        Pictures live in the layer above, which is loaded by name when the first one is drawn.
        """
        return importlib.import_module("anaphora.views.registry").picture(self, name, **options)

    def save(self, folder: str | Path) -> Path:
        """Write ``NAME.trace/`` with ``trace.json`` and ``arrays.safetensors``; returns the folder.

        trace.json comes last and names the sha256 of the arrays, so a half-written trace is noticed.
        """
        folder = Path(folder)
        folder = folder if folder.suffix == ".trace" else folder.with_name(folder.name + ".trace")
        arrays = pack_arrays({name: np.ascontiguousarray(a.values) for name, a in self.arrays.items()})
        description = {
            "schema": SCHEMA,
            "tokens": self.tokens,
            "axes": {name: list(array.axes) for name, array in self.arrays.items()},
            "facts": self.facts,
            "tables": self.tables,
            "arrays_sha256": hashlib.sha256(arrays).hexdigest(),
        }
        text = json.dumps(description, ensure_ascii=False, allow_nan=False, indent=1).encode()
        if len(text) > MAX_JSON_BYTES:
            raise AnaphoraError(
                f"The trace's tokens and tables take {len(text)} bytes, more than {MAX_JSON_BYTES}; "
                "use a shorter text or a narrower beam."
            )
        try:
            make_folder(folder)
            for name, content in (("arrays.safetensors", arrays), ("trace.json", text)):
                replace_file(folder / name, content)
        except OSError as error:
            raise DataError(f"{folder}: the trace cannot be written ({error.strerror}).") from None
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Trace:
        """Read what `save` wrote, checking sizes before reading and the arrays' sha256 after."""
        folder = Path(folder)
        text = _read(folder / "trace.json", MAX_JSON_BYTES)
        packed = _read(folder / "arrays.safetensors", MAX_BYTES + 2**20)
        try:
            description = parse_json(text)
            if description["schema"] != SCHEMA:
                raise DataError(
                    f"{folder}: schema {description['schema']} of a trace is not known here, only {SCHEMA}; "
                    "make the trace again with this version."
                )
            if description["arrays_sha256"] != hashlib.sha256(packed).hexdigest():
                raise DataError(
                    f"{folder}: arrays.safetensors is not the one that trace.json describes; make it again."
                )
            check_header(packed)
            values = parse_arrays(packed)
            arrays = {name: Array(tuple(axes), values[name]) for name, axes in description["axes"].items()}
            return cls(description["tokens"], arrays, description["facts"], description["tables"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError):
            raise DataError(f"{folder}: this is not a trace or it is damaged; make it again.") from None


def _read(path: Path, most: int) -> bytes:
    try:
        return read_bytes(path, most=most)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise DataError(f"{path}: holds more than a trace may have ({most} bytes).") from None
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); a trace is a folder NAME.trace."
        ) from None


def _check_difference(facts: Mapping[str, Any]) -> None:
    difference = facts.get("max_difference")
    if difference is not None and not (0 <= difference <= MAX_DIFFERENCE and math.isfinite(difference)):
        raise AnaphoraError(
            f"Probe against model: max |Δ| = {difference:.3g} is above {MAX_DIFFERENCE:g}, so a picture "
            "would not show what the model does; probe it in float32; if it is so already, its code "
            "has two ways of computing that do not agree."
        )


def _check_sizes(tokens: Mapping[str, list[str]], arrays: Mapping[str, Array]) -> None:
    size = sum(array.values.nbytes for array in arrays.values())
    if size > MAX_BYTES:
        raise AnaphoraError(
            f"The trace would take {size / 2**20:.3g} MiB, over {MAX_BYTES // 2**20}; use a shorter text."
        )
    for axis, names in tokens.items():
        if len(names) > MAX_TOKENS:
            raise AnaphoraError(
                f"The {axis} has {len(names)} symbols, more than {MAX_TOKENS}; use a shorter text."
            )


def _check_axes(name: str, array: Array, tokens: Mapping[str, list[str]]) -> None:
    axes, shape = array.axes, array.values.shape
    if len(axes) != len(shape) or len(set(axes)) != len(axes) or not set(axes) <= AXES:
        raise AnaphoraError(
            f"The array {name!r} of shape {shape} needs one name per axis, from {', '.join(sorted(AXES))}; "
            f"got {axes}."
        )
    for axis, size in zip(axes, shape, strict=True):
        if axis in tokens and len(tokens[axis]) != size:
            raise AnaphoraError(
                f"The array {name!r} has {size} places along {axis}, which has {len(tokens[axis])} tokens."
            )
