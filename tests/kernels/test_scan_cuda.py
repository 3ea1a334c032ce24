"""The generated scan kernels, run by fibres and on a GPU, against the loop over the step."""

from __future__ import annotations

import pytest
import torch
from persistent_emulated import COMPILER
from recurrence_results import inputs, make_engine, reference, results
from scan_emulated import by_kernels
from test_scan import CELLS

from anaphora import nn
from anaphora.engine.backends.scan import run
from anaphora.engine.backends.scan.source import generate
from anaphora.engine.dispatch import force
from anaphora.engine.units import cut_units

I, H = 3, 70
QUICK = ("readout",)  # a map, a scan, a kept state; in one piece and in chunks
LINEAR = ("MinGRU", "MinLSTM", "GILR", "QRNN", "SRU", "HGRN", "RGLRU", "LRU", "S4D", "S5", "IndRNN")


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CELLS]
)
def test_the_kernels_equal_the_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By fibres: in one piece and in chunks, with copies of 16 bytes and without, rows of many lengths, backwards."""
    torch.manual_seed(3)
    for wide, chunked in ((True, False), (False, True)):
        k = list(CELLS).index(name)
        cell = CELLS[name](I, 36 if wide else 37)
        x, initial = inputs(cell, torch.float32, 2, 53)
        monkeypatch.setattr(run, "SHORTEST", 4)
        monkeypatch.setattr(run, "FEWEST", 1000 if chunked else 0)
        monkeypatch.setattr(run, "ENOUGH", 12)
        lengths, reverse = (torch.tensor([31, 53]) if (k + chunked) % 2 else None), k % 3 == 1
        ours = results(by_kernels(cell), cell, x, initial, lengths, reverse)
        theirs = results(reference(cell), cell, x, initial, lengths, reverse)
        for a, b in zip(ours, theirs, strict=True):
            assert float((a - b).detach().abs().max() / (1 + b.detach().abs().max())) < 1e-5


@pytest.mark.parametrize("name", CELLS)
def test_every_array_is_named_once(name: str) -> None:
    from test_rings import plan_of

    for unit in cut_units(plan_of(CELLS[name](I, 5))):
        program = generate(unit)
        assert {"forward", "backward"} <= program.kernels.keys()
        assert ("gather_forward" in program.kernels) == (unit.affine and bool(unit.carried))
        for kernel in program.kernels.values():
            assert len(set(kernel.arrays)) == len(kernel.arrays)


@pytest.mark.cuda
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", [*CELLS, *LINEAR])
def test_outputs_and_gradients_on_a_gpu(
    name: str, ragged: bool, parallel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "FEWEST", 1 << 30 if parallel else 0)
    torch.manual_seed(0)
    cell = (CELLS[name] if name in CELLS else getattr(nn, name))(I, H).cuda()
    x, initial = inputs(cell, torch.float32, 3, 300, "cuda")
    lengths = torch.tensor([300, 7, 151], device="cuda") if ragged else None
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        with force("scan"):
            ours = results(make_engine(cell), cell, x, initial, lengths, ragged)
    finally:
        torch.backends.cudnn.allow_tf32 = before
    theirs = results(reference(cell), cell, x, initial, lengths, ragged)
    for a, b in zip(ours, theirs, strict=True):
        assert float((a - b).abs().max()) <= 2e-4 * (1 + float(b.abs().max()))


@pytest.mark.cuda
def test_single_steps_and_pieces_on_a_gpu() -> None:
    torch.manual_seed(1)
    layer = nn.Recurrent(nn.MinGRU(32, 256)).cuda().eval()
    x = torch.randn(64, 40, 32, device="cuda")
    with torch.no_grad(), force("scan"):
        whole, last = layer(x)
        _, middle = layer(x[:, :16])
        second, end = layer(x[:, 16:], initial=middle)
    torch.testing.assert_close(second, whole[:, 16:], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(end[0], last[0], atol=1e-5, rtol=1e-5)
    with torch.no_grad(), force("scan"):
        again, _ = layer(x)
    assert torch.equal(again, whole)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_keep_a_state_of_thirty_two(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    layer = nn.Recurrent(nn.MinGRU(16, 64))
    layer.cells[0].both.bias.data[:64] = -5.0  # type: ignore[union-attr, operator]
    x = torch.randn(4, 2000, 16)
    wanted = layer.double()(x.double())[0]
    ours = layer.to("cuda", dtype)(x.to("cuda", dtype))[0].double().cpu()
    assert float((ours - wanted).norm() / wanted.norm()) < 0.03
