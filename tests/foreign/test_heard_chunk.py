"""A chunk of sound in one call: what the model computes operation by operation, with the weights it has now."""

from __future__ import annotations

import copy

import pytest
import torch

from anaphora.foreign.architectures import silero_vad
from anaphora.foreign.architectures.silero_vad import SileroVAD
from anaphora.nn import inside
from anaphora.ops import packed

CHUNK = SileroVAD.chunk


@pytest.fixture
def m() -> SileroVAD:
    torch.manual_seed(1)
    found = SileroVAD().eval()
    torch.nn.init.normal_(found.spectrum, std=0.1)
    return found


@torch.no_grad()
def by_chunks(m: SileroVAD, samples: torch.Tensor) -> tuple[torch.Tensor, silero_vad.State]:
    state, found = None, []
    for chunk in samples.split(CHUNK, 1):
        p, state = m(chunk, state)
        found.append(p)
    assert state is not None
    return torch.cat(found, 1), state


@pytest.mark.parametrize("rows", [1, 5])
def test_chunk_by_chunk_gives_the_numbers_of_all_at_once(m: SileroVAD, rows: int) -> None:
    samples = torch.randn(rows, 4 * CHUNK)
    with torch.no_grad():
        wanted, state = m(samples)
    found, after = by_chunks(m, samples)
    with torch.no_grad():
        call = m._heard(samples[:, :CHUNK], *m.initial_state(rows))
    assert (call is not None) == (packed.library.functions() is not None)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    for one, other in zip(after, state, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)
    assert wanted.std() > 1e-4


def test_it_needs_no_compiler_and_leaves_gradients_and_inside_values_alone(
    m: SileroVAD, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = torch.randn(2, CHUNK)
    found, _ = by_chunks(m, samples)
    p, _ = m(samples)
    p.sum().backward()
    assert m.spectrum.grad is not None
    torch.testing.assert_close(p.detach(), found, rtol=0, atol=1e-5)
    with torch.no_grad(), inside.record() as notes:
        m(samples)
    assert notes
    monkeypatch.setattr(packed.library, "functions", lambda *_: None)
    without, _ = by_chunks(copy.deepcopy(m), samples)
    torch.testing.assert_close(without, found, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["spectrum", "convolutions.2.bias", "lstm.cells.0.gates.bias", "output.weight"]
)
def test_new_weights_are_seen(m: SileroVAD, name: str) -> None:
    samples = torch.randn(2, CHUNK)
    before, _ = by_chunks(m, samples)
    with torch.no_grad():
        m.get_parameter(name).add_(0.5)
        wanted = m(samples.repeat(1, 2))[0][:, :1]
    found, _ = by_chunks(m, samples)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    assert not torch.equal(found, before)
