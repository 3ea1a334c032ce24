"""What a task says of itself, from which `Estimator` makes training, resuming, saving and loading."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from anaphora.errors import DataError
from anaphora.tasks.config import RunConfig
from anaphora.tasks.judged import Judged
from anaphora.training.objective import Batches, Objective
from anaphora.training.progress import Reporter
from anaphora.training.run import RunFolder


class Task(ABC):
    """How data are opened, what is learned besides weights (a tokenizer, say), which model the settings name, what is
    minimised, and how inputs are looked at."""

    command: ClassVar[str]
    embeds_inputs: ClassVar[bool] = False
    """Whether ``probe_embeddings`` takes inputs: the view embeddings then shows the run's dev inputs, not symbols."""
    separate: ClassVar[bool] = True
    """Whether the answer to an input depends on that input alone, so that many can be answered some at a time."""
    begun_parts: ClassVar[tuple[str, ...]] = ("encoder.",)
    """What the names of the weights begin with that ``init`` gives; the rest of the model is new."""
    settings_: Any
    model_: Any
    trusts: bool = False
    """Whether the user allows what a run folder names to be executed: own parts, patterns of a tokenizer."""

    @abstractmethod
    def _open(
        self, data: Any, valid: Any | None, *, spill: Path | None, **fields: str | None
    ) -> tuple[Any, Any]:
        """The training and dev data that were named; each can ``describe`` itself as JSON."""

    @abstractmethod
    def _learn(self, data: Any) -> None:
        """Learn from the training data what the model is built on: a tokenizer, labels, a scale."""

    @abstractmethod
    def _write_learnt(self, run: RunFolder) -> None:
        """Write what ``_learn`` learned: ``tokenizer.json`` for symbols, ``learnt.json`` for anything else."""

    @abstractmethod
    def _read_learnt(self, run: RunFolder) -> None:
        """Read what ``_write_learnt`` wrote, or a `RunError` in one sentence."""

    @abstractmethod
    def _vocabulary(self) -> dict[str, int]:
        """Sizes of what was learned, by name: vocabularies, labels, columns."""

    @abstractmethod
    def _reopen(self, run: RunFolder, config: RunConfig) -> tuple[Any, Any]:
        """The training and dev data of a run again, or a sentence saying what has changed."""

    @abstractmethod
    def _symbols(self, data: Any) -> float:
        """About how many symbols of ``batch_tokens`` all of ``data`` make, for the plan."""

    @abstractmethod
    def _fresh_model(self) -> nn.Module:
        """The model the settings name, with weights that follow from the seed."""

    @abstractmethod
    def _objective_and_batches(self, data: Any, dev: Any) -> tuple[Objective, Batches]:
        """What is minimised, and the batches it is minimised on."""

    @abstractmethod
    def _open_test(self, data: Any, bad_rows: str | None, **fields: Any) -> Any:
        """The data that ``score`` and ``compare`` measure on, of the same type as the dev data of a run."""

    @abstractmethod
    def _judge(self, data: Any, options: Mapping[str, Any]) -> Judged:
        """What the model does with each example of ``data`` (see `_open_test`); ``options`` are those of ``score``."""

    def _inherited(self) -> dict[str, Tensor]:
        """Weights the model begins with instead of fresh ones, by name: those of a model trained before."""
        return {}

    def _inputs(self) -> Literal["text", "numbers", "series", "file"]:
        """How a person gives one input to look at: typed ``text``; typed ``numbers``, or ``#3`` for the third dev
        example; a ``series``, typed as numbers or a table, or ``#3``; or a ``file`` (a sound, a picture), or ``#3``."""
        return "text"

    def _dev(self, run: RunFolder, config: RunConfig) -> Any:
        """The dev data of a run; a task whose training data are slow to open opens them alone."""
        return self._reopen(run, config)[1]

    def _count(self, dev: Any) -> int:
        """How many examples `_example` finds in the dev data."""
        return len(dev)

    def _example(self, dev: Any, number: int) -> tuple[Any, str]:
        """Example ``number`` (from 0) of the dev data as ``probe`` takes it, and its target."""
        ((x, *reference),) = dev.read([number])
        return x, reference[0] if reference else ""

    def _some(self, dev: Any, numbers: Sequence[int]) -> list[tuple[Any, str]]:
        """Several examples at once, by their numbers in rising order."""
        return [self._example(dev, number) for number in numbers]

    def _with_words(self, x: Any, words: str) -> Any:
        """What ``probe`` takes for ``x`` (a file's name, or an example) and words typed beside it: a question, say."""
        raise DataError(f"a {type(self).__name__} takes no words beside its input; leave {words[:40]!r} out.")

    def _solve(self, data: Any, dev: Any, reporter: Reporter | None) -> dict[str, float]:
        """Fit a direct preset: make ``model_`` and return the dev measures."""
        raise AssertionError(f"{self.settings_.model} is trained by gradient steps")

    def _metric(self) -> str:
        """The name of the dev measure that decides which weights are best."""
        return str(getattr(self.settings_, "metric", ""))

    def _check_labels(self, data: Any, *names: str) -> None:  # noqa: B027
        """Refuse data that say nothing about what was learned, such as those of other labels; by default nothing. ``names`` are what
        these data are called in the sentence, and what has the labels that they should have."""

    def _advice(self, run: Path) -> str:
        """What the user should know of the run that has just ended, in a sentence without its full stop; often nothing."""
        return ""
