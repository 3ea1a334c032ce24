"""Models of sound that packages hold: the same numbers as where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_packages import package
from torch import Tensor, nn

import anaphora as an
from anaphora.errors import RunError
from anaphora.foreign.architectures.silero_vad import SileroVAD

CHUNK = 512


def sound(chunks: int, batch: int = 2) -> Tensor:
    """Noise that grows and fades, between −1 and 1."""
    draw = torch.Generator().manual_seed(3)
    noise = torch.randn(batch, chunks * CHUNK, generator=draw)
    return noise * torch.linspace(0, 6, chunks * CHUNK).sin().abs() * 0.2


@pytest.fixture(scope="module")
def silero() -> Path:
    return package("silero_vad") / "data"


@pytest.mark.parametrize(
    "name", ["silero_vad.onnx", "silero_vad_16k_op15.onnx", "silero_vad_op18_ifless.onnx"]
)
def test_silero_equals_its_torchscript(silero: Path, name: str) -> None:
    m = an.load(silero / name, device="cpu")
    theirs = torch.jit.load(silero / "silero_vad.jit").eval()  # type: ignore[no-untyped-call]
    x = sound(12)
    with torch.no_grad():
        ours, _ = m(x)
        expected = torch.cat([theirs(x[:, i : i + CHUNK], 16000) for i in range(0, x.shape[1], CHUNK)], 1)
    assert ours.shape == (2, 12)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


def test_silero_equals_its_onnx_chunk_by_chunk(silero: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(silero / "silero_vad.onnx")
    m = an.load(silero / "silero_vad.onnx", device="cpu")
    x, context, carried = sound(8, 1), torch.zeros(1, 64), torch.zeros(2, 1, 128)
    state: Any = None
    for i in range(0, x.shape[1], CHUNK):
        chunk = x[:, i : i + CHUNK]
        given = {"input": torch.cat((context, chunk), 1).numpy(), "state": carried.numpy()}
        expected, after = session.run(None, given | {"sr": torch.tensor(16000).numpy()})
        context, carried = chunk[:, -64:], torch.from_numpy(after)
        with torch.no_grad():
            ours, state = m(chunk, state)
        assert abs(float(ours) - float(expected[0, 0])) < 1e-5
        torch.testing.assert_close(torch.stack((state[0][0], state[1][0])), carried, rtol=0, atol=1e-4)


def test_silero_of_the_safetensors_file_equals_its_layers_in_torch(silero: Path) -> None:
    from safetensors.torch import load_file

    w = load_file(silero / "silero_vad_16k.safetensors")
    m = an.load(silero / "silero_vad_16k.safetensors", device="cpu")
    x = sound(3, 1)
    cell = nn.LSTMCell(128, 128)
    cell.load_state_dict({name: w[f"lstm_cell.{name}"] for name in cell.state_dict()})
    state = (torch.zeros(1, 128), torch.zeros(1, 128))
    padded = nn.functional.pad(x, (64, 0))
    with torch.no_grad():
        ours, _ = m(x)
        for chunk in range(3):
            y = nn.functional.pad(padded[:, None, chunk * CHUNK : chunk * CHUNK + 576], (0, 64), "reflect")
            y = nn.functional.conv1d(y, w["stft_conv.weight"], stride=128)
            y = (y[:, :129] ** 2 + y[:, 129:] ** 2).sqrt()
            for i, stride in enumerate((1, 2, 2, 1), 1):
                y = nn.functional.conv1d(
                    y, w[f"conv{i}.weight"], w[f"conv{i}.bias"], stride=stride, padding=1
                ).relu()
            state = cell(y[..., 0], state)
            y = nn.functional.conv1d(state[0][..., None].relu(), w["final_conv.weight"], w["final_conv.bias"])
            assert abs(float(y.sigmoid()) - float(ours[0, chunk])) < 1e-5


def test_silero_in_chunks_equals_the_whole() -> None:
    torch.manual_seed(1)
    m, x = SileroVAD().eval(), sound(7)
    nn.init.normal_(m.spectrum, std=0.05)
    with torch.no_grad():
        whole, last = m(x)
        found, state = m(x[:, : 3 * CHUNK])
        parts = [found]
        for i in range(3, 7):
            found, state = m(x[:, i * CHUNK : (i + 1) * CHUNK], state)
            parts.append(found)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-6)
    for ours, theirs in zip(state, last, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_silero_asks_for_whole_chunks() -> None:
    with pytest.raises(ValueError, match="multiple of 512"):
        SileroVAD()(torch.zeros(1, 500))


def test_a_torchscript_program_is_not_executed(silero: Path) -> None:
    with pytest.raises(RunError, match="TorchScript program, which would be executed"):
        an.load(silero / "silero_vad.jit")
