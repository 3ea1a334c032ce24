"""What folders that toolkits of machine translation trained in share: YAML, words between spaces, the weights of a `Translator`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers
from torch import Tensor

from anaphora.data.numbering import Numbering
from anaphora.data.tokenizers import PairTokenizer
from anaphora.data.tokenizers_own import EngineTokenizer
from anaphora.data.tokenizers_pieces import PieceTokenizer
from anaphora.errors import RunError
from anaphora.files import read_bytes
from anaphora.foreign.mapping import Rule, inward
from anaphora.foreign.sizes import sizes_of
from anaphora.tasks.importing_parts import made
from anaphora.training.precision import choose_device
from anaphora.training.weights import first_not_finite

LARGEST = 1 << 24
"""The most bytes that a config or a vocabulary may have."""
_SMALL = 1 << 24


def read_yaml(path: Path, toolkit: str, *, tagged: bool = False) -> dict[str, Any]:
    """The mapping in a YAML file; ``tagged``: mappings with tags of their own (``!ModelConfig``) are plain ones, and tuples are
    lists. No object is constructed; a `RunError` in one sentence for any other tag or a damaged file."""
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise RunError(f"{path} is YAML, which PyYAML reads; install it with `pip install pyyaml`.") from None

    class Plain(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        """A loader of its own, so that the constructors below stay out of every other one."""

    if tagged:
        Plain.add_multi_constructor("!", lambda loader, _, node: loader.construct_mapping(node, deep=True))
        Plain.add_constructor(
            "tag:yaml.org,2002:python/tuple",
            lambda loader, node: loader.construct_sequence(node, deep=True),
        )
    try:
        found = yaml.load(read_bytes(path, most=LARGEST).decode("utf-8"), Loader=Plain)
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise RunError(f"{path} cannot be read ({type(error).__name__}); copy it again.") from None
    if not isinstance(found, dict):
        raise RunError(f"{path} is not a config of {toolkit}; copy it again.")
    return found


def words(symbols: Sequence[str], numbering: Numbering, *, lowercase: bool = False) -> EngineTokenizer:
    """A tokenizer of words between spaces, in the order of ``symbols``."""
    unknown = numbering.special[1]
    assert unknown is not None
    engine = Engine(models.WordLevel({one: i for i, one in enumerate(symbols)}, unk_token=symbols[unknown]))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.add_special_tokens([symbols[i] for i in numbering.special if i is not None])
    return EngineTokenizer(engine, lowercase=lowercase, raw=False, numbering=numbering, quiet=True)


def translator(
    folder: Path,
    toolkit: str,
    s: Mapping[str, Any],
    sides: tuple[EngineTokenizer | PieceTokenizer, EngineTokenizer | PieceTokenizer],
    rules: Sequence[Rule],
    given: Mapping[str, Tensor],
    *,
    silent: Sequence[str],
    where: Path,
    device: str,
) -> Any:
    """A `Translator` with the settings ``s`` and the tensors ``given`` of the file ``where``; a `RunError` lists what is missing,
    left over, of another shape or not finite."""
    source, target = sides
    m = made(folder, "translate", {**s, "tokens": "bpe"})
    m.tokenizer_ = PairTokenizer(source, source if s["shares"] else target, s["shares"])
    _check_size(m, where, given)
    m.model_ = m._fresh_model()
    wanted = dict(m.model_.named_parameters())
    found = inward(
        rules,
        given,
        {name: one.shape for name, one in wanted.items()},
        sizes_of(s, source.numbering, target.numbering),
        silent=silent,
        where=str(where),
        remedy="give the folder that the model was trained in, unchanged",
    )
    if broken := first_not_finite(found):
        raise RunError(f"{where}: the weights of {broken} are not finite numbers; copy it again.")
    with torch.no_grad():
        for name, value in found.items():
            wanted[name].copy_(value)
    m.model_.to(choose_device(device)).eval()
    m._foreign = toolkit
    m.trusts, m._trained_with, m._trained_on = True, m.settings_, {}
    return m


def _check_size(m: Any, where: Path, given: Mapping[str, Tensor]) -> None:
    """A `RunError` for a config that asks for far more numbers than the file has, before memory is taken for them."""
    with torch.device("meta"):
        wanted = sum(one.numel() for one in m._fresh_model().parameters())
    there = sum(one.numel() for one in given.values())
    if wanted > 2 * there + _SMALL:
        raise RunError(
            f"{where} has {there:,} numbers, and the config beside it describes a model of {wanted:,}; copy both again."
        )
