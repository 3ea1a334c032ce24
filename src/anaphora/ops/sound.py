"""What filters hear of sound: E_t(m) = Σ_k Λ_m(k) |Σ_n w_n x_{tH+n} e^{−2πi kn/N}|², n from 0 to W − 1, k from 0 to N/2."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.engine.backends.c.source import prelude
from anaphora.native.c import CLibrary, beside, check

# ---------------------------------------------------------------------- energies of frames of sound in C, where there is a compiler
_THREADED = 256  # frames for which it is worth starting a thread


library = CLibrary(
    "sound",
    lambda double: prelude(double) + beside(__package__, "csrc/sound.c"),
    (torch.float64,),
    no_memory="features of sound ran out of memory; use shorter windows",
)


@dataclass(frozen=True)
class Bank:
    """A window w (W), a transform of N points and filters Λ (N/2 + 1, bins), as `energies` reads them.

    N is a power of two, at least 2 and at least W. Of a filter only what lies between the first and the last frequency
    that it hears is kept.
    """

    window: Tensor
    turns: Tensor
    half_turns: Tensor
    places: Tensor
    heard: Tensor
    weights: Tensor

    @classmethod
    def of(cls, window: Tensor, filters: Tensor) -> Bank:
        """All in float64, on the CPU."""
        half = len(filters) - 1
        points = 2 * half
        if half < 1 or half & (half - 1) or not 0 < len(window) <= points:
            raise ValueError(f"a transform of {points} points does not fit a window of {len(window)}.")
        check("a bank's window", window.contiguous(), (len(window),), torch.float64)
        check("a bank's filters", filters.contiguous(), (half + 1, filters.shape[1]), torch.float64)
        turns = torch.polar(torch.ones(half, dtype=torch.float64), _angles(half, half))
        ends = torch.polar(torch.ones(half // 2 + 1, dtype=torch.float64), _angles(half // 2 + 1, points))
        found = [column.nonzero().flatten() for column in filters.unbind(1)]
        if not all(len(k) for k in found):
            raise ValueError("a filter lets nothing through: give it a wider band or more points.")
        heard = torch.tensor([(int(k[0]), int(k[-1] - k[0]) + 1) for k in found])
        parts = [filters[k[0] : k[-1] + 1, m] for m, k in enumerate(found)]
        return cls(
            window=(window / 2).contiguous(),
            turns=torch.view_as_real(turns).contiguous(),
            half_turns=torch.view_as_real(-1j * ends).contiguous(),
            places=torch.tensor(_places(half)),
            heard=heard,
            weights=torch.cat(parts).contiguous(),
        )


def energies(
    waves: Tensor, before: Tensor, lengths: Tensor | None, hop: int, preemphasis: float, bank: Bank
) -> Tensor:
    """E (B, T, bins) float32 of ``waves`` (B, n), n > 0, which follow the samples ``before`` (B, 1).

    x'_n = x_n − preemphasis x_{n−1}, and zero from ``lengths`` (B,) on (None: n). A frame begins every ``hop`` samples
    where a whole window fits; T is at least 1.
    """
    waves, before = waves.double().contiguous(), before.double().contiguous()
    rows, samples = waves.shape
    if not samples or hop < 1:
        raise ValueError(f"energies: {samples} samples with a hop of {hop}: both must be at least 1.")
    check("energies: waves", waves, (rows, samples), torch.float64)
    check("energies: before", before, (rows, 1), torch.float64)
    if lengths is not None:
        check("energies: lengths", lengths.long().contiguous(), (rows,), torch.int64)
    ends = torch.full((rows,), samples) if lengths is None else lengths.long().clamp(0, samples).contiguous()
    frames = 1 + max(samples - len(bank.window), 0) // hop
    out = torch.empty(rows, frames, len(bank.heard))
    threads = max(1, min(torch.get_num_threads(), rows * frames // _THREADED))
    sizes = (threads, rows, frames, samples, hop, len(bank.window), len(bank.turns), len(bank.heard))
    factor = torch.tensor(preemphasis, dtype=torch.float64)
    given = (waves, before, ends, factor, bank.window, bank.turns, bank.half_turns, bank.places)
    library.call(torch.float64, "energies", sizes, (*given, bank.heard, bank.weights, out))
    return out


def _angles(count: int, circle: int) -> Tensor:
    return torch.arange(count, dtype=torch.float64) * (-2 * torch.pi / circle)


def _places(length: int) -> list[int]:
    """Where the transform by fours leaves each frequency: those that are q modulo 4 are in the q-th quarter."""
    if length < 4:
        return list(range(length))
    inner, part = _places(length // 4), length // 4
    return [k % 4 * part + inner[k // 4] for k in range(length)]
