"""A task small enough to train in milliseconds: the next symbol is (3·symbol + 1) mod 11."""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.settings import TrainingSettings
from anaphora.training.loop import Trainer
from anaphora.training.objective import LossSum
from anaphora.training.progress import ConsoleReporter, Reporter
from anaphora.training.run import RunFolder
from anaphora.training.tuning import NONE, Tuning

SYMBOLS = 11


@dataclass
class ToyBatch:
    rows: list[list[int]]
    indices: list[int]

    def shard(self, index: int, of: int) -> ToyBatch:
        return ToyBatch(self.rows[index::of], self.indices[index::of])

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def symbols(self) -> int:
        return sum(len(row) - 1 for row in self.rows)


class ToyBatches:
    """Seven rows of three to six symbols per batch, drawn from (seed, position)."""

    def __init__(self, seed: int = 1, rows: int = 7):
        self.seed, self.rows, self.position = seed, rows, 0

    @property
    def epoch(self) -> int:
        return self.position // 10

    def __next__(self) -> ToyBatch:
        draw = random.Random(f"{self.seed}/{self.position}")
        rows = [chain(draw.randrange(SYMBOLS), draw.randint(3, 6)) for _ in range(self.rows)]
        first = self.position * self.rows
        self.position += 1
        return ToyBatch(rows, list(range(first, first + self.rows)))

    def state(self) -> dict[str, Any]:
        return {"position": self.position}

    def restore(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


def chain(symbol: int, length: int) -> list[int]:
    row = [symbol]
    while len(row) < length:
        row.append((3 * row[-1] + 1) % SYMBOLS)
    return row


class ToyModel(nn.Module):
    def __init__(self, dropout: float = 0.0, width: int = 8):
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.middle = nn.Linear(width, width)
        self.out = nn.Linear(width, SYMBOLS)
        self.out.weight = self.embed.weight  # tied, as in most language models

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.dropout(torch.tanh(self.middle(self.norm(self.embed(x))))))


class ToyObjective:
    metric, greater_is_better, chance = "accuracy", True, 2.3978952727983707

    def __init__(self, dev: bool = True):
        self.dev = dev

    def loss(self, model: nn.Module, batch: ToyBatch) -> LossSum:
        longest = max(len(row) for row in batch.rows)
        device = next(model.parameters()).device
        ids = torch.tensor([row + [-1] * (longest - len(row)) for row in batch.rows], device=device)
        inputs, targets = ids[:, :-1].clamp(min=0), ids[:, 1:]
        logits = model(inputs).float()
        total = nn.functional.cross_entropy(
            logits.reshape(-1, SYMBOLS), targets.reshape(-1), ignore_index=-1, reduction="sum"
        )
        return LossSum(total, (targets >= 0).sum())

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        if not self.dev:
            return {}
        x = torch.arange(SYMBOLS, device=next(model.parameters()).device)
        logits = model(x)
        y = (3 * x + 1) % SYMBOLS
        return {
            "accuracy": float((logits.argmax(-1) == y).float().mean()),
            "loss": float(nn.functional.cross_entropy(logits.float(), y)),
        }

    def samples(self, model: nn.Module) -> list[dict[str, str]]:
        x = torch.arange(3, device=next(model.parameters()).device)
        guess = model(x).argmax(-1)
        return [
            {"source": str(i), "reference": str((3 * i + 1) % SYMBOLS), "output": str(int(g))}
            for i, g in enumerate(guess)
        ]


class Failing(ToyObjective):
    """Has a fault of its own on rank 0, in the first evaluation."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"accuracy": {}["no such key"]}


class Heard(Reporter):
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []
        self.saved_steps: list[int] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        self.warned.append(text)

    def saved(self, step: int, path: str) -> None:
        self.saved_steps.append(step)


def toy_settings(**changes: Any) -> TrainingSettings:
    values: dict[str, Any] = {
        "steps": 60,
        "lr": 0.02,
        "warmup": 5,
        "valid_every": 7,
        "save_every": 5,
        "log_every": 4,
        "device": "cpu",
        "seed": 3,
        "weight_decay": 0.01,
    }
    return TrainingSettings(**{**values, **changes})


def toy_trainer(
    folder: Path | str,
    *,
    dropout: float = 0.1,
    objective: Any = None,
    reporter: Any = None,
    model: nn.Module | None = None,
    batches: Any = None,
    tuning: Tuning = NONE,
    **changes: Any,
) -> Trainer:
    if model is None:
        torch.manual_seed(5)
        model = ToyModel(dropout)
    return Trainer(
        model,
        objective or ToyObjective(),
        batches or ToyBatches(),
        toy_settings(**changes),
        RunFolder(folder),
        reporter,
        tuning,
    )


def finish(folder: Path | str, **changes: Any) -> Any:
    """Start or resume the toy run in a folder and train it to the end."""
    Path(folder).mkdir(exist_ok=True)
    trainer = toy_trainer(folder, **changes)
    trainer.resume()
    return trainer.run()


def outcome(folder: Path | str) -> dict[str, bytes]:
    """The files that must not depend on how often a run was interrupted."""
    names = ("model.safetensors", "metrics.jsonl", "samples.jsonl")
    return {name: (Path(folder) / name).read_bytes() for name in names}


if __name__ == "__main__":  # one process of a group, or one to be killed: FOLDER [key=value …]
    torch.set_num_threads(1)
    options: dict[str, Any] = {}
    for word in sys.argv[2:]:
        key, _, value = word.partition("=")
        options[key] = float(value) if "." in value else int(value) if value.lstrip("-").isdigit() else value
        options[key] = {"True": True, "False": False}.get(value, options[key])
    if options.pop("heard", 0):
        options["reporter"] = ConsoleReporter("accuracy")
    if "objective" in options:
        options["objective"] = {"failing": Failing}[options["objective"]]()
    if os.environ.get("RANK", "0") == "0":
        Path(sys.argv[1]).mkdir(exist_ok=True)
    result = finish(sys.argv[1], **options)
    sys.stdout.write(f"{result.stopped} {result.steps}\n")  # one write: the processes share a pipe


def held_until_their_stage(folder: Path, device: str) -> None:
    """Four steps of a training in which one parameter moves from the third step on, half as fast as the others."""
    name = next(iter(dict(ToyModel(0.0).named_parameters())))
    tuning = Tuning(rates={name: 0.5}, stages={name: 1}, every=2)
    trainer = toy_trainer(folder, device=device, steps=4, weight_decay=0.1, tuning=tuning)
    learner = trainer.learner
    parameters = dict(learner.model.named_parameters())
    before = {key: value.detach().clone() for key, value in parameters.items()}
    seen = []
    for number in range(1, 5):
        lr = learner.lr(number)
        _, factor = learner.stepper.gradient(next(learner.batches), number, lr=lr)
        learner.stepper.apply(factor, lr)
        seen.append(torch.equal(parameters[name], before[name]))
    assert seen == [True, True, False, False]
    assert not any(torch.equal(parameters[key], value) for key, value in before.items())
