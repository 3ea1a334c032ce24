"""``Recurrent``: a cell run over time, in layers and directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from anaphora.engine.arguments import checked_lengths
from anaphora.engine.backends.base import LayerRun, Params, Result, States
from anaphora.engine.dispatch import Decision
from anaphora.native.following import following, needs_gradient
from anaphora.nn import inside, recurrent_native
from anaphora.nn.cell import Affine, Cell
from anaphora.nn.exporting import loop, scanning
from anaphora.nn.recurrent_nodes import node_layer
from anaphora.nn.recurrent_operator import number_of, opaque, run_operator
from anaphora.nn.recurrent_run import (
    entering,
    explain_layer,
    hidden_from,
    run_both_layers,
    run_layer,
    weights_of,
)
from anaphora.nn.recurrent_step import LayerStep, dropout_mask, zoneout_mask
from anaphora.nn.recurrent_stream import Stepping

Connections = Literal["plain", "residual", "highway", "dense"]


class Recurrent(Stepping):
    """Runs a cell over sequences: ``y, last = Recurrent(LSTM(64, 128), layers=2)(x, lengths)``.

    The given cell is the first layer's; those of further layers and directions are made like it, each with
    weights of its own. Layer l computes s_t^[l] = cell(y_t^[l−1], s_{t−1}^[l]); with ``bidirectional`` a
    second cell reads each row from its own end, and y = [→h; ←h].

    - ``dropout``: on what each layer but the last hands to the next; ``variational``: the same units for all
      steps of a sequence; ``recurrent_dropout``: the same units of h_{t−1} for all steps
      (Gal & Ghahramani 2016);
    - ``zoneout``: units that keep their old value, one rate or one per state (Krueger et al. 2017);
    - ``weight_dropout``: on the weights that multiply states, once per call (Merity et al. 2018);
    - ``connections`` between layers: ``"residual"`` y + x, ``"highway"`` g∘y + (1−g)∘x with g = σ(Wx + b),
      ``"dense"``: each layer reads the input and all layers below it;
    - ``causal=True``: says that step t may not see later steps; refuses ``bidirectional``.

    All noise is for training only.

    ``layers``: how many. Raises a `ValueError` for rates outside of 0 … 1 and options that contradict each other.

    >>> layer = an.nn.Recurrent(an.nn.LSTM(3, 4), layers=2, bidirectional=True)
    >>> y, (h, c) = layer(torch.zeros(2, 5, 3), lengths=torch.tensor([5, 2]))
    >>> y.shape, h.shape                                                # h: (layers · directions, batch, hidden)
    (torch.Size([2, 5, 8]), torch.Size([4, 2, 4]))
    """

    _derived = ("_numbers", "_streams")

    def __init__(
        self,
        cell: Cell,
        *,
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        variational: bool = False,
        recurrent_dropout: float = 0.0,
        zoneout: float | Sequence[float] = 0.0,
        weight_dropout: float = 0.0,
        connections: Connections = "plain",
        causal: bool = False,
    ):
        super().__init__()
        if layers < 1:
            raise ValueError(f"Recurrent: layers must be at least 1, got {layers}.")
        if causal and bidirectional:
            raise ValueError(
                "Recurrent: a causal model cannot be bidirectional: the backward direction reads the future, "
                "so step t would see the very symbols it has to predict. Leave out bidirectional or causal."
            )
        if connections not in ("plain", "residual", "highway", "dense"):
            raise ValueError(
                f"Recurrent: connections must be plain, residual, highway or dense, got {connections!r}."
            )
        self.state = cell.state
        rates = tuple(zoneout) if isinstance(zoneout, Sequence) else (float(zoneout),) * len(cell.state)
        self.zoneout = rates
        _check_rates(
            cell.state,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            weight_dropout=weight_dropout,
            zoneout=rates,
        )
        self.layers, self.bidirectional, self.causal = layers, bidirectional, causal
        self.dropout, self.variational = dropout, variational
        self.recurrent_dropout, self.weight_dropout = recurrent_dropout, weight_dropout
        self.connections: Connections = connections
        self.inputs, self.hidden, self.widths = cell.inputs, cell.hidden, cell.widths
        self.directions = 2 if bidirectional else 1
        self.output_size = cell.hidden * self.directions
        made: list[nn.Module] = []
        for layer in range(layers):
            width = cell.inputs
            if layer:
                width = self.output_size * layer + cell.inputs if connections == "dense" else self.output_size
            for direction in range(self.directions):
                made.append(cell if layer == direction == 0 else cell.another(width))
        self.cells = nn.ModuleList(made)
        self._streams = []  # the one that served last; whose fingerprint must not see itself
        self._numbers = [number_of(cell) for cell in self.cells]
        carried = layers - 1 if connections == "highway" else 0
        self.carry = nn.ModuleList([_carry_gate(self.output_size) for _ in range(carried)])

    # ------------------------------------------------------------------ sequences
    def forward(
        self, x: Tensor | PackedSequence, lengths: Tensor | None = None, initial: States | None = None
    ) -> tuple[Tensor | PackedSequence, States]:
        """Run over whole sequences.

        x ``(B, T, inputs)``; ``lengths`` ``(B,)``: the steps of each row are real; ``initial``: one tensor
        per state, ``(layers·directions, B, hidden)``, zeros when left out; a state with a shape of its own is flat here.

        Returns y ``(B, T, hidden·directions)``, zero past each row's end, and the last states in the layout
        of ``initial`` (layer by layer, forward then backward), each taken at its row's own end.

        x may be a `PackedSequence`, which has its lengths in it, and y is one then, as in PyTorch's layers.
        """
        if isinstance(x, PackedSequence):
            if lengths is not None:
                raise ValueError("Recurrent: a PackedSequence has its lengths in it; leave lengths out.")
            return self._packed(x, initial)
        outputs, last = self._layers(x, lengths, initial)
        return outputs[-1], last

    def _packed(self, x: PackedSequence, initial: States | None) -> tuple[PackedSequence, States]:
        rows, lengths = pad_packed_sequence(x, batch_first=True)
        outputs, last = self._layers(rows, lengths.to(rows.device), initial)
        sorted_before = x.sorted_indices is None
        return pack_padded_sequence(
            outputs[-1], lengths, batch_first=True, enforce_sorted=sorted_before
        ), last

    def each_layer(
        self, x: Tensor, lengths: Tensor | None = None, initial: States | None = None
    ) -> list[Tensor]:
        """The output of every layer, the lowest first, each ``(B, T, hidden·directions)``; arguments as of a call."""
        return self._layers(x, lengths, initial)[0]

    def explain(self, x: Tensor, lengths: Tensor | None = None) -> Explanation:
        """Which backend runs each layer in each direction for such inputs, why, and why not the others.

        Arguments as of a call; nothing is run, and no random number of a later call changes.
        """
        lengths = self._checked(x, lengths)
        x, weights, _ = self._entered(x)
        firsts = [s.unbind(0) for s in self._checked_initial(x, None)]
        learns = needs_gradient(x, *self.parameters())
        choices = []
        with torch.random.fork_rng([x.device] if x.is_cuda else []):
            for layer in range(self.layers):
                cell = self.cells[layer * self.directions]
                assert isinstance(cell, Cell)
                value = x.new_zeros(*x.shape[:2], cell.inputs).requires_grad_(learns) if layer else x
                runs = self._runs(layer, value, lengths, firsts, weights)
                for direction, run in zip(("forward", "backward"), runs, strict=False):
                    choices.append(Choice.of(layer + 1, direction, explain_layer(run), self.state))
        return Explanation(tuple(choices))

    def _layers(
        self, x: Tensor, lengths: Tensor | None, initial: States | None
    ) -> tuple[list[Tensor], States]:
        lengths = self._checked(x, lengths)
        x, weights, alone = self._entered(x)
        firsts = [s.unbind(0) for s in self._checked_initial(x, initial)]
        last: list[States] = []
        handed: list[Tensor] = []
        below = value = x
        for layer in range(self.layers):
            runs = self._runs(layer, value, lengths, firsts, weights)
            if self.bidirectional and x.is_cuda and not alone:
                y, ends = run_both_layers(runs[0], runs[1], inner=layer < self.layers - 1)
            else:
                pairs = zip(runs, self._numbers[layer * self.directions :], strict=False)
                if scanning():
                    results = node_layer(runs) or [scan_layer(run) for run in runs]
                else:
                    results = [run_operator(run, n) if opaque() else run_layer(run) for run, n in pairs]
                y = results[0][0] if len(results) == 1 else torch.cat([y for y, _ in results], -1)
                ends = [final for _, final in results]
            last += ends
            y, below, value = self._connect(layer, y, below, value)
            handed.append(y)
        ends_of_all = zip(*last, strict=True)
        return handed, tuple(s[0].unsqueeze(0) if len(s) == 1 else torch.stack(s) for s in ends_of_all)

    def _entered(self, x: Tensor) -> tuple[Tensor, list[Params | None], bool]:
        """x in the type its layers compute in, what stands for each cell's weights, and whether directions run apart."""
        alone = not x.is_cuda or following(x) is not None or inside.recording()
        if alone or any(hidden_from(cell) is not None for cell in self.cells):
            return x, [None] * len(self.cells), True
        return entering(x), weights_of(self.cells, self.directions), False

    def _runs(
        self,
        layer: int,
        x: Tensor,
        lengths: Tensor | None,
        firsts: Sequence[Sequence[Tensor]],
        weights: Sequence[Params | None],
    ) -> list[LayerRun]:
        """The directions of a layer."""
        return [
            self._one(k, x, lengths, tuple(s[k] for s in firsts), weights[k])
            for k in range(layer * self.directions, (layer + 1) * self.directions)
        ]

    def _one(
        self,
        k: int,
        x: Tensor,
        lengths: Tensor | None,
        initial: States,
        params: Params | None,
    ) -> LayerRun:
        """One layer in one direction; ``params`` stand for the cell's parameters."""
        cell, reverse = self.cells[k], k % self.directions == 1
        assert isinstance(cell, Cell)
        noisy = self.training
        if noisy and self.weight_dropout:
            weights = {n: (params or {}).get(n, w) for n, w in cell.recurrent_weights().items()}
            params = {**(params or {}), **{n: F.dropout(w, self.weight_dropout) for n, w in weights.items()}}
        rows: States = ()
        if noisy and self.recurrent_dropout:
            rows = (dropout_mask(x, (x.shape[0], self.hidden), self.recurrent_dropout),)
        extra: States = ()
        zoneout = ""
        if any(self.zoneout):
            zoneout = "sample" if noisy else "mean"
            if noisy:
                rates = zip(self.zoneout, self.widths, strict=True)
                extra = tuple(zoneout_mask(x, (*x.shape[:2], width), p) for p, width in rates)
        step = LayerStep(cell, masked=bool(rows), zoneout=zoneout, keep=self.zoneout)
        return LayerRun(step, params, (x, *extra), rows, initial, lengths, reverse)

    def _connect(self, layer: int, y: Tensor, below: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What a layer hands on: its output, everything below it (for dense), and the next layer's input."""
        if layer and self.connections == "residual":
            y = y + value
        elif layer and self.connections == "highway":
            gate = torch.sigmoid(self.carry[layer - 1](value))
            y = value + gate * (y - value)
        if layer == self.layers - 1:
            return y, below, y
        handed = y
        if self.dropout and self.training:
            if self.variational and y.dim() == 3:
                handed = y * dropout_mask(y, (y.shape[0], 1, y.shape[2]), self.dropout)
            else:
                handed = F.dropout(y, self.dropout)
        below = torch.cat((below, handed), -1) if self.connections == "dense" else below
        return y, below, below if self.connections == "dense" else handed

    def __getstate__(self) -> dict[str, Any]:
        """Without compiled code, which a copy finds for itself."""
        return {**self.__dict__, "_streams": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._numbers = [number_of(cell) for cell in self.cells]

    def initial_state(self, batch: int, like: Tensor) -> States:
        """Zeros for every state, ``(layers·directions, batch, hidden)``, typed and placed as ``like``."""
        return tuple(like.new_zeros(self.layers * self.directions, batch, width) for width in self.widths)

    # ------------------------------------------------------------------ PyTorch's layers
    @classmethod
    def from_torch(cls, module: nn.RNNBase) -> Recurrent:
        """The same network as an ``nn.RNN``, ``nn.LSTM`` or ``nn.GRU`` made with ``batch_first=True``, with a copy of its
        weights. A time-major layer is refused: the shapes would fit and the numbers would not."""
        return recurrent_native.from_torch(cls, module)

    def to_torch(self) -> nn.RNNBase:
        """The same network as PyTorch's layer (``batch_first=True``), with a copy of the weights."""
        return recurrent_native.to_torch(self)

    # ------------------------------------------------------------------ checks
    def _checked(self, x: Tensor, lengths: Tensor | None) -> Tensor | None:
        if x.dim() != 3 or x.shape[2] != self.inputs:
            raise ValueError(f"Recurrent: x must be (batch, time, {self.inputs}), got {tuple(x.shape)}.")
        return checked_lengths(lengths, x)

    def _checked_initial(self, x: Tensor, initial: States | None) -> States:
        if initial is None:
            if len(set(self.widths)) > 1:
                return self.initial_state(x.shape[0], x)
            nothing = x.new_zeros(self.layers * self.directions, x.shape[0], self.hidden)
            return (nothing,) * len(self.state)
        self._check_state("Recurrent: initial", x, initial)
        return tuple(initial)

    def extra_repr(self) -> str:
        said = {"layers": self.layers, "bidirectional": self.bidirectional, "dropout": self.dropout}
        return ", ".join(f"{k}={v}" for k, v in said.items() if v not in (False, 0.0))


def _carry_gate(width: int) -> Affine:
    """The gate of a highway connection; it starts out carrying most of its input past the layer."""
    gate = Affine(width, width)
    assert gate.bias is not None
    nn.init.constant_(gate.bias, -1.0)
    return gate


def _check_rates(state: tuple[str, ...], *, zoneout: tuple[float, ...], **rates: float) -> None:
    if len(zoneout) != len(state):
        raise ValueError(f"Recurrent: zoneout needs one rate or {len(state)}, one for each of {state}.")
    for name, rate in (*rates.items(), *(("zoneout", rate) for rate in zoneout)):
        if not 0 <= rate < 1:
            raise ValueError(f"Recurrent: {name} is a probability below 1, got {rate}.")


# ----------------------------------------------------------------------
# What ``Recurrent.explain`` returns: which backend runs each layer, why, and why not the others.
@dataclass(frozen=True)
class Choice:
    """The backend of one layer in one direction."""

    layer: int  # from 1
    direction: str  # forward or backward
    backend: str
    why: str
    others: Mapping[str, str]  # every other backend: why it does not run
    stand_in: str | None  # runs shapes that are not captured yet; None where there is no such thing
    states: tuple[str, ...] = ()  # which states are a map, scan, walk or loop over time, and why not a scan

    @classmethod
    def of(cls, layer: int, direction: str, decision: Decision, names: Sequence[str] = ()) -> Choice:
        others: dict[str, str] = {name: reason for name, reason in decision.others.items()}  # noqa: C416
        states = tuple(ring.describe(names) for ring in decision.rings)
        return cls(layer, direction, decision.backend, decision.why, others, decision.stand_in, states)

    @property
    def _reasons(self) -> tuple[Any, ...]:
        return self.backend, self.why, self.others, self.stand_in, self.states

    def __str__(self) -> str:
        meanwhile = f"; {self.stand_in} until a shape is captured" if self.stand_in else ""
        width = max(map(len, self.others))
        lines = [f"{self.backend} ({self.why}{meanwhile})"]
        lines += [f"  {text}" for text in self.states]
        lines += [f"  not {name:{width}}  {reason}" for name, reason in self.others.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Explanation:
    """The backends of all layers and directions, the lowest layer first. ``str`` gives a readable text."""

    choices: tuple[Choice, ...]

    @property
    def backends(self) -> tuple[str, ...]:
        """Their names alone."""
        return tuple(choice.backend for choice in self.choices)

    def to_dict(self) -> dict[str, Any]:
        """The same in plain dictionaries and lists, as JSON takes them."""
        return {"choices": [asdict(choice) for choice in self.choices]}

    def __str__(self) -> str:
        lines: list[str] = []
        before: Choice | None = None
        for choice in self.choices:
            same = before is not None and before._reasons == choice._reasons
            said = f"{choice.backend}, as above" if same else str(choice)
            lines.append(f"layer {choice.layer}, {choice.direction}: {said}")
            before = choice
        return "\n".join(lines)


# ----------------------------------------------------------------------
# A recurrent layer as one loop in an exported program: any cell, any length, any batch.
#
# A traced layer would be unrolled, and its length frozen. Torch's ``scan`` keeps the step as a body of its own, which becomes
# one ``Scan`` node of ONNX.
def scan_layer(run: LayerRun) -> Result:
    """One layer in one direction, in evaluation mode: y ``(B, T, H)``, zero past each row's end, and the last states.

    A step past a row's end keeps the states, so that a backward direction, which meets those steps first, begins at the
    row's own end with its first states.
    """
    step = run.step
    assert isinstance(step, LayerStep)
    x = run.steps[0].transpose(0, 1)  # (T, B, I)
    places = torch.arange(x.shape[0], device=x.device)
    if run.lengths is None:
        real = torch.ones_like(x[:, :, 0], dtype=torch.bool)
    else:
        real = places[:, None] < run.lengths[None, :]  # (T, B)
    if run.reverse:
        x, real = x.flip(0), real.flip(0)
    zones = step.keep if step.zoneout == "mean" else (0.0,) * len(run.initial)

    def one(states: States, given: States) -> tuple[States, Tensor]:
        x_t, there = given[0], given[1].unsqueeze(-1)
        new = step.cell.advance(x_t, states)
        new = tuple(n + p * (s - n) if p else n for p, s, n in zip(zones, states, new, strict=True))
        kept = tuple(torch.where(there, n, s) for n, s in zip(new, states, strict=True))
        return kept, torch.where(there, new[0], torch.zeros_like(new[0]))

    last, y = loop(one, tuple(run.initial), (x, real))
    if run.reverse:
        y = y.flip(0)
    return y.transpose(0, 1), last
