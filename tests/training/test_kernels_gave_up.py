"""A GPU kernel that gave up is noticed before its results are used; without a GPU its words are set by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from training_toy import ToyObjective, toy_trainer

import anaphora as an
from anaphora.errors import AnaphoraError
from anaphora.native import cuda as driver
from anaphora.nn import check_kernels
from anaphora.training.objective import LossSum

GAVE_UP = "waited more than two seconds"


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> driver.Watch:
    """Those of a GPU that is not there."""
    made = driver.Watch(*(torch.zeros(1, dtype=torch.int32) for _ in range(2)))
    monkeypatch.setattr(driver, "_watches", {0: made})
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return made


def _give_up(words: driver.Watch) -> None:
    for word in words:
        word.fill_(1)


def test_it_is_raised_once_and_forgotten(words: driver.Watch) -> None:
    check_kernels()
    _give_up(words)
    check_kernels("cuda:1")  # another GPU
    with pytest.raises(AnaphoraError, match=GAVE_UP) as caught:
        check_kernels("cuda:0")
    assert str(caught.value).count(".") == 1
    assert not any(int(word) for word in words)
    check_kernels()


def test_while_a_graph_is_captured_it_is_kept(words: driver.Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a wait nor a change of the GPU's memory may go into somebody's graph."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: pytest.fail("waited"))
    _give_up(words)
    for _ in range(2):
        with pytest.raises(AnaphoraError, match=GAVE_UP):
            check_kernels()
    assert int(words.aborted) == 1


class GivesUp(ToyObjective):
    """Its loss, or its measures, come from a kernel that gave up."""

    def __init__(self, words: driver.Watch, when: str):
        super().__init__()
        self.words, self.when = words, when

    def loss(self, model: Any, batch: Any) -> LossSum:
        if self.when == "loss":
            _give_up(self.words)
        return super().loss(model, batch)

    def evaluate(self, model: Any) -> dict[str, float]:
        if self.when == "evaluate":
            _give_up(self.words)
        return super().evaluate(model)


@pytest.mark.parametrize("when", ["loss", "evaluate"])
def test_training_stops_before_anything_is_saved(words: driver.Watch, when: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    trainer = toy_trainer(tmp_path / "run", objective=GivesUp(words, when), valid_every=1, save_every=1)
    before = {name: value.clone() for name, value in trainer.learner.model.state_dict().items()}
    with pytest.raises(AnaphoraError, match=GAVE_UP):
        trainer.run()
    assert not trainer.folder.has_checkpoints()
    assert not trainer.folder.model.exists()
    if when == "loss":  # the weights have not moved either
        assert all(
            torch.equal(value, before[name]) for name, value in trainer.learner.model.state_dict().items()
        )


def test_weights_are_not_saved(words: driver.Watch, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    trainer = toy_trainer(tmp_path / "run")
    trainer.run()
    _give_up(words)
    with pytest.raises(AnaphoraError, match=GAVE_UP):
        trainer._export("last")


class Answers(an.Classifier):
    """A task whose answers come from a GPU."""

    words: driver.Watch

    def predict(self, inputs: Any, *, threshold: float | None = None) -> list[Any]:
        _give_up(self.words)
        return [1, 2]

    def score(self, data: Any, **options: Any) -> Iterator[Any]:  # type: ignore[override]
        yield "first"
        _give_up(self.words)
        yield "second"


def test_no_task_gives_out_what_it_computed(words: driver.Watch) -> None:
    task = Answers()
    task.words = words
    with pytest.raises(AnaphoraError, match=GAVE_UP):
        task.predict([])
    answers = task.score("-")
    assert next(answers) == "first"
    with pytest.raises(AnaphoraError, match=GAVE_UP):
        next(answers)
    for estimator in (an.Classifier, an.Translator, an.LanguageModel, an.Forecaster, an.Tagger):
        assert hasattr(estimator.predict, "__wrapped__")
