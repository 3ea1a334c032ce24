"""What `/metrics` reports, in the words of Prometheus."""

from __future__ import annotations

import os
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counters of one server. With several worker processes each adds its own, and any of them reports the sum."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        common: dict[str, Any] = {"namespace": "anaphora", "registry": self.registry}
        live: dict[str, Any] = {**common, "multiprocess_mode": "livesum"}
        self.requests = Counter("requests", "Requests by route and status.", ["route", "status"], **common)
        self.latency = Histogram(
            "request_seconds",
            "From the request to the end of its response.",
            ["route"],
            buckets=SECONDS,
            **common,
        )
        self.active = Gauge("active_requests", "Requests that are being answered.", **live)
        self.queued = Gauge("queued_requests", "Requests that wait for a run.", ["run"], **live)
        self.batches = Histogram(
            "batch_requests", "Requests computed together.", ["run"], buckets=SIZES, **common
        )
        self.inputs = Counter("inputs", "Inputs that were computed.", ["run"], **common)
        self.tokens = Counter(
            "tokens", "Symbols or steps of the inputs that were computed.", ["run"], **common
        )
        self.generated = Counter("generated", "Symbols that language models have written.", ["run"], **common)
        self.writing = Gauge("writing_texts", "Texts that are being written.", ["run"], **live)
        self.loaded = Gauge("loaded_runs", "Runs that answer.", **{**live, "multiprocess_mode": "livemax"})
        self.reloads = Counter("reloads", "Replaced run folders by outcome.", ["run", "outcome"], **common)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
