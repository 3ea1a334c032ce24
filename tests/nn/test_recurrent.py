"""``Recurrent`` against PyTorch's layers, and what it adds to them."""

from __future__ import annotations

import itertools

import pytest
import torch
from recurrent_peers import KINDS, LENGTHS, B, H, I, T, torch_layer
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from anaphora import nn
from anaphora.engine.backends.base import BackendName
from anaphora.engine.dispatch import force
from anaphora.native import c as compiler


def _their_gradients(
    theirs: torch.nn.RNNBase, k: int, directions: int, grads: dict[str, Tensor]
) -> list[Tensor]:
    end = f"_l{k // directions}" + ("_reverse" if k % directions else "")
    return [grads[name + end] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


def _as_theirs(cell: nn.Cell) -> list[Tensor]:
    """The gradients of our parameters in PyTorch's order: W_ih, W_hh, b_ih (b_hh has the same or a part of it)."""
    if isinstance(cell, nn.GRU):
        sign = torch.ones(2 * H, 1).to(cell.gates.bias)
        sign[H:] = -1
        (w, u), b = cell.gates.weights, cell.gates.bias
        return [
            torch.cat((w.grad * sign, cell.candidate.weights[0].grad)),
            torch.cat((u.grad * sign, cell.recurrent.weights[0].grad)),
            torch.cat((b.grad * sign[:, 0], cell.candidate.bias.grad)),
            torch.cat((b.grad * sign[:, 0], cell.recurrent.bias.grad)),
        ]
    affine = cell.gates if isinstance(cell, nn.LSTM) else cell.affine
    return [affine.weights[0].grad, affine.weights[1].grad, affine.bias.grad, affine.bias.grad]


@pytest.mark.parametrize("backend", [None, "cudnn", "torch", "reference"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("layers", "both"), [(1, False), (1, True), (2, True), (3, False), (3, True)])
@pytest.mark.parametrize("ragged", [False, True])
def test_equals_pytorch(
    kind: str, layers: int, both: bool, ragged: bool, backend: BackendName | None
) -> None:
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        theirs = torch_layer(kind, layers, both, dtype)
        ours = nn.Recurrent.from_torch(theirs)
        directions = 2 if both else 1
        x = torch.randn(B, T, I, dtype=dtype, requires_grad=True)
        x2 = x.detach().clone().requires_grad_()
        names = 2 if kind == "lstm" else 1
        initial = tuple(torch.randn(layers * directions, B, H, dtype=dtype) for _ in range(names))
        lengths = LENGTHS if ragged else None
        with force(backend):
            y, last = ours(x, lengths, initial)
        hx = initial if kind == "lstm" else initial[0]
        if ragged:
            packed = pack_padded_sequence(x2, LENGTHS, batch_first=True, enforce_sorted=False)
            out, final = theirs(packed, hx)
            expected, _ = pad_packed_sequence(out, batch_first=True, total_length=T)
        else:
            expected, final = theirs(x2, hx)
        final = final if kind == "lstm" else (final,)
        weight, ends = torch.randn_like(y), [torch.randn_like(s) for s in last]
        for result, states in ((y, last), (expected, final)):
            torch.autograd.backward(
                (result * weight).sum() + sum((s * e).sum() for s, e in zip(states, ends, strict=True))
            )
        for a, b in zip((y, *last, x.grad), (expected, *final, x2.grad), strict=True):
            torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)
        grads = {name: p.grad for name, p in theirs.named_parameters()}
        for k, cell in enumerate(ours.cells):
            pairs = zip(_as_theirs(cell), _their_gradients(theirs, k, directions, grads), strict=True)
            for a, b in pairs:
                torch.testing.assert_close(a, b, atol=10 * tolerance, rtol=10 * tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_conversion_there_and_back(kind: str) -> None:
    theirs = torch_layer(kind, 2, True, torch.float64)
    ours = nn.Recurrent.from_torch(theirs)
    again = ours.to_torch()
    x = torch.randn(B, T, I).double()
    torch.testing.assert_close(again(x)[0], theirs(x)[0])
    torch.testing.assert_close(nn.Recurrent.from_torch(again)(x)[0], ours(x)[0])


def test_conversion_refuses_what_pytorch_lacks() -> None:
    with pytest.raises(ValueError, match="no layer that computes"):
        nn.Recurrent(nn.GRU(I, H)).to_torch()
    with pytest.raises(ValueError, match="neither these connections"):
        nn.Recurrent(nn.LSTM(I, H), zoneout=0.1).to_torch()
    with pytest.raises(ValueError, match="proj_size"):
        nn.Recurrent.from_torch(torch.nn.LSTM(I, H, proj_size=3))
    with pytest.raises(ValueError, match=r"reads \(time, batch, features\), a Recurrent reads \(batch, time"):
        nn.Recurrent.from_torch(torch.nn.LSTM(I, H))
    with pytest.raises(ValueError, match=r"expected nn\.RNN"):
        nn.Recurrent.from_torch(torch.nn.Linear(2, 3))


@pytest.mark.parametrize(
    "make", [lambda: nn.LSTM(I, H), lambda: nn.GRU(I, H), lambda: nn.LSTM(I, H, layer_norm=True)]
)
@pytest.mark.parametrize("threads", [1, 2])
@torch.set_grad_enabled(compiler.compiler() is not None)
def test_a_row_does_not_depend_on_its_batch_to_the_last_bit(make, threads: int) -> None:
    """Neither the padding beside it, nor the neighbours, nor how many there are change a row.

    Without a C compiler that holds where no gradient is wanted.
    """
    torch.manual_seed(3)
    recurrent = nn.Recurrent(make(), layers=2, bidirectional=True)
    x = torch.randn(19, 11, I)
    lengths = torch.randint(1, 12, (19,))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        y, last = recurrent(x, lengths)
        alone = [recurrent(x[b : b + 1, : lengths[b]]) for b in range(19)]
        for b, (y_b, last_b) in enumerate(alone):
            assert torch.equal(y[b, : lengths[b]], y_b[0])
            assert not y[b, lengths[b] :].any()
            for s, s_b in zip(last, last_b, strict=True):
                assert torch.equal(s[:, b], s_b[:, 0])
        noisy = x.clone()
        for b in range(19):
            noisy[b, lengths[b] :] = 1e4 * torch.randn(11 - int(lengths[b]), I)
        wider = torch.cat((noisy, torch.randn(19, 6, I)), 1)
        assert torch.equal(recurrent(wider, lengths)[0][:, :11], y)
    finally:
        torch.set_num_threads(before)


def test_truncated_backpropagation_in_one_chunk_is_the_whole() -> None:
    recurrent = nn.Recurrent(nn.LSTM(I, H), layers=2).double()
    x = torch.randn(B, T, I).double()

    def gradient(chunk: int) -> list[Tensor]:
        recurrent.zero_grad()
        state = recurrent.initial_state(B, x)
        for part in x.split(chunk, 1):
            y, state = recurrent(part, initial=tuple(s.detach() for s in state))
            y.square().sum().backward()
        return [p.grad.clone() for p in recurrent.parameters()]

    y, _ = recurrent(x)
    whole = torch.autograd.grad(y.square().sum(), list(recurrent.parameters()))
    for a, b in zip(gradient(T), whole, strict=True):
        assert torch.equal(a, b)
    for a, b in zip(gradient(T + 5), whole, strict=True):
        assert torch.equal(a, b)
    assert any((a - b).abs().max() > 1e-3 for a, b in zip(gradient(2), whole, strict=True))


def test_chunks_with_the_state_carried_on_give_the_same_outputs() -> None:
    recurrent = nn.Recurrent(nn.GRU(I, H), layers=2)
    x = torch.randn(B, 9, I)
    whole, end = recurrent(x)
    state, parts = None, []
    for chunk in x.split(4, 1):
        y, state = recurrent(chunk, initial=state)
        parts.append(y)
    assert torch.equal(torch.cat(parts, 1), whole)
    assert all(torch.equal(a, b) for a, b in zip(state, end, strict=True))


def test_residual_highway_and_dense_connections_by_hand() -> None:
    x = torch.randn(B, T, I).double()
    for connections in ("residual", "highway", "dense"):
        stack = nn.Recurrent(nn.GRU(I, H), layers=2, bidirectional=True, connections=connections).double()
        cells = list(stack.cells)

        def layer(k: int, value: Tensor, cells: list[nn.Cell] = cells) -> Tensor:
            there = nn.Recurrent(cells[2 * k])(value)[0]
            back = nn.Recurrent(cells[2 * k + 1])(value.flip(1))[0].flip(1)
            return torch.cat((there, back), -1)

        first = layer(0, x)
        if connections == "dense":
            expected = layer(1, torch.cat((x, first), -1))
        elif connections == "residual":
            expected = first + layer(1, first)
        else:
            g = torch.sigmoid(stack.carry[0](first))
            expected = g * layer(1, first) + (1 - g) * first
        torch.testing.assert_close(stack(x)[0], expected)


def test_variational_masks_are_the_same_at_every_step_and_other_masks_are_not() -> None:
    torch.manual_seed(0)
    x = torch.randn(B, T, I)
    for variational in (False, True):
        stack = nn.Recurrent(nn.Elman(I, H), layers=2, dropout=0.5, variational=variational)
        seen: list[Tensor] = []
        hook = stack.cells[1].affine.register_forward_pre_hook(
            lambda _, args, seen=seen: seen.append(args[0])
        )
        with nn.inside.record():  # the loop in plain torch, where hooks see each step
            stack(x)
        hook.remove()
        zeros = torch.stack(seen, 1) == 0
        assert zeros.any()
        assert bool((zeros == zeros[:, :1]).all()) is variational
    stack.eval()
    assert torch.equal(stack(x)[0], stack(x)[0])


def test_recurrent_dropout_zoneout_and_weight_dropout_run_alike_by_every_path() -> None:
    options = {"recurrent_dropout": 0.4, "zoneout": (0.3, 0.2), "weight_dropout": 0.3}
    for chosen in itertools.chain(({k: v} for k, v in options.items()), [options]):
        recurrent = nn.Recurrent(nn.LSTM(I, H), bidirectional=True, **chosen).double()
        x = torch.randn(B, T, I).double().requires_grad_()

        def run(recurrent: nn.Recurrent = recurrent, x: Tensor = x) -> list[Tensor]:
            torch.manual_seed(7)
            y, last = recurrent(x, LENGTHS)
            leaves = [x, *recurrent.parameters()]
            return [y, *last, *torch.autograd.grad(y.square().sum() + last[1].sum(), leaves)]

        fast = run()
        with force("reference"):
            slow = run()
        for a, b in zip(fast, slow, strict=True):
            torch.testing.assert_close(a, b)
        quiet = recurrent.eval()(x)[0]
        assert not torch.allclose(fast[0], quiet)


def test_zoneout_keeps_old_values_and_averages_at_test() -> None:
    recurrent = nn.Recurrent(nn.Elman(I, H), zoneout=0.999999)
    start = torch.randn(1, B, H)
    y, _ = recurrent(torch.randn(B, T, I), initial=(start,))
    torch.testing.assert_close(y, start[0, :, None].expand(-1, T, -1))
    p = 0.25
    recurrent = nn.Recurrent(nn.Elman(I, H), zoneout=p).eval()
    x = torch.randn(B, 1, I)
    new = recurrent.cells[0].step(x[:, 0], start[0])
    torch.testing.assert_close(recurrent(x, initial=(start,))[0][:, 0], p * start[0] + (1 - p) * new)


def test_looking_inside_gives_states_and_gates_over_time() -> None:
    recurrent = nn.Recurrent(nn.LSTM(I, H), bidirectional=True).eval()
    x = torch.randn(B, T, I)
    y, _ = recurrent(x, LENGTHS)
    with nn.inside.record() as notes:
        again, _ = recurrent(x, LENGTHS)
    torch.testing.assert_close(again, y)
    found = {(note.module, note.name): note.value for note in notes}
    gates = {"input", "forget", "candidate", "output"}
    assert {name for _, name in found} == {"h", "c", *gates, *(f"pre_{gate}" for gate in gates)}
    for k, cell in enumerate(recurrent.cells):
        v = {name: value for (module, name), value in found.items() if module is cell}
        assert v["h"].shape == (B, T, H)
        torch.testing.assert_close(v["h"], y[..., k * H : (k + 1) * H])
        torch.testing.assert_close(v["output"] * v["c"].tanh(), v["h"])
        real = torch.arange(T) < LENGTHS[:, None]
        torch.testing.assert_close(v["pre_forget"].sigmoid()[real], v["forget"][real])
        before = torch.roll(v["c"], 1 if k == 0 else -1, 1)
        before[:, 0 if k == 0 else -1] = 0
        torch.testing.assert_close(v["forget"] * before + v["input"] * v["candidate"], v["c"])
    assert not nn.inside.recording()


def test_a_causal_layer_refuses_the_future_with_the_reason() -> None:
    with pytest.raises(ValueError, match="reads the future"):
        nn.Recurrent(nn.LSTM(I, H), bidirectional=True, causal=True)
    recurrent = nn.Recurrent(nn.LSTM(I, H), layers=2, causal=True)
    x = torch.randn(1, T, I, requires_grad=True)
    (gradient,) = torch.autograd.grad(recurrent(x)[0][0, 3].sum(), x)
    assert gradient[0, :4].abs().min() > 0
    assert not gradient[0, 4:].any()


def test_mistakes_are_named() -> None:
    recurrent = nn.Recurrent(nn.LSTM(I, H))
    with pytest.raises(ValueError, match=r"x must be \(batch, time, 5\)"):
        recurrent(torch.randn(B, T, I + 1))
    with pytest.raises(ValueError, match="lengths must lie between"):
        recurrent(torch.randn(B, T, I), torch.tensor([1, 2, 3, 8]))
    with pytest.raises(ValueError, match=r"lengths must be \(4,\)"):
        recurrent(torch.randn(B, T, I), torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="initial needs one tensor"):
        recurrent(torch.randn(B, T, I), initial=(torch.zeros(1, B, H),))
    both = nn.Recurrent(nn.LSTM(I, H), bidirectional=True)
    with pytest.raises(ValueError, match="needs the whole sequence"):
        both.step(torch.randn(B, I), both.initial_state(B, torch.zeros(1)))
    with pytest.raises(ValueError, match="probability below 1"):
        nn.Recurrent(nn.LSTM(I, H), dropout=1.5)
    noisy = nn.Recurrent(nn.LSTM(I, H), weight_dropout=0.5)
    with pytest.raises(ValueError, match="eval"):
        noisy.step(torch.randn(B, I), noisy.initial_state(B, torch.zeros(1)))


@pytest.mark.parametrize("shape", [(0, T), (B, 0)])
def test_empty_batches_and_sequences(shape: tuple[int, int]) -> None:
    recurrent = nn.Recurrent(nn.GRU(I, H), layers=2, bidirectional=True)
    y, (last,) = recurrent(torch.randn(*shape, I))
    assert y.shape == (*shape, 2 * H)
    assert last.shape == (4, shape[0], H)


def test_cpu_autocast_keeps_the_weights_precision() -> None:
    recurrent = nn.Recurrent(nn.GRU(I, H), layers=2)
    x = torch.randn(B, T, I)
    with torch.autocast("cpu", torch.bfloat16):
        y, _ = recurrent(x, LENGTHS)
        rough, _ = recurrent(x.bfloat16(), LENGTHS)
    assert torch.equal(y, recurrent(x, LENGTHS)[0])
    torch.testing.assert_close(rough, y, atol=0.05, rtol=0)


def test_exports_as_plain_torch_operations() -> None:
    recurrent = nn.Recurrent(nn.GRU(I, H), bidirectional=True).eval()
    x = torch.randn(B, T, I)
    program = torch.export.export(recurrent, (x, LENGTHS))
    torch.testing.assert_close(program.module()(x, LENGTHS), recurrent(x, LENGTHS), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("ordered", [True, False])
def test_packed_sequences_come_back_packed_as_from_pytorch(ordered: bool) -> None:
    theirs = torch.nn.LSTM(I, H, num_layers=2, bidirectional=True, batch_first=True)
    ours = nn.Recurrent.from_torch(theirs)
    lengths = torch.tensor([7, 4, 4, 1] if ordered else [4, 1, 7, 4])
    packed = pack_padded_sequence(torch.randn(4, 7, I), lengths, batch_first=True, enforce_sorted=ordered)
    found, last = ours(packed)
    expected, (h, c) = theirs(packed)
    torch.testing.assert_close(found.data, expected.data)
    torch.testing.assert_close(found.batch_sizes, expected.batch_sizes)
    torch.testing.assert_close(last, (h, c))
    rows, ends = pad_packed_sequence(found, batch_first=True)
    torch.testing.assert_close(rows, pad_packed_sequence(expected, batch_first=True)[0])
    assert torch.equal(ends, lengths)
    with pytest.raises(ValueError, match="has its lengths in it"):
        ours(packed, lengths)
