"""Inputs and answers of each task as tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anaphora.data.asked import is_blank
from anaphora.errors import DataError
from anaphora.serving.exchange import Exchange
from anaphora.serving.protocol.tensors import TEXT, Tensor, padded, tensor_of
from anaphora.serving.refusals import unusable

OUTPUTS = "outputs"


def input_specs(exchange: Exchange) -> list[dict[str, Any]]:
    """What the metadata of a run say of its inputs."""
    return [spec._asdict() for spec in exchange.doors.tensors]


def output_specs(exchange: Exchange) -> list[dict[str, Any]]:
    """What the metadata of a run say of its outputs, where no details are requested."""
    if exchange.session is not None:
        return [spec._asdict() for spec in exchange.session.kinds.output.tensors]
    model, command = exchange.estimator, exchange.task.command
    if command == "tag":
        kind, values = model.targets_.kind, list(model.targets_.values)
        datatype = "FP64" if kind == "number" else tensor_of("", values).datatype
        return [_spec(OUTPUTS, datatype, [-1] * (2 + (kind == "classes")))]
    if command == "language":
        return [_spec(OUTPUTS, "FP64", [-1])]
    if command == "forecast":
        return [_spec(OUTPUTS, "FP64", [-1, -1, len(model.columns_.targets)])]
    return [_spec(OUTPUTS, TEXT, [-1])]


def _spec(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


def inputs_of(exchange: Exchange, tensors: Mapping[str, Tensor]) -> list[Any]:
    """The inputs of a request. Raises a `Refusal` or a `DataError` with the number of the first that cannot be used."""
    specs = exchange.doors.tensors
    names = [spec.name for spec in specs]
    if unknown := tensors.keys() - set(names):
        raise unusable(f"there is no input {min(unknown)[:40]!r}; this run reads {', '.join(names)}.")
    for spec in specs:
        if spec.datatype == TEXT and spec.name in tensors:
            held = tensors[spec.name].values.ravel().tolist()
            exchange.spelled(sum(len(one) for one in held if isinstance(one, str | bytes)))
    values = {name: tensor.values for name, tensor in tensors.items()}
    found = exchange.doors.from_tensors(values, exchange.bounds)
    if exchange.session is not None and any(map(is_blank, found)):
        number, name = (
            next(i for i, one in enumerate(found, start=1) if is_blank(one)),
            exchange.session.kinds.output.name,
        )
        raise DataError(
            f"input {number} is empty and has no {name}, for which a tensor has no place; leave it out."
        )
    return exchange.gathered(found)


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
