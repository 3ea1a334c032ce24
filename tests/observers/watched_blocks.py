"""The fast paths that a CPU can take, each beside the same thing in PyTorch's own operations.

``fast`` runs a block as users do. ``plain`` calls the same modules one by one and knows no kernel: what PyTorch would do, and what
whoever watches its operations may expect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from anaphora import nn as blocks
from anaphora import search
from anaphora.data.audio.features import LogMel
from anaphora.foreign.architectures.silero_vad import SileroVAD
from anaphora.models import decoders, encoders
from anaphora.models.language import Language, TransformerBody
from anaphora.models.packed import packed
from anaphora.models.paged import PagedBody
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn import linear, positions
from anaphora.nn.attention import MultiHead, scaled_dot
from anaphora.nn.packed import pack_linear
from anaphora.nn.transformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    SwiGLU,
    TransformerDecoder,
    TransformerEncoder,
    norm_of,
)
from anaphora.ops.invariant.blocks import rows_in_blocks
from anaphora.ops.matrix_scan import matrix_scan
from anaphora.ops.selective import selective_scan

Run = Callable[..., Tensor]


@dataclass(frozen=True)
class Block:
    """``make`` a module, whose dropout is that of evaluation, and ``draw`` what it reads; ``fast`` and ``plain`` give one tensor.

    ``learns``: it has a gradient. ``fixed``: its control flow depends on numbers, which no trace and no `vmap` allows. ``once``: its
    gradient is not differentiable again, as documented or as that of PyTorch's attention. ``parts``: ``plain`` calls the module's parts.
    """

    make: Callable[[], nn.Module]
    draw: Callable[[], tuple[Tensor, ...]]
    fast: Run
    plain: Run
    learns: bool = True
    fixed: bool = False
    once: bool = False
    parts: bool = True


def joined(*tensors: Tensor) -> Tensor:
    """One tensor of several with the same first axis."""
    return torch.cat([tensor.flatten(1) for tensor in tensors], 1)


@contextlib.contextmanager
def without_kernels() -> Iterator[None]:
    """Inside, no compiled C is found, so that PyTorch's operations do the work."""
    from anaphora.ops import selective, sound
    from anaphora.ops.matrix_scan import scan

    patch = pytest.MonkeyPatch()
    for module in (scan, selective, sound):
        patch.setattr(module.library, "functions", lambda *_: None)
    with patch.context():
        try:
            yield
        finally:
            patch.undo()


def written_out(run: Run) -> Run:
    """``run`` by that attention of PyTorch which every derivative goes through."""

    def plain(*given: Any) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return run(*given)

    return plain


class Function(nn.Module):
    """A module for a function without weights."""

    def __init__(self, work: Run):
        super().__init__()
        self.work = work

    def forward(self, *given: Tensor) -> Tensor:
        return self.work(*given)


# ---------------------------------------------------------------------- Transformers
WIDTH, TIME = 16, 5


def encoder(**more: Any) -> TransformerEncoder:
    layer = EncoderLayer(MultiHead(WIDTH, 2), FeedForward(WIDTH, 24, dropout=0.5), dropout=0.5, **more)
    return TransformerEncoder(layer, 2).eval()


def turned_encoder() -> TransformerEncoder:
    attention = MultiHead(WIDTH, 2, positions=positions.Rotary(), kv_heads=1, bias=False, outward_bias=False)
    norm = norm_of("rms", 1e-6)
    layer = EncoderLayer(attention, SwiGLU(WIDTH, 16), norm_first=True, norm=norm)
    return TransformerEncoder(layer, 2).eval()


@written_out
def layer_by_layer(model: TransformerEncoder, x: Tensor) -> Tensor:
    for layer in model.layers:
        x = layer(x, None, causal=True)
    return model.norm(x)


def sequence() -> tuple[Tensor, ...]:
    return (torch.randn(2, TIME, WIDTH),)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Dropout(0.5), nn.Linear(24, WIDTH)).eval()


V, BOS = 11, 2


def translator() -> nn.Module:
    def parts(cross: int) -> list[Any]:
        return [*(MultiHead(WIDTH, 2) for _ in range(1 + cross)), FeedForward(WIDTH, 24)]

    embedding = blocks.Embedding(V, WIDTH, scaled=True)
    places = positions.Sinusoidal(WIDTH)
    encoder = encoders.TransformerEncoder(
        embedding, TransformerEncoder(EncoderLayer(*parts(0), dropout=0.5), 2), positions=places
    )
    decoder = decoders.TransformerDecoder(
        embedding,
        TransformerDecoder(DecoderLayer(*parts(1), dropout=0.5), 2),
        blocks.Output(WIDTH, V, tied=embedding),
        positions=places,
    )
    return Seq2Seq(encoder, decoder).eval()


def a_batch() -> tuple[Tensor, Tensor, Tensor]:
    source = torch.tensor([[4, 5, 6, 7], [8, 9, 0, 0]])
    return source, torch.tensor([4, 2]), torch.tensor([[BOS, 5, 6], [BOS, 7, 8]])


def translated(model: Any, noise: Tensor) -> Tensor:
    """log p of the steps of a given output, plus ``noise``."""
    source, lengths, target = a_batch()
    engine = packed(model)
    state, found = engine.start(engine.encode(source, lengths)), []
    for symbols in target.unbind(1):
        log_p, state = engine.step(symbols, state)
        found.append(log_p)
    return joined(*found) + noise


@written_out
def translated_plainly(model: Any, noise: Tensor) -> Tensor:
    source, lengths, target = a_batch()
    with torch.enable_grad():  # layer by layer
        state, found = model.start(model.encode(source, lengths)), []
        for symbols in target.unbind(1):
            log_p, state = model.step(symbols, state)
            found.append(log_p)
    return joined(*found) + noise


def language() -> nn.Module:
    layer = EncoderLayer(MultiHead(WIDTH, 2), FeedForward(WIDTH, 24), norm_first=True)
    body = TransformerBody(
        blocks.Embedding(V, WIDTH),
        TransformerEncoder(layer, 2),
        positions=positions.Sinusoidal(WIDTH),
        context=16,
    )
    return Language(body, blocks.Output(WIDTH, V)).eval()


def paged(model: Any, noise: Tensor) -> Tensor:
    """States of a text that is stepped through in pages, plus ``noise``."""
    body = PagedBody(packed(model).body)
    state, found = body.start(2), []
    for symbols in a_batch()[2].unbind(1):
        y, state = body.step(symbols, state)
        found.append(y)
    return joined(*found) + noise


@written_out
def paged_plainly(model: Any, noise: Tensor) -> Tensor:
    body, found, carried = model.body, [], model.body.start(2)
    for symbols in a_batch()[2].unbind(1):
        y, carried = body.step(symbols, carried)
        found.append(y)
    return joined(*found) + noise


def mixture() -> nn.Module:
    return blocks.MixtureOutput(WIDTH, V, mixtures=3).eval()


def log_p_of_targets(model: Any, x: Tensor) -> Tensor:
    return model.log_prob(x, a_batch()[2].repeat(1, 2)[:, :TIME].to(x.device))


def log_p_of_all(model: Any, x: Tensor) -> Tensor:
    return model(x).gather(2, a_batch()[2].repeat(1, 2)[:, :TIME, None].to(x.device))[..., 0]


class Added(nn.Module):
    """Positions that are added to x, and such as turn it."""

    def __init__(self) -> None:
        super().__init__()
        self.added, self.turned = positions.Sinusoidal(WIDTH), positions.Rotary()
        self.sloped = positions.Alibi(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.turned(self.added(x)) + self.sloped.bias(TIME, TIME, like=x).sum()


def placed_plainly(model: Any, x: Tensor) -> Tensor:
    places = torch.arange(TIME, dtype=torch.float64, device=x.device)
    angles = places[:, None] * 10000.0 ** (-torch.arange(0, WIDTH, 2, device=x.device).double() / WIDTH)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    x = x + torch.stack((sin, cos), -1).flatten(-2)
    even, odd = x[..., 0::2], x[..., 1::2]
    distance = (places[:, None] - places).abs().to(x.dtype)
    bias = -(2.0**-4 + 2.0**-8) * distance.sum()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2) + bias


# ---------------------------------------------------------------------- recurrences
class Watched(blocks.Cell):
    """A cell with parts of PyTorch's own: h = tanh(N(dropout(W x + U h + b)))."""

    def setup(self, inputs: int, hidden: int) -> None:
        self.affine, self.norm = blocks.Affine(inputs, hidden, hidden), nn.LayerNorm(hidden)
        self.linear, self.dropout = nn.Linear(hidden, hidden), nn.Dropout(0.5)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(self.linear(self.dropout(self.norm(self.affine(x, h)))))


def recurrent(cell: type[blocks.Cell], **more: Any) -> Callable[[], nn.Module]:
    return lambda: blocks.Recurrent(cell(3, 4), **more).eval()


def drawn_rows() -> tuple[Tensor, ...]:
    return (torch.randn(2, TIME, 3),)


def whole(layer: Any, x: Tensor) -> Tensor:
    y, last = layer(x)
    return joined(y, *(state.transpose(0, 1) for state in last))


def loop(layer: Any, x: Tensor) -> Tensor:
    """Every cell called at every step."""
    ends: list[tuple[Tensor, ...]] = []
    for level in range(layer.layers):
        outputs = []
        for direction in range(layer.directions):
            cell = layer.cells[level * layer.directions + direction]
            states = tuple(x.new_zeros(x.shape[0], width) for width in cell.widths)
            found: dict[int, Tensor] = {}
            for t in range(x.shape[1]) if not direction else reversed(range(x.shape[1])):
                states = cell(x[:, t], *states)
                found[t] = states[0]
            outputs.append(torch.stack([found[t] for t in range(x.shape[1])], 1))
            ends.append(states)
        x = torch.cat(outputs, -1)
    return joined(x, *(torch.stack(state, 1) for state in zip(*ends, strict=True)))


def stepped(layer: Any, x: Tensor) -> Tensor:
    state, found = layer.initial_state(x.shape[0], x), []
    for now in x.unbind(1):
        y, state = layer.step(now, state)
        found.append(y)
    return joined(torch.stack(found, 1), *(each.transpose(0, 1) for each in state))


def layer_of(make: Callable[[], nn.Module]) -> Block:
    def mixed(layer: Any, x: Tensor) -> Tensor:
        y, state = layer(x)
        return joined(y, *state) if isinstance(state, tuple) else joined(y, state)

    def plain(layer: Any, x: Tensor) -> Tensor:
        with without_kernels():
            return mixed(layer, x)

    return Block(lambda: make().eval(), lambda: (torch.randn(2, TIME, 8),), mixed, plain)


def scanned(_: Any, r: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return joined(*matrix_scan(r, k, v, -w.square()))


def scanned_plainly(_: Any, r: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """S = diag(w) S + k vᵀ,  y = Sᵀ r."""
    state, found = k.new_zeros(*k.shape[:1], *k.shape[2:], v.shape[3]), []
    for t in range(v.shape[1]):
        written = k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
        state = (-w[:, t].square()).exp().unsqueeze(-1) * state + written
        found.append((r[:, t].unsqueeze(-2) @ state).squeeze(-2))
    return joined(torch.stack(found, 1), state)


def selected(_: Any, u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor) -> Tensor:
    return joined(*selective_scan(u, delta.square(), -rate.square(), b, c, state))


def selected_plainly(
    _: Any, u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> Tensor:
    """h = exp(Δ A) ∘ h + (Δ ∘ u) Bᵀ,  y = h C."""
    found = []
    for t in range(u.shape[1]):
        step = delta[:, t].square().unsqueeze(-1)
        state = (-step * rate.square()).exp() * state + step * u[:, t].unsqueeze(-1) * b[:, t].unsqueeze(1)
        found.append((state @ c[:, t].unsqueeze(-1)).squeeze(-1))
    return joined(torch.stack(found, 1), state)


# ---------------------------------------------------------------------- chains, grids and losses
def chain(model: Any, emissions: Tensor) -> Tensor:
    return model.log_partition(emissions, torch.tensor([TIME, 3]))[:, None]


def chain_plainly(model: Any, emissions: Tensor) -> Tensor:
    """log Σ_y exp s(y) by the forward recursion."""
    alpha, lengths = model.start + emissions[:, 0], torch.tensor([TIME, 3])
    for t in range(1, TIME):
        moved = emissions[:, t] + torch.logsumexp(alpha.unsqueeze(2) + model.transitions, 1)
        alpha = torch.where((t < lengths)[:, None], moved, alpha)
    return torch.logsumexp(alpha + model.end, 1, keepdim=True)


def grid(model: Any, x: Tensor) -> Tensor:
    return joined(model(x)[0])


def grid_plainly(model: Any, x: Tensor) -> Tensor:
    """Every place from its neighbours above and to the left, in both directions."""
    for hook in model._forward_pre_hooks.values():  # a call of the module makes its weights first
        hook(model, (x,))
    hidden, rows, columns = model.hidden, int(x.shape[1]), int(x.shape[2])
    pre = F.linear(x, model.weight, model.bias).unflatten(-1, (len(model.directions), -1))
    found = []
    for k, (bottom, right) in enumerate(model.directions):
        states: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        nothing = (x.new_zeros(x.shape[0], hidden),) * 2
        for i in range(rows):
            for j in range(columns):
                up, left = states.get((i - 1, j), nothing), states.get((i, j - 1), nothing)
                at = pre[:, rows - 1 - i if bottom else i, columns - 1 - j if right else j, k]
                a = at + up[0] @ model.recurrent[k, 0].T + left[0] @ model.recurrent[k, 1].T
                gates, new = a[:, : 4 * hidden].sigmoid().chunk(4, -1), a[:, 4 * hidden :].tanh()
                c = gates[1] * up[1] + gates[2] * left[1] + gates[0] * new
                states[i, j] = gates[3] * c.tanh(), c
        at_places = [
            torch.stack(
                [
                    states[rows - 1 - i if bottom else i, columns - 1 - j if right else j][0]
                    for j in range(columns)
                ],
                1,
            )
            for i in range(rows)
        ]
        found.append(torch.stack(at_places, 1))
    return joined(torch.stack(found, 3))


TARGETS = [[1, 2], [2, 2]]


def ctc(_: Any, logits: Tensor) -> Tensor:
    return search.ctc_loss(logits, TARGETS, reduction="none")[:, None]


def ctc_plainly(_: Any, logits: Tensor) -> Tensor:
    """All paths over the states blank, y₁, blank, y₂, blank in logarithms."""
    losses = []
    for row, y in zip(logits.log_softmax(-1).unbind(0), TARGETS, strict=True):
        symbols = [0, y[0], 0, y[1], 0]
        none = torch.full_like(row[0, 0], -1e9)
        alpha = [row[0, 0], row[0, y[0]], none, none, none]
        for t in range(1, row.shape[0]):
            into = [
                [alpha[s], *alpha[max(s - 1, 0) : s], *([alpha[s - 2]] if s == 3 and y[0] != y[1] else [])]
                for s in range(5)
            ]
            alpha = [torch.stack(ways).logsumexp(0) + row[t, symbols[s]] for s, ways in enumerate(into)]
        losses.append(-torch.stack(alpha[3:]).logsumexp(0))
    return torch.stack(losses)[:, None]


def transducer(_: Any, logits: Tensor) -> Tensor:
    return search.transducer_loss(logits, TARGETS, reduction="none")[:, None]


def transducer_plainly(_: Any, logits: Tensor) -> Tensor:
    """α(t, u) node by node."""
    losses = []
    for row, y in zip(logits.log_softmax(-1).unbind(0), TARGETS, strict=True):
        alpha: dict[tuple[int, int], Tensor] = {}
        for t in range(row.shape[0]):
            for u in range(3):
                ways = [alpha[t - 1, u] + row[t - 1, u, 0]] if t else []
                ways += [alpha[t, u - 1] + row[t, u - 1, y[u - 1]]] if u else []
                alpha[t, u] = torch.stack(ways).logsumexp(0) if ways else torch.zeros_like(row[0, 0, 0])
        losses.append(-(alpha[row.shape[0] - 1, 2] + row[-1, 2, 0]))
    return torch.stack(losses)[:, None]


# ---------------------------------------------------------------------- sound
def voice() -> nn.Module:
    model = SileroVAD().eval()
    nn.init.normal_(model.spectrum, std=0.1)
    return model


def voiced(model: Any, samples: Tensor) -> Tensor:
    p, (h, c, _) = model(samples)
    return joined(p, h.transpose(0, 1), c.transpose(0, 1))


def voiced_plainly(model: Any, samples: Tensor) -> Tensor:
    sound = torch.cat((samples.new_zeros(len(samples), model.context), samples), 1)
    nothing = samples.new_zeros(len(samples), 128)
    h, c = model.lstm.cells[0](model.encode(sound), nothing, nothing)
    return joined(torch.sigmoid(model.output(F.relu(h))), h, c)


def energies(model: Any, waves: Tensor) -> Tensor:
    return joined(model(waves)[0])


@torch.no_grad()
def energies_plainly(model: Any, waves: Tensor) -> Tensor:
    x = waves.double()
    x = torch.cat((x[:, :1], x[:, 1:] - model.preemphasis * x[:, :-1]), 1)
    frames = x.unfold(1, model.size, model.hop) * model.window
    power = torch.view_as_real(torch.fft.rfft(frames, model.points)).square().sum(-1)
    return joined((power @ model.filters.double()).clamp_min(1e-10).log().to(model.filters.dtype))


def in_blocks(model: Any, x: Tensor) -> Tensor:
    with rows_in_blocks(x.device):
        return model(x)


def called(model: Any, x: Tensor) -> Tensor:
    return model(x)


def looked(_: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot(q, k, v, causal=True)[0]


def looked_plainly(_: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    hidden = ~torch.ones(TIME, TIME, dtype=torch.bool, device=q.device).tril()
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v


def nothing() -> nn.Module:
    return nn.Identity()


BLOCKS: dict[str, Block] = {
    "encoder": Block(encoder, sequence, lambda m, x: m(x, causal=True), layer_by_layer, once=True),
    "encoder norm first": Block(
        lambda: encoder(norm_first=True), sequence, lambda m, x: m(x, causal=True), layer_by_layer, once=True
    ),
    "turned encoder": Block(
        turned_encoder, sequence, lambda m, x: m(x, causal=True), layer_by_layer, once=True
    ),
    "packed maps": Block(perceptron, sequence, lambda m, x: pack_linear(m)(x), called, learns=False),
    "packed heads": Block(
        lambda: MultiHead(WIDTH, 2).eval(),
        sequence,
        lambda m, x: pack_linear(m)(x)[0],
        written_out(lambda m, x: m(x)[0]),
        learns=False,
    ),
    "packed translator": Block(
        translator, lambda: (torch.zeros(2, 3 * V),), translated, translated_plainly, learns=False, fixed=True
    ),
    "paged language": Block(
        language, lambda: (torch.zeros(2, 3 * WIDTH),), paged, paged_plainly, learns=False, fixed=True
    ),
    "attention": Block(
        nothing, lambda: tuple(torch.randn(2, TIME, 4) for _ in range(3)), looked, looked_plainly
    ),
    "positions": Block(Added, sequence, called, placed_plainly, parts=False),
    "mixture": Block(mixture, sequence, log_p_of_targets, log_p_of_all),
    "GRU": Block(recurrent(blocks.GRU, layers=2), drawn_rows, whole, loop),
    "LSTM both ways": Block(recurrent(blocks.LSTM, bidirectional=True), drawn_rows, whole, loop),
    "MinGRU": Block(recurrent(blocks.MinGRU), drawn_rows, whole, loop),
    "own cell": Block(recurrent(Watched), drawn_rows, whole, loop),
    "GRU step by step": Block(recurrent(blocks.GRU, layers=2), drawn_rows, stepped, loop),
    "own cell step by step": Block(recurrent(Watched), drawn_rows, stepped, loop),
    "GLA": layer_of(lambda: linear.GLA(8, heads=2)),
    "DeltaNet": layer_of(lambda: linear.DeltaNet(8, heads=2)),
    "Mamba": layer_of(lambda: linear.Mamba(8)),
    "matrix scan": Block(
        nothing,
        lambda: tuple(torch.randn(2, TIME, 1, width) for width in (3, 3, 2, 3)),
        scanned,
        scanned_plainly,
    ),
    "selective scan": Block(
        nothing,
        lambda: (
            *(torch.randn(2, TIME, 3) for _ in range(2)),
            torch.randn(3, 2),
            *(torch.randn(2, TIME, 2) for _ in range(2)),
            torch.randn(2, 3, 2),
        ),
        selected,
        selected_plainly,
    ),
    "CRF": Block(lambda: blocks.CRF(4), lambda: (torch.randn(2, TIME, 4),), chain, chain_plainly, fixed=True),
    "GridLSTM": Block(
        lambda: blocks.GridLSTM(2, 3, directions=2), lambda: (torch.randn(2, 2, 3, 2),), grid, grid_plainly
    ),
    "ctc loss": Block(nothing, lambda: (torch.randn(2, TIME, 4),), ctc, ctc_plainly, fixed=True),
    "transducer loss": Block(
        nothing, lambda: (torch.randn(2, TIME, 3, 4),), transducer, transducer_plainly, fixed=True
    ),
    "voice": Block(voice, lambda: (0.1 * torch.randn(2, 512),), voiced, voiced_plainly),
    "log mel": Block(
        lambda: LogMel(1000, bins=4), lambda: (torch.randn(2, 100),), energies, energies_plainly, learns=False
    ),
    "rows in blocks": Block(perceptron, sequence, in_blocks, called),
}
"""All of them, by name."""
