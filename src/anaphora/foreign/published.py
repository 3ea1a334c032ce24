"""Models that are published as one file of tensors, without a config: what they are known by, and how they are filled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from anaphora.data.tokenizers.vocabularies import Numbering
from anaphora.errors import RunError
from anaphora.foreign.hows import Sizes
from anaphora.foreign.mapping import Rule, inward
from anaphora.foreign.rules import torch_rules
from anaphora.foreign.weights import Weights
from anaphora.nn import GRU, LSTM, Cell, Recurrent
from anaphora.settings.removed import REMOVED
from anaphora.training.weights import first_not_finite

NO_SIZES = Sizes({}, Numbering(0, (None, None, None, None)))
"""For rules that cut nothing by a setting."""


@dataclass(frozen=True)
class PublishedModule:
    """A model whose inputs are numbers: ``an.load`` gives the module. A file that has all tensors of ``known_by`` is it.

    ``prefix``: what the names of its tensors begin with; others mean nothing here, nor do those that end in ``silent``.
    ``needs``: what the config of the file must say.
    """

    name: str
    known_by: tuple[str, ...]
    build: Callable[[Weights], nn.Module]
    rules: Callable[[Any], Sequence[Rule]]
    silent: tuple[str, ...] = ()
    prefix: str = ""
    needs: tuple[str, ...] = ()


GONE = {
    "resemblyzer": ("similarity_weight", "lstm.weight_ih_l2", "linear.weight"),
    "BeatNet": ("conv1.weight", "linear0.weight", "lstm.weight_ih_l1"),
    "g2p-en": ("enc_emb", "enc_w_ih", "dec_emb", "fc_w"),
    "anarcii": ("encoder.tok_embedding.weight", "decoder.pos_embedding.weight", "decoder.fc_out.weight"),
}
"""Files that earlier versions read, by their tensors."""


def published(known: Sequence[PublishedModule], given: Weights) -> tuple[PublishedModule, Weights] | None:
    """The one that the file is, and its tensors without their prefix; None where it is no one of them.

    Raises a `RunError` for a file that an earlier version read.
    """
    for one in known:
        named = all(one.prefix + name in given.tensors for name in one.known_by)
        if named and all(key in given.config for key in one.needs):
            own = {
                name.removeprefix(one.prefix): tensor
                for name, tensor in given.tensors.items()
                if name.startswith(one.prefix)
            }
            return one, replace(given, tensors=own)
    for name, tensors in GONE.items():
        if all(tensor in given.tensors for tensor in tensors):
            raise RunError(f"{given.path}: {REMOVED[name]}")
    return None


def fill(
    module: nn.Module, rules: Sequence[Rule], given: Weights, sizes: Sizes, *, silent: Sequence[str] = ()
) -> None:
    """Copy the tensors of a file into ``module``; a `RunError` lists what is missing, of another shape, or left over."""
    own = module.state_dict()
    found = inward(
        rules,
        given.tensors,
        {name: one.shape for name, one in own.items()},
        sizes,
        silent=silent,
        where=str(given.path),
        remedy="give the file as it was published",
    )
    load(module, found, given)


def load(module: nn.Module, found: Mapping[str, Tensor], given: Weights) -> None:
    """Put tensors of the right names and shapes into ``module``, each of which must be finite."""
    if broken := first_not_finite(dict(found)):
        raise RunError(f"{given.path}: the weights of {broken} are not finite numbers; download it again.")
    module.load_state_dict(dict(found))


# ----------------------------------------------------------------------------
# Tensors of a file into a module of the user's: by name, with recurrent layers of PyTorch recognised by themselves.

_LAYER = re.compile(r"(?P<prefix>.*?)weight_hh_l(?P<layer>\d+)(?P<reverse>_reverse)?")


def fill_module(
    module: nn.Module,
    given: Weights,
    *,
    names: Mapping[str, str] | None = None,
    rules: Sequence[Rule] = (),
) -> None:
    """Copy the tensors of a file into ``module``.

    A tensor goes to the parameter of its name. ``names`` says what their modules are called here (``{"rnn": "encoder.lstm"}``;
    ``""`` is the whole module), and ``rules`` what is more than a name: see `anaphora.foreign.rules`. A `Recurrent` takes the weights that
    ``nn.LSTM``, ``nn.GRU`` or ``nn.RNN`` has under its name, of any depth and direction. Raises a `RunError` that lists what is
    missing, of another shape, or left over.
    """
    renamed = replace(given, tensors=_renamed(given, names or {}))
    taken = {rule.ours for rule in rules}
    found = [*rules]
    for path, layer in module.named_modules():
        if isinstance(layer, Recurrent) and not any(
            one.startswith(f"{path}.cells.".lstrip(".")) for one in taken
        ):
            prefix = f"{path}." if path else ""
            if any(name.startswith(f"{prefix}cells.") for name in renamed.tensors):
                continue  # it was saved here
            found += torch_rules(layer, prefix, prefix, bias=f"{prefix}bias_ih_l0" in renamed.tensors)
    taken = {rule.ours for rule in found}
    found += [Rule(name, name) for name in module.state_dict() if name not in taken]
    fill(module, found, renamed, NO_SIZES)


def _renamed(given: Weights, names: Mapping[str, str]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    unused = set(names)
    for name, tensor in given.tensors.items():
        new = name
        for theirs in sorted(names, key=len, reverse=True):
            if theirs == "" or name == theirs or name.startswith(f"{theirs}."):
                rest = name.removeprefix(theirs).removeprefix(".")
                new = ".".join(part for part in (names[theirs], rest) if part)
                unused.discard(theirs)
                break
        if new in found:
            raise RunError(f"{given.path}: names gives two of its tensors the name {new}; correct names.")
        found[new] = tensor
    if unused:
        raise RunError(
            f"{given.path} has nothing under the name {min(unused)!r} that names gives; it has {given.summary}."
        )
    return found


def recurrent_of(given: Weights) -> Recurrent | None:
    """The `Recurrent` of a file that holds nothing but the weights of one ``nn.LSTM`` or ``nn.GRU``, else None."""
    matches = [found for name in given.tensors if (found := _LAYER.fullmatch(name))]
    prefixes = {found["prefix"] for found in matches}
    if len(prefixes) != 1:
        return None
    prefix = prefixes.pop()
    if not all(
        re.fullmatch(r"(weight|bias)_(ih|hh)_l\d+(_reverse)?", name.removeprefix(prefix))
        for name in given.tensors
    ):
        return None
    first = given.tensors.get(f"{prefix}weight_ih_l0")
    again = given.tensors.get(f"{prefix}weight_hh_l0")
    if first is None or again is None or first.dim() != 2 or again.dim() != 2:
        return None
    if not first.shape[1] or not again.shape[1]:
        return None
    gates, inputs, hidden = len(again) / again.shape[1], first.shape[1], again.shape[1]
    if gates not in (3, 4):
        raise RunError(
            f"{given.path} holds an nn.RNN, but not its nonlinearity; give it: "
            "an.load(FILE, into=an.nn.Recurrent(an.nn.Elman(inputs, hidden, activation=…)))."
        )
    layers = 1 + max(int(found["layer"]) for found in matches)
    if layers > len(matches):
        return None
    cell: Cell = LSTM(inputs, hidden) if gates == 4 else GRU(inputs, hidden, reset="after")
    made = Recurrent(cell, layers=layers, bidirectional=any(found["reverse"] for found in matches))
    fill(made, torch_rules(made, prefix, "", bias=f"{prefix}bias_ih_l0" in given.tensors), given, NO_SIZES)
    return made
