"""Linear-chain conditional random fields (Lafferty et al. 2001)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.ops.crf import k_best, log_partition, viterbi


class CRF(nn.Module):
    """A probability over whole tag sequences instead of one tag at a time:

        p(y | x) = exp s(x, y) / Z(x),    s = start[y_1] + Σ_t e_t[y_t] + Σ_t A[y_{t−1}, y_t] + end[y_n]

    The emissions e ``(batch, time, tags)`` come from a network below; A, start and end are learned here. Setting
    one of them to −inf forbids what it stands for. Lengths ``(batch,)`` may be left out when all places are real;
    padding changes nothing.

    >>> crf = an.nn.CRF(3)
    >>> tags, score = crf.viterbi(torch.zeros(1, 4, 3))
    >>> tags.shape
    torch.Size([1, 4])
    """

    def __init__(self, tags: int):
        super().__init__()
        self.tags = tags
        self.transitions = nn.Parameter(torch.empty(tags, tags))  # [from, to]
        self.start = nn.Parameter(torch.empty(tags))
        self.end = nn.Parameter(torch.empty(tags))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for scores in (self.transitions, self.start, self.end):
            nn.init.uniform_(scores, -0.1, 0.1)

    def forward(self, emissions: Tensor, tags: Tensor, lengths: Tensor | None = None) -> Tensor:
        """log p(y | x) ``(batch,)`` of tags ``(batch, time)``; its negative sum is the loss."""
        lengths = self._lengths(emissions, lengths)
        return self.score(emissions, tags, lengths) - self.log_partition(emissions, lengths)

    def score(self, emissions: Tensor, tags: Tensor, lengths: Tensor | None = None) -> Tensor:
        """s(x, y) ``(batch,)`` of tags ``(batch, time)``; what stands past a row's end is not looked at."""
        lengths = self._lengths(emissions, lengths)
        real = torch.arange(emissions.shape[1], device=emissions.device) < lengths[:, None]
        tags = tags.masked_fill(~real, 0)
        emitted = emissions.gather(2, tags.unsqueeze(2)).squeeze(2).masked_fill(~real, 0.0)
        moved = self.transitions[tags[:, :-1], tags[:, 1:]].masked_fill(~real[:, 1:], 0.0)
        last = tags.gather(1, (lengths - 1).clamp(min=0)[:, None]).squeeze(1)
        ends = (self.start[tags[:, 0]] + self.end[last]).masked_fill(lengths == 0, 0.0)
        return emitted.sum(1) + moved.sum(1) + ends

    def log_partition(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """log Z(x) = log Σ_y exp s(x, y), ``(batch,)``."""
        return log_partition(
            emissions, self.transitions, self.start, self.end, self._lengths(emissions, lengths)
        )

    def marginals(self, emissions: Tensor, lengths: Tensor | None = None) -> Tensor:
        """p(y_t = j | x) ``(batch, time, tags)``, zero past each row's end: the gradient of log Z."""
        with torch.enable_grad():
            scores = emissions.detach().requires_grad_()
            (found,) = torch.autograd.grad(self.log_partition(scores, lengths).sum(), scores)
        inside.note(self, "marginals", found)
        return found

    def viterbi(self, emissions: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The best tags ``(batch, time)``, 0 past each row's end, and their score ``(batch,)``."""
        return viterbi(*self._scores(emissions, lengths))

    def k_best(self, emissions: Tensor, k: int, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The k best taggings ``(batch, k, time)``, best first, and scores ``(batch, k)``, −inf if there are fewer."""
        return k_best(*self._scores(emissions, lengths), k)

    def _scores(
        self, emissions: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        lengths = self._lengths(emissions, lengths)
        return (
            emissions.detach(),
            self.transitions.detach(),
            self.start.detach(),
            self.end.detach(),
            lengths,
        )

    def _lengths(self, emissions: Tensor, lengths: Tensor | None) -> Tensor:
        if emissions.dim() != 3 or emissions.shape[2] != self.tags:
            raise ValueError(
                f"CRF: emissions must be (batch, time, {self.tags}), got {tuple(emissions.shape)}."
            )
        if emissions.shape[1] == 0:
            raise ValueError("CRF: there must be at least one place, even if every row has length 0.")
        if lengths is None:
            return torch.full(emissions.shape[:1], emissions.shape[1], device=emissions.device)
        if lengths.shape != emissions.shape[:1] or bool(
            ((lengths < 0) | (lengths > emissions.shape[1])).any()
        ):
            raise ValueError(
                f"CRF: lengths must be {emissions.shape[0]} numbers between 0 and the {emissions.shape[1]} places, "
                f"got {lengths.tolist()}."
            )
        return lengths
