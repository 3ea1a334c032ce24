"""What all tasks share that write a text by a search: the best output of each input."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Literal, overload

from anaphora.tasks.estimator import Estimator
from anaphora.tasks.outputs import Output


class Writer(Estimator):
    """An estimator whose outputs are searched for."""

    @abstractmethod
    def search(self, inputs: Iterable[Any], /, *, n_best: int = 1, **options: Any) -> list[list[Output]]:
        """The ``n_best`` outputs for each input with their scores, different texts and best first."""

    @overload
    def predict(
        self, inputs: Iterable[Any], *, details: Literal[False] = False, **options: Any
    ) -> list[str]: ...

    @overload
    def predict(self, inputs: Iterable[Any], *, details: Literal[True], **options: Any) -> list[Output]: ...

    def predict(
        self, inputs: Iterable[Any], *, details: bool = False, **options: Any
    ) -> list[str] | list[Output]:
        """The best output for each input (a text; a picture as a path or an array); with ``decode="sample"`` one drawn at
        random, with ``decode="mbr"`` the one of many draws that agrees best with all of them.

        ``options`` are search settings: ``beam``, ``length_penalty``, ``max_length``, ``normalisation``, ``coverage``,
        ``temperature``, ``int8`` and others, which ``anaphora explain`` lists. What is not given is as in training.
        ``search`` is a search of your own, ``lm`` a language model whose log p is added, times ``lm_weight``; scores
        then hold it. With ``details`` each is an `Output` with its score; `search` gives several for each input.
        """
        found = [outputs[0] for outputs in self.search(inputs, **options)]
        return found if details else [output.text for output in found]
