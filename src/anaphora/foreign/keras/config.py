"""The config of a Keras model as a list of calls, for the forms that Keras 1 to 3 write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anaphora.foreign.mapping import UnmappedError

OPERATIONS = ("NotEqual", "Any")
"""Operations of Keras 3 that make masks, which stand among the layers."""
Place = tuple[str, int, int]
"""The name of a layer, which of its calls, and which of its outputs."""


@dataclass(frozen=True)
class Call:
    """One call of a layer: where its tensors come from, and its mask where one is given; ``values`` are numbers among them."""

    inputs: tuple[Place, ...]
    mask: Place | None = None
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Layer:
    name: str
    kind: str
    config: Mapping[str, Any]
    calls: tuple[Call, ...]

    @property
    def is_layer(self) -> bool:
        return self.kind not in OPERATIONS


@dataclass(frozen=True)
class Graph:
    """The layers in the order of the file, and which of their outputs are those of the model."""

    layers: tuple[Layer, ...]
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]


def graph_of(model: Mapping[str, Any]) -> Graph:
    """The graph of a ``Sequential`` or functional model; an `UnmappedError` for another."""
    kind, config = str(model["class_name"]), model["config"]
    if kind == "Sequential":
        return _sequential(config if isinstance(config, list) else config["layers"])
    if kind not in ("Model", "Functional"):
        raise UnmappedError(f"the model class {kind!r}")
    layers = tuple(
        Layer(str(one["name"]), str(one["class_name"]), one["config"], tuple(_calls(one["inbound_nodes"])))
        for one in config["layers"]
    )
    return Graph(layers, _places(config["input_layers"]), _places(config["output_layers"]))


def _sequential(given: list[Any]) -> Graph:
    layers: list[Layer] = []
    if not given or given[0]["class_name"] != "InputLayer":
        layers.append(Layer("input", "InputLayer", {}, (Call(()),)))
    for one in given:
        calls = (Call(((layers[-1].name, 0, 0),) if layers else ()),)
        layers.append(Layer(str(one["config"]["name"]), str(one["class_name"]), one["config"], calls))
    if len({one.name for one in layers}) < len(layers):
        raise ValueError("two of its layers have the same name")
    return Graph(tuple(layers), ((layers[0].name, 0, 0),), ((layers[-1].name, 0, 0),))


def _calls(nodes: list[Any]) -> Iterator[Call]:
    if not nodes:
        yield Call(())
    for node in nodes:
        if not isinstance(node, dict):  # Keras 1 and 2: a list of [layer, call, output, options]
            said = sorted({key for one in node if len(one) > 3 and one[3] for key in one[3]} - {"training"})
            if said:
                raise UnmappedError(f"a call with the options {', '.join(said)}")
            yield Call(tuple((str(one[0]), int(one[1]), int(one[2])) for one in node))
            continue
        options = dict(node.get("kwargs") or {})
        mask = options.pop("mask", None)
        inside = [*_tensors(node.get("args", [])), *_tensors(options.pop("initial_state", None))]
        options = {
            key: value for key, value in options.items() if key not in ("training", "axis", "keepdims")
        }
        if any(value is not None for value in options.values()):
            raise UnmappedError(f"a call with the options {', '.join(options)}")
        masks = list(_tensors(mask))
        values = tuple(one for one in node.get("args", []) if isinstance(one, int | float))
        yield Call(tuple(inside), masks[0] if masks else None, values)


def _tensors(given: Any) -> Iterator[Place]:
    """The tensors of arguments, however they are nested."""
    if isinstance(given, dict) and given.get("class_name") == "__keras_tensor__":
        name, call, output = given["config"]["keras_history"]
        yield str(name), int(call), int(output)
    elif isinstance(given, list):
        for one in given:
            yield from _tensors(one)


def _places(given: Any) -> tuple[Place, ...]:
    """One place or several: Keras 3 writes ``["a", 0, 0]`` for one."""
    if given and isinstance(given[0], str):
        given = [given]
    return tuple((str(one[0]), int(one[1]), int(one[2])) for one in given)
