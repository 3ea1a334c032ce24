"""The methods of an estimator for inputs that need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.tasks.bulk.values import predict_each, predict_to
from anaphora.tasks.stored import Stored


class Predicting(Stored):
    """Predictions for any number of inputs, by several processes."""

    def predict_each(
        self, inputs: Iterable[Any], *, workers: int | None = None, **options: Any
    ) -> Iterator[Any]:
        """What ``predict`` gives for each input, in order, as an iterator; the inputs need not fit into memory.

            for label in m.predict_each(line.strip() for line in open("lines.txt")):
                ...

        Inputs are read some at a time and sorted by length among themselves. ``workers`` is the number of processes: None is
        one for each core once the work takes seconds, 1 this one alone. ``options`` are those of ``predict``. Raises what
        ``predict`` raises, after the answers before; an `AnaphoraError` for a Forecaster, which reads whole series.
        """
        self._check_separate()
        return predict_each(self, inputs, options, workers)

    def predict_to(
        self,
        out: str | Path,
        inputs: Iterable[Any],
        *,
        workers: int | None = None,
        force: bool = False,
        **options: Any,
    ) -> int:
        """Write what `predict_each` gives into the file ``out``, ``{"line": 1, "output": …}`` a line; how many lines it has.

            m.predict_to("answers.jsonl", lines)

        A call that was killed goes on when it is made again with the same inputs, and the file is the same to the byte. Until it is complete it
        is called ``answers.jsonl.part``. Raises a `RunError` where ``out`` exists or was begun with another model or other
        options, unless ``force``; a `DataError` where the inputs have changed.
        """
        self._check_separate()
        return predict_to(self, inputs, out, options, workers, force)

    def _check_separate(self) -> None:
        self._check_trained()
        if not self.separate:
            raise AnaphoraError(
                f"a {type(self).__name__} reads its series whole: call predict with each of them."
            )
