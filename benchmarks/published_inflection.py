"""The published Transformer for inflection (Wu, Cotterell & Hulden 2021) in plain PyTorch, trained as its authors did, beside ``word_pairs.py``.

    python benchmarks/published_inflection.py german-train-high german-dev [--seeds 1 2 3] [--steps 20000]

Four layers of 256 units with four heads and 1 024 inner units on each side, norms before each part, dropout 0.3 everywhere (inputs, weights of attention and
inner units, too), label smoothing 0.1; the tags come first, stand at place 0, and an embedding of their own marks them. Adam (β₂ 0.98), a rate
that rises to 0.001 in 4 000 steps and falls with the root of the step, batches of 400 rows, norm of the gradients at most 1, 20 000 steps. The dev rows are
written greedily 50 times, and the best of these counts, as it did there. A line for each evaluation; the last names the best, the last and the mean of the
ten last evaluations. On a GPU every step is one CUDA graph for each pair of padded lengths.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD, BEGIN, END, UNKNOWN = range(4)
BATCH, WARM, EVALUATIONS, RATE, SMOOTHING, DROPOUT = 400, 4000, 50, 1e-3, 0.1, 0.3
WIDTH, INNER, HEADS, LAYERS = 256, 1024, 4, 4
LONGEST = 60
Row = tuple[str, str, list[str]]


def rows_of(path: Path) -> list[Row]:
    lines = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line)
    return [(lemma, form, tags.split(";")) for lemma, form, tags in lines]


class Symbols:
    """Numbers of letters and, above them, of tags."""

    def __init__(self, rows: list[Row]) -> None:
        self.letters = sorted({letter for lemma, form, _ in rows for letter in lemma + form})
        tags = sorted({tag for *_, given in rows for tag in given})
        self.letter = {letter: 4 + i for i, letter in enumerate(self.letters)}
        self.count = 4 + len(self.letters)
        self.tag = {tag: self.count + i for i, tag in enumerate(tags)}

    def source(self, lemma: str, tags: list[str]) -> list[int]:
        said = [self.tag.get(tag, UNKNOWN) for tag in tags]
        return [BEGIN, *said, *(self.letter.get(letter, UNKNOWN) for letter in lemma), END]

    def target(self, form: str) -> list[int]:
        return [BEGIN, *(self.letter.get(letter, UNKNOWN) for letter in form), END]

    def text(self, numbers: list[int]) -> str:
        numbers = numbers[: numbers.index(END)] if END in numbers else numbers
        return "".join(self.letters[n - 4] if n >= 4 else "�" for n in numbers)


def padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """(rows, longest) numbers and (rows,) lengths."""
    lengths = torch.tensor([len(row) for row in rows])
    table = torch.full((len(rows), int(lengths.max())), PAD)
    for i, row in enumerate(rows):
        table[i, : len(row)] = torch.tensor(row)
    return table, lengths


def places(count: int) -> Tensor:
    """Sines and cosines of each place (count, WIDTH)."""
    half = WIDTH // 2
    turn = torch.arange(count)[:, None] * torch.exp(-math.log(10000) / (half - 1) * torch.arange(half))
    return torch.cat((turn.sin(), turn.cos()), 1)


class Published(nn.Module):
    def __init__(self, symbols: Symbols) -> None:
        super().__init__()
        self.letters = symbols.count
        self.read = nn.Embedding(symbols.count + len(symbols.tag), WIDTH, PAD)
        self.wrote = nn.Embedding(symbols.count, WIDTH, PAD)
        self.kind = nn.Embedding(2, WIDTH)
        part = {"dropout": DROPOUT, "batch_first": True, "norm_first": True}
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, **part),
            LAYERS,
            nn.LayerNorm(WIDTH),
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(WIDTH, HEADS, INNER, **part), LAYERS, nn.LayerNorm(WIDTH)
        )
        self.out = nn.Linear(WIDTH, symbols.count)
        self.register_buffer("places", places(2 * LONGEST))
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, 0, WIDTH**-0.5)
            elif isinstance(module, nn.Linear) and not isinstance(
                module, nn.modules.linear.NonDynamicallyQuantizableLinear
            ):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.MultiheadAttention):
                nn.init.xavier_uniform_(module.in_proj_weight)
        with torch.no_grad():
            self.read.weight[PAD] = self.wrote.weight[PAD] = 0

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """source (B, S) → states (B, S, WIDTH) and where they are padding (B, S)."""
        letter = source < self.letters
        at = torch.cumsum(letter & (source != PAD), 1) * letter
        x = math.sqrt(WIDTH) * (self.read(source) + self.kind(letter.long())) + self.places[at]
        hidden = source == PAD
        return self.encoder(F.dropout(x, DROPOUT, self.training), src_key_padding_mask=hidden), hidden

    def decode(self, states: Tensor, hidden: Tensor, wrote: Tensor) -> Tensor:
        """wrote (B, T), its first symbol BEGIN → log-probabilities of the next (B, T, letters)."""
        T = wrote.shape[1]
        x = math.sqrt(WIDTH) * self.wrote(wrote) + self.places[1 : T + 1]
        later = torch.ones(T, T, dtype=torch.bool, device=wrote.device).triu(1)
        x = F.dropout(x, DROPOUT, self.training)
        y = self.decoder(x, states, later, memory_key_padding_mask=hidden, tgt_is_causal=True)
        return self.out(y).float().log_softmax(-1)

    def loss(self, source: Tensor, target: Tensor) -> Tensor:
        """The mean over symbols of the smoothed negative log-likelihood."""
        logp = self.decode(*self.encode(source), target[:, :-1])
        real = target[:, 1:] != PAD
        right = logp.gather(2, target[:, 1:, None])[..., 0]
        each = (1 - SMOOTHING) * right + SMOOTHING * logp.mean(-1)
        return -(each * real).sum() / real.sum()


class Steps:
    """A step of training for each pair of padded lengths, captured on a GPU."""

    def __init__(self, model: Published, device: str) -> None:
        self.model, self.device, self.graphs = model, device, {}
        cuda = device == "cuda"
        rate = torch.tensor(0.0, device=device)
        self.rate, self.parameters = rate, list(model.parameters())
        self.adam = torch.optim.Adam(self.parameters, rate, betas=(0.9, 0.98), capturable=cuda, fused=cuda)

    def plain(self, source: Tensor, target: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=self.device == "cuda"):
            loss = self.model.loss(source, target)
        self.adam.zero_grad(set_to_none=False)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.adam.step()
        return loss.detach()

    def __call__(self, source: Tensor, target: Tensor, step: int) -> Tensor:
        rate = RATE * min(1.0, step / WARM) if step < WARM else RATE * math.sqrt(WARM / step)
        self.rate.fill_(rate)
        if self.device != "cuda":
            return self.plain(source, target)
        key = source.shape, target.shape
        if key not in self.graphs:
            if not self.graphs:  # three plain steps at a rate of 0 make the states of Adam and the workspaces
                self.rate.fill_(0.0)
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    for _ in range(3):
                        self.plain(source, target)
                torch.cuda.current_stream().wait_stream(side)
                self.rate.fill_(rate)
            graph, inputs = torch.cuda.CUDAGraph(), (source.clone(), target.clone())
            with torch.cuda.graph(graph):
                loss = self.plain(*inputs)
            self.graphs[key] = graph, inputs, loss
        graph, inputs, loss = self.graphs[key]
        inputs[0].copy_(source)
        inputs[1].copy_(target)
        graph.replay()
        return loss


@torch.no_grad()
def written(model: Published, source: Tensor, lengths: Tensor) -> list[list[int]]:
    """Greedy outputs of all rows, the shortest first."""
    model.eval()
    found: list[list[int]] = [[] for _ in source]
    for rows in lengths.argsort().split(500):
        states, hidden = model.encode(source[rows][:, : int(lengths[rows].max())])
        out = torch.full((len(rows), 1), BEGIN, device=source.device)
        for _ in range(LONGEST):
            best = model.decode(states, hidden, out)[:, -1].argmax(-1, keepdim=True)
            out = torch.cat((out, best), 1)
            if bool((out == END).any(1).all()):
                break
        for row, numbers in zip(rows.tolist(), out[:, 1:].tolist(), strict=True):
            found[row] = numbers
    model.train()
    return found


def train(rows: list[Row], dev: list[Row], seed: int, steps: int, device: str) -> list[float]:
    """Dev rows that are right, in percent, at each evaluation."""
    torch.manual_seed(seed)
    symbols = Symbols(rows)
    sources, source_lengths = padded([symbols.source(lemma, tags) for lemma, _, tags in rows])
    targets, target_lengths = padded([symbols.target(form) for _, form, _ in rows])
    sources, targets = F.pad(sources, (0, 8)).to(device), F.pad(targets, (0, 9)).to(device)
    asked, asked_lengths = padded([symbols.source(lemma, tags) for lemma, _, tags in dev])
    asked = asked.to(device)
    model = Published(symbols).to(device)
    step_of, found, began = Steps(model, device), [], time.perf_counter()
    epochs = math.ceil(steps / math.ceil(len(rows) / BATCH))
    every, step = max(1, epochs // EVALUATIONS), 0
    for epoch in range(epochs):
        for batch in torch.randperm(len(rows)).split(BATCH):
            step += 1
            longest = (int(source_lengths[batch].max()), int(target_lengths[batch].max()) - 1)
            S, T = (-(-n // 8) * 8 for n in longest)
            there = batch.to(device)
            loss = step_of(sources[there, :S], targets[there, : T + 1], step)
        if (epoch + 1) % every == 0 or epoch + 1 == epochs:
            outputs = written(model, asked, asked_lengths)
            right = [symbols.text(out) == form for out, (_, form, _) in zip(outputs, dev, strict=True)]
            found.append(100 * statistics.mean(right))
            seconds = time.perf_counter() - began
            print(
                f"seed {seed}  step {step}  loss {float(loss):.4f}  right {found[-1]:.2f} %  {seconds:.0f} s",
                flush=True,
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=20000)
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    best = []
    for seed in given.seeds:
        found = train(rows_of(given.train), rows_of(given.dev), seed, given.steps, device)
        best.append(max(found))
        print(
            f"seed {seed}: best {max(found):.2f}, last {found[-1]:.2f}, mean of the last ten {statistics.mean(found[-10:]):.2f} %",
            flush=True,
        )
    if len(best) > 1:
        print(f"mean of the best {statistics.mean(best):.2f} ± {statistics.stdev(best):.2f} %")


if __name__ == "__main__":
    main()
