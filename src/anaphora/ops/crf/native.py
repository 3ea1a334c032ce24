"""The chain's inner loops in C, where there is a compiler."""

from __future__ import annotations

import torch
from torch import Tensor

from anaphora.native.c import CLibrary, beside, check

library = CLibrary(
    "crf",
    lambda double: beside(__package__, "chain.c"),
    no_memory="CRF: there is no memory for the sums of one chain; use shorter ones.",
)


def sums(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    lengths: Tensor,
    *,
    gradient: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `scaled.chain_sums`; all scores are of one type, float32 or float64."""
    if emissions.dtype not in library.dtypes:
        raise ValueError(f"CRF: scores must be float32 or float64, got {emissions.dtype}.")
    given = _checked(emissions, transitions, start, end, lengths)
    batch, time, tags = emissions.shape
    log_z = torch.empty(batch, dtype=torch.float64)
    safe = torch.empty(batch, dtype=torch.bool)
    marginals = emissions.new_empty(emissions.shape if gradient else 0)
    counts = emissions.new_empty((batch, tags, tags) if gradient else 0)
    sizes = (batch, time, tags, emissions.dtype == torch.float32, gradient)
    _call("crf_sums", sizes, (*given, log_z, safe, marginals, counts))
    return log_z, safe, marginals, counts


def viterbi(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """See `paths.chain_viterbi`; all scores are doubles."""
    given = _checked(emissions, transitions, start, end, lengths)
    if emissions.dtype != torch.float64:
        raise ValueError(f"CRF: scores must be float64, got {emissions.dtype}.")
    path = torch.empty(emissions.shape[:2], dtype=torch.int64)
    score = emissions.new_empty(emissions.shape[0])
    _call("crf_viterbi", emissions.shape, (*given, path, score))
    return path, score


def _checked(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> tuple[Tensor, ...]:
    """The same, contiguous; ValueError where shapes or types do not go together."""
    if emissions.dim() != 3 or not emissions.shape[2]:
        raise ValueError(f"CRF: emissions must be (batch, time, tags), got {tuple(emissions.shape)}.")
    batch, _, tags = emissions.shape
    given = tuple(x.contiguous() for x in (emissions, transitions, start, end, lengths.long()))
    names = ("emissions", "transitions", "start", "end", "lengths")
    shapes = (tuple(emissions.shape), (tags, tags), (tags,), (tags,), (batch,))
    for name, tensor, shape in zip(names, given, shapes, strict=True):
        check(f"CRF: {name}", tensor, shape, torch.int64 if name == "lengths" else emissions.dtype)
    return given


def _call(name: str, sizes: tuple[int, ...], tensors: tuple[Tensor, ...]) -> None:
    def lengths_and_places() -> str:
        return f"CRF: lengths must be numbers between 0 and the {sizes[1]} places, got {tensors[4].tolist()}."

    library.call(tensors[0].dtype, name, sizes, tensors, out_of_range=lengths_and_places)
