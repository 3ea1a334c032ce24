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

from anaphora.kernels.snapshot import Snapshot, same_bytes
from anaphora.native.c import memory_of
from anaphora.nn.cell import named_tensors
from anaphora.nn.watched import Watched, changes

Value = TypeVar("Value")

KEPT = 8  # versions of a module whose derived values are kept, so that a value that is switched to and fro is not made again
_REGISTERED = (
    "_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip
_UNSEEN = frozenset(vars(nn.Module())) - {"training"}
# Of these, equal ones of one type are interchangeable.
_SIMPLE = (int, str, bytes, type(None), torch.dtype, torch.device)
_OPAQUE = (Tensor, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
_FIXED = sys.stdlib_module_names | {
    "torch",
    "anaphora",
}  # packages whose classes do not change while they run
# Of these only what is in them matters.
_LISTS: dict[type, str] = {nn.ModuleList: "_modules", nn.ParameterList: "_parameters"}
_RECORDS = (types.SimpleNamespace, Namespace)


class Fingerprint:
    """What modules are now. ``key`` is equal for equal attributes; `unchanged` looks again, in about a microsecond.
    `same` is quicker still: if it is true, nothing has changed; if not, or if it raises a KeyError, ask `unchanged`.

    ``entries``: dictionaries and those of their keys that matter, too. ``content``: what the tensors hold matters as well.
    """

    def __init__(
        self,
        *modules: nn.Module,
        entries: Iterable[tuple[dict[str, Any], Iterable[str]]] = (),
        content: Snapshot | None = None,
    ):
        self._seen, self._content, walk = [changes[0]], content, _Walk()
        found = [walk.module(module) for module in modules]
        self.key: Hashable = (*found, *(walk.entries(held, names, walk.terms) for held, names in entries))
        self.identities = walk.identities
        self.tensors = walk.tensors
        self._places = self._look()
        self._layouts = [*map(_layout, self.tensors)]
        self._names = walk.names
        self._counted, self._rest = (_expression(walk.names, terms) for terms in (walk.counted, walk.terms))
        quick = ["changes[0] is seen[0]", *walk.terms]
        if self.tensors:
            quick.append(f"layouts({', '.join(map(walk.name, self.tensors))})")
        if content is None:
            quick.append("look() == places")
        else:
            places = zip(map(walk.name, content.tensors), content.places, strict=True)
            quick += [f"memory({name}) == {place}" for name, place in places]
            quick += [f"same_bytes({walk.name(content.compared)})"] if content.compared else []
        walk.names.update(changes=changes, seen=self._seen, layouts=_guards(self.tensors), memory=memory_of)
        walk.names.update(same_bytes=same_bytes, look=self._look, places=self._places)
        self.same = _expression(walk.names, quick)

    def unchanged(self) -> bool:
        """Whether the modules have the same attributes, and their tensors the same types, shapes, strides and place; or,
        instead of the place, the same content, if it matters."""
        try:
            if self.same():
                return True
            now = changes[0]
            if not (self._counted() and self._rest()):
                return False
        except (KeyError, IndexError, RuntimeError):  # something is gone, or changed its size meanwhile
            return False
        if [*map(_layout, self.tensors)] != self._layouts:
            return False
        if not (self._look() == self._places if self._content is None else self._content.unchanged()):
            return False
        # Other attributes were set, or the quick comparison was made in another mode (inference, say).
        self._seen[0], self._names["layouts"] = now, _guards(self.tensors)
        return True

    def _look(self) -> list[int]:
        offsets: map[Any] = map(Tensor.storage_offset, self.tensors)
        return [*map(memory_of, self.tensors), *offsets]


def fingerprint_of_parts(model: nn.Module, content: Snapshot | None = None) -> Fingerprint:
    """The fingerprint of a model's parts and of which parts it has; it does not keep the model itself alive."""
    own = [(vars(model), ("training",)), (model._modules, tuple(model._modules))]
    parts = [part for part in model._modules.values() if part is not None]
    return Fingerprint(*parts, entries=own, content=content)


def _expression(names: dict[str, object], terms: list[str]) -> Callable[[], bool]:
    """Whether all terms hold. A loop over them would take several times as long."""
    holds: Callable[[], bool] = eval(f"lambda: {' and '.join(terms) or True}", names)
    return holds


def _guards(tensors: list[Tensor]) -> Callable[..., bool]:
    """Compares type, shape and strides of many tensors in the time that one question takes from Python."""
    free: list[Any] = [[None] * t.dim() for t in tensors]
    return TensorGuards(*tensors, dynamic_dims_sizes=free, dynamic_dims_strides=free).check


def _layout(tensor: Tensor) -> tuple[object, ...]:
    return tensor.dtype, tensor.device, tensor.shape, tensor.stride()


class Derived(Generic[Value]):
    """Values made for a module, one for each fingerprint it has had lately; safe among threads."""

    def __init__(self, make: Callable[[Any], Value]):
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
            value = self.make(module) if before is None else before[1]
            # A key may name objects by their identity, which is theirs only while they live.
            self._kept[fingerprint.key] = (fingerprint.identities, value)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            self._now = (fingerprint, value, named_tensors(module))
            return self._now[1:]


class _Walk:
    """One pass over modules: their key, and terms like ``v1['hidden'] is v2`` that are all true while nothing changes.

    ``counted`` are those that can become false only when the changes of a `Watched` module are counted.
    """

    def __init__(self) -> None:
        self.terms: list[str] = []
        self.counted: list[str] = []
        self.names: dict[str, object] = {"alike": _alike}
        self.identities: list[object] = []  # objects that the key names by their identity
        self.tensors: list[Tensor] = []  # registered ones, each once
        self.places: dict[object, int] = {}  # of tensors that lie in the same place, one number
        self.visited: dict[int, int] = {}

    def module(self, module: nn.Module) -> Hashable:
        if (again := self._again(module)) is not None:
            return again
        attributes, kind = vars(module), type(module)
        if kind in _LISTS:
            plain = [n for n in attributes if n.isdigit()]
            found = [kind, self.entries(attributes, plain, self.terms)]
            return (*found, self._registered(attributes[_LISTS[kind]], False))
        watched = isinstance(module, Watched)
        terms = self.counted if watched else self.terms
        held = self.name(attributes)
        count = len(attributes) - ("_engines" in attributes)  # made at the first call
        terms.append(f"{self.name(module)}.__class__ is {self.name(kind)}")
        terms.append(f"len({held}) - ('_engines' in {held}) == {count}")
        derived = getattr(kind, "_derived", ())  # names of attributes that are derived from the others
        seen = [name for name in attributes if name not in _UNSEEN and name not in derived]
        found = [self._class(kind), self.entries(attributes, seen, terms)]
        return (*found, *(self._registered(attributes[group], watched) for group in _REGISTERED))

    def entries(self, held: dict[str, Any], names: Iterable[str], terms: list[str]) -> Hashable:
        found, place = [], self.name(held)
        for name in names:
            terms.append(f"{place}[{name!r}] is {self.name(held[name])}")
            found.append((name, self.value(held[name])))
        return tuple(found)

    def _registered(self, group: dict[Any, Any], watched: bool) -> Hashable:
        held = self.name(group)
        terms = self.counted if watched else self.terms
        terms.append(f"len({held}) == {len(group)}" if group else f"not {held}")
        found: list[Hashable] = []
        for (
            name,
            value,
        ) in group.items():  # torch puts tensors into these dictionaries itself, by .to() for example
            self.terms.append(f"{held}[{name!r}] is {self.name(value)}")
            if isinstance(value, Tensor):
                found.append((name, self._registered_tensor(value)))
            else:
                found.append((name, self.value(value)))
        return tuple(found)

    def _registered_tensor(self, tensor: Tensor) -> Hashable:
        """Parameters reach a computation by name, so that only which of them are one and the same matters."""
        if type(tensor) not in (
            Tensor,
            nn.Parameter,
        ):  # perhaps a wrapper, as of a part of a distributed tensor
            return self._identity(tensor)
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
        self.terms.append(f"memoryview({self.name(value)}).tobytes() == {self.name(content)}")
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
            self.terms.append(f"not {self.name(values)}")
        elif not isinstance(values, tuple | frozenset):
            self.terms.append(f"alike({self.name(values)}, {self.name(known)})")
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

    def name(self, value: object) -> str:
        name = f"v{len(self.names)}"
        self.names[name] = value
        return name


def _users(kind: type) -> bool:
    return kind.__module__.partition(".")[0] not in _FIXED


def _alike(values: Collection[object], known: tuple[object, ...]) -> bool:
    return len(values) == len(known) and all(map(is_, values, known))
