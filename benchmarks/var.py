"""Vector autoregression against statsmodels. Run: python benchmarks/var.py [--json] [--times N]

One process, one thread, both sides in turn, the least of N times; 10 columns of 5000 steps. Both sides must give the
same coefficients and orders before they are timed. The peer is not installed with us: ``pip install statsmodels``.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import anaphora as an
from rows import against, row, show
from turns import milliseconds


def data() -> np.ndarray:
    random = np.random.default_rng(0)
    A = 0.5 * np.eye(10) + 0.05 * random.normal(size=(10, 10))
    y = np.zeros((5000, 10))
    for t in range(1, len(y)):
        y[t] = A @ y[t - 1] + random.normal(size=10)
    return y


def measure(times: int) -> list[dict[str, Any]]:
    from statsmodels.tsa.api import VAR as Peer  # noqa: N811

    y = data()

    def ours_whole() -> tuple[Any, ...]:
        m = an.VAR(2).fit(y)
        return m.table, m.standard_errors, m.impulse_responses(10), m.forecast(y, 10).low

    def theirs_whole() -> tuple[Any, ...]:
        m = Peer(y).fit(2)
        return m.params, m.stderr, m.irf(10).irfs, m.forecast_interval(y[-2:], 10)[1]

    for ours, theirs in zip(ours_whole(), theirs_whole(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    ours_order, theirs_order = (
        an.VAR(max_lags=10).select_order(y).best,
        Peer(y).select_order(10).selected_orders,
    )
    if ours_order != {name: int(order) for name, order in theirs_order.items()}:
        raise SystemExit("the two sides choose different orders")
    rows = []
    for name, goal, ours_run, theirs_run in (
        ("fit, 2 lags", 8.0, lambda: an.VAR(2).fit(y), lambda: Peer(y).fit(2)),
        ("fit, standard errors, responses, forecast", None, ours_whole, theirs_whole),
        (
            "order out of 0 … 10",
            10.0,
            lambda: an.VAR(max_lags=10).select_order(y),
            lambda: Peer(y).select_order(10),
        ),
    ):
        mine, peers = milliseconds(ours_run, theirs_run, times)
        rows.append(row(f"VAR {name}, 10×5000", "statsmodels", mine, peers, "ms", goal=goal))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=15)
    options = parser.parse_args()
    show(against("statsmodels", lambda: measure(options.times)), as_json=options.json)


if __name__ == "__main__":
    main()
