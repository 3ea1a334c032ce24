"""``--to torch``: a network as an archive of `torch.export`, which any program with torch opens, at any batch and length."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anaphora.data.tag_vocabulary import LONGEST_SPELLING
from anaphora.errors import AnaphoraError
from anaphora.files import read_bytes
from anaphora.files.writing import replace_file, scratch_folder, writing
from anaphora.kinds.text import NGramInputs, TextInputs
from anaphora.nn.exporting import scanned_layers
from anaphora.nn.positions import Learned
from anaphora.tasks.exporting.graph import on_cpu
from anaphora.tasks.exporting.inputs import check_words
from anaphora.tasks.exporting.language import refuse_counts

TRACED = (3, 7)
CHECKED = ((1, 2), (2, 5), (5, 19))
"""Batches and lengths at which the archive, opened again, must agree with the model."""
TOLERANCE = 1e-4


class Call(NamedTuple):
    """What is exported: a module, its inputs for a batch and a length, and their axes (names of those that may vary)."""

    module: nn.Module
    make: Callable[[int, int], tuple[Tensor, ...]]
    axes: tuple[tuple[str, ...], ...]


def write(m: Any, place: Path) -> None:
    """Write ``place`` (by convention ``.pt2``); ``torch.export.load(place).module()`` takes what the model takes:

    - a language model ``(symbols,)``, a masked one ``(symbols, lengths)`` -> logits ``(batch, time, symbols)``
    - a classifier or embedder ``(symbols or vectors, lengths)`` -> scores ``(batch, outputs)``
    - a tagger ``(words, lengths)`` -> scores of tags ``(batch, time, tags)``
    - a translator ``(source, lengths, target)`` -> logits ``(batch, target time, symbols)``

    It is opened again and compared with the model; an `AnaphoraError` where it cannot be exported or does not agree.
    """
    call = _call(m)
    most = _places(call.module)
    dims = {
        name: torch.export.Dim(name, max=None if name == "batch" else most)
        for axes in call.axes
        for name in axes
        if name
    }
    shapes = tuple({place: dims[name] for place, name in enumerate(axes) if name} for axes in call.axes)
    with torch.no_grad(), scanned_layers(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(
                call.module, call.make(*TRACED), dynamic_shapes=shapes, strict=False
            )
        except Exception as error:  # errors of many kinds for what it cannot trace
            reason = next(
                (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
            )
            raise AnaphoraError(
                f"torch.export cannot take this model ({reason[:200]}); export it to onnx, or use its run folder."
            ) from error
        with scratch_folder() as name:
            path = Path(name) / "model.pt2"
            torch.export.save(program, path)
            _check(call, torch.export.load(path).module())
            with writing(place):
                replace_file(place, read_bytes(path))


def _places(module: nn.Module) -> int | None:
    """How long an input may be: as many places as were learned; None: any."""
    return min((part.places for part in module.modules() if isinstance(part, Learned)), default=None)


def _check(call: Call, found: Callable[..., Tensor]) -> None:
    for batch, length in CHECKED:
        given = call.make(batch, length)
        ours, theirs = call.module(*given), found(*given)
        if ours.shape != theirs.shape or not torch.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE):
            raise AnaphoraError(
                f"the exported archive does not agree with the model (batch {batch}, length {length}); nothing was kept."
            )


def _call(m: Any) -> Call:
    refuse_counts(m)
    make = _CALLS.get(m.command)
    if make is None or not isinstance(m.model_, nn.Module):
        raise AnaphoraError(
            f"the preset {m.settings_.model} of a {type(m).__name__} has no network that torch.export takes; the tasks that do "
            f"are {', '.join(_CALLS)}."
        )
    return make(m)


def _lengths(batch: int, length: int) -> Tensor:
    return torch.arange(length, length - batch, -1).clamp(min=1)  # rows of different lengths


def _symbols(most: int, *shape: int) -> Tensor:
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(1))


def _language(m: Any) -> Call:
    most, module = m.tokenizer_.size, on_cpu(m.model_, nodes=False)
    if m.settings_.model == "masked":
        return Call(
            module, lambda b, t: (_symbols(most, b, t), _lengths(b, t)), (("batch", "time"), ("batch",))
        )
    return Call(module, lambda b, t: (_symbols(most, b, t),), (("batch", "time"),))


def _reader(m: Any) -> Call:
    if m._direct or isinstance(m.inputs_, NGramInputs) or "channels" in m.inputs_.sizes:
        raise AnaphoraError(
            f"the preset {m.settings_.model} has no form in --to torch, which takes networks that read symbols or vectors one after "
            "another; export it to onnx."
        )
    sizes, module = m.inputs_.sizes, on_cpu(m.model_, nodes=False)
    if isinstance(m.inputs_, TextInputs):
        return Call(
            module,
            lambda b, t: (_symbols(sizes["symbols"], b, t), _lengths(b, t)),
            (("batch", "time"), ("batch",)),
        )

    def vectors(b: int, t: int) -> tuple[Tensor, ...]:
        drawn = torch.randn(b, t, sizes["features"], generator=torch.Generator().manual_seed(1))
        return drawn, _lengths(b, t)

    return Call(module, vectors, (("batch", "time", ""), ("batch",)))


def _tagger(m: Any) -> Call:
    if m.framewise:
        raise AnaphoraError("a Tagger of frames cannot be exported to an archive; one of words can.")
    check_words(m)
    if m.learnt_.framing:
        raise AnaphoraError(
            "this Tagger reads words in pieces, for which only --to hf and --to onnx have a place."
        )
    letters, most = m._reader.letters, m.tokenizer_.size

    def make(b: int, t: int) -> tuple[Tensor, ...]:
        words = _symbols(most, b, t)
        if letters is not None:
            words = torch.cat([words.unsqueeze(2), _symbols(letters.size, b, t, LONGEST_SPELLING)], 2)
        return words, _lengths(b, t)

    return Call(
        on_cpu(m.model_, nodes=False),
        make,
        (("batch", "time") if letters is None else ("batch", "time", ""), ("batch",)),
    )


def _translator(m: Any) -> Call:
    source, target = m.tokenizer_.source.size, m.tokenizer_.target.size

    def make(b: int, t: int) -> tuple[Tensor, ...]:
        return _symbols(source, b, t), _lengths(b, t), _symbols(target, b, t + 3)

    return Call(
        on_cpu(m.model_, nodes=False), make, (("batch", "time"), ("batch",), ("batch", "target_time"))
    )


_CALLS: dict[str, Callable[[Any], Call]] = {
    "language": _language,
    "classify": _reader,
    "embed": _reader,
    "tag": _tagger,
    "translate": _translator,
}
