"""The runs that a server answers for, by name; a folder that is replaced is loaded again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from anaphora.errors import AnaphoraError
from anaphora.serving.limits import Ledger, Limits
from anaphora.serving.metrics import Metrics
from anaphora.serving.refusals import unknown
from anaphora.serving.served import Served, stamp_of


class Runs:
    """Loaded runs in the order given."""

    def __init__(
        self,
        folders: dict[str, Path],
        limits: Limits,
        metrics: Metrics,
        *,
        device: str = "auto",
        say: Callable[[str], object] = lambda text: print(text, file=sys.stderr, flush=True),  # noqa: T201
    ):
        self.limits, self.metrics, self._device, self._say = limits, metrics, device, say
        self.ledger = Ledger(limits)
        self._served = {name: self._loaded(name, folder) for name, folder in folders.items()}
        metrics.loaded.set(len(self._served))

    def __iter__(self) -> Iterator[Served]:
        return iter(list(self._served.values()))

    def __len__(self) -> int:
        return len(self._served)

    def get(self, name: str | None = None) -> Served:
        """The run called ``name``, or the only one. Raises a `Refusal` (404)."""
        if name is None and len(self._served) == 1:
            return next(iter(self._served.values()))
        if name is None:
            raise unknown(f"there are several runs here; ask one of {', '.join(self._served)}.")
        if name not in self._served:
            raise unknown(f"there is no run {name[:80]!r} here; there is {', '.join(self._served)}.")
        return self._served[name]

    @contextmanager
    def using(self, name: str | None = None) -> Iterator[Served]:
        """The run, which is not unloaded within."""
        served = self.get(name)
        served.enter()
        try:
            yield served
        finally:
            served.leave()

    async def watch(self) -> None:
        """Look at the folders again and again, and load what was replaced; until cancelled."""
        while True:
            await asyncio.sleep(self.limits.reload_seconds)
            for served in self:
                if stamp_of(served.folder) != served.stamp:
                    await self._reload(served)

    async def _reload(self, old: Served) -> None:
        """Put the new version in the place of the old one, once it is complete; requests of the old one finish."""
        first = stamp_of(old.folder)
        await asyncio.sleep(min(1.0, self.limits.reload_seconds))
        if stamp_of(old.folder) != first:
            return  # it is still being written
        try:
            new = await asyncio.to_thread(self._loaded, old.name, old.folder)
        except Exception as error:  # whatever a stranger's version does, the next one is looked for
            old.stamp = first  # not tried again before it changes again
            self.metrics.reloads.labels(old.name, "refused").inc()
            told = isinstance(error, AnaphoraError | OSError)
            reason = str(error) if told else f"its files cannot be read ({type(error).__name__})."
            self._say(f"anaphora: {old.name} was not loaded again, the version before it goes on: {reason}")
            return
        self._served[old.name] = new
        old.close()
        self.metrics.reloads.labels(old.name, "loaded").inc()
        self._say(f"anaphora: {old.name} was loaded again (version {new.version}).")

    def close(self) -> None:
        """Unload all runs; their requests finish first."""
        for served in self:
            served.close()

    def _loaded(self, name: str, folder: Path) -> Served:
        return Served(name, folder, self.limits, self.metrics, device=self._device, ledger=self.ledger)
