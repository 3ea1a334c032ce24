"""The best path, and the k best."""

from __future__ import annotations

import torch
from torch import Tensor

from anaphora.ops.crf import native


def viterbi(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """The tags ``(batch, time)`` of each best path, 0 past its end, and its score ``(batch,)``.

    δ_t[j] = e_t[j] + max_i (δ_{t−1}[i] + transitions[i, j]), in double precision; of equal ones the lowest tag.
    """
    dtype = emissions.dtype
    emissions, transitions, start, end = (x.double() for x in (emissions, transitions, start, end))
    best = native.viterbi if native.library.ready(emissions, transitions, start, end) else chain_viterbi
    path, score = best(emissions, transitions, start, end, lengths)
    return path, score.to(dtype)


def chain_viterbi(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """The same in torch operations."""
    into = transitions.T.contiguous()  # [j, i], so that the maximum runs over neighbours in memory
    first, *rest = emissions.unbind(1)
    delta = start + first
    deltas = [delta]
    for emitted in rest:
        delta = emitted + (delta.unsqueeze(1) + into).amax(-1)
        deltas.append(delta)
    finals = torch.stack(deltas, 1) + end
    last = (lengths - 1).clamp(min=0)
    score, tag = torch.take_along_dim(finals, last[:, None, None], 1).squeeze(1).max(-1)
    # Going back, only the best predecessor of the tag on the path is needed: found when it is.
    tags = [tag]
    for t in range(len(deltas) - 2, -1, -1):
        previous = (deltas[t] + into[tag]).argmax(-1)
        tag = torch.where(t < last, previous, tag)
        tags.append(tag)
    path = torch.stack(tags[::-1], 1)
    real = torch.arange(path.shape[1], device=path.device) < lengths[:, None]
    return path.masked_fill(~real, 0), torch.where(lengths > 0, score, torch.zeros_like(score))


def k_best(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The k best paths ``(batch, k, time)``, best first, and their scores ``(batch, k)``.

    A chain with fewer than k paths fills the rest with tag 0 and score −inf. Each tag keeps the k best ways into it.
    """
    time, tags = emissions.shape[1:]
    first, *rest = emissions.unbind(1)
    ways = (start + first).unsqueeze(-1)  # (batch, tag, way)
    ways = torch.nn.functional.pad(ways, (0, k - 1), value=-torch.inf)
    origins: list[Tensor] = []
    stay = torch.arange(tags * k, device=emissions.device).view(1, tags, k)
    for t, emitted in enumerate(rest, 1):
        into = ways.unsqueeze(1) + transitions.T[None, :, :, None]  # (batch, to, from, way)
        best, origin = into.flatten(2).topk(k, -1)
        going = (t < lengths)[:, None, None]
        ways = torch.where(going, best + emitted.unsqueeze(-1), ways)
        origins.append(torch.where(going, origin, stay))
    scores, here = (ways + end[None, :, None]).flatten(1).topk(k, -1)
    path = [here // k]
    for origin in reversed(origins):
        here = origin.flatten(1).gather(1, here)
        path.append(here // k)
    found = torch.stack(path[::-1], -1)
    real = torch.arange(time, device=emissions.device) < lengths[:, None]
    found = found.masked_fill(~real[:, None] | (scores == -torch.inf)[..., None], 0)
    empty = torch.full_like(scores, -torch.inf)
    empty[:, 0] = 0.0
    return found, torch.where((lengths > 0)[:, None], scores, empty)
