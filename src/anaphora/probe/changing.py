"""How interventions are made while a model runs: what each means for the values inside it.

with applied(model, [Silence(layer=1, head=3)]):
    model(source, lengths)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.engine.backends.reference import reverse_rows
from anaphora.errors import AnaphoraError
from anaphora.nn import inside
from anaphora.nn.attention.multihead import MultiHead
from anaphora.nn.attention.scores import Attention
from anaphora.nn.linear import LinearStack
from anaphora.probe.interventions import Attend, Clamp, Intervention, Noise, Patch, Silence, Where
from anaphora.probe.noted import STATES, Order, numbered
from anaphora.probe.trace import Layer

WORDS = "spelling"
"""In the path of what reads the characters of each word: another sequence than the one that is looked at."""


Patches = dict[tuple[str, str], Tensor]
"""What one `Patch` puts in place: states by direction and name."""


@contextmanager
def applied(
    model: nn.Module, changes: Sequence[Intervention], patches: Sequence[Patches] = ()
) -> Iterator[Changer]:
    """Inside the ``with`` block ``model`` runs with ``changes``; ``patches`` are what `captured` gave for each `Patch`, in order.

    All is as before afterwards. Raises an `AnaphoraError` for a place that the model does not have, at the latest at the end of
    the block if the model was run in it.
    """
    changer = Changer(model, changes, patches)
    with ExitStack() as held:
        for one in changes:
            if isinstance(one, Silence):
                held.enter_context(_head_layer(model, one).silenced(one.head - 1))
        held.enter_context(changer.watching())
        held.enter_context(inside.changing(changer))
        yield changer
        changer.check()


def heads_of(model: nn.Module) -> dict[str, list[MultiHead]]:
    """The layers with heads in each part of the model: ``""`` where it has but one, else ``cross``, ``decoder`` and ``encoder``."""
    if not isinstance(getattr(model, "decoder", None), nn.Module):
        found = [m for path, m in model.named_modules() if isinstance(m, MultiHead) and WORDS not in path]
        return {"": found} if found else {}
    groups: dict[str, list[MultiHead]] = {"cross": [], "decoder": [], "encoder": []}
    for path, module in model.named_modules():
        if isinstance(module, MultiHead):
            groups[_part(model, path, module)].append(module)
    return {name: layers for name, layers in groups.items() if layers}


def _head_layer(model: nn.Module, one: Silence) -> MultiHead:
    groups = heads_of(model)
    name: str = one.where or ("cross" if "cross" in groups else next(iter(groups), ""))
    layers = groups.get(name, [])
    if not groups:
        raise AnaphoraError(f"{one.code()}: this model has no attention with heads that could be silenced.")
    if not layers or one.layer > len(layers) or one.head > layers[one.layer - 1].heads:
        has = "; ".join(
            f"{where or 'it'} has layers 1 to {len(found)} with heads 1 to {found[0].heads}"
            for where, found in groups.items()
        )
        raise AnaphoraError(f"{one.code()}: there is no such head; {has}.")
    return layers[one.layer - 1]


def _part(model: nn.Module, path: str, module: nn.Module) -> Where:
    if not isinstance(getattr(model, "decoder", None), nn.Module):
        return ""
    if any(module is one for one in getattr(model.decoder, "attentions", ())):
        return "cross"
    return "decoder" if path.split(".")[0] == "decoder" else "encoder"


class Changer:
    """What `inside.changing` calls: it numbers the blocks as they speak, and changes those that are meant."""

    def __init__(self, model: nn.Module, changes: Sequence[Intervention], patches: Sequence[Patches] = ()):
        self._model = model
        self._changes = [one for one in changes if not isinstance(one, Silence)]
        given = iter(patches)
        self._patches = {k: next(given) for k, one in enumerate(self._changes) if isinstance(one, Patch)}
        # the cells inside a block of a stack are no layers of their own: the block hands on their state
        inner = {
            id(m)
            for stack in model.modules()
            if isinstance(stack, LinearStack)
            for block in (*stack.blocks, *getattr(stack, "backward_blocks", ()))
            for m in block.modules()
            if m is not block and not isinstance(m, Attention | MultiHead)
        }
        self._parts = {
            id(m): _part(model, path, m)
            for path, m in model.named_modules()
            if WORDS not in path and id(m) not in inner
        }
        order = Order(model)
        self._order = {id(m): (order.block(path), order.direction(path)) for path, m in model.named_modules()}
        self._paired = {id(m) for path, m in model.named_modules() if order.paired(path)}
        self._turned = {
            id(m): stack
            for under, stack in model.named_modules()
            if isinstance(stack, LinearStack)
            for path, m in model.named_modules()
            if path.startswith(f"{under}.backward_blocks." if under else "backward_blocks.")
        }
        self._ends: dict[int, Tensor | None] = {}  # the lengths of the rows that a stack reads
        self._ran = False
        self._numbers: dict[tuple[str, str], dict[int, Layer]] = {}  # the layers of a kind, in their order
        self._passed: dict[tuple[int, str], int] = {}  # steps that a decoder has made
        self._done: set[int] = set()
        self._sizes: dict[tuple[str, str], str] = {}
        self._reversed = bool(getattr(getattr(model, "encoder", None), "reverse", False))
        self._lengths: Tensor | None = None
        self.captured: dict[tuple[str, Layer, str], dict[int, Tensor]] | None = None

    def __call__(self, module: nn.Module, name: str, value: Tensor, place: inside.Place) -> Tensor:
        stack = self._turned.get(id(module))
        if stack is not None and name != "weights" and value.dim() == 3:  # it reads from the end
            ends = self._ends.get(id(stack))
            return reverse_rows(self._changed(module, name, reverse_rows(value, ends), place), ends)
        return self._changed(module, name, value, place)

    def _changed(self, module: nn.Module, name: str, value: Tensor, place: inside.Place) -> Tensor:
        part = self._parts.get(id(module))
        if part is None or (name != "weights" and value.dim() not in (2, 3)):
            return value
        layer = self._layer(part, module, name)
        if layer is None:
            return value
        if part == "encoder" and self._reversed and isinstance(place, int) and self._lengths is not None:
            place = self._lengths - 1 - place  # the last symbol is read first
        attention = name == "weights"
        self._sizes[part, "attention" if attention else "states"] = _size(value, attention)
        steps = value.shape[-2] if attention or value.dim() == 3 else 1
        first: inside.Place = 0 if place is None else place
        if place is None and part in ("decoder", "cross"):  # perhaps one step of many
            first = self._passed.get((id(module), name), 0)
            self._passed[id(module), name] = first + steps
        if not attention and self.captured is not None:
            self._capture((part, layer, name), value, first)
        for number, one in enumerate(self._changes):
            if one.layer != layer.number or one.direction not in ("", layer.direction):
                continue
            if attention != isinstance(one, Attend) or not self._meant(one, part):
                continue
            if not one.direction and getattr(one, "unit", None) is not None and id(module) in self._paired:
                raise AnaphoraError(
                    f"{one.code()}: layer {one.layer} reads both ways, and each direction has such a unit; add "
                    "direction='forward' or direction='backward'."
                )
            if isinstance(one, Attend):
                changed = self._attend(one, value, first)
            else:
                changed = self._state(number, one, layer.direction, name, value, first)
            if changed is not value:
                self._done.add(number)
            value = changed
        return value

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, each new sequence of an encoder-decoder counts its steps from 0: whatever reads it is run before the decoder."""
        handles = [m.register_forward_pre_hook(self._run) for m in self._model.modules()]
        if isinstance(getattr(self._model, "decoder", None), nn.Module):
            others = [m for name, m in self._model.named_children() if name != "decoder"]
            handles += [m.register_forward_pre_hook(self._begin) for m in others]
        stacks = {id(stack): stack for stack in self._turned.values()}.values()
        handles += [stack.register_forward_pre_hook(self._see_ends, with_kwargs=True) for stack in stacks]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _run(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        self._ran = True

    def _see_ends(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._ends[id(module)] = arguments[1] if len(arguments) > 1 else named.get("lengths")

    def _begin(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        self._passed.clear()
        for key in [key for key in self.captured or () if key[0] == "decoder"]:
            del self.captured[key]  # type: ignore[union-attr]
        self._lengths = arguments[1] if len(arguments) > 1 and isinstance(arguments[1], Tensor) else None

    def check(self) -> None:
        """An `AnaphoraError` for a change that met no value though the model was run."""
        for number, one in enumerate(self._changes):
            if number not in self._done and (self._ran or self._numbers):
                has = "; ".join(
                    f"{where or 'it'} has {kind} of {_listed(list(found.values()))}, {self._sizes[where, kind]}"
                    for (where, kind), found in self._numbers.items()
                    if found
                )
                has = has or "none of its layers can be changed"
                raise AnaphoraError(f"{one.code()}: there is no such place in this model; {has}.")

    def _layer(self, part: str, module: nn.Module, name: str) -> Layer | None:
        """Which layer the block is, and which direction, among those of its part that note the same; None: not known yet."""
        kind = "attention" if name == "weights" else "states"
        known = self._numbers.setdefault((part, kind), {})
        if id(module) not in known:
            if kind == "states" and name not in STATES:
                return None
            modules = [*known, id(module)]
            self._numbers[part, kind] = known = dict(
                zip(modules, numbered(self._order[one] for one in modules), strict=True)
            )
        return known[id(module)]

    def _meant(self, one: Intervention, part: str) -> bool:
        usual = "cross" if isinstance(one, Attend) else "decoder"
        return part == (one.where or usual) or (part == "" and one.where == "")

    def _capture(self, key: tuple[str, Layer, str], value: Tensor, first: inside.Place) -> None:
        assert self.captured is not None
        if value.shape[0] != 1:  # a beam; the run of the output alone comes after it
            return
        kept = self.captured.setdefault(key, {})
        if isinstance(first, Tensor):
            first = int(first[0])
        for t, state in enumerate(value.unbind(1) if value.dim() == 3 else [value]):
            kept[int(first or 0) + t] = state[0].detach().clone()

    def _state(
        self, number: int, one: Intervention, direction: str, name: str, value: Tensor, first: inside.Place
    ) -> Tensor:
        at: int | None = getattr(one, "at", None)
        whole = value if value.dim() == 3 else value[:, None]  # (batch, time, unit)
        new = whole.clone()
        rows, steps = _selected(at, first, whole)
        if rows is None and steps is None:
            return value
        where = (slice(None) if rows is None else rows, slice(None) if steps is None else steps)
        if isinstance(one, Patch):
            if (direction, name) not in self._patches[number]:
                return value
            new[where] = self._patches[number][direction, name].to(new)
        else:
            unit: int | None = getattr(one, "unit", None)
            if unit is not None and unit > value.shape[-1]:
                raise AnaphoraError(f"{one.code()}: the layer has units 1 to {value.shape[-1]}.")
            if isinstance(one, Clamp):
                if name != one.of and not (one.of == "h" and name in STATES):
                    return value
                new[(*where, unit - 1)] = one.value  # type: ignore[operator]
            elif isinstance(one, Noise):
                if name not in STATES:
                    return value
                noise = _noise(one, first, whole)
                keep = torch.zeros_like(noise, dtype=torch.bool)
                keep[(*where, slice(None) if unit is None else unit - 1)] = True
                new = torch.where(keep, new + noise, new)
        return new if value.dim() == 3 else new[:, 0]

    def _attend(self, one: Attend, value: Tensor, first: inside.Place) -> Tensor:
        """value ``(batch, queries, keys)`` or ``(batch, heads, queries, keys)``."""
        heads = value.shape[1] if value.dim() == 4 else 1
        query, key = one.at - 1 - int(first or 0), one.to - 1
        if not 0 <= query < value.shape[-2]:
            return value
        if one.head is not None and one.head > heads:
            raise AnaphoraError(f"{one.code()}: the attention has heads 1 to {heads}.")
        if key >= value.shape[-1] or not bool((value[..., query, key] > 0).any()):
            raise AnaphoraError(f"{one.code()}: place {one.to} cannot be seen from place {one.at}.")
        new = value.clone()
        chosen = (
            new
            if value.dim() == 3
            else new[:, slice(None) if one.head is None else slice(one.head - 1, one.head)]
        )
        row = chosen[..., query, :]
        rest = 1 - row[..., key : key + 1]
        if one.weight < 1 and bool((rest < 1e-6).any()):
            raise AnaphoraError(
                f"{one.code()}: place {one.at} looks at place {one.to} alone, so no other can share the rest."
            )
        row = row * (1 - one.weight) / rest.clamp(min=1e-6)
        row[..., key] = one.weight
        chosen[..., query, :] = row
        return new


def _size(value: Tensor, attention: bool) -> str:
    if not attention:
        return f"{value.shape[-1]} units each"
    return f"{value.shape[1] if value.dim() == 4 else 1} heads each"


def _selected(at: int | None, first: inside.Place, whole: Tensor) -> tuple[Any, Any]:
    """Which rows and which steps of ``whole`` (batch, time, unit) are place ``at``; None and None: none of them."""
    everything = slice(None)
    if at is None:
        return everything, everything
    if isinstance(first, Tensor):
        rows = first.to(whole.device) == at - 1
        return (rows, everything) if bool(rows.any()) else (None, None)
    step = at - 1 - int(first or 0)
    return (everything, step) if 0 <= step < whole.shape[1] else (None, None)


def _noise(one: Noise, first: inside.Place, whole: Tensor) -> Tensor:
    """Noise for each place of ``whole`` (batch, time, unit)."""

    def drawn(place: int) -> Tensor:
        made = torch.Generator().manual_seed((one.seed * 1009 + one.layer) * 1_000_003 + place)
        return torch.randn(whole.shape[2], generator=made)

    if isinstance(first, Tensor):
        noise = torch.stack([drawn(int(place)) for place in first])[:, None]
    else:
        noise = torch.stack([drawn(int(first or 0) + t) for t in range(whole.shape[1])])[None]
    return (one.std * noise).to(whole).expand_as(whole)


def _listed(layers: Sequence[Layer]) -> str:
    """``layers 1 to 2``, with both directions where they read both ways."""
    numbers = sorted({one.number for one in layers})
    both = {one.direction for one in layers} == {"forward", "backward"}
    return f"layers {numbers[0]} to {numbers[-1]}" + (", forward and backward" if both else "")


def captured_state(found: dict[tuple[str, Layer, str], dict[int, Tensor]], one: Patch) -> Patches:
    """What a `Patch` puts in place: each state by its direction and name, from what a `Changer` captured while the other input was read."""
    at = (one.at if one.source_at is None else one.source_at) - 1
    parts = {part for part, _, _ in found}
    part = one.where or ("decoder" if "decoder" in parts else "")
    layers = [layer for there, layer, _ in found if there == part]
    states = {
        (layer.direction, name): kept
        for (there, layer, name), kept in found.items()
        if (there, layer.number) == (part, one.layer) and one.direction in ("", layer.direction)
    }
    if not states:
        has = f"{part or 'it'} has states of {_listed(layers)}" if layers else "it has no states"
        raise AnaphoraError(f"{one.code()}: there is no such layer; {has}.")
    longest = min(max(kept) for kept in states.values())
    if at > longest:
        raise AnaphoraError(f"{one.code()}: the other input has places 1 to {longest + 1} there.")
    return {key: kept[at] for key, kept in states.items()}
