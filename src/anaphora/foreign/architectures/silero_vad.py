"""Silero VAD (PyPI ``silero-vad``): is someone speaking? Convolutions and an LSTM, per 32 ms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.foreign.architectures.parts import affine
from anaphora.foreign.mapping import Rule
from anaphora.foreign.published import PublishedModule
from anaphora.foreign.rules import Pointwise, cell_rules
from anaphora.native.derived import derived
from anaphora.native.following import following, observed
from anaphora.nn import LSTM, Recurrent, inside
from anaphora.ops import packed
from anaphora.ops.packed import Heard, HeardChunk

State = tuple[Tensor, Tensor, Tensor]


class SileroVAD(nn.Module):
    """The probability of speech in each chunk of 512 samples (32 ms at 16 kHz).

        m = an.load("silero_vad/data/silero_vad.onnx")
        p, state = m(samples)                # (batch, chunks) of (batch, samples)
        p, state = m(more, state)            # goes on: the same numbers as of all samples at once

    Each chunk is read with the 64 samples before it, mirrored at its end; a spectrum of four frames, four convolutions that
    leave one place, and one step of the LSTM.
    """

    rate, chunk, context = 16000, 512, 64

    def __init__(self) -> None:
        super().__init__()
        self.spectrum = nn.Parameter(torch.empty(258, 1, 256))  # cosines and sines under a window
        widths = ((129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1))
        self.convolutions = nn.ModuleList(
            nn.Conv1d(inputs, outputs, 3, stride=stride, padding=1) for inputs, outputs, stride in widths
        )
        self.lstm = Recurrent(LSTM(128, 128))
        self.output = nn.Linear(128, 1)

    def initial_state(self, batch: int) -> State:
        """Before the first chunk: h and c ``(1, batch, 128)``, and the 64 samples before it, all zeros."""
        like = self.spectrum
        h, c = self.lstm.initial_state(batch, like)
        return h, c, like.new_zeros(batch, self.context)

    def forward(self, samples: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """samples ``(batch, chunks · 512)`` between −1 and 1 -> probabilities ``(batch, chunks)`` and the state after them.

        Raises a ``ValueError`` for samples that are not whole chunks: pad the last one with zeros.
        """
        if samples.dim() != 2 or samples.shape[1] == 0 or samples.shape[1] % self.chunk:
            raise ValueError(
                f"SileroVAD: samples must be (batch, a multiple of {self.chunk}), got {tuple(samples.shape)}; pad the last "
                "chunk with zeros."
            )
        h, c, before = self.initial_state(len(samples)) if state is None else state
        heard = self._heard(samples, h, c, before) if samples.shape[1] == self.chunk else None
        if heard is not None:
            p, new_h, new_c, before = heard(samples, before, h[0], c[0])
            return p[:, None], (new_h[None], new_c[None], before)
        sound = torch.cat((before, samples), 1)
        windows = sound.unfold(1, self.context + self.chunk, self.chunk)  # (batch, chunks, 576)
        vectors = self.encode(windows.flatten(0, 1)).view(*windows.shape[:2], -1)
        if windows.shape[1] == 1:
            y, (h, c) = self.lstm.step(vectors[:, 0], (h, c))
            y = y[:, None]
        else:
            y, (h, c) = self.lstm(vectors, initial=(h, c))
        found = torch.sigmoid(self.output(F.relu(y)))[..., 0]
        return found, (h, c, samples[:, -self.context :].clone())

    def _heard(self, *given: Tensor) -> HeardChunk | None:
        """Return what computes one chunk in one call; None where gradients or values inside are needed, or without a compiler."""
        plain = all(tensor.is_cpu and tensor.dtype is torch.float32 for tensor in given)
        if not plain or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or inside.recording():
            return None
        (cell,) = self.lstm.cells
        if following(*given) is not None or type(cell) is not LSTM:
            return None

        def make() -> HeardChunk | None:
            if (
                not packed.library.ready(*self.parameters())
                or observed(*self.children())
                or following(self.spectrum)
            ):
                return None
            strides = [(one.weight, one.bias, one.stride[0]) for one in self.convolutions]  # type: ignore[index]
            (w, u), bias = cell.gates.weights, cell.gates.bias
            assert bias is not None
            with torch.no_grad():
                parts = Heard(
                    self.chunk, self.context, 128, self.spectrum[:, 0], strides, torch.cat((w, u), 1),  # type: ignore[arg-type]
                    bias, self.output.weight, self.output.bias,
                )  # fmt: skip
                return HeardChunk(parts)

        return derived(self, make, reads="content", tensors=self.parameters())

    def encode(self, windows: Tensor) -> Tensor:
        """Chunks with the samples before them, ``(n, 576)`` -> what the LSTM reads, ``(n, 128)``."""
        # As products: a convolution over four places takes longer to begin than to compute.
        x = F.pad(windows, (0, self.context), "reflect").unfold(1, 256, 128)  # (n, 4, 256)
        x = F.linear(x, self.spectrum[:, 0])  # (n, 4, 258)
        real, imaginary = x.chunk(2, -1)
        x = torch.sqrt(real.square() + imaginary.square())  # (n, places, channels)
        for convolution, stride in zip(self.convolutions, (1, 2, 2, 1), strict=True):
            near = F.pad(x, (0, 0, 1, 1)).unfold(1, 3, stride)  # (n, places, channels, 3)
            x = F.relu(F.linear(near.flatten(2), convolution.weight.flatten(1), convolution.bias))  # type: ignore[operator, arg-type]
        return x[:, 0]  # of (n, 1, 128)


def _rules(
    spectrum: str, convolution: str, cell: str, output: str
) -> Callable[[SileroVAD], tuple[Rule, ...]]:
    def rules(m: SileroVAD) -> tuple[Rule, ...]:
        (own,) = m.lstm.cells
        assert isinstance(own, LSTM)
        names = [f"{cell}.{one}" for one in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        return (
            Rule(spectrum, "spectrum"),
            *(rule for i in range(4) for rule in affine(convolution.format(i, i + 1), f"convolutions.{i}")),
            *cell_rules(own, "lstm.cells.0", names[0], names[1], (names[2], names[3])),
            *affine(output, "output", Pointwise()),
        )

    return rules


SILERO_VAD = PublishedModule(
    "silero-vad",
    ("stft_conv.weight", "lstm_cell.weight_ih", "final_conv.weight"),
    lambda given: SileroVAD(),
    _rules("stft_conv.weight", "conv{1}", "lstm_cell", "final_conv"),
)
"""``silero_vad_16k.safetensors``, whose numbers are of an earlier release than those of the other files."""
SILERO_VAD_ONNX = PublishedModule(
    "silero-vad",
    ("stft.forward_basis_buffer", "decoder.rnn.weight_ih", "decoder.decoder.2.weight"),
    lambda given: SileroVAD(),
    _rules("stft.forward_basis_buffer", "encoder.{0}.reparam_conv", "decoder.rnn", "decoder.decoder.2"),
    prefix="model.",
)
"""``silero_vad_16k_op15.onnx`` and ``silero_vad_op18_ifless.onnx``."""
SILERO_VAD_BRANCH = replace(SILERO_VAD_ONNX, prefix="If_0_then_branch__Inline_0__")
"""``silero_vad.onnx``: one branch for 16 kHz and one for 8 kHz."""
