"""What persistent kernels are made of: exchanges, their order, layouts, tilings, and the text itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from recurrence_results import inputs
from torch import Tensor

from anaphora import nn
from anaphora.engine.backends.base import Case
from anaphora.engine.backends.persistent import run
from anaphora.engine.backends.persistent.clusters import (
    MOST_BLOCKS,
    closer,
    clustered,
    nearby,
    reduction_width,
)
from anaphora.engine.backends.persistent.columns import Unsuitable, find
from anaphora.engine.backends.persistent.launch import (
    Programs,
    make_programs,
    pack_depth,
    pack_rows,
    unpack_rows,
)
from anaphora.engine.backends.persistent.source import Kernel
from anaphora.engine.backends.persistent.tiling import SHARED_MEMORY, choose, tile
from anaphora.engine.plan import Plan, make_plan
from anaphora.engine.trace import trace
from anaphora.nn.recurrent_step import LayerStep

GOLDEN = Path(__file__).with_name("golden")
H200 = 132  # its SMs
CELLS: dict[str, Callable[[int], nn.Cell]] = {
    "lstm": lambda h: nn.LSTM(6, h),
    "gru_after": lambda h: nn.GRU(6, h, reset="after"),
    "gru_before": lambda h: nn.GRU(6, h),
    "layer_norm": lambda h: nn.LSTM(6, h, layer_norm=True),
}


def _plan(cell: nn.Cell) -> Plan:
    x, initial = inputs(cell, torch.float32, 2, 3)
    traced = trace(LayerStep(cell), dict(cell.named_parameters()), (x,), (), initial)
    return make_plan(traced, [cell.inputs], [], [cell.hidden] * len(cell.state), {0})


@pytest.fixture(autouse=True)
def _quick_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only shapes matter here."""
    monkeypatch.setattr(torch.nn.init, "orthogonal_", torch.nn.init.uniform_)


@cache
def _programs(name: str, hidden: int = 16) -> Programs:
    return make_programs(_plan(CELLS[name](hidden)))


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        ("lstm", ["product"], ["product"]),
        ("gru_after", ["product"], ["product"]),
        ("gru_before", ["product", "product"], ["product", "product"]),
        # Σ and Σ about the mean travel together, forward; in the backward pass the sums of all gates are one.
        ("layer_norm", ["product", "sum+sum", "sum+sum"], ["sum+sum", "sum+sum+sum+sum", "product"]),
    ],
)
def test_exchanges_in_order(name: str, forward: list[str], backward: list[str]) -> None:
    programs = _programs(name)
    for program, wanted in ((programs.forward, forward), (programs.backward, backward)):
        levels = [[e.node.op for e in program.exchanges if e.level == k] for k in range(1, program.stages)]
        assert ["+".join(found) for found in levels] == wanted


def test_gradients_of_a_gru_lie_together_for_both_products() -> None:
    """r, u and the candidate's two gradients: U needs one of the two, W the other, so the shared ones lie between."""
    programs = _programs("gru_after")
    shared = programs.backward.shared
    assert len(shared) == 4
    for _, keys in programs.products:
        assert len(keys) == 3
        assert find(shared, keys) is not None


def test_values_that_do_not_divide_into_columns_are_refused() -> None:
    class Narrow(nn.Cell):
        state = ("h",)

        def setup(self, inputs: int, hidden: int) -> None:
            self.down = nn.Affine(inputs, hidden, hidden // 2)
            self.up = nn.Affine(hidden // 2, hidden)

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return torch.tanh(self.up(torch.relu(self.down(x, h))))

    with pytest.raises(Unsuitable, match="no multiple of 16 units"):
        make_programs(_plan(Narrow(6, 16)))


def test_without_a_gpu_there_is_a_reason() -> None:
    case = Case(torch.device("cpu"), torch.float32, 2, 3, 16, _plan(nn.LSTM(6, 16)))
    assert run.why_not(case) == "the tensors are not on an NVIDIA GPU"


# ---------------------------------------------------------------------- tilings
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("batch", [1, 7, 64, 300])
@pytest.mark.parametrize("hidden", [8, 136, 200, 512])
def test_tilings_fit(name: str, hidden: int, batch: int) -> None:
    programs = _programs(name, hidden)
    for program in (programs.forward, programs.backward):
        for half in (True, False):
            t = choose(program, hidden, batch, half, H200)
            assert t is not None
            assert t.shared_memory <= SHARED_MEMORY
            assert t.slices <= t.grid(batch, H200) <= H200
            assert t.padded >= hidden > t.padded - t.columns
            assert t.grid(batch, H200) % t.slices == 0
            held = sum(8 * p.row_tiles * p.in_registers for p in t.products)
            assert held <= 255


def test_the_common_size_keeps_its_weights_in_registers() -> None:
    """LSTM, 512 units, 64 rows: sixteen slices of eight groups fill the GPU, and nothing is read twice."""
    programs = _programs("lstm", 512)
    for program in (programs.forward, programs.backward):
        t = choose(program, 512, 64, True, H200)
        assert t is not None
        assert (t.columns, t.slices, t.grid(64, H200)) == (32, 16, 128)
        assert all(p.in_registers == p.depth_blocks for p in t.products)


def test_weights_too_large_for_the_chip_have_no_tiling() -> None:
    program = _programs("lstm", 2048).forward
    assert choose(program, 2048, 8, True, H200 // 2) is None


# ---------------------------------------------------------------------- clusters
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(("hidden", "half"), [(8, True), (200, False), (512, True), (512, False)])
def test_what_a_cluster_exchanges_has_a_place_of_its_own(name: str, hidden: int, half: bool) -> None:
    programs = _programs(name, hidden)
    for program in (programs.forward, programs.backward):
        plain = choose(program, hidden, 64, half, H200)
        assert plain is not None
        t = clustered(program, plain, half)
        if not t.cluster:
            assert t == plain
            continue
        near, wide = nearby(program, t, half), 2 if half else 4
        assert t.cluster == t.slices <= MOST_BLOCKS
        assert t.shared_memory == plain.shared_memory + near.size <= SHARED_MEMORY
        parts = [(p.offset, 2 * 8 * t.tiles * p.row * wide) for p in near.products.values()]
        for level, sums in near.reductions.items():
            count = sum(e.level == level and not e.is_product for e in program.exchanges)
            assert reduction_width(count) >= count
            strips = t.padded // min(32, t.columns)
            parts.append((sums.offset, 2 * 8 * t.tiles * strips * reduction_width(count) * 4))
        barriers = [(p.barriers, 16 * t.warps) for p in near.products.values()]
        barriers += [(sums.barriers, 16 * 8 * t.tiles) for sums in near.reductions.values()]
        for (first, size), (second, _) in pairwise(sorted(barriers)):
            assert first + size <= second
        end = 8 * near.barriers
        assert max(first + size for first, size in barriers) <= end
        for offset, size in sorted(parts):
            assert offset == end
            assert offset % 16 == 0
            end += size
        assert end == near.size
        for k, p in near.products.items():  # eight lanes read two rows, four times 16 bytes each
            assert p.row >= t.products[k].depth
            assert {(r * p.row * wide + 16 * q) % 128 for r in (0, 1) for q in range(4)} == set(
                range(0, 128, 16)
            )


def test_all_reductions_and_small_products_stay_in_a_cluster() -> None:
    programs = _programs("layer_norm", 512)
    forward, backward = (choose(p, 512, 64, True, H200) for p in (programs.forward, programs.backward))
    assert forward is not None
    assert backward is not None
    ahead = nearby(programs.forward, forward, True)
    assert (sorted(ahead.products), sorted(ahead.reductions)) == ([0], [2, 3])
    back = nearby(
        programs.backward, backward, True
    )  # four gradients of 512 units are sent through common memory
    assert (sorted(back.products), sorted(back.reductions)) == ([], [1, 2])


def test_wide_blocks_are_chosen_when_nothing_leaves_their_cluster() -> None:
    """A minimal gated unit, 512 units, 64 rows, on a GPU that holds 7 clusters of 16 blocks or 15 of 8."""
    programs = make_programs(_plan(nn.MGU(6, 512)))
    for program in (programs.forward, programs.backward):
        far = choose(program, 512, 64, True, H200)
        assert far is not None
        t = closer(program, far, 64, True, H200, lambda blocks: {16: 7, 8: 15}.get(blocks, 0))
        assert (t.columns, t.cluster, t.near) == (64, 8, 2)
        assert closer(program, far, 64, True, H200, lambda blocks: 0) == far


def test_clusters_are_not_chosen_when_they_would_take_turns() -> None:
    """Seven clusters of 16 are 56 rows; more rows are left to wider blocks, whose sums are of two strips a row."""
    program = _programs("layer_norm", 512).forward
    for batch, columns, cluster in ((56, 32, 16), (64, 64, 8), (128, 32, 0)):
        far = choose(program, 512, batch, True, H200)
        assert far is not None
        t = closer(program, far, batch, True, H200, lambda blocks: {16: 7, 8: 15}.get(blocks, 0))
        assert (t.columns, t.cluster) == (columns, cluster)


def test_one_block_is_no_cluster() -> None:
    """It cannot send to itself the way blocks of a cluster do: the GPU calls that an illegal instruction."""
    programs = _programs("lstm", 16)
    for program in (programs.forward, programs.backward):
        far = tile(program, 16, 16, 1, 4, True)
        assert far is not None
        assert far.slices == 1
        assert clustered(program, far, True) == far
        t = closer(program, far, 4, True, H200, lambda _: H200)
        assert t.cluster == 0 or t.slices > 1


def test_more_blocks_than_a_cluster_holds_stay_as_they_are() -> None:
    program = _programs("lstm", 1000).forward
    t = tile(program, 1000, 16, 1, 8, True)
    assert t is not None
    assert t.slices > MOST_BLOCKS
    assert clustered(program, t, True) == t


# ---------------------------------------------------------------------- layouts
def test_packing_follows_the_entries_and_unpacking_goes_back() -> None:
    a, b, c = (1, 0), (2, 0), (3, 0)
    matrix = torch.arange(24.0).view(4, 6)  # two blocks of two rows; three blocks of two columns
    packed = pack_depth(matrix, [a, b, c], [c, a, b], 2, 4)
    assert packed.shape == (8, 12)
    expected = torch.zeros(2, 4, 3, 4)
    expected[:, :2, :, :2] = matrix.view(2, 2, 3, 2)[:, :, [2, 0, 1]]
    torch.testing.assert_close(packed, expected.view(8, 12))
    tall = torch.arange(12.0).view(6, 2)
    rows = pack_rows(tall, [a, b, c], [c, a, b], 2, 4)
    assert rows.view(3, 4, 2)[0, :2].tolist() == tall[4:].tolist()
    torch.testing.assert_close(unpack_rows(rows, [a, b, c], [c, a, b], 2, 4), tall)
    # A number that stands for two parts of a value takes the sum of their columns.
    torch.testing.assert_close(pack_depth(matrix[:, :4], [a, a], [a], 2, 2), matrix[:, :2] + matrix[:, 2:4])


# ---------------------------------------------------------------------- text
@pytest.mark.parametrize(("name", "near"), [("layer_norm", True)])  # products, reductions and a cluster
def test_the_text_is_the_one_we_know(name: str, near: bool) -> None:
    """``ANAPHORA_GOLDEN=write pytest …`` writes the files again, to be read before they are committed."""
    programs = _programs(name)
    texts = []
    before = None
    for program in (programs.forward, programs.backward):
        t = tile(program, 16, 8 if near else 16, 1, 4, True)
        assert t is not None
        t = clustered(program, t, True) if near else t
        before = Kernel(program, t, "bf16", before)
        source = before.source
        texts.append(source[: source.index("//")] + source[source.index('extern "C"') :])
    text, path = "\n".join(texts), GOLDEN / f"persistent_{name}{'_cluster' if near else ''}.cu"
    if os.environ.get("ANAPHORA_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
