"""Soft targets: a loss whose other part is the divergence from what trained models predict (Hinton et al. 2015)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anaphora.training.objective import LossSum, Objective


class Call(NamedTuple):
    """What the student was asked and what it gave: scores ``(…, K)``."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    scores: Tensor


Answer = Callable[[nn.Module, Call, Any], Tensor]
"""Log probabilities ``(…, K)`` of a teacher for a call of the student and its batch, shaped as the student's scores."""


class Taught:
    """An objective with teachers: (1 − w) · loss + w · T² · mean KL(q ‖ p) over all real places.

    q: the mean of the teachers' softmax(z/T), p: the student's. ``part``: which module of the student gives the scores;
    ``answer``: how a teacher is asked; ``real``: which places count, ``(…)`` bool, or None for all. Everything else is the
    objective's own. While the student is evaluated, nothing is added.
    """

    def __init__(
        self,
        objective: Objective,
        teachers: Sequence[nn.Module],
        *,
        weight: float,
        temperature: float,
        part: Callable[[nn.Module], nn.Module],
        answer: Answer,
        real: Callable[[Call, Any], Tensor | None],
    ):
        self.objective = objective
        self._teachers = [teacher.eval().requires_grad_(False) for teacher in teachers]
        self._weight, self._temperature = weight, temperature
        self._part, self._answer, self._real = part, answer, real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["objective"], name)

    def loss(self, model: nn.Module, batch: Any) -> LossSum:
        if not model.training:
            return self.objective.loss(model, batch)
        calls: list[Call] = []

        def note(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], scores: Tensor) -> None:
            calls.append(Call(arguments, keywords, scores))

        handle = self._part(model).register_forward_hook(note, with_kwargs=True)
        try:
            found = self.objective.loss(model, batch)
        finally:
            handle.remove()
        mean = sum(self._divergence(call, batch) for call in calls) / len(calls)
        total = (1 - self._weight) * found.total + self._weight * mean * found.count
        return LossSum(total, found.count)

    def _divergence(self, call: Call, batch: Any) -> Tensor:
        """T² times the mean of KL(q ‖ p) over the real places."""
        device, t = call.scores.device, self._temperature
        with torch.no_grad():
            answers = []
            for teacher in self._teachers:
                if next(teacher.parameters()).device != device:
                    teacher.to(device)
                answers.append(torch.log_softmax(self._answer(teacher, call, batch).float() / t, -1))
            wanted = torch.logsumexp(torch.stack(answers), 0) - torch.tensor(float(len(answers))).log()
        own = torch.log_softmax(call.scores.float() / t, -1)
        apart = (wanted.exp() * (wanted - own)).masked_fill(wanted == -torch.inf, 0.0).sum(-1)
        real = self._real(call, batch)
        return t * t * (apart.mean() if real is None else apart[real].mean())
