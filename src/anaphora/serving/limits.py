"""Every limit of the server in one place."""

from __future__ import annotations

from dataclasses import dataclass


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
    body: int = 16 << 20
    """Bytes of the body of a request."""
    body_seconds: float = 30.0
    """How long a client may take over the body of a request."""
    seconds: float = 60.0
    """How long a request may take until its response begins."""
    grace: float = 30.0
    """Seconds that accepted requests have to finish after SIGTERM."""
    connections: int = 8192
    """Connections of one process."""
    address: int = 8_000
    """Bytes of the path and the query."""
    reload_seconds: float = 2.0
    """Seconds between looks at the run folders; 0 never looks."""
