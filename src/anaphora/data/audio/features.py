"""Features of sound: log-mel energies and cepstral coefficients, whole, in batches, or as the sound arrives."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from anaphora.data.audio.preprocessing import LOUD
from anaphora.errors import DataError
from anaphora.native.c import plain
from anaphora.native.following import following
from anaphora.ops import sound

__all__ = ["MFCC", "LogMel"]

FLOOR = 1e-10
"""Least energy whose logarithm is taken: digital silence becomes log 1e-10 ≈ −23."""
FAINTEST = 1e-8
"""Least share of the energy of speech whose power is taken."""
_TOGETHER = 384  # frames that torch transforms at once on a CPU: their spectra stay in its cache


class LogMel(nn.Module):
    """Logarithms of the energies that a bank of triangular filters lets through, every ``hop`` seconds.

    With x_n the samples, W the window's length, H the hop (both in samples) and N the next power of two ≥ W:

        x'_n   = x_n − α x_{n−1}                                  pre-emphasis, x_{−1} = 0
        X_t(k) = Σ_{n<W} w_n x'_{tH+n} e^{−2πi kn/N}              w_n = ½ − ½ cos(2πn/W), Hann
        E_t(m) = Σ_k Λ_m(k) |X_t(k)|²
        y_t(m) = log max(E_t(m), 1e-10)

    Λ_m rises from 0 at f_m to 1 at f_{m+1} and falls to 0 at f_{m+2}, linearly in Hz. The corners f are equally far
    from each other in mel between ``low`` and ``high``, with mel(f) = 2595 log₁₀(1 + f/700) (HTK's scale; no
    normalisation of areas). A frame begins at every multiple of H at which a whole window fits, so frame t needs no
    sample after tH + W and sound can be read as it arrives; a sound shorter than a window is one frame, filled up
    with zeros.

    Spectra are computed in float64, because in a frame with a loud tone the quiet filters would otherwise hear
    nothing but rounding; the features are float32. No gradient flows through them.

    rate: samples per second. window, hop: seconds. bins: how many filters. low, high: Hz (None: half the rate).
    preemphasis: α, from 0 to below 1.

    ``centres`` holds the frequency in Hz at which each filter peaks.

    ``margin``: frames of quiet that `anaphora.data.audio.recordings.frames_of` puts before and after a whole sound.

    Sound is ``(batch, samples)``; the result are features ``(batch, frames, bins)`` and how many frames of each are real ``(batch,)``.
    Raises a `DataError` where the filters do not fit the rate or the window.

    >>> from anaphora.data.audio.features import LogMel
    >>> LogMel(rate=16_000, bins=40)(torch.zeros(1, 16_000))[0].shape   # a second: 98 frames
    torch.Size([1, 98, 40])
    """

    window: Tensor
    filters: Tensor
    margin = 0
    power = 0.0

    def __init__(
        self,
        rate: int = 16_000,
        *,
        window: float = 0.025,
        hop: float = 0.010,
        bins: int = 80,
        low: float = 20.0,
        high: float | None = None,
        preemphasis: float = 0.97,
    ):
        super().__init__()
        high = rate / 2 if high is None else high
        self.rate, self.bins, self.preemphasis = rate, bins, preemphasis
        self.size, self.hop = round(window * rate), round(hop * rate)
        if self.size < 2 or self.hop < 1:
            raise DataError(
                f"A window of {window:g} s and a hop of {hop:g} s are {self.size} and {self.hop} samples at {rate} Hz; "
                "make them longer."
            )
        if not (0 <= low < high <= rate / 2):
            raise DataError(
                f"Filters from {low:g} to {high:g} Hz do not fit a rate of {rate} Hz; stay between 0 and {rate / 2:g} Hz."
            )
        self.points = 1 << (self.size - 1).bit_length()
        corners = mel_corners(bins, low, high)
        filters = mel_filters(rate, self.points, corners)
        self.centres: list[float] = corners[1:-1].tolist()
        if not filters.any(dim=0).all():
            raise DataError(
                f"{bins} filters are too many for a window of {window:g} s at {rate} Hz: some would hear nothing; "
                "ask for fewer."
            )
        window_shape = torch.hann_window(self.size, periodic=True, dtype=torch.float64)
        self.register_buffer("window", window_shape, persistent=False)
        self.register_buffer("filters", filters.float(), persistent=False)
        self._bank = sound.Bank.of(window_shape, filters)

    @property
    def width(self) -> int:
        """Features per frame, F."""
        return self.bins

    def frames(self, samples: int) -> int:
        """How many frames a sound of ``samples`` samples has: T = 1 + ⌊(n − W) / H⌋, at least one if n > 0."""
        return 1 + max(samples - self.size, 0) // self.hop if samples > 0 else 0

    @torch.no_grad()
    def forward(self, waves: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """``waves`` (B, N), of which the first ``lengths`` (B,) samples are real (None: all).

        Returns the features (B, T, F), zero after the end of each, and the numbers of frames (B,).
        """
        counts = self._counts(waves, lengths)
        if not (total := self.frames(waves.shape[1])):
            return self.filters.new_zeros(len(waves), 0, self.width), counts
        energies = self._heard(waves.double(), waves.new_zeros(len(waves), 1), lengths)
        found = self._of_energies(energies, counts)
        if lengths is None:
            return found, counts
        kept = torch.arange(total, device=waves.device) < counts[:, None]
        return torch.where(kept[..., None], found, found.new_zeros(())), counts

    def _counts(self, waves: Tensor, lengths: Tensor | None) -> Tensor:
        if lengths is None:
            return torch.full((len(waves),), self.frames(waves.shape[1]), device=waves.device)
        return (1 + (lengths - self.size).clamp_min(0) // self.hop) * (lengths > 0)

    def stream(self) -> FeatureStream:
        """A reader of one sound that arrives piece by piece; features that need the whole sound have none."""
        if self.power:
            raise DataError(
                f"power = {self.power:g} measures energies by those of the whole sound, which is not there yet while it arrives; set power = 0."
            )
        return FeatureStream(self)

    def of_samples(self, waves: Tensor, before: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The features (B, T, F) of ``waves`` (B, n), n > 0, which follow the samples ``before`` (B, 1); x' is zero from
        ``lengths`` (B,) on."""
        return self._of_energies(self._heard(waves, before, lengths))

    def _heard(self, waves: Tensor, before: Tensor, lengths: Tensor | None) -> Tensor:
        """E (B, T, bins); arguments as for `of_samples`."""
        followed = following(waves, before, lengths) is not None or not plain(waves, before, lengths)
        if not followed and sound.library.functions() is not None:
            return sound.energies(waves, before, lengths, self.hop, self.preemphasis, self._bank)
        return self._energies(self._emphasised(waves, before, lengths))

    def _emphasised(self, waves: Tensor, before: Tensor, lengths: Tensor | None) -> Tensor:
        """x' (B, n), at least a window of it; arguments as for `of_samples`."""
        if self.preemphasis:
            follows = torch.cat((before.to(waves), waves[:, :-1]), dim=1)
            waves = torch.sub(waves, follows, alpha=self.preemphasis)
        if lengths is not None:
            real = torch.arange(waves.shape[1], device=waves.device) < lengths[:, None]
            waves = torch.where(real, waves, waves.new_zeros(()))
        missing = self.size - waves.shape[1]
        return nn.functional.pad(waves, (0, missing)) if missing > 0 else waves

    def _energies(self, emphasised: Tensor) -> Tensor:
        """E (B, T, bins) float32 of x' (B, n) by torch operations."""
        frames = emphasised.unfold(1, self.size, self.hop)  # (B, T, W), a view
        together = max(1, _TOGETHER // len(frames)) if frames.device.type == "cpu" else frames.shape[1]
        found = []
        for stretch in torch.split(frames, together, dim=1):
            # Once the tones are apart, rounding is relative to each of them and float32 is enough.
            spectra = torch.fft.rfft(stretch * self.window, self.points).to(torch.complex64)
            found.append(torch.view_as_real(spectra).square_().sum(-1) @ self.filters.float())
        return torch.cat(found, dim=1)

    def _of_energies(self, energies: Tensor, counts: Tensor | None = None) -> Tensor:
        """The features (B, T, F) of the energies E (B, T, bins), which are overwritten; the first ``counts`` (B,) frames are real."""
        found = energies.clamp_min_(FLOOR).log_()
        return _powers(found, counts, self.power) if self.power else found


class MFCC(LogMel):
    """Mel-frequency cepstral coefficients: the cosine transform of `LogMel`'s features y, M of them,

        c_t(j) = s_j Σ_m y_t(m) cos(π j (m + ½) / M)              s_0 = √(1/M), s_j = √(2/M)

    (type II, orthonormal), of which the first ``count`` are kept. ``lifter`` L > 0 multiplies c_t(j) by
    1 + (L/2) sin(π j / L), which brings the higher ones to the size of the lower.

    ``power`` p > 0 puts a power in place of the logarithm, which lets what is much quieter than speech count for less:

        y_t(m) = ((E_t(m) / P)^p − 1) / p,     E_t(m) / P at least 1e-8

    P is the mean of E over all bands of the loud frames, whose mean log energy is at most 4.6 (20 dB) below that of the loudest. As p goes
    to 0, y_t(m) goes to log E_t(m) / P. The whole sound must be there, so there is no `stream`.

    ``rate``, ``window``, ``hop``, ``bins`` (M), ``low``, ``high`` and ``preemphasis`` are those of `LogMel`. Features are ``(batch, frames, count)``.

    >>> from anaphora.data.audio.features import MFCC
    >>> MFCC(rate=8_000, count=13)(torch.zeros(1, 8_000))[0].shape
    torch.Size([1, 98, 13])
    """

    transform: Tensor

    def __init__(
        self,
        rate: int = 16_000,
        *,
        count: int = 13,
        lifter: float = 0.0,
        window: float = 0.025,
        hop: float = 0.010,
        bins: int = 40,
        low: float = 20.0,
        high: float | None = None,
        preemphasis: float = 0.97,
        power: float = 0.0,
    ):
        super().__init__(rate, window=window, hop=hop, bins=bins, low=low, high=high, preemphasis=preemphasis)
        if not 1 <= count <= bins:
            raise DataError(f"{count} coefficients cannot be made of {bins} filters; ask for 1 to {bins}.")
        self.count, self.power = count, power
        j = torch.arange(count, dtype=torch.float64)
        m = torch.arange(bins, dtype=torch.float64)
        transform = math.sqrt(2 / bins) * torch.cos(math.pi * j * (m[:, None] + 0.5) / bins)
        transform[:, 0] *= math.sqrt(0.5)
        if lifter > 0:
            transform *= 1 + lifter / 2 * torch.sin(math.pi * j / lifter)
        self.register_buffer("transform", transform.float(), persistent=False)

    @property
    def width(self) -> int:
        return self.count

    def _of_energies(self, energies: Tensor, counts: Tensor | None = None) -> Tensor:
        return super()._of_energies(energies, counts) @ self.transform


def _powers(y: Tensor, counts: Tensor | None, power: float) -> Tensor:
    """((E / P)^power − 1) / power, see `MFCC`, of log energies y (B, T, bins) of which the first ``counts`` (B,) frames are real."""
    loudness = y.mean(-1)
    if counts is not None:
        real = torch.arange(y.shape[1], device=y.device) < counts[:, None]
        loudness = torch.where(real, loudness, -torch.inf)
    loud = loudness >= loudness.amax(1, keepdim=True) - LOUD
    level = (y.exp().mean(-1) * loud).sum(1) / loud.sum(1)
    least = power * math.log(FAINTEST)
    return torch.expm1((power * (y - level.log()[:, None, None])).clamp_min(least)) / power


class FeatureStream:
    """The features of one sound that arrives piece by piece: put together, those of the whole.

    At most a window of samples is held between the pieces.
    """

    def __init__(self, features: LogMel):
        self._features = features
        self._held = features.window.new_zeros(1, 1)  # the sample before the next frame, and those of it
        self._gap = 0  # samples until it begins, where frames do not touch
        self._given = 0

    @torch.no_grad()
    def push(self, samples: Tensor) -> Tensor:
        """The features (t, F) of the frames that ``samples`` (n,) complete; t may be 0."""
        f = self._features
        passed = min(self._gap, len(samples))
        held = torch.cat((self._held, samples.to(self._held)[None]), dim=1)[:, passed:]
        self._gap -= passed
        there = held.shape[1] - 1
        if there < f.size:
            self._held = held
            return f.filters.new_zeros(0, f.width)
        found = f.of_samples(held[:, 1:], held[:, :1])[0]
        done = len(found) * f.hop
        self._held, self._gap = held[:, min(done, there) :], max(done - there, 0)
        self._given += len(found)
        return found

    @torch.no_grad()
    def finish(self) -> Tensor:
        """What is left at the end, (t, F): one frame if the whole sound was shorter than a window, else none."""
        f, held = self._features, self._held
        self._held = held[:, :1]
        if self._given or held.shape[1] == 1:
            return f.filters.new_zeros(0, f.width)
        self._given = 1
        return f.of_samples(held[:, 1:], held[:, :1])[0]


def mel_corners(bins: int, low: float, high: float) -> Tensor:
    """The corners f of the filters of `LogMel` in Hz, (bins + 2,), equally far from each other in mel."""
    ends = [2595 * math.log10(1 + frequency / 700) for frequency in (low, high)]
    mel = torch.linspace(ends[0], ends[1], bins + 2, dtype=torch.float64)
    corners: Tensor = 700 * (10 ** (mel / 2595) - 1)
    return corners


def mel_filters(rate: int, points: int, corners: Tensor) -> Tensor:
    """Λ of `LogMel` (points/2 + 1, bins) in float64."""
    frequencies = torch.arange(points // 2 + 1, dtype=torch.float64)[:, None] * (rate / points)
    left, peak, right = corners[:-2], corners[1:-1], corners[2:]
    rising, falling = (frequencies - left) / (peak - left), (right - frequencies) / (right - peak)
    return torch.minimum(rising, falling).clamp_min(0)
