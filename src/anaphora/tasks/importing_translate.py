"""Encoder-decoders of others as a trained `Translator`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anaphora.errors import RunError
from anaphora.foreign.architectures.bart import MANY
from anaphora.foreign.folder import read_tensors, read_writing
from anaphora.foreign.hows import sizes_of
from anaphora.foreign.mapping import Architecture, inward
from anaphora.foreign.pairs import many_languages, read_pair
from anaphora.tasks.importing_parts import made, settings_of
from anaphora.training.precision import choose_device
from anaphora.training.weights import first_not_finite

_BIAS = "final_logits_bias"


def open_translator(
    folder: Path, architecture: Architecture, name: str, config: dict[str, Any], *, device: str, trust: bool
) -> Any:
    """The model of the class ``name`` in ``folder``; raises as `open_foreign`."""
    given = read_tensors(folder)
    given = {key: value for key, value in given.items() if value.is_floating_point()}
    # some things only the tensors tell, such as whether the output layer has its own
    s = settings_of(folder, architecture, name, config | {"_tensors": given})
    writing = read_writing(folder, config)
    sizes = (int(s["symbols"]), int(config.get("decoder_vocab_size") or s["symbols"]))
    kind = architecture.model_type
    tokenizer: Any = (
        many_languages(folder, sizes[0], writing, trust=trust)
        if kind in MANY
        else read_pair(folder, kind, sizes, writing, shares=bool(s["shares"]), trust=trust)
    )
    m = made(folder, "translate", s | writing.settings | {"tokens": "bpe"}, {"tokenizer_": tokenizer})
    m.model_ = m._fresh_model()
    wanted = dict(m.model_.named_parameters())  # a table that both sides share by its first name
    found = inward(
        architecture.rules(name, s, body=""),
        _with_bias(architecture, given, sizes[1]),
        {key: value.shape for key, value in wanted.items()},
        sizes_of(s, tokenizer.source.numbering, tokenizer.target.numbering),
        silent=architecture.silent,
        where=str(folder),
    )
    if broken := first_not_finite(found):
        raise RunError(f"{folder}: the weights of {broken} are not finite numbers; download it again.")
    with torch.no_grad():
        for key, value in found.items():
            wanted[key].copy_(value)
    m.model_.to(choose_device(device)).eval()
    m._foreign = architecture.model_type
    return m


def _with_bias(architecture: Architecture, given: dict[str, Tensor], symbols: int) -> dict[str, Tensor]:
    """A bias of 0 where there is one that was not stored."""
    known = any(_BIAS in rule.names for head in architecture.heads.values() for rule in head.rules)
    if _BIAS in given or not known:
        return given
    return {**given, _BIAS: torch.zeros(1, symbols)}
