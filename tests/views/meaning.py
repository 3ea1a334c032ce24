"""Models whose weights are set by hand, so that the right picture of them is known in advance; and a picture in all forms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import anaphora as an
from anaphora.data.symbols import BOS
from anaphora.nn import Recurrent, inside
from anaphora.nn.attention import MultiHead
from anaphora.nn.embedding import Embedding
from anaphora.probe.reading import probe_reading
from anaphora.probe.seq2seq import probe_seq2seq
from anaphora.probe.trace import Trace
from anaphora.views.picture import Picture
from anaphora.views.registry import VIEWS, picture

A, B, C = 4, 5, 6
"""Numbers of three symbols; those below are marks."""
NAMES = {BOS: "<s>", A: "a", B: "b", C: "c"}


class Shown:
    """A picture in its forms: ``chart`` (or ``charts`` of several) has the numbers, ``text`` is the terminal's, ``svg`` the file's."""

    def __init__(self, made: Picture):
        self.chart: Any = made.chart
        self.charts: list[Any] = getattr(made.chart, "charts", [made.chart])
        self.text, self.svg = made.text(120, colour=False), made.svg()
        self.csv = made.csv()
        for part, sentence in VIEWS[
            made.name
        ].parts.items():  # captions speak of what is drawn, and of nothing else
            assert (sentence in made.chart.reading) == any(part in chart.title for chart in self.charts), part

    def called(self, *words: str) -> Any:
        """The chart whose title holds all these words."""
        found = [chart for chart in self.charts if all(word in chart.title for word in words)]
        assert len(found) == 1, [chart.title for chart in self.charts]
        return found[0]

    def says(self, *words: str) -> None:
        """Assert that terminal and file both name what is meant."""
        for word in words:
            assert word in self.text.replace("\n", " "), word
            assert word in self.svg, word


def shown(trace: Trace, view: str, **options: Any) -> Shown:
    """The view of a trace."""
    return Shown(picture(trace, view, **options))


class Counter(an.nn.Cell):
    """h counts what it reads: h ← h + x."""

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.scale = nn.Parameter(torch.ones(hidden))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return h + self.scale * x


class Gated(an.nn.Cell):
    """h ← w x + (1 − w) h; its gate, called ``write``, is open where x is 1 and shut where x is 0."""

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.scale = nn.Parameter(torch.ones(hidden))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        write = 0.02 + 0.96 * x * self.scale
        inside.note(self, "write", write)
        return write * x + (1 - write) * h


def looked_up(*vectors: list[float]) -> Embedding:
    """An embedding with these vectors for the symbols a, b, c …, zeros for marks."""
    found = Embedding(A + len(vectors), len(vectors[0]))
    with torch.no_grad():
        found.weight.zero_()
        found.weight[A:] = torch.tensor(vectors)
    return found.eval()


class Reads(nn.Module):
    """Symbols through an embedding and recurrent layers; the outputs are the states."""

    def __init__(self, embedding: Embedding, recurrent: Recurrent):
        super().__init__()
        self.embedding, self.recurrent = embedding, recurrent

    def forward(self, symbols: Tensor) -> Tensor:
        found: Tensor = self.recurrent(self.embedding(symbols))[0]
        return found


def reads(cell: type[an.nn.Cell], symbols: list[int], *, ways: int = 1, **options: Any) -> Trace:
    """The trace of a cell with two units that reads ``symbols``: the first gets 1 at a, the second 1 at b."""
    model = Reads(
        looked_up([1.0, 0.0], [0.0, 1.0], [0.0, 0.0]), Recurrent(cell(2, 2), bidirectional=ways == 2)
    )
    given = torch.tensor([symbols])
    trace, _ = probe_reading(
        model.eval(),
        lambda: model(given),
        places=[NAMES[s] for s in symbols],
        facts={"task": "toy"},
        **options,
    )
    return trace


class Writes(nn.Module):
    """An encoder-decoder of counters: the encoder reads both ways, the decoder counts what it is fed."""

    def __init__(self) -> None:
        super().__init__()
        one_hot = [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]
        self.encoder = Reads(looked_up(*one_hot), Recurrent(Counter(2, 2), bidirectional=True))
        self.decoder = Reads(looked_up(*one_hot), Recurrent(Counter(2, 2)))
        self.decoder.attentions = []  # type: ignore[assignment]
        self.output = nn.Linear(2, A + 3)

    def forward(self, source: Tensor, lengths: Tensor, fed: Tensor, fed_lengths: Tensor) -> Tensor:
        self.encoder(source)
        found: Tensor = self.output(self.decoder(fed))
        return found


def writes(source: list[int], target: list[int], *, model: Writes | None = None, **options: Any) -> Trace:
    """The trace of `Writes`, or of ``model``, that read ``source`` and wrote ``target``."""
    names = [[NAMES[s] for s in symbols] for symbols in (source, target)]
    return probe_seq2seq((model or Writes()).eval(), source, names[0], target, names[1], **options)  # type: ignore[arg-type]


class Halves(an.nn.Cell):
    """h ← h/2 + x: of what was read k symbols ago 2⁻ᵏ is left."""

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.scale = nn.Parameter(torch.ones(hidden))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return 0.5 * self.scale * h + x


class Backwards(nn.Module):
    """An attention that reads the source from its end: output t looks at symbol S − 1 − t and nowhere else."""

    def forward(self, target: Tensor, source: Tensor) -> Tensor:
        weights = torch.eye(source.shape[1]).flip(1)[None, : target.shape[1]]
        inside.note(self, "weights", weights)
        found: Tensor = weights @ source
        return found


class Mirror(Writes):
    """`Writes` whose decoder also attends to the source, backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.look = Backwards()
        self.decoder.look = self.look
        self.decoder.attentions = [self.look]  # type: ignore[assignment]

    def forward(self, source: Tensor, lengths: Tensor, fed: Tensor, fed_lengths: Tensor) -> Tensor:
        states = self.encoder(source)[..., :2]
        found: Tensor = self.output(self.decoder(fed) + self.look(fed, states))
        return found


class Looks(nn.Module):
    """One-hot symbols through an attention of two heads: the first looks at like symbols, the second evenly at all."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = looked_up([1.0, 0.0], [0.0, 1.0])
        self.lift = nn.Linear(2, 4, bias=False)
        self.attention = MultiHead(4, 2)
        q, k, v, out = torch.zeros(4, 4), torch.zeros(4, 4), torch.eye(4), torch.eye(4)
        q[:2, :2] = k[:2, :2] = 8 * torch.eye(2)
        with torch.no_grad():
            self.lift.weight.copy_(torch.cat([torch.eye(2), torch.eye(2)]))
            self.attention.inward.weight.copy_(torch.cat([q, k, v]))
            self.attention.outward.weight.copy_(out)

    def forward(self, symbols: Tensor) -> Tensor:
        found: Tensor = self.attention(self.lift(self.embedding(symbols)))[0]
        return found


def charts_of(made: Shown) -> dict[str, Any]:
    """The charts by their titles."""
    return {chart.title: chart for chart in made.charts}
