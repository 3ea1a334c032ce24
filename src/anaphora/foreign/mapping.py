"""What an architecture's table says, and how tensors and settings pass through it, in either direction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from anaphora.errors import RunError
from anaphora.foreign.hows import SAME, How, Sizes

Values = Mapping[str, Any]
MOST = 5
"""Tensors that a message names."""


@dataclass(frozen=True)
class Rule:
    """Tensors of theirs (one, several, or none) and the one of ours that holds them; ``{i}`` is the number of a layer, ``{j}``
    that of a layer of a decoder beside an encoder.

    ``when``: only for models whose settings (ours) it accepts.
    """

    theirs: str | tuple[str, ...]
    ours: str
    how: How = SAME
    when: Callable[[Values], bool] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.theirs,) if isinstance(self.theirs, str) else self.theirs


@dataclass(frozen=True)
class Field:
    """A value of their config and the setting of ours that means the same; ``words`` where the values are called otherwise.

    ``default``: what it is where their config does not name it.
    """

    theirs: str
    ours: str
    words: Mapping[Any, Any] | None = None
    default: Any = None

    def inward(self, config: Values) -> Any:
        value = config.get(self.theirs)
        value = self.default if value is None else value
        if self.words is None or value is None:
            return value
        if value not in self.words:
            known = ", ".join(map(repr, self.words))
            raise UnmappedError(f"{self.theirs} = {value!r} (known: {known})")
        return self.words[value]

    def outward(self, settings: Values) -> Any:
        value = settings[self.ours]
        if self.words is None:
            return value
        back = {ours: theirs for theirs, ours in reversed(list(self.words.items()))}
        if value not in back:
            raise UnmappedError(f"{self.ours} = {value!r} (it must be one of {', '.join(map(repr, back))})")
        return back[value]


class UnmappedError(Exception):
    """A value that the other side has no word for."""


@dataclass(frozen=True)
class Head:
    """A class of theirs for one use of the body: which task it is, its rules, and settings of ours that follow from it."""

    task: str
    rules: tuple[Rule, ...] = ()
    settings: Values = field(default_factory=dict)
    bare: bool = False
    """Whether it is the body alone, whose names then have no prefix."""


@dataclass(frozen=True)
class Architecture:
    """One architecture of theirs. ``body`` are the rules of what all its classes share, by the names that a body has here;
    ``prefix`` is what their names begin with where there is a head.

    ``fixed``: settings of ours that all its models have; ``needs``: values of their config that must be so, the first of
    which is the default; ``silent``: tensors of theirs that mean nothing here.
    """

    model_type: str
    prefix: str
    body: tuple[Rule, ...]
    heads: Mapping[str, Head]
    fields: tuple[Field, ...]
    fixed: Values
    needs: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    special: tuple[tuple[str, ...], ...] = ((), (), (), ())
    """Spellings of what stands for our <pad>, <unk>, <s> and </s>."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names that some versions write otherwise."""
    derive: Callable[[Values], dict[str, Any]] | None = None
    """Settings that do not follow from one value of the config alone."""
    complete: Callable[[Values], dict[str, Any]] | None = None
    """Values of the config that do not follow from one setting alone."""

    def settings(self, config: Values) -> dict[str, Any]:
        """Our settings of a model with this config; an `UnmappedError` names every value that has no counterpart."""
        problems, found = [], dict(self.fixed)
        for name, allowed in self.needs.items():
            if config.get(name, allowed[0]) not in allowed:
                problems.append(f"{name} = {config[name]!r}")
        for one in self.fields:
            try:
                found[one.ours] = one.inward(config)
            except UnmappedError as error:
                problems.append(str(error))
        if problems:
            raise UnmappedError("; ".join(problems))
        return found | (self.derive(config) if self.derive else {})

    def config(self, settings: Values, head: str) -> dict[str, Any]:
        """Their config of a model with these settings of ours."""
        problems = [
            f"{key} = {settings[key]!r} (it must be {value!r})"
            for key, value in self.fixed.items()
            if settings[key] != value
        ]
        found: dict[str, Any] = {"model_type": self.model_type, "architectures": [head]}
        found |= {name: allowed[0] for name, allowed in self.needs.items()}
        for one in self.fields:
            try:
                found[one.theirs] = one.outward(settings)
            except UnmappedError as error:
                problems.append(str(error))
        if problems:
            raise UnmappedError("; ".join(problems))
        return found | (self.complete(settings) if self.complete else {})

    def rules(self, head: str, settings: Values, *, body: str) -> list[Rule]:
        """Every rule of a model, layers counted and names complete; ``body``: what the names of a body begin with here."""
        own = self.heads[head]
        prefix = "" if own.bare else self.prefix
        found = [
            Rule(tuple(prefix + name for name in rule.names), body + rule.ours, rule.how, rule.when)
            for rule in self.body
        ]
        every = [rule for rule in (*found, *own.rules) if rule.when is None or rule.when(settings)]
        layers = int(settings["layers"])
        writing = int(settings.get("decoder_layers") or layers)
        once = [counted for rule in every for counted in _counted(rule, "{i}", layers)]
        return [counted for rule in once for counted in _counted(rule, "{j}", writing)]


def _counted(rule: Rule, mark: str, layers: int) -> Iterable[Rule]:
    if mark not in rule.ours:
        return [rule]
    return [
        Rule(
            tuple(name.replace(mark, str(i)) for name in rule.names),
            rule.ours.replace(mark, str(i)),
            rule.how,
        )
        for i in range(layers)
    ]


def inward(
    rules: Sequence[Rule],
    given: Mapping[str, Tensor],
    wanted: Mapping[str, torch.Size],
    sizes: Sizes,
    *,
    silent: Sequence[str] = (),
    where: str,
    remedy: str = "give the folder that the model was saved to, unchanged",
) -> dict[str, Tensor]:
    """Our tensors, of the shapes ``wanted``, made of theirs; a `RunError` lists what is missing, of another shape, or left
    over. ``silent``: endings of names that may be left over."""
    missing: list[str] = []
    wrong: list[str] = []
    used: set[str] = set()
    found: dict[str, Tensor] = {}
    for rule in rules:
        used.update(rule.names)
        absent = [name for name in rule.names if name not in given]
        if absent:
            missing += absent
            continue
        if rule.ours not in wanted:
            raise RunError(f"{where}: {rule.ours} is no part of the model; its table is wrong.")
        expected = rule.how.outward(torch.empty(wanted[rule.ours], device="meta"), sizes)
        for name, one in zip(rule.names, expected, strict=True):
            if given[name].shape != one.shape:
                wrong.append(f"{name} {_shape(given[name].shape)} instead of {_shape(one.shape)}")
                break
        else:
            found[rule.ours] = rule.how.inward([given[name] for name in rule.names], sizes).float()
    extra = [name for name in given if name not in used and not name.endswith(tuple(silent))]
    left = [name for name in wanted if name not in found and not missing and not wrong]
    problems = [
        f"{what} {_some(names)}"
        for what, names in (
            ("lacks", missing),
            ("has", wrong),
            ("also has, with no counterpart here,", extra),
            ("gives no", left),
        )
        if names
    ]
    if problems:
        raise RunError(f"{where} {', '.join(problems)}; {remedy}.")
    return found


def outward(rules: Sequence[Rule], own: Mapping[str, Tensor], sizes: Sizes) -> dict[str, Tensor]:
    """Their tensors, made of ours."""
    found: dict[str, Tensor] = {}
    for rule in rules:
        for name, one in zip(rule.names, rule.how.outward(own[rule.ours], sizes), strict=True):
            found[name] = one.contiguous()
    return found


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


def _shape(shape: Sequence[int]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"
