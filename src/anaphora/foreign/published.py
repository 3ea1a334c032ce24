"""Models that are published as one file of tensors, without a config: what they are known by, and how they are filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from anaphora.data.numbering import Numbering
from anaphora.errors import RunError
from anaphora.foreign.hows import Sizes
from anaphora.foreign.mapping import Rule, inward
from anaphora.foreign.weights import Weights
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
