"""What is derived from a module: it is used as long as the module is what it was when the value was made.

Traces, packed weights, captured CUDA graphs and compiled steps all depend on more than the arguments of a call:

- on **attributes**: plain values, containers, sub-modules, hooks, the class. They may be baked into a trace. A
  `Fingerprint` compares every one with the object it was;
- on **where parameters and buffers lie**: ``.to()``, ``.data = ...`` and replaced parameters. It compares address, shape,
  strides and type of every one;
- on **what they hold**. A value either reads the parameters in place, or is made of what they hold, and a `Snapshot` finds every
  write: by optimizers, fused ones too, through ``.data``, NumPy or a compiled program.

:func:`derived` keeps what is made of a module, :func:`table` what a module computes of its options alone.
"""

from __future__ import annotations

import sys
import types
import weakref
from argparse import Namespace
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterable
from contextlib import nullcontext
from operator import is_
from threading import RLock
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch._C._dynamo.guards import TensorGuards
from torch.compiler import is_dynamo_compiling

from anaphora.native.c import memory_of
from anaphora.native.following import following
from anaphora.native.snapshot import Snapshot

Value = TypeVar("Value")

KEPT = 8  # versions of a module whose derived values are kept, so that a value that is switched to and fro is not made again
_STORE = "_derived_values"  # the attribute of a module that holds what is derived from it
_REGISTERED = (
    "_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip
_UNSEEN = frozenset((*vars(nn.Module()), _STORE)) - {"training"}
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


class Entry(Generic[Value]):
    """A value, and what its module was when it was made."""

    __slots__ = ("fingerprint", "tensors", "value")

    def __init__(self, value: Value, fingerprint: Fingerprint, tensors: dict[str, Tensor]):
        self.value, self.fingerprint, self.tensors = value, fingerprint, tensors


class _Store:
    """What is derived from one module; a copy of the module begins without."""

    def __init__(self, owner: nn.Module | None = None):
        self.owner = None if owner is None else weakref.ref(owner)
        self.lock = RLock()  # of this module alone; values of its parts are made within
        self.entries: dict[Hashable, Entry[Any]] = {}
        self.kept: dict[Hashable, OrderedDict[Hashable, tuple[object, Any]]] = {}

    def __reduce__(self) -> tuple[type[_Store], tuple[()]]:
        return _Store, ()

    def __deepcopy__(self, memo: dict[int, Any]) -> _Store:
        return _Store()


def derived(
    module: nn.Module,
    make: Callable[[], Value],
    *,
    key: Hashable = (),
    reads: Literal["attributes", "place", "content"],
    tensors: Iterable[Tensor] = (),
    suits: Callable[[Value], bool] = lambda value: True,
) -> Value:
    """Return what ``make`` gave for ``module`` as it is now; it is made again when the module has changed.

    ``make`` may give None, which is remembered, too: where the module does not fit, or where someone sees its parts
    (`following.observed`). Threads may call it; one of them makes the value.

    Args:
        module: what the value is made of; its own parameters and buffers, its parts and all their attributes count.
        make: makes the value; it must not change the module.
        key: what else the value depends on; several are kept side by side, so it takes few values.
        reads: ``"attributes"``: a value for which it does not matter which tensors the module has, as a program that gets them as arguments;
            it serves again when old attributes come back. ``"place"``: a value that reads parameters where they lie. ``"content"``: one
            made of what they hold.
        tensors: with ``"content"``, those that the value was made of.
        suits: whether a value serves this time; if not, it is made again.
    """
    return entry(module, make, key=key, reads=reads, tensors=tensors, suits=suits).value


def entry(
    module: nn.Module,
    make: Callable[[], Value],
    *,
    key: Hashable = (),
    reads: Literal["attributes", "place", "content"],
    tensors: Iterable[Tensor] = (),
    suits: Callable[[Value], bool] = lambda value: True,
) -> Entry[Value]:
    """Return the value of :func:`derived` as ``value``, beside ``tensors``: the module's parameters and buffers by name."""
    store = vars(module).get(_STORE)
    if (
        store is None or store.owner is None or store.owner() is not module
    ):  # a shallow copy has that of its original
        vars(module).pop(_STORE, None)
        store = vars(module).setdefault(_STORE, _Store(module))
    found: Entry[Value] | None = store.entries.get((reads, key))
    if found is not None and found.fingerprint.unchanged() and suits(found.value):
        return found
    with store.lock:
        found = store.entries.get((reads, key))  # perhaps another thread has made it meanwhile
        if found is not None and found.fingerprint.unchanged() and suits(found.value):
            return found
        # What is read is written down before the value is made: a write in between is found at the next call.
        content = Snapshot(tensors) if reads == "content" else None
        fingerprint = Fingerprint(module, content=content, whole=reads == "attributes")
        named = named_tensors(module)
        kept = store.kept.setdefault(key, OrderedDict()) if reads == "attributes" else OrderedDict()
        before = kept.pop(fingerprint.key, None)
        value = make() if before is None else before[1]
        if value is None and content is not None:  # nothing was made of what the tensors hold
            fingerprint = Fingerprint(module, whole=False)
        # A key may name objects by their identity, which is theirs only while they live.
        kept[fingerprint.key] = (fingerprint.identities, value)
        if len(kept) > KEPT:
            kept.popitem(last=False)
        made = store.entries[reads, key] = Entry(value, fingerprint, named)
        return made


def forget(module: nn.Module) -> None:
    """Drop all that is derived from a module itself."""
    vars(module).pop(_STORE, None)


def table(module: nn.Module, name: str, like: Tensor, make: Callable[[], Tensor]) -> Tensor:
    """Return the table that ``make`` gives, kept as an attribute where it is a plain tensor, which serves every later call.

    Inside `torch.inference_mode` it would serve no training, and what a mode or a transform makes means nothing outside it. What
    Dynamo makes is a plain tensor once its program has run.
    """
    with torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext():
        made = make()
    if following(like) is None or is_dynamo_compiling():
        setattr(module, name, made)
    return made


# ---------------------------------------------------------------------- what a module is
class Fingerprint:
    """What modules are now. ``key`` is equal for equal attributes; `unchanged` looks again, in about a microsecond.
    `same` is quicker still: if it is true, nothing has changed; if not, or if it raises a KeyError, ask `unchanged`.

    ``content``: what the tensors hold matters as well. ``whole``: if not, only the modules' parts and tensors count, not their own
    attributes, and the modules themselves are not kept alive.
    """

    def __init__(
        self,
        *modules: nn.Module,
        content: Snapshot | None = None,
        whole: bool = True,
    ):
        self._seen, self._content, walk = [changes[0]], content, _Walk()
        self.key: Hashable = tuple(walk.module(one) if whole else walk.parts(one) for one in modules)
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
            quick += [f"{walk.name(content.same_bytes)}()"] if content.compared or content.elsewhere else []
        walk.names.update(changes=changes, seen=self._seen, layouts=_guards(self.tensors), memory=memory_of)
        walk.names.update(look=self._look, places=self._places)
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
        count = len(attributes) - (_STORE in attributes)  # made at the first call
        terms.append(f"{self.name(module)}.__class__ is {self.name(kind)}")
        terms.append(f"len({held}) - ({_STORE!r} in {held}) == {count}")
        derived = getattr(kind, "_derived", ())  # names of attributes that are derived from the others
        seen = [name for name in attributes if name not in _UNSEEN and name not in derived]
        found = [self._class(kind), self.entries(attributes, seen, terms)]
        return (*found, *(self._registered(attributes[group], watched) for group in _REGISTERED))

    def parts(self, module: nn.Module) -> Hashable:
        """The parts and tensors of a module, without the module itself."""
        groups = (module._modules, module._parameters, module._buffers)
        return tuple(self._registered(group, False) for group in groups)

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


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer by name, as ``named_parameters`` and ``named_buffers`` find them, in a tenth of the time:
    a layer on a GPU takes little more than their walk. What has several names is found by its first."""
    found: dict[str, Tensor] = {}
    seen = set()
    waiting: list[tuple[str, nn.Module]] = [("", module)]
    for path, part in waiting:
        for name, tensor in (*part._parameters.items(), *part._buffers.items()):
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found[path + name] = tensor
        waiting += [(f"{path}{name}.", child) for name, child in part._modules.items() if child is not None]
    return found


# ---------------------------------------------------------------------- modules that count changes
changes: list[object] = [object()]  # holds another object after each change of any watched module


class Watched(nn.Module):
    """A module whose attributes, parts and hooks are counted as changed when they are set or removed.

    What bypasses these methods is not counted: a value put into ``vars(module)``, the inside of a container.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        changes[0] = object()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        changes[0] = object()

    def register_buffer(self, *args: Any, **kwargs: Any) -> None:
        super().register_buffer(*args, **kwargs)
        changes[0] = object()

    def register_parameter(self, *args: Any, **kwargs: Any) -> None:
        super().register_parameter(*args, **kwargs)
        changes[0] = object()

    def add_module(self, *args: Any, **kwargs: Any) -> None:
        super().add_module(*args, **kwargs)
        changes[0] = object()

    def register_forward_hook(self, *args: Any, **kwargs: Any) -> Any:
        return _counted(super().register_forward_hook(*args, **kwargs))

    def register_forward_pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        return _counted(super().register_forward_pre_hook(*args, **kwargs))

    def register_full_backward_hook(self, *args: Any, **kwargs: Any) -> Any:
        return _counted(super().register_full_backward_hook(*args, **kwargs))

    def register_full_backward_pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        return _counted(super().register_full_backward_pre_hook(*args, **kwargs))


def _counted(handle: Any) -> Any:
    """Return the handle of a new hook; its removal counts as a change, too."""
    remove = handle.remove

    def removed() -> None:
        remove()
        changes[0] = object()

    handle.remove = removed
    changes[0] = object()
    return handle
