"""A Keras model as a module: its graph, call by call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from anaphora.errors import RunError
from anaphora.foreign.keras.config import Call, Graph, Layer, Place, graph_of
from anaphora.foreign.keras.layers import LAYERS, Given
from anaphora.foreign.keras.modules import Lookup, Masking, MeanOverTime, Plain
from anaphora.foreign.keras.recurrent import RecurrentLayer
from anaphora.foreign.mapping import UnmappedError
from anaphora.foreign.weights import Weights
from anaphora.training.weights import first_not_finite

Masked = tuple[Any, Tensor | None]


class KerasModel(nn.Module):
    """What ``model.predict`` computes: ``y = m(x)``, features last, ``(batch, time, features)``; symbols are whole numbers.

    A model of several inputs is given them in their order, ``m(x1, x2)``, and one of several outputs gives a tuple.
    ``m.layers_`` has the layers by the names that they have in Keras, and ``m.inputs`` and ``m.outputs`` the names of the first
    and last ones.
    """

    def __init__(self, graph: Graph, layers: Mapping[str, nn.Module]):
        super().__init__()
        self._graph = {one.name: one for one in graph.layers}
        self._inputs, self._outputs = graph.inputs, graph.outputs
        self.inputs = tuple(name for name, _, _ in graph.inputs)
        self.outputs = tuple(name for name, _, _ in graph.outputs)
        self._keys = {name: f"{i}_{re.sub('[^A-Za-z0-9_]', '_', name)}" for i, name in enumerate(layers)}
        self.parts = nn.ModuleDict({self._keys[name]: one for name, one in layers.items()})

    @property
    def layers_(self) -> dict[str, nn.Module]:
        return {name: self.parts[key] for name, key in self._keys.items()}

    def forward(self, *inputs: Tensor) -> Any:
        if len(inputs) != len(self._inputs):
            raise ValueError(
                f"KerasModel: it has {len(self._inputs)} inputs ({', '.join(self.inputs)}), got {len(inputs)}."
            )
        known: dict[tuple[str, int], Masked] = {
            (name, call): (x, None) for (name, call, _), x in zip(self._inputs, inputs, strict=True)
        }
        found = [self._value(place, known)[0] for place in self._outputs]
        return found[0] if len(found) == 1 else tuple(found)

    def _value(self, place: Place, known: dict[tuple[str, int], Masked]) -> Masked:
        """A tensor and its mask; what it needs is computed first, each call once."""
        waiting = [place[:2]]
        while waiting:
            name, index = waiting[-1]
            call = self._graph[name].calls[index]
            needed = [*call.inputs, *((call.mask,) if call.mask else ())]
            missing = [one[:2] for one in needed if one[:2] not in known]
            if waiting[-1] in known or not missing:
                waiting.pop()
                if (name, index) not in known:
                    known[name, index] = self._called(self._graph[name], call, known)
            else:
                waiting += missing
        value, mask = known[place[:2]]
        return (
            (value[place[2]], mask if place[2] == 0 else None) if isinstance(value, tuple) else (value, mask)
        )

    def _called(self, layer: Layer, call: Call, known: dict[tuple[str, int], Masked]) -> Masked:
        given = [self._value(one, known) for one in call.inputs]
        tensors = [value for value, _ in given]
        mask = given[0][1] if call.mask is None else self._value(call.mask, known)[0]
        if layer.kind == "NotEqual":
            return tensors[0] != call.values[0], None
        if layer.kind == "Any":
            return tensors[0].any(-1), None
        module = self.parts[self._keys[layer.name]]
        if isinstance(module, Lookup):
            return module(tensors[0]), tensors[0] != 0 if module.zero_masked else None
        if isinstance(module, Masking):
            return module(tensors[0]), module.mask(tensors[0])
        if isinstance(module, RecurrentLayer):
            return module(tensors[0], mask, *tensors[1:]), mask if module.sequences else None
        if isinstance(module, MeanOverTime):
            return module(tensors[0], mask), None
        kept = mask if getattr(module, "keeps", True) else None
        if len(given) > 1:
            kept = next((one for _, one in given if one is not None), None)
        return module(*tensors), kept


def keras_model(given: Weights) -> KerasModel:
    """The model of a file that holds its config; a `RunError` lists the layers that are not read."""
    version, names = str(given.config["keras_version"]), given.config["names"]
    try:
        graph = graph_of(given.config["model"])
        _check(graph)
        layers = [one for one in graph.layers if one.is_layer]
        unknown = sorted({one.kind for one in layers if one.kind != "InputLayer" and one.kind not in LAYERS})
        if unknown:
            raise UnmappedError(f"the layers {', '.join(unknown)}")
        weights = _by_layer(given, layers, names)
        made = {
            one.name: _made(one.name, one.kind, one.config, weights[one.name], version)
            for one in layers
            if one.kind != "InputLayer"
        }
    except UnmappedError as error:
        raise RunError(f"{given.path}: {error} has no counterpart here; choose another model.") from None
    except RecursionError:
        raise RunError(f"{given.path}: its config is nested too deep; save the model again.") from None
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise RunError(
            f"{given.path}: its config and its weights do not fit together ({_why(error)}); save the model again."
        ) from None
    found = KerasModel(graph, made)
    if broken := first_not_finite(dict(found.state_dict())):
        raise RunError(f"{given.path}: the weights of {broken} are not finite numbers; download it again.")
    return found.eval()


def _check(graph: Graph) -> None:
    """Whether every place that is named exists, and no call needs itself."""
    known = {one.name: one for one in graph.layers}
    done: set[tuple[str, int]] = set()
    for layer in graph.layers:
        for call in layer.calls:
            for name, index, _ in (*call.inputs, *((call.mask,) if call.mask else ())):
                if name not in known or not 0 <= index < len(known[name].calls):
                    raise ValueError(f"{layer.name} is called with an output of {name}, which there is not")
    for name, index, _ in (*graph.inputs, *graph.outputs):
        if name not in known or not 0 <= index < len(known[name].calls):
            raise ValueError(f"{name} is no layer of it")
    order = [(one, i) for one in graph.layers for i in range(len(one.calls))]
    while order:
        ready = [
            (one, i)
            for one, i in order
            if all(
                place[:2] in done
                for place in (*one.calls[i].inputs, *((one.calls[i].mask,) if one.calls[i].mask else ()))
            )  # type: ignore[index]
        ]
        if not ready:
            raise ValueError(f"{order[0][0].name} needs its own output")
        done |= {(one.name, i) for one, i in ready}
        order = [one for one in order if (one[0].name, one[1]) not in done]


def _made(
    name: str, kind: str, config: Mapping[str, Any], weights: Sequence[Tensor], version: str
) -> nn.Module:
    def inner(inside: Mapping[str, Any], own: Sequence[Tensor]) -> nn.Module:
        below = str(inside["class_name"])
        if below not in LAYERS:
            raise UnmappedError(f"{kind} of {below}")
        return LAYERS[below](Given(inside["config"], own, version, inner))

    try:
        made = LAYERS[kind](Given(config, weights, version, inner))
    except UnmappedError as error:
        raise UnmappedError(f"{error} of the layer {name}") from None
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None
    if isinstance(made, Plain) and weights:
        raise ValueError(f"{name} has {len(weights)} weights instead of none")
    return made


def _by_layer(
    given: Weights, layers: Sequence[Layer], names: Mapping[str, Sequence[str]]
) -> dict[str, list[Tensor]]:
    """The weights of each layer, in Keras' order; a ``ValueError`` names a layer that has none in the file, and weights of no layer."""
    used: set[str] = set()
    found: dict[str, list[Tensor]] = {}
    counts: dict[str, int] = {}
    for layer in layers:
        if given.kind == "keras":
            base = _snake(layer.kind)
            number = counts[base] = counts.get(base, -1) + 1
            group = f"layers/{base}" + (f"_{number}" if number else "")
            paths = _ordered([path for path in given.tensors if path.startswith(f"{group}/")])
        else:
            group = "/".join(part for part in (given.config.get("group"), layer.name) if part)
            paths = [f"{group}/{name}" for name in names.get(group, ())]
        absent = [path for path in paths if path not in given.tensors]
        if absent:
            raise ValueError(f"{absent[0]} is not there")
        used.update(paths)
        found[layer.name] = [given.tensors[path] for path in paths]
    extra = [path for path in given.tensors if path not in used]
    if extra:
        raise ValueError(f"{', '.join(extra[:5])} belongs to no layer")
    return found


def _ordered(paths: Sequence[str]) -> list[str]:
    """``…/vars/0`` before ``…/vars/10``, and what reads forward before what reads backward."""

    def place(path: str) -> tuple[int, list[tuple[int, str]]]:
        parts = [(int(one), "") if one.isdigit() else (-1, one) for one in path.split("/")]
        return int("/backward_layer/" in path), parts

    return sorted(paths, key=place)


def _snake(kind: str) -> str:
    """``TimeDistributed`` → ``time_distributed``, as Keras 3 names groups."""
    found = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", kind)
    return re.sub("([a-z])([A-Z])", r"\1_\2", found).lower()


def _why(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
