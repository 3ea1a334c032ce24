"""Memory and time per step of large language models on 1, 8 and 64 GPUs, on paper: from what was measured and what is assumed.

    python benchmarks/scale_plan.py [--json] [--measure]

Prints the tables of docs/guides/scale.md. The weights and the activations that a block keeps are counted here, on the real modules; the speed of a
GPU is measured by ``--measure`` on one (and stands in `H200`); links and overlap are assumptions (`Assumed`).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

GB = 1e9
STATE = 4 + 4 + 8
"""Bytes of a weight with its gradient and Adam's two averages, all float32."""
ADAM = 7 * 4
"""Bytes that a step of Adam moves for each weight: weight, gradient and two averages read, three of them written."""


@dataclass(frozen=True)
class Gpu:
    """One GPU, measured. ``used``: the share of the matrix peak that a training step reaches; ``fits``: bytes."""

    name: str
    matmul: float  # bf16 operations per second
    memory: float  # bytes per second
    fits: float
    used: float


@dataclass(frozen=True)
class Assumed:
    """What was not measured here."""

    near: float = 0.8 * 450e9  # bytes per second and direction of a GPU, NVLink within a machine of 8
    far: float = 0.8 * 50e9  # the same between machines, one 400 Gb/s adapter for each GPU
    machine: int = 8
    spare: float = 0.9  # share of a GPU's memory that may be planned with
    batch: int = 1 << 19  # tokens of a step, over all GPUs
    length: int = 2048  # tokens of a sequence
    symbols: int = 32_000
    together: int = 8 * 2048  # tokens that one GPU computes at once, at most


@dataclass(frozen=True)
class Model:
    """A Transformer that reads from left to right, with feed-forward networks of four times its width."""

    name: str
    layers: int
    width: int
    heads: int


MODELS = (Model("0.1 B", 12, 768, 12), Model("1 B", 24, 1792, 14), Model("10 B", 40, 4480, 35))
GPUS = (1, 8, 64)
H200 = Gpu("NVIDIA H200", matmul=790e12, memory=4.3e12, fits=139 * 2**30, used=0.40)


@dataclass(frozen=True)
class Counted:
    """What was counted on the real modules: weights of a block, and numbers it keeps for the backward pass, per token."""

    block: int
    kept: float


def counted(width: int, heads: int, feedforward: int | None = None) -> Counted:
    """Count a block of this width. What is kept grows linearly with it, so it is counted on a narrow one with as many units to a head."""
    from anaphora.nn.attention.multihead import MultiHead
    from anaphora.nn.transformer.layers import EncoderLayer, FeedForward

    def layer(width: int, heads: int) -> EncoderLayer:
        inner = FeedForward(width, feedforward or 4 * width)
        return EncoderLayer(MultiHead(width, heads=heads), inner, norm_first=True)

    with torch.device("meta"):
        weights = sum(p.numel() for p in layer(width, heads).parameters())
    unit = width // heads
    small, tokens = layer(2 * unit, 2), 64
    own = {p.data_ptr() for p in small.parameters()}
    storages: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in own and tensor.is_floating_point():
            storages[place] = max(storages.get(place, 0), tensor.untyped_storage().nbytes() // 4)
        return tensor

    x = torch.randn(1, tokens, 2 * unit, requires_grad=True)
    held = []  # so that no storage is freed and its place given to another
    with torch.autograd.graph.saved_tensors_hooks(lambda t: held.append(t) or keep(t), lambda t: t):
        small(x, causal=True).sum()
    per_unit = sum(storages.values()) / tokens / (2 * unit)
    return Counted(weights, per_unit * width)


@dataclass(frozen=True)
class Plan:
    """One row: bytes of one GPU, seconds of one step."""

    model: str
    parameters: int
    gpus: int
    parts: int
    state: float
    activations: float
    gathered: float
    compute: float
    traffic: float
    adam: float
    fits: bool

    @property
    def bytes(self) -> float:
        return self.state + self.activations + self.gathered

    @property
    def seconds(self) -> float:
        """Traffic runs while blocks are computed; the optimizer waits for both."""
        return max(self.compute, self.traffic) + self.adam


def plan(model: Model, gpus: int, gpu: Gpu, assumed: Assumed, count: Counted) -> Plan:
    """Memory and time with ``shard=full`` and ``checkpoint_activations=true``.

    Per GPU of n, for P weights of which a block has b and the rest (embedding and output) r, and m tokens at once:

        state        16 P/n
        gathered     8 r + 4·(2 b) + 4 b + 2 b       the rest and its gradient; two blocks; a gradient; a copy in bf16
        activations  4 m (L·width + kept) + 10 m V   inputs of all blocks, one block in full, the scores of all symbols
        compute      (8 L·b + 6 V·width + 8 L·width·T) · batch / (n · matmul · used)
        traffic      parts · 3 · 4 P (n − 1)/n / link
        adam         28 P/n / memory
    """
    rest = 2 * assumed.symbols * model.width
    blocks = model.layers * count.block
    weights = blocks + rest
    mine = assumed.batch // gpus
    together = min(assumed.together, mine)
    parts = math.ceil(mine / together)
    attention = (
        2 * model.layers * model.width * assumed.length
    )  # two products, half of them masked: 2·2·T/2 each token
    operations = assumed.batch * (8 * blocks + 6 * assumed.symbols * model.width + 4 * attention)
    link = assumed.near if gpus <= assumed.machine else assumed.far
    activations = together * (4 * (model.layers * model.width + count.kept) + 10 * assumed.symbols)
    found = Plan(
        model=model.name,
        parameters=weights,
        gpus=gpus,
        parts=parts,
        state=STATE * weights / gpus,
        activations=activations,
        gathered=8 * rest + (8 + 4 + 2) * count.block if gpus > 1 else 2 * count.block,
        compute=operations / (gpus * gpu.matmul * gpu.used),
        traffic=parts * 3 * 4 * weights * (gpus - 1) / gpus / link,
        adam=ADAM * weights / gpus / gpu.memory,
        fits=True,
    )
    return Plan(**{**asdict(found), "fits": found.bytes <= assumed.spare * gpu.fits})


def plans(gpu: Gpu = H200, assumed: Assumed | None = None) -> list[Plan]:
    """All rows."""
    assumed = assumed or Assumed()
    return [
        plan(model, gpus, gpu, assumed, counted(model.width, model.heads))
        for model in MODELS
        for gpus in GPUS
    ]


def table(rows: list[Plan], assumed: Assumed) -> str:
    """The rows as Markdown."""
    lines = [
        "| weights | GPUs | GB of a GPU: state + activations + gathered | parts | step: compute, traffic, Adam | tokens/s | 20 tokens per weight |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        memory = f"{row.bytes / GB:.0f} = {row.state / GB:.1f} + {row.activations / GB:.1f} + {row.gathered / GB:.1f}"
        rate = assumed.batch / row.seconds
        days = 20 * row.parameters / rate / 86_400
        ends = [
            f"{rate / 1000:,.0f} k".replace(",", " "),
            f"{days:.2g} days" if days < 100 else f"{days:.0f} days",
        ]
        step = f"{row.seconds:.2f} s: {row.compute:.2f}, {row.traffic:.2f}, {row.adam:.3f}"
        if not row.fits:
            memory, step, ends = f"**{memory}: does not fit**", "", ["", ""]
        lines.append(
            f"| {row.model} | {row.gpus} | {memory} | {row.parts} | {step} | {ends[0]} | {ends[1]} |"
        )
    return "\n".join(lines)


def measure() -> dict[str, Any]:
    """Speed of this GPU: a large product, a copy, and training steps of our 0.1 B model."""
    from anaphora.tasks.language.build import build_language
    from anaphora.tasks.language.objective import LanguageObjective
    from anaphora.tasks.registry import TASKS, resolve
    from anaphora.training import distributed
    from anaphora.training.step import Stepper
    from training_gpu import characters

    model, length = MODELS[0], 1024
    given = {
        "model": "transformer", "layers": model.layers, "hidden": model.width, "heads": model.heads, "feedforward": 4 * model.width,
        "context": length, "batch_tokens": 16 * length, "dropout": 0.0,
    }  # fmt: skip
    fields = TASKS["language"].settings.model_fields
    settings = resolve(
        TASKS["language"], {key: value for key, value in given.items() if key in fields and key != "bptt"}
    )
    data, symbols = characters(None, 16, length)
    network = build_language(settings, symbols).cuda()
    objective = LanguageObjective(settings, symbols, measure=lambda _: {}, show=lambda _: [])
    stepper = Stepper(network, objective, settings, distributed.join("cuda"), "bf16")

    def step(number: int) -> None:
        _, factor = stepper.gradient(data[number], number + 1, lr=1e-4)
        stepper.apply(factor, 1e-4)

    wide = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    long = torch.empty(1 << 28, device="cuda")
    product = _seconds(lambda _: wide @ wide)
    copied = _seconds(lambda _: long.add_(1.0))
    trained = _seconds(step)
    blocks = model.layers * counted(model.width, model.heads).block
    operations = (
        16 * length * 6 * (blocks + 2 * model.layers * model.width * length // 2 + symbols * model.width)
    )
    return {
        "gpu": torch.cuda.get_device_name(),
        "matmul": 2 * 8192**3 / product,
        "memory": 2 * 4 * long.numel() / copied,
        "fits": torch.cuda.get_device_properties(0).total_memory,
        "tokens_per_second": 16 * length / trained,
        "used": operations / trained / (2 * 8192**3 / product),
    }


def _seconds(work: Any, rounds: int = 20) -> float:
    """The median of several rounds, after some that warm up."""
    times = []
    for number in range(5 + rounds):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        work(number)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return sorted(times[5:])[rounds // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="rows as JSON")
    parser.add_argument("--measure", action="store_true", help="measure this machine's GPU instead")
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(), indent=2))
        return
    rows = plans()
    if given.json:
        print(
            json.dumps(
                [{**asdict(row), "seconds": row.seconds, "bytes": row.bytes} for row in rows], indent=2
            )
        )
    else:
        print(table(rows, Assumed()))


if __name__ == "__main__":
    main()
