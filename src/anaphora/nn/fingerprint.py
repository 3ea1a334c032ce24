"""The one rule for what is derived from a module: it is used as long as the module's fingerprint stays the same.

Traces, packed weights, captured CUDA graphs and compiled steps all depend on more than the arguments of a call:

- on **attributes**: plain values, containers, sub-modules, hooks, the class. They may be baked into a trace. A
  `Fingerprint` compares every one with the object it was;
- on **where parameters and buffers lie**: ``.to()``, ``.data = ...`` and replaced parameters. It compares address, shape,
  strides and type of every one;
- on **what they hold**. What is derived either reads the parameters in place, or keeps a
  `~anaphora.kernels.snapshot.Snapshot` of them, which finds every write: by optimizers, fused ones too, through ``.data``,
  NumPy or a compiled program.
"""

from __future__ import annotations

import sys
import types
from argparse import Namespace
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterable
from operator import is_
from threading import RLock
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch._C._dynamo.guards import TensorGuards

from anaphora.kernels.snapshot import memory_of
from anaphora.nn.cell import named_tensors

Value = TypeVar("Value")

KEPT = 8  # versions of a module whose derived values are kept, so that a value that is switched to and fro is not made anew
CACHES = ("_engines", "_number", "_streams")  # attributes that hold derived values themselves
_REGISTERED = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")
_UNSEEN = frozenset(vars(nn.Module())) - {"training"} | {*CACHES}
_SIMPLE = (
    int,
    str,
    bytes,
    type(None),
    torch.dtype,
    torch.device,
)  # equal ones of one type are interchangeable
_OPAQUE = (Tensor, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
_FIXED = sys.stdlib_module_names | {
    "torch",
    "anaphora",
}  # packages whose classes nobody changes while they run
_RECORDS = (types.SimpleNamespace, Namespace)


class Fingerprint:
    """What modules are now. ``key`` is equal for equal attributes; `unchanged` looks again, in about a microsecond.

    ``entries``: dictionaries and those of their keys that matter, too.
    """

    def __init__(self, *modules: nn.Module, entries: Iterable[tuple[dict[str, Any], Iterable[str]]] = ()):
        walk = _Walk()
        found = [walk.module(module) for module in modules]
        self.key: Hashable = (*found, *(walk.entries(held, names) for held, names in entries))
        self.identities = walk.identities
        self.tensors = walk.tensors
        self._same: Callable[[], bool] = walk.comparison()
        self._places = self._look()
        self._layouts = [*map(_layout, self.tensors)]
        self._guards = _guards(self.tensors)

    def unchanged(self) -> bool:
        """Whether the modules are `alike`, and their tensors lie where they lay."""
        return self.alike() and self._look() == self._places

    def alike(self) -> bool:
        """Whether the modules still have the same attributes, and their tensors the same types, shapes and strides."""
        try:
            if not self._same():
                return False
        except (
            KeyError,
            IndexError,
            RuntimeError,
        ):  # an attribute is gone, or a container changed size meanwhile
            return False
        if self._guards.check(*self.tensors):
            return True
        # The guards also look at modes such as inference, which do not matter here.
        self._guards = _guards(self.tensors)
        return [*map(_layout, self.tensors)] == self._layouts

    def _look(self) -> list[int]:
        offsets: map[Any] = map(Tensor.storage_offset, self.tensors)
        return [*map(memory_of, self.tensors), *offsets]


def _guards(tensors: list[Tensor]) -> Any:
    """Compares type, shape and strides of many tensors in the time that one question takes from Python."""
    free: list[Any] = [[None] * t.dim() for t in tensors]
    return TensorGuards(*tensors, dynamic_dims_sizes=free, dynamic_dims_strides=free)


def _layout(tensor: Tensor) -> tuple[object, ...]:
    return tensor.dtype, tensor.device, tensor.shape, tensor.stride()


class Derived(Generic[Value]):
    """Values made for a module, one for each fingerprint it has had lately; safe among threads."""

    def __init__(self, make: Callable[[], Value]):
        self.make = make
        self._lock = RLock()
        self._now: tuple[Fingerprint, Value, dict[str, Tensor]] | None = None
        self._kept: OrderedDict[Hashable, tuple[object, Value]] = OrderedDict()

    def of(self, module: nn.Module) -> Value:
        """The value that belongs to the module as it is now."""
        return self.with_tensors(module)[0]

    def with_tensors(self, module: nn.Module) -> tuple[Value, dict[str, Tensor]]:
        """The value, and the module's parameters and buffers by name, which the caller must not change."""
        now = self._now
        if now is not None and now[0].unchanged():
            return now[1:]
        with self._lock:
            fingerprint = Fingerprint(module)
            before = self._kept.pop(fingerprint.key, None)
            value = self.make() if before is None else before[1]
            # A key may name objects by their identity, which is theirs only while they live.
            self._kept[fingerprint.key] = (fingerprint.identities, value)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            self._now = (fingerprint, value, named_tensors(module))
            return self._now[1:]


class _Walk:
    """One pass over a module: its key, and the comparison that finds any change of it.

    The comparison is a generated expression, ``d0['hidden'] is v0 and ...``: a loop would take several times as long,
    and a step of a small network takes but a few microseconds.
    """

    def __init__(self) -> None:
        self.terms: list[str] = []
        self.names: dict[str, object] = {"alike": _alike}
        self.identities: list[object] = []  # objects that the key names by their identity
        self.tensors: list[Tensor] = []  # registered ones, each once
        self.places: dict[object, int] = {}  # of tensors that lie in the same place, one number
        self.visited: dict[int, int] = {}

    def comparison(self) -> Callable[[], bool]:
        same: Callable[[], bool] = eval(f"lambda: {' and '.join(self.terms)}", self.names)
        return same

    def module(self, module: nn.Module) -> Hashable:
        if (again := self._again(module)) is not None:
            return again
        attributes, kind = vars(module), type(module)
        self.terms.append(f"{self._name(module)}.__class__ is {self._name(kind)}")
        held = self._name(attributes)
        count = len(attributes) - ("_engines" in attributes)  # made at the first call
        self.terms.append(f"len({held}) - ('_engines' in {held}) == {count}")
        found = [self._class(kind), self.entries(attributes, [n for n in attributes if n not in _UNSEEN])]
        return (*found, *(self._registered(attributes[group]) for group in _REGISTERED))

    def entries(self, held: dict[str, Any], names: Iterable[str]) -> Hashable:
        found, place = [], self._name(held)
        for name in names:
            self.terms.append(f"{place}[{name!r}] is {self._name(held[name])}")
            found.append((name, self.value(held[name])))
        return tuple(found)

    def _registered(self, group: dict[Any, Any]) -> Hashable:
        held = self._name(group)
        self.terms.append(f"len({held}) == {len(group)}" if group else f"not {held}")
        found: list[Hashable] = []
        for name, value in group.items():
            self.terms.append(f"{held}[{name!r}] is {self._name(value)}")
            if isinstance(value, Tensor):
                found.append((name, self._registered_tensor(value)))
            else:
                found.append((name, self.value(value)))
        return tuple(found)

    def _registered_tensor(self, tensor: Tensor) -> Hashable:
        """Parameters reach a computation by name, so that only which of them are one and the same matters."""
        if self._again(tensor) is None:
            self.tensors.append(tensor)
        place = (
            (memory_of(tensor), tensor.storage_offset(), *_layout(tensor)) if tensor.numel() else id(tensor)
        )
        return self.places.setdefault(place, len(self.places))

    def value(self, value: Any) -> Hashable:
        if isinstance(value, _SIMPLE):
            return type(value), value
        if isinstance(value, float | complex):
            return type(value), repr(value)  # tells 0.0 from -0.0, and NaN is NaN
        if isinstance(value, nn.Module):
            return self.module(value)
        if isinstance(value, _OPAQUE):
            return self._identity(value)
        if (again := self._again(value)) is not None:
            return again
        if isinstance(value, dict):
            return type(value), self._items(value), self._items(value.values())
        if isinstance(value, list | tuple | set | frozenset | deque):
            return type(value), self._items(value)
        return self._object(value)

    def _object(self, value: Any) -> Hashable:
        """Any other object: itself, the attributes of a user's one, and its bytes if it shows them (a NumPy array, say)."""
        found: list[Hashable] = [self._identity(value)]
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict) and (_users(type(value)) or isinstance(value, _RECORDS)):
            found += [self._items(attributes), self._items(attributes.values())]
        try:
            content = memoryview(value).tobytes()
        except (TypeError, ValueError, BufferError, NotImplementedError):
            return tuple(found)
        self.terms.append(f"memoryview({self._name(value)}).tobytes() == {self._name(content)}")
        return (*found, content)

    def _class(self, kind: type) -> Hashable:
        """A class; what users put into their own ones may change, too."""
        found = [self._identity(kind)]
        for base in filter(_users, kind.__mro__):
            if self._again(base) is None:
                attributes = vars(base)
                found += [self._items(attributes), self._items(attributes.values())]
        return tuple(found)

    def _items(self, values: Collection[Any]) -> Hashable:
        known = tuple(values)
        if not known:
            self.terms.append(f"not len({self._name(values)})")
        elif not isinstance(values, tuple | frozenset):
            self.terms.append(f"alike({self._name(values)}, {self._name(known)})")
        return tuple(map(self.value, known))

    def _identity(self, value: object) -> Hashable:
        self.identities.append(value)
        return id(value)

    def _again(self, value: object) -> Hashable | None:
        """The number of a visit before this one: references may go round in circles."""
        if id(value) in self.visited:
            return "again", self.visited[id(value)]
        self.visited[id(value)] = len(self.visited)
        return None

    def _name(self, value: object) -> str:
        name = f"v{len(self.names)}"
        self.names[name] = value
        return name


def _users(kind: type) -> bool:
    return kind.__module__.partition(".")[0] not in _FIXED


def _alike(values: Collection[object], known: tuple[object, ...]) -> bool:
    return len(values) == len(known) and all(map(is_, values, known))
