"""Models that are published as one file of tensors, without a config: what they are known by, and how they are filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from anaphora.data.around import Around
from anaphora.data.numbering import Numbering
from anaphora.errors import RunError
from anaphora.foreign.hows import Sizes
from anaphora.foreign.mapping import Rule, inward
from anaphora.foreign.weights import Weights
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


@dataclass(frozen=True)
class PublishedTranslator:
    """A model that turns a text into symbols: ``an.load`` gives a `Translator` with these ``settings``.

    ``source`` and ``target``: its symbols in their order, spelled as ours where they are special; ``rules`` by the names of
    the parts of a `Seq2Seq`.
    """

    name: str
    known_by: tuple[str, ...]
    settings: Mapping[str, Any]
    source: tuple[str, ...]
    target: tuple[str, ...]
    rules: Callable[[Any], Sequence[Rule]]
    silent: tuple[str, ...] = ()
    prefix: str = ""
    needs: tuple[str, ...] = ()
    accepts: Callable[[Mapping[str, Tensor]], bool] = lambda _: True
    """Whether tensors of these names are those of this one."""
    lowercase: bool = True
    """Whether a text is read in small letters."""
    around: Around = field(default_factory=Around)


Published = PublishedModule | PublishedTranslator


def published(known: Sequence[Published], given: Weights) -> tuple[Published, Weights] | None:
    """The one that the file is, and its tensors without their prefix; None where it is no one of them."""
    for one in known:
        named = all(one.prefix + name in given.tensors for name in one.known_by)
        if named and all(key in given.config for key in one.needs):
            own = {
                name.removeprefix(one.prefix): tensor
                for name, tensor in given.tensors.items()
                if name.startswith(one.prefix)
            }
            if not isinstance(one, PublishedTranslator) or one.accepts(own):
                return one, replace(given, tensors=own)
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
