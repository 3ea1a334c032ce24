"""Every limit of the server in one place, and the ledger of what is being computed for whom."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from anaphora.inference.session import Cost
from anaphora.serving.refusals import Refusal, busy, unusable


@dataclass(frozen=True)
class Limits:
    """What one request, one run and one process may take."""

    batch_tokens: int = 8192
    """Symbols or steps of the inputs that are computed together."""
    max_wait_ms: float = 2.0
    """How long a request may wait for others to be computed with."""
    queue: int = 256
    """Requests that may wait for one run; the next one is refused with 429."""
    inputs: int = 256
    """Inputs of one request."""
    length: int = 20_000
    """Symbols, steps or words of one input; seconds × 50 of a recording."""
    output: int = 2_000
    """Symbols or steps that a request may ask for in one output."""
    slots: int = 64
    """Texts that one language model writes at the same time; requests for more wait in the queue."""
    beam: int = 100
    """Hypotheses, samples or outputs of one input that a request may ask for."""
    cost: int = 400_000
    """What one request may cost, in steps (`anaphora.web.cost`): two cores do 11,000 a second with a Transformer of 1.5 million
    parameters and a beam of 100, and three times as many with a GRU, so that what is allowed is answered within ``seconds``."""
    client_cost: int = 800_000
    """What the requests of one client that are not answered yet may cost together; a client is an address."""
    run_cost: int = 1_600_000
    """What those of all clients to one run may cost together."""
    quick: int = 16_384
    """A request that costs more waits in a queue of its own and lets others in between any two of its steps."""
    characters: int = 1_000_000
    """Characters of all texts of a request, looked at before they are cut into symbols."""
    pixels: int = 1 << 24
    """Pixels of a picture that is unpacked."""
    body: int = 16 << 20
    """Bytes of the body of a request."""
    bodies: int = 256 << 20
    """Bytes of all bodies that are held at the same time; half of them for one client. Bodies below 64 KiB do not count."""
    body_seconds: float = 30.0
    """How long a client may take over the body of a request."""
    seconds: float = 60.0
    """How long a request may take until its response begins."""
    grace: float = 30.0
    """Seconds that accepted requests have to finish after SIGTERM."""
    connections: int = 8192
    """Connections of one process, where it may open so many files."""
    listeners: int = 32
    """Recordings that are heard at the same time over `/v1/listen`; half of them for one client."""
    address: int = 8_000
    """Bytes of the path and the query."""
    reload_seconds: float = 2.0
    """Seconds between looks at the run folders; 0 never looks."""

    @property
    def text(self) -> int:
        """Characters of one text: a symbol has seldom more than 16."""
        return min(self.characters, 16 * self.length)


class Ledger:
    """What is being computed for whom, in steps; what would be too much is refused before it begins."""

    def __init__(self, limits: Limits):
        self._limits = limits
        self._spent: Counter[tuple[str, str]] = Counter()
        self._changing = threading.Lock()

    @contextmanager
    def entered(self, client: str, run: str, cost: Cost) -> Iterator[None]:
        """Within, the cost counts. Raises a `Refusal`: 422 for a request that is never computed, 429 for one that may come again."""
        self.enter(client, run, cost)
        try:
            yield
        finally:
            self.leave(client, run, cost)

    def enter(self, client: str, run: str, cost: Cost) -> None:
        """As `entered`, until `leave`."""
        limits, keys = self._limits, (("client", client), ("run", run))
        if sentence := cost.excess(limits.cost):
            raise unusable(sentence)
        with self._changing:
            if self._spent[keys[0]] + cost.steps > limits.client_cost:
                most = f"your requests may cost {limits.client_cost:,} steps together"
                raise Refusal(429, f"{most}; wait for an answer before you ask again.", {"retry-after": "1"})
            if self._spent[keys[1]] + cost.steps > limits.run_cost:
                raise busy(run)
            for key in keys:
                self._spent[key] += cost.steps

    def leave(self, client: str, run: str, cost: Cost) -> None:
        """The answer was given, or is not wanted any more."""
        with self._changing:
            for key in (("client", client), ("run", run)):
                self._spent[key] -= cost.steps
                if self._spent[key] <= 0:
                    del self._spent[key]

    def spent(self) -> dict[tuple[str, str], int]:
        """What is being computed, for each client and each run."""
        with self._changing:
            return dict(self._spent)
