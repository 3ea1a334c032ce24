"""What a forecaster begins with, before its first step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import anaphora as an


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("output", ["binary", "count"])
def test_heads_begin_at_what_is_usual(output, apart):
    values = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]] * 5)
    asked = {"output": output, "horizon": 2, "window": 3, "hidden": 4, "apart": apart}
    m = an.Forecaster("lstm", **asked)
    data, _ = m._open(values, values, spill=None)
    m._learn(data)
    rates = torch.tensor([0.25, 0.75])
    wanted = torch.logit(rates) if output == "binary" else rates.log()
    wanted = wanted.mean(0, keepdim=True) if apart else wanted
    assert torch.allclose(m._fresh_model().head.bias, wanted.repeat(2), atol=1e-6)
