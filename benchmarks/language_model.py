"""Training a Transformer language model on a GPU, beside a plain PyTorch GPT, compiled: ``--json`` for machines.

    python benchmarks/language_model.py [--json] [--steps 20] [--rounds 5]

Both sides have the same weights, the same batches, bf16, fused AdamW and gradients clipped to length 1; both are
timed in turns, and the least time of several rounds counts. First their losses are compared. Needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.data.batches.stream import StreamBatch
from anaphora.tasks.language.build import build_language
from anaphora.tasks.language.objective import LanguageObjective
from anaphora.tasks.registry import TASKS, resolve
from anaphora.training import distributed
from anaphora.training.step import Stepper
from rows import row, show

SIZES = {
    "6×384, context 256, batch 64, 65 symbols": (6, 384, 6, 256, 64, 65),
    "12×768, context 1024, batch 16, 50 304 symbols": (12, 768, 12, 1024, 16, 50_304),
}
LR = 1e-4


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, time, width))
        return x + self.down(F.relu(self.up(self.norm2(x))))


class PlainGPT(nn.Module):
    """What one would write in plain PyTorch: embedding, fixed positions, blocks, tied output, mean loss."""

    def __init__(self, layers: int, width: int, heads: int, context: int, symbols: int):
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        angles = torch.arange(context)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
        self.register_buffer("positions", torch.stack((angles.sin(), angles.cos()), -1).flatten(-2))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(symbols))

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(inputs) * math.sqrt(self.embedding.weight.shape[1]) + self.positions
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.embedding.weight, self.bias)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def take(self, ours: dict[str, Tensor]) -> None:
        """The weights of our model."""
        names = {
            "attention.inward": "qkv",
            "attention.outward": "out",
            "feedforward.first": "up",
            "feedforward.second": "down",
            "around_attention.norm": "norm1",
            "around_feedforward.norm": "norm2",
        }
        mine = dict(self.named_parameters())
        mine["embedding.weight"].copy_(ours["body.embedding.weight"])
        mine["bias"].copy_(ours["output.bias"])
        for end in ("weight", "bias"):
            mine[f"norm.{end}"].copy_(ours[f"body.stack.norm.{end}"])
            for number in range(len(self.blocks)):
                for theirs, name in names.items():
                    mine[f"blocks.{number}.{name}.{end}"].copy_(
                        ours[f"body.stack.layers.{number}.{theirs}.{end}"]
                    )


def batches(rows: int, context: int, symbols: int, count: int = 8) -> list[StreamBatch]:
    random = np.random.default_rng(0)
    ids = random.integers(4, symbols, (count, rows, context + 1))
    return [StreamBatch(one[:, :-1], one[:, 1:], list(range(rows)), True) for one in ids]


def our_step(layers: int, width: int, heads: int, context: int, rows: int, symbols: int) -> tuple[Any, Any]:
    """A training step of the library, loop and all but its log: and the model."""
    settings = resolve(
        TASKS["language"],
        {
            "model": "transformer",
            "layers": layers,
            "hidden": width,
            "heads": heads,
            "feedforward": 4 * width,
            "context": context,
            "dropout": 0.0,
            "batch_tokens": rows * context,
        },
    )
    model = build_language(settings, symbols).cuda()
    objective = LanguageObjective(settings, symbols, measure=lambda _: {}, show=lambda _: [])
    stepper = Stepper(model, objective, settings, distributed.join("cuda"), "bf16")
    number = 0

    def step(batch: StreamBatch) -> float:
        nonlocal number
        number += 1
        outcome, factor = stepper.gradient(batch, number, lr=LR)
        stepper.apply(factor, LR)
        return outcome.loss

    return step, model


def their_step(plain: PlainGPT) -> Callable[[StreamBatch], Tensor]:
    compiled = torch.compile(plain)
    optimizer = torch.optim.AdamW(
        plain.parameters(), lr=LR, betas=(0.9, 0.98), eps=1e-9, weight_decay=0, fused=True
    )

    def step(batch: StreamBatch) -> Tensor:
        inputs, targets = batch.tensors(torch.device("cuda"))
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss: Tensor = compiled(inputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def seconds(step: Callable[[StreamBatch], Any], data: list[StreamBatch], steps: int) -> float:
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for number in range(steps):
        step(data[number % len(data)])
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / steps


def measure(name: str, steps: int, rounds: int) -> dict[str, Any]:
    layers, width, heads, context, rows, symbols = SIZES[name]
    torch.manual_seed(0)
    data = batches(rows, context, symbols)
    ours, model = our_step(layers, width, heads, context, rows, symbols)
    plain = PlainGPT(layers, width, heads, context, symbols).cuda()
    plain.take({k: v.detach() for k, v in model.state_dict().items()})
    theirs = their_step(plain)
    for batch in data[:3]:  # compiles, and the losses of the first steps must agree
        mine, other = float(ours(batch)), float(theirs(batch))
        assert abs(mine - other) < 0.01 * other, f"{name}: our loss is {mine}, theirs {other}"
    best = [math.inf, math.inf]
    for _ in range(rounds):
        for side, step in enumerate((ours, theirs)):
            best[side] = min(best[side], seconds(step, data, steps))
    rates = [rows * context / one / 1e3 for one in best]
    return row(
        f"Transformer language model, training step, {name}",
        "plain PyTorch, compiled",
        rates[0],
        rates[1],
        "k tokens/s",
        goal=1.0,
        more_is_better=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        if given.json:
            show([], as_json=True)
        else:
            print("Skipped: training of Transformers is compared on an NVIDIA GPU, and there is none here.")
        return
    torch.set_float32_matmul_precision("high")
    rows = []
    for name in SIZES:
        rows.append(measure(name, given.steps, given.rounds))
        print(f"{name}: ratio {rows[-1]['ratio']}", file=sys.stderr, flush=True)
    show(rows, as_json=given.json)


if __name__ == "__main__":
    main()
