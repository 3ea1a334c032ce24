"""What the tasks share when they are looked into."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from anaphora.data.symbols import SPELLINGS
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import DataError, SettingsError
from anaphora.kinds.text import TextInputs
from anaphora.nn.embedding import Embedding
from anaphora.probe.noted import as_numpy
from anaphora.probe.trace import Trace
from anaphora.probe.vectors import probe_vectors
from anaphora.tasks.recipe import Recipe
from anaphora.training.run import RunFolder

MAPPED = 500
"""Dev inputs whose vectors are shown together."""
ALONE = 3
"""So many texts that were typed are a map of their own."""
_NUMBER = re.compile(r"#([0-9]{1,9})(?:\s+(.*))?", re.DOTALL)


def facts_of(estimator: Any, text: str) -> dict[str, Any]:
    """What a trace says of the model it comes from; ``voices`` are those that its predictions are the mean of."""
    settings = estimator.settings_
    facts = {"task": estimator.command, "preset": settings.model, "seed": settings.seed, "text": text}
    voices = getattr(estimator, "usual_voices", 1)
    return facts | {"voices": voices} if voices > 1 else facts


def places_of(inputs: Any, encoded: Any) -> list[str]:
    """A name for each place of an input: its symbols, with the end where one is read, or the numbers of its steps."""
    if isinstance(inputs, TextInputs):
        return [*inputs.tokenizer.pieces(encoded.tolist()), *["</s>"] * inputs.end]
    return [str(t + 1) for t in range(len(encoded))]


def symbol_vectors(estimator: Any, model: nn.Module, tokenizer: Tokenizer) -> Trace:
    """The vectors of the symbols that ``model`` reads by its first embedding, without the special ones; the commonest of
    them."""
    embedding = next(module for module in model.modules() if isinstance(module, Embedding))
    first = len(SPELLINGS)
    names = tokenizer.pieces(list(range(first, tokenizer.size)))
    if len(names) < 2:
        raise DataError("the model knows fewer than two symbols, so there is nothing to compare.")
    return probe_vectors(names, as_numpy(embedding.weight)[first:], facts=facts_of(estimator, ""))


def beginning(x: Any) -> Any:
    """The beginning of an input: enough to see what can be looked at in a model, where the whole would take long."""
    if isinstance(x, str):
        return x[:6].strip() or x
    return x[:4] if isinstance(x, np.ndarray) and x.ndim == 2 else x


SLOW = ("jacobians",)
"""What `probe` takes long over, at each step of the input."""


def no_beam(estimator: Any, beam: int | None) -> None:
    """A `SettingsError` where ``probe`` of a task that searches for nothing is given a beam."""
    if beam is not None:
        raise SettingsError(
            [f"beam has no meaning for a {type(estimator).__name__}, which searches for nothing."]
        )


def no_target(estimator: Any, target: Any) -> None:
    """A `DataError` where ``probe`` of a task without given outputs is given one."""
    if target is not None:
        raise DataError(f"a {type(estimator).__name__} has no output to be given; leave the target out.")


def only_what(estimator: Any, what: Sequence[str], known: Sequence[str] = ()) -> None:
    """A `DataError` for what ``probe`` of this task cannot be asked to look at."""
    for one in what:
        if one not in known:
            raise DataError(
                f"the {one} of a {type(estimator).__name__} cannot be looked at; leave what={one!r} out."
            )


class Asked:
    """Finds what a person asks a run's model to look at: typed, a file, or one of the run's own dev examples.

    ``#3`` is the third dev example of a model of sounds, pictures or vectors; words after it (a question) stand in
    place of the example's own. A file is only ever named by a command, never by a page.
    """

    def __init__(self, model: Any, run: str | Path):
        self.model, self._run = model, Path(run)
        self._dev: Any = None

    def find(self, text: str, file: str | None = None) -> tuple[Any, dict[str, Any]]:
        """What ``probe`` takes, and facts for its trace: the number and the reference of an example."""
        kind = self.model._inputs()
        number = None if kind == "text" else _NUMBER.fullmatch(text.strip())
        if file is not None:
            if kind == "series" and not text.strip():
                return Path(file), {}
            if kind != "file":
                example = "" if kind == "text" else ", or name a dev example, such as #1"
                raise DataError(f"this model reads what is typed; give it with --text{example}.")
            if number:
                raise DataError("a file and #N are two inputs; give one of --text and --input.")
            return (self.model._with_words(file, text.strip()) if text.strip() else file), {}
        if number:
            return self._example(int(number[1]), (number[2] or "").strip())
        if kind == "file":
            raise DataError("this model reads no typed text; name one of the run's dev examples, such as #1.")
        return text, {}

    def vectors(self, inputs: Sequence[Any] | None = None) -> Trace:
        """What the view embeddings shows: the vectors of a model's symbols; of an embedder those of ``inputs``, or of the
        run's first dev inputs."""
        if not hasattr(self.model, "probe_embeddings"):
            raise DataError(
                f"{self._run} holds a {type(self.model).__name__}, which has no vectors of symbols."
            )
        if not self.model.embeds_inputs:
            if inputs is not None:
                raise DataError(
                    "the view embeddings shows a model's symbols and takes no --text and no --input."
                )
            return self.model.probe_embeddings()  # type: ignore[no-any-return]
        return self.model.probe_embeddings(self._mapped() if inputs is None else inputs)  # type: ignore[no-any-return]

    def typed(self, text: str) -> list[Any] | None:
        """Texts for `vectors`, one a line; a few of them are shown among the dev inputs, since a map needs some to be near to.
        None where nothing was typed or the model reads no texts."""
        lines: list[Any] = [line.strip() for line in text.splitlines() if line.strip()]
        if not lines or self.model._inputs() != "text":
            return None
        return lines if len(lines) >= ALONE else [*self._mapped(), *lines]

    def _mapped(self) -> list[Any]:
        """The run's first dev inputs."""
        dev = self._examples()
        return [self.model._example(dev, i)[0] for i in range(min(self.model._count(dev), MAPPED))]

    def count(self) -> int:
        """How many dev examples the run has."""
        return int(self.model._count(self._examples()))

    def example(self, number: int) -> tuple[Any, Any]:
        """Dev example ``number`` (from 1) as ``probe`` takes it, and its target; also of models that read text."""
        count = self.count()
        if not 1 <= number <= count:
            raise DataError(f"the run has dev examples #1 to #{count}; there is no #{number}.")
        return self.model._example(self._examples(), number - 1)  # type: ignore[no-any-return]

    def some(self, most: int) -> list[tuple[int, Any, Any]]:
        """At most ``most`` dev examples, evenly spaced: number (from 1), input and target."""
        count = self.count()
        kept = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()
        found = self.model._some(self._examples(), kept)
        return [(i + 1, x, reference) for i, (x, reference) in zip(kept, found, strict=True)]

    def dev(self) -> Any:
        """The run's dev data, as the task reads them."""
        return self._examples()

    def paired(self, judged: int) -> bool:
        """Whether the examples that the task judges are those of `example`, by their numbers."""
        return judged == self.count()

    def first(self) -> Any:
        """The run's first dev example, as ``probe`` takes it."""
        return self.model._example(self._examples(), 0)[0]

    def _examples(self) -> Any:
        """The dev data of the run."""
        if self._dev is None:
            recipe = Recipe.read(self._run)
            if not recipe.data:
                raise DataError("the model was saved without its data, so it has no dev examples.")
            self._dev = self.model._dev(RunFolder.open(self._run), recipe)
        return self._dev

    def _example(self, number: int, words: str) -> tuple[Any, dict[str, Any]]:
        dev = self._examples()
        count = self.model._count(dev)
        if not 1 <= number <= count:
            raise DataError(f"the run has dev examples #1 to #{count}; there is no #{number}.")
        x, reference = self.model._example(dev, number - 1)
        if words:
            return self.model._with_words(x, words), {"example": number}
        return x, {"example": number, "reference": reference}
