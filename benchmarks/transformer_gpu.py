"""Training a Transformer language model on a GPU: our step beside a plain PyTorch model under ``torch.compile``.

    python benchmarks/transformer_gpu.py [--json] [--steps 30] [--rounds 3] [--sustained 5] [--only 6x384] [--profile]

Both sides: the same sizes, bf16 autocast, clipped gradients, fused AdamW, no dropout, the same batches of random symbols,
in turns in one process; the least time of several rounds counts. A GPU that is busy for half a second may have to lower its
clock, to stay within its power. So there is a pause before each side of a round, and ``--sustained`` seconds of each side give
rows of their own, the median of the second half. The peer is the usual few lines: embeddings, blocks of
``scaled_dot_product_attention`` and GELU, ``F.cross_entropy``, and the whole loss compiled. A row also says how many
floating-point operations of the model a second does, as a share of ``--peak`` (989e12, an H200's dense bf16).
Needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.data.batches.stream import StreamBatch
from anaphora.tasks.language.build import build_language
from anaphora.tasks.language.objective import LanguageObjective
from anaphora.tasks.registry import TASKS, resolve
from anaphora.training import distributed
from anaphora.training.seeding import seed_everything
from anaphora.training.step import Stepper
from rows import row, show

Step = Callable[[StreamBatch], float]
PAUSE = 1.0  # seconds before a round, in which the GPU cools down


class Size(NamedTuple):
    layers: int
    width: int
    heads: int
    context: int
    rows: int
    symbols: int
    goal: float

    @property
    def work(self) -> float:
        """Floating-point operations of a step of the model: 6 for each weight of a product and symbol, and attention."""
        weights = self.layers * 12 * self.width**2 + self.symbols * self.width
        return self.rows * self.context * (6 * weights + 6 * self.layers * self.context * self.width)


SIZES = {
    "12x768": Size(12, 768, 12, 1024, 16, 32000, 1.25),
    "6x384": Size(6, 384, 6, 256, 64, 128, 1.6),
}


class Block(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, places, width = x.shape
        q, k, v = (
            part.view(rows, places, self.heads, width // self.heads).transpose(1, 2)
            for part in self.inward(self.before(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.outward(y.transpose(1, 2).reshape(rows, places, width))
        return x + self.second(F.gelu(self.first(self.between(x))))  # type: ignore[no-any-return]


class Plain(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.symbols, self.places = (
            nn.Embedding(size.symbols, size.width),
            nn.Embedding(size.context, size.width),
        )
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm, self.output = nn.LayerNorm(size.width), nn.Linear(size.width, size.symbols, bias=False)
        for part in (self.symbols, self.places, self.output):
            nn.init.normal_(part.weight, std=0.02)
        self.output.weight = self.symbols.weight

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        x = self.symbols(inputs) + self.places.weight[: inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.output(self.norm(x)).flatten(0, 1), targets.flatten())


def plain(size: Size) -> Step:
    seed_everything(1, "model")
    model = Plain(size).cuda()
    loss_of = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)

    def step(batch: StreamBatch) -> float:
        inputs, targets = batch.tensors(torch.device("cuda"))
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(inputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()  # the library's step reads its loss as well

    return step


def ours(size: Size) -> Step:
    settings = resolve(
        TASKS["language"],
        {
            "model": "transformer", "layers": size.layers, "hidden": size.width, "heads": size.heads, "context": size.context,
            "feedforward": 4 * size.width, "batch_tokens": size.rows * size.context, "dropout": 0.0, "optimizer": "adamw",
            "weight_decay": 0.1, "lr": 3e-4, "clip": 1.0, "activation": "gelu",
        },
    )  # fmt: skip
    seed_everything(1, "model")
    model = build_language(settings, size.symbols).cuda()
    objective = LanguageObjective(settings, size.symbols, measure=lambda _: {}, show=lambda _: [])
    stepper = Stepper(model, objective, settings, distributed.join("cuda"), "bf16")
    number = 0

    def step(batch: StreamBatch) -> float:
        nonlocal number
        number += 1
        outcome, factor = stepper.gradient(batch, number, lr=settings.lr)
        stepper.apply(factor, settings.lr)
        return outcome.loss

    return step


def batches(size: Size, count: int = 4) -> list[StreamBatch]:
    drawn = np.random.default_rng(0).integers(4, size.symbols, (count, size.rows, size.context + 1))
    return [
        StreamBatch(part[:, :-1], part[:, 1:], list(range(size.rows)), number == 0)
        for number, part in enumerate(drawn)
    ]


def seconds(step: Step, data: list[StreamBatch], steps: int) -> float:
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for number in range(steps):
        step(data[number % len(data)])
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / steps


def profile(name: str, step: Step, data: list[StreamBatch], steps: int = 4) -> None:
    """Print the kernels that take most of the GPU's time: ms a step, calls a step, name."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        seconds(step, data, steps)
    kernels = sorted(found.key_averages(), key=lambda k: -k.self_device_time_total)
    whole = sum(kernel.self_device_time_total for kernel in kernels) / steps / 1e3
    print(f"{name}: {whole:.2f} ms of kernels a step", file=sys.stderr)
    for kernel in kernels[:60]:
        spent = kernel.self_device_time_total / steps / 1e3
        print(f"  {spent:7.3f} {kernel.count / steps:6.1f}  {kernel.key[:90]}", file=sys.stderr, flush=True)


def measure(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    size = SIZES[name]
    data = batches(size)
    sides = {"ours": ours(size), "theirs": plain(size)}
    best = dict.fromkeys(sides, float("inf"))
    for side, step in sides.items():
        begun = time.perf_counter()
        seconds(step, data, 8)  # compiled and captured here
        print(
            f"{name}, {side}: first 8 steps {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True
        )
    for turn in range(options.rounds):
        for side in list(sides)[:: -1 if turn % 2 else 1]:
            time.sleep(PAUSE)
            took = seconds(sides[side], data, options.steps)
            best[side] = min(best[side], took)
            print(f"{name}, {side}: round {turn + 1} {took * 1e3:.2f} ms", file=sys.stderr, flush=True)
    for side in sides:
        print(f"{name}, {side}: {best[side] * 1e3:.2f} ms a step", file=sys.stderr, flush=True)
    rows = compared(name, "training", best, options)
    if options.sustained:
        steady = {}
        for side, step in sides.items():
            steady[side] = sustained(step, data, options.sustained)
            print(
                f"{name}, {side}: {steady[side] * 1e3:.2f} ms a step, sustained", file=sys.stderr, flush=True
            )
        rows += compared(name, "training, sustained", steady, options)
    if options.profile:
        for side, step in sides.items():
            profile(f"{name}, {side}", step, data)
    return rows


def sustained(step: Step, data: list[StreamBatch], span: float) -> float:
    """Seconds a step: the median over the second half of ``span`` seconds, ten steps at a time."""
    end, found = time.perf_counter() + span, []
    while time.perf_counter() < end:
        found.append(seconds(step, data, 10))
    return float(np.median(found[len(found) // 2 :]))


def compared(
    name: str, what: str, took: dict[str, float], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """A row for each side of ours, of its seconds a step and the peer's."""
    size = SIZES[name]
    share = {side: f"{size.work / found / options.peak:.0%}" for side, found in took.items()}
    rate = {side: size.rows * size.context / found / 1e3 for side, found in took.items()}
    rows = []
    for side in [side for side in took if side != "theirs"]:
        label = f"Transformer {name}, {side.replace('ours', what)}, {share[side]} of the peak"
        peer, goal = f"compiled PyTorch, {share['theirs']}", size.goal
        rows.append(
            row(label, peer, rate[side], rate["theirs"], "k symbols/s", goal=goal, more_is_better=True)
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--steps", type=int, default=30, help="steps of a round (default 30)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each side (default 3)")
    parser.add_argument(
        "--sustained",
        type=float,
        default=5.0,
        help="seconds of each side at a stretch, 0 for none (default 5)",
    )
    parser.add_argument("--only", choices=list(SIZES), help="one size alone")
    parser.add_argument("--peak", type=float, default=989e12, help="operations a second of the GPU")
    parser.add_argument("--profile", action="store_true", help="print where the time of the GPU goes")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if torch.cuda.is_available():
        for name in [options.only] if options.only else SIZES:
            rows += measure(name, options)
    else:
        print("transformer_gpu: skipped, there is no NVIDIA GPU here.", file=sys.stderr)
    show(rows, as_json=options.json)


if __name__ == "__main__":
    main()
