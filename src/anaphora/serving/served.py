"""One loaded run: its estimator, the thread that computes with it, and what its requests look like."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.files import streamed
from anaphora.inference.torch_engine import weight_of
from anaphora.serving.batching import HOLD, Batcher, Job, Turns
from anaphora.serving.exchange import Exchange, exchange_for
from anaphora.serving.limits import Ledger, Limits
from anaphora.serving.metrics import Metrics
from anaphora.serving.refusals import late
from anaphora.tasks.info import TaskInfo
from anaphora.tasks.load import load
from anaphora.tasks.recipe import Recipe
from anaphora.web.cost import cost_of

Stamp = tuple[tuple[int, int, int], ...]
FILES = ("config.json", "tokenizer.json", "learnt.json", "model.safetensors")


def stamp_of(folder: Path) -> Stamp:
    """What changes when a run folder is replaced: inode, size and time of each of its files."""
    found = []
    for name in FILES:
        try:
            facts = (folder / name).stat()
            found.append((facts.st_ino, facts.st_size, facts.st_mtime_ns))
        except OSError:
            found.append((0, 0, 0))
    return tuple(found)


class Served:
    """A run that answers requests.

    ``estimator`` may be used only under ``lock``: the batches of ``/predict`` and engines that generate take it in turns.
    ``ledger`` knows what is being computed; whatever asks the model for anything enters the cost there first. ``weight`` is what a
    step of the model costs. ``in_use`` counts requests; once it is closed and 0, `on_close` callbacks run and the threads end.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        limits: Limits,
        metrics: Metrics,
        *,
        device: str = "auto",
        ledger: Ledger | None = None,
    ):
        self.name, self.folder, self.limits, self.metrics = name, folder, limits, metrics
        self.ledger = ledger or Ledger(limits)
        self.stamp = stamp_of(folder)
        self.config: Recipe = Recipe.read(folder)
        self.task: TaskInfo = self.config.task
        self.estimator: Any = load(folder, device=device)  # every file is compared with its hash
        self.version = _version(folder)
        self.weight = weight_of(self.estimator.model_)
        self.lock = Turns()
        self.exchange: Exchange = exchange_for(self.estimator, limits)
        self.on_close: list[Any] = []
        self._batcher = Batcher(name, self._compute, limits, self._observe)
        # costly work lets others in after each of its steps
        self._costly = Batcher(f"{name} (costly)", partial(self._compute, hold=0.0), limits, self._observe)
        self._closed = False
        self.in_use = 0

    async def ask(self, inputs: list[Any], options: Mapping[str, Any], client: str = "") -> list[Any]:
        """The answer to each input, as JSON values; ``options`` are those that `Exchange.options` checked.

        Raises a `Refusal` where it costs too much (422), too much waits (429) or the answer takes too long (504), and an
        `AnaphoraError` for an input that the model cannot read. A caller that is cancelled leaves nothing to compute behind.
        """
        seconds, lengths = self.limits.seconds, list(map(self.exchange.length, inputs))
        cost = cost_of(self.estimator, lengths, options, weight=self.weight)
        with self.ledger.entered(client, self.name, cost):
            job = Job(
                key=json.dumps(options, sort_keys=True),
                options=options,
                inputs=inputs,
                cost=sum(lengths),
                expires=time.monotonic() + seconds,
            )
            batcher = self._batcher if cost.steps <= self.limits.quick else self._costly
            future = batcher.submit(job)
            self.metrics.queued.labels(self.name).inc()
            try:
                async with asyncio.timeout(seconds):
                    found: list[Any] = await asyncio.wrap_future(future)
                    return found
            except TimeoutError:
                raise late(seconds) from None
            finally:
                job.left = True  # what is being computed ends before its next step
                future.cancel()  # a request that still waits is not computed
                self.metrics.queued.labels(self.name).dec()

    def enter(self) -> None:
        """A request begins: the run stays as long as it lasts."""
        self.in_use += 1

    def leave(self) -> None:
        """A request ends."""
        self.in_use -= 1
        self._end_if_unused()

    def close(self) -> None:
        """Another version has taken the place of this one, or the server ends; its requests are still answered."""
        self._closed = True
        self._end_if_unused()

    @property
    def stuck(self) -> bool:
        """Whether one computation has taken much longer than a request may."""
        begun = [one.begun for one in (self._batcher, self._costly) if one.begun is not None]
        return bool(begun) and time.monotonic() - min(begun) > 5 * self.limits.seconds

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._batcher) + len(self._costly)

    def _end_if_unused(self) -> None:
        if self._closed and self.in_use <= 0:
            self._batcher.close()
            self._costly.close()
            for callback in self.on_close:
                callback()
            self.on_close.clear()

    def _compute(
        self,
        options: Any,
        requests: Sequence[list[Any]],
        unwanted: Callable[[], bool],
        hold: float = HOLD,
    ) -> Sequence[Any]:
        with self.lock.shared(unwanted, hold=hold):
            return answers(self.exchange, options, requests)

    def _observe(self, jobs: Sequence[Job]) -> None:
        self.metrics.batches.labels(self.name).observe(len(jobs))
        self.metrics.inputs.labels(self.name).inc(sum(len(job.inputs) for job in jobs))
        self.metrics.tokens.labels(self.name).inc(sum(job.cost for job in jobs))


def answers(exchange: Exchange, options: Mapping[str, Any], requests: Sequence[list[Any]]) -> Sequence[Any]:
    """For each request the answers to its inputs, or the error that it ended with; no request depends on the others."""
    if len(requests) > 1 and exchange.together(options):
        try:
            found = exchange.answer([x for inputs in requests for x in inputs], options)
        except AnaphoraError:  # of one of them; which one is found below
            pass
        else:
            rest = iter(found)
            return [[next(rest) for _ in inputs] for inputs in requests]
    return [_alone(exchange, options, inputs) for inputs in requests]


def _alone(exchange: Exchange, options: Mapping[str, Any], inputs: list[Any]) -> Any:
    try:
        return exchange.answer(inputs, options)
    except AnaphoraError as error:
        try:
            exchange.whole(inputs, options)
        except AnaphoraError as numbered:
            return numbered
        return error
    except Exception as error:
        return error


def _version(folder: Path) -> str:
    """A name for the weights: the beginning of their SHA-256."""
    digest = hashlib.sha256()
    with streamed(folder / "model.safetensors") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()[:12]
