"""Inputs and answers of each task as tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from anaphora.data.asked import is_blank
from anaphora.errors import DataError
from anaphora.serving.exchange import Exchange
from anaphora.serving.exchange.inputs import Picture, Question, Reader, Sound, Text, Words
from anaphora.serving.protocol.tensors import TEXT, Tensor, padded, tensor_of
from anaphora.serving.refusals import unusable

INPUTS, OUTPUTS = "inputs", "outputs"
LENGTHS, RATES, PICTURES, QUESTIONS = "lengths", "rates", "pictures", "questions"
Tensors = Mapping[str, Tensor]


def input_specs(reader: Reader) -> list[dict[str, Any]]:
    """What the metadata of a run say of its inputs."""
    if isinstance(reader, Text | Words):
        return [_spec(INPUTS, TEXT, [-1])]
    if isinstance(reader, Question):
        return [_spec(PICTURES, "FP32", [-1, -1, -1, 3]), _spec(QUESTIONS, TEXT, [-1])]
    if isinstance(reader, Picture):
        return [_spec(INPUTS, "FP32", [-1, -1, -1, 3])]
    lengths = _spec(LENGTHS, "INT64", [-1])
    if isinstance(reader, Sound):
        return [_spec(INPUTS, "FP32", [-1, -1]), lengths, _spec(RATES, "INT64", [-1])]
    return [_spec(INPUTS, "FP32", [-1, -1, -1]), lengths]


def output_specs(exchange: Exchange) -> list[dict[str, Any]]:
    """What the metadata of a run say of its outputs, where no details are requested."""
    model, command = exchange.estimator, exchange.task.command
    if command in ("classify", "tag"):
        kind, values = model.targets_.kind, list(model.targets_.values)
        datatype = "FP64" if kind == "number" else tensor_of("", values).datatype
        return [_spec(OUTPUTS, datatype, [-1] * (1 + (command == "tag") + (kind == "classes")))]
    if command == "language":
        return [_spec(OUTPUTS, "FP64", [-1])]
    if command == "forecast":
        return [_spec(OUTPUTS, "FP64", [-1, -1, len(model.columns_.targets)])]
    if command == "embed":
        return [_spec(OUTPUTS, "FP64", [-1, model.settings_.vector_size])]
    return [_spec(OUTPUTS, TEXT, [-1])]


def _spec(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


def inputs_of(exchange: Exchange, tensors: Tensors) -> list[Any]:
    """The inputs of a request. Raises a `Refusal` or a `DataError` with the number of the first that cannot be used."""
    reader = exchange.reader
    names = [spec["name"] for spec in input_specs(reader)]
    if unknown := tensors.keys() - set(names):
        raise unusable(f"there is no input {min(unknown)[:40]!r}; this run reads {', '.join(names)}.")
    if isinstance(reader, Text | Words | Question):
        textual = QUESTIONS if isinstance(reader, Question) else INPUTS
        held = tensors[textual].values.ravel().tolist() if textual in tensors else []
        exchange.spelled(sum(len(one) for one in held if isinstance(one, str | bytes)))
    if isinstance(reader, Question):
        pictures, questions = _rows(tensors, PICTURES), _rows(tensors, QUESTIONS)
        if len(pictures) != len(questions):
            raise unusable(
                f"there are {len(pictures)} pictures and {len(questions)} questions; send as many."
            )
        both = enumerate(zip(pictures, questions, strict=True), start=1)
        places = [
            (_read(reader.picture, a, f"input {i}"), _read(reader.question, b, f"input {i}"))
            for i, (a, b) in both
        ]
        return exchange.gathered(places)
    rows = _cut(_rows(tensors, INPUTS), tensors)
    if isinstance(reader, Sound) and RATES in tensors:
        rates = tensors[RATES].values.ravel().tolist()
        if len(rates) != len(rows):
            raise unusable(f"there are {len(rows)} inputs and {len(rates)} rates; send as many.")
        sampled = [
            reader.sampled(x, rate, f"input {i}")
            for i, (x, rate) in enumerate(zip(rows, rates, strict=True), 1)
        ]
        return exchange.gathered(sampled)
    found = [_read(reader, row, f"input {i}") for i, row in enumerate(rows, start=1)]
    if exchange.task.command == "classify" and any(map(is_blank, found)):
        number = next(i for i, one in enumerate(found, start=1) if is_blank(one))
        raise DataError(
            f"input {number} is empty and has no label, for which a tensor has no place; leave it out."
        )
    return exchange.gathered(found)


def _rows(tensors: Tensors, name: str) -> list[Any]:
    """The rows of a tensor: texts (or files, as bytes), or arrays."""
    if name not in tensors:
        raise unusable(f"the input {name!r} is missing.")
    held = tensors[name]
    if held.datatype == TEXT:
        found: list[Any] = held.values.ravel().tolist()
        return found
    if held.values.ndim < 2:
        raise unusable(f"the input {name!r} has the shape {held.shape}; its first axis counts the inputs.")
    return list(held.values)


def _cut(rows: list[Any], tensors: Tensors) -> list[Any]:
    """The rows, each as long as ``lengths`` says."""
    if LENGTHS not in tensors:
        return rows
    lengths = tensors[LENGTHS].values.ravel()
    if lengths.dtype.kind not in "iu" or len(lengths) != len(rows):
        raise unusable(
            f"there are {len(rows)} inputs and {len(lengths)} lengths; send as many whole numbers."
        )
    if not all(isinstance(x, np.ndarray) and 1 <= n <= len(x) for x, n in zip(rows, lengths, strict=True)):
        raise unusable("lengths must be from 1 to the second axis of inputs.")
    return [row[:length] for row, length in zip(rows, lengths, strict=True)]


def _read(reader: Reader, row: Any, where: str) -> Any:
    textual = isinstance(reader, Text | Words)
    if isinstance(row, bytes):
        return reader.upload(row, where)
    if isinstance(row, str) != textual:
        raise DataError(
            f"{where} is {'a text' if isinstance(row, str) else 'numbers'}, and this run reads {reader.kind}."
        )
    if isinstance(reader, Picture):
        row = _pixels(row)
    return reader.read(row, where)


def _pixels(row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers from 0 to 255 that came as floats, the type of the protocol's metadata, as whole numbers again."""
    whole = row.dtype.kind == "f" and row.size and row.max() > 1 and (row == np.floor(row)).all()
    return row.astype(np.int64) if whole else row


def outputs_of(answers: list[Any]) -> list[Tensor]:
    """The answers of a request as tensors: one called ``outputs``, or one for each field of the details.

    Probabilities by class are a matrix beside the names of its columns (``probabilities_of``). What has no shape, such as the
    words of a transcript, is JSON in a text.
    """
    if not answers or not isinstance(answers[0], dict):
        return _columns(OUTPUTS, answers)
    return [tensor for name in answers[0] for tensor in _columns(name, [one[name] for one in answers])]


def _columns(name: str, values: list[Any]) -> list[Tensor]:
    first = values[0] if values else ""
    if isinstance(first, dict):
        return [tensor_of(name, [list(one.values()) for one in values]), tensor_of(f"{name}_of", list(first))]
    if isinstance(first, list) and any(isinstance(one, dict) for row in values for one in row):
        return [tensor_of(name, [json.dumps(row, ensure_ascii=False) for row in values])]
    return padded(values, name) if isinstance(first, list) else [tensor_of(name, values)]
