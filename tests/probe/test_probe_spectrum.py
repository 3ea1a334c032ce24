"""The spectrum of Jacobians along a recurrence whose answer is known, and the layer lens against the model itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.nn.recurrent import Recurrent
from anaphora.probe.gradients import jacobian_spectrum, norms_of, state_jacobians
from anaphora.views.jacobian import lyapunov

TINY = {"hidden": 8, "steps": 2, "batch_tokens": 64, "device": "cpu"}


def test_jacobians_of_a_linear_map_are_its_powers():
    matrix = torch.diag(torch.tensor([0.5, 0.9, 1.1], dtype=torch.float64))
    singular, eigenvalues, growth = jacobian_spectrum([matrix] * 40)
    for k in (0, 20, 39):
        assert singular[k] == pytest.approx(sorted([0.5 ** (39 - k), 0.9 ** (39 - k), 1.1 ** (39 - k)])[::-1])
    assert eigenvalues[0, 0] == pytest.approx([1.1, 0.9, 0.5])
    assert eigenvalues[0, 1] == pytest.approx([0, 0, 0])
    exponent, low, high = lyapunov(growth)
    assert exponent == pytest.approx(np.log(1.1), abs=0.02)
    assert low <= exponent <= high


def test_jacobians_of_a_cell_have_the_norms_that_were_known_before():
    torch.manual_seed(0)
    jacobians = state_jacobians(
        Recurrent(an.nn.GRU(3, 5)).double(), torch.randn(1, 7, 3, dtype=torch.float64)
    )
    own, products = norms_of(jacobians)
    singular, eigenvalues, _ = jacobian_spectrum(jacobians)
    assert singular[:, 0] == pytest.approx(products)
    sizes = np.hypot(eigenvalues[:, 0], eigenvalues[:, 1])
    assert (sizes[:, 0] <= own + 1e-9).all()
    assert sizes[2] == pytest.approx(sorted(torch.linalg.eigvals(jacobians[2]).abs().tolist())[::-1])


@pytest.mark.parametrize(("preset", "more"), [("lstm", {"embedding": 6}), ("transformer", {"heads": 2})])
def test_the_last_layer_of_the_lens_is_the_model(preset, more):
    m = an.LanguageModel(model=preset, layers=2, **TINY, **more).fit(["abc abd\n" * 20])
    trace = m.probe("abc ab", what=("lens",))
    best = trace.array("sorted_log_probs", "time", "rank")[:, 0]
    assert trace.array("lens_log_probs", "layer", "time")[-1] == pytest.approx(best, abs=1e-4)
    assert (trace.array("lens_ranks", "layer", "time")[-1] == 1).all()
    last = [row["pieces"][0] for row in trace.tables["lens"] if row["layer"] == 2]
    assert last == [row["pieces"][0] for row in trace.tables["top"]]
    assert len(trace.tables["lens"]) == 2 * len(trace.tokens["time"])
    picture = trace.view("lens")
    assert picture.chart.charts[0].words[0] == last
    with pytest.raises(an.AnaphoraError, match="places 1 to 7"):
        trace.view("lens", place=9)
