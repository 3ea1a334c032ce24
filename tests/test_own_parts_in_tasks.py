"""Own models, encoders, losses, measures and callbacks in every neural task: trained, saved, loaded, asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import anaphora as an
from anaphora.errors import SettingsError

RNG = np.random.default_rng(0)
TINY: dict[str, Any] = {"steps": 3, "valid_every": 3, "save_every": 3, "hidden": 8, "batch_tokens": 64}
PICTURES = [np.full((16, 16, 3), 30 * i, np.uint8) for i in range(8)]


class Reads(nn.Module):
    """Symbols to scores of each place; looks at nothing but the place itself."""

    def __init__(self, spec: Any):
        super().__init__()
        self.table = nn.Embedding(spec.inputs, spec.outputs)

    def forward(self, symbols: Tensor, lengths: Tensor | None = None) -> Tensor:
        out: Tensor = self.table(symbols)
        return out


class Hears(nn.Module):
    def __init__(self, spec: Any):
        super().__init__()
        self.map = nn.Linear(spec.inputs, spec.outputs)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        out: Tensor = self.map(frames)
        return out


class Foresees(nn.Module):
    def __init__(self, spec: Any):
        super().__init__()
        self.steps, self.map = spec.settings.horizon, nn.Linear(spec.inputs, spec.outputs)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        last: Tensor = self.map(x[:, -1:])
        return last.expand(-1, self.steps, -1)


class Writes(nn.Module):
    """Encodes by a table (or a picture by its mean colour), decodes each place from the symbol before it and the source."""

    def __init__(self, spec: Any):
        super().__init__()
        self.read = nn.Linear(3, 4) if spec.task == "caption" else nn.Embedding(spec.inputs, 4)
        self.symbol, self.out = nn.Embedding(spec.outputs, 4), nn.Linear(4, spec.outputs)

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> Tensor:
        found: Tensor = self.read(source.mean((2, 3))[:, None] if source.dim() == 4 else source)
        return found

    def decode(self, target: Tensor, annotations: Tensor, mask: Tensor) -> Tensor:
        out: Tensor = self.out(self.symbol(target) + annotations.mean(1, keepdim=True))
        return out


class Answers(nn.Module):
    def __init__(self, spec: Any):
        super().__init__()
        self.words, self.out = nn.Embedding(spec.inputs, 4), nn.Linear(7, spec.outputs)

    def forward(self, images: Tensor, question: Tensor, lengths: Tensor) -> Tensor:
        both = torch.cat((self.words(question).mean(1), images.mean((2, 3))), 1)
        out: Tensor = self.out(both)
        return out


class Task(NamedTuple):
    """A task: its estimator, an own model of it, its data, and what it is asked."""

    kind: Any
    model: Any
    data: Any
    asked: Any
    preset: str
    settings: dict[str, Any]


TAGGED = [(["the", "cat"], ["D", "N"]), (["a", "cat"], ["D", "N"])] * 5
PAIRS = [("a b", "x y"), ("b", "y"), ("a", "x")] * 5
SPOKEN = [((RNG.normal(0, 0.1, 1600).astype(np.float32), 4000), "ab") for _ in range(6)]
SERIES = RNG.normal(size=(80, 2))
CAPTIONS = [(picture, "dark" if i < 4 else "light") for i, picture in enumerate(PICTURES)]
QUESTIONS = [(picture, "is it dark", "yes" if i < 4 else "no") for i, picture in enumerate(PICTURES)]
SEEN = {"picture_size": 16, "halvings": 2}
TASKS = {
    "tag": Task(an.Tagger, Reads, TAGGED, [["the", "cat"]], "bilstm", {}),
    "language": Task(an.LanguageModel, Reads, ["ab ba", "ba"] * 20, ["ab"], "lstm", {"lines": True}),
    "forecast": Task(an.Forecaster, Foresees, SERIES, SERIES, "lstm", {"horizon": 2, "window": 6}),
    "translate": Task(an.Translator, Writes, PAIRS, ["a b"], "gru-attention", {"tokens": "word"}),
    "transcribe": Task(an.Transcriber, Hears, SPOKEN, [SPOKEN[0][0]], "attention", {"batch_tokens": 400}),
    "caption": Task(an.Captioner, Writes, CAPTIONS, PICTURES[:1], "lstm-attention", SEEN),
    "answer": Task(an.Answerer, Answers, QUESTIONS, [(PICTURES[0], "is it dark")], "lstm-attention", SEEN),
}
ASK = {"language": "read"}
TRUTHS: list[tuple[Any, Any]] = []


def ask(m: Any, asked: Any) -> Any:
    found = getattr(m, ASK.get(m.command, "predict"))(asked)
    return np.asarray(found).tolist() if m.command == "forecast" else found


def trained(task: Task, out: Path, **parts: Any) -> Any:
    given = {**TINY, **task.settings, **parts}
    given.setdefault("model", task.preset)
    return task.kind(**given).fit(task.data, valid=task.data, out=out)


@pytest.mark.parametrize("name", TASKS)
def test_a_model(name: str, tmp_path: Path) -> None:
    task = TASKS[name]
    m = trained(task, tmp_path / "run", model=task.model)
    m.save(tmp_path / "saved")
    again = an.load(tmp_path / "saved", model=task.model)
    assert ask(again, task.asked) == ask(m, task.asked)
    assert task.kind.resume(tmp_path / "run", steps=4, model=task.model).result_.steps == 4


def my_encoder(spec: Any) -> nn.Module:
    return an.nn.Recurrent(an.nn.GRU(spec.inputs, 8))


@pytest.mark.parametrize("name", TASKS)
def test_an_encoder_where_there_is_one(name: str, tmp_path: Path) -> None:
    task = TASKS[name]
    if name in ("language", "forecast", "caption", "answer"):
        with pytest.raises(SettingsError, match=rf"encoder is not a setting of {task.kind.__name__} but of"):
            task.kind(encoder=my_encoder)
        return
    m = trained(task, tmp_path / "run", encoder=my_encoder)
    assert ask(an.load(tmp_path / "run", encoder=my_encoder), task.asked) == ask(m, task.asked)


def distance(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of scores and symbols, or of numbers."""
    if not targets.is_floating_point():
        targets = nn.functional.one_hot(targets, outputs.shape[-1])
    error = (outputs - targets).abs()
    return error if error.dim() == 1 else error.mean(-1)  # the items of a Forecaster are single values


@pytest.mark.parametrize("name", TASKS)
def test_a_loss(name: str, tmp_path: Path) -> None:
    task = TASKS[name]
    m = trained(task, tmp_path / "run", loss=distance)
    plain = trained(task, tmp_path / "plain")
    weights = zip(m.model_.parameters(), plain.model_.parameters(), strict=True)
    assert any(not torch.equal(one, other) for one, other in weights)
    assert ask(an.load(tmp_path / "run"), task.asked) == ask(
        m, task.asked
    )  # the loss is not needed to predict


@pytest.mark.parametrize(
    ("m", "data"),
    [
        (an.Tagger("bilstm-crf", loss=distance, **TINY), TAGGED),
        (an.Transcriber("bilstm-ctc", loss=distance, **TINY), SPOKEN),
        (an.LanguageModel("masked", loss=distance, steps=1, hidden=8, heads=2), ["ab ba"] * 40),
    ],
    ids=["crf", "ctc", "masked"],
)
def test_a_loss_that_a_model_cannot_be_trained_by_is_refused(m: Any, data: Any) -> None:
    with pytest.raises(SettingsError, match=r"loss = .*distance cannot be used here"):
        m.fit(data)


def share(truth: Any, answers: Any) -> float:
    TRUTHS.append((truth, answers))
    return 0.5


class Counter(an.Callback):
    """Counts what it is called for."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_start(self, now: Any) -> None:
        self.calls.append("start")

    def on_step(self, now: Any) -> Any:
        self.calls.append(f"step {now.step}")
        return an.STOP if now.step == 2 else None

    def on_end(self, now: Any) -> None:
        self.calls.append("end")


@pytest.mark.parametrize("name", TASKS)
def test_a_measure_and_a_callback(name: str, tmp_path: Path) -> None:
    task, counter = TASKS[name], Counter()
    if name == "language":
        with pytest.raises(SettingsError, match="metrics compare answers with the truth"):
            task.kind(metrics={"share": share})
        m = trained(task, tmp_path / "run", callbacks=[counter])
    else:
        TRUTHS.clear()
        m = trained(
            task,
            tmp_path / "run",
            callbacks=[counter],
            metrics={"share": share},
            metric="share",
            valid_every=1,
        )
        assert m.result_.metrics["share"] == m.result_.best == 0.5
        truth, answers = TRUTHS[0]
        assert len(truth) == len(answers)
    assert counter.calls == ["start", "step 1", "step 2", "end"]
    assert m.result_.stopped == "callback"
