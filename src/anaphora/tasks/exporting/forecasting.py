"""The graph of a forecaster: a window, or a whole series with outputs after every step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from anaphora.data.series_readers import read_as
from anaphora.errors import AnaphoraError
from anaphora.models.forecaster import Forecaster
from anaphora.models.forecaster_ancestor import Ancestor
from anaphora.tasks.exporting import inputs
from anaphora.tasks.exporting.graph import Export, Graph, on_cpu
from anaphora.tasks.forecast.build import features_of
from anaphora.tasks.forecast.inference.running import chain_of


class _Ahead(nn.Module):
    """x ``(batch, time, features)``, the known columns to come where there are any, and lengths where rows differ."""

    def __init__(self, model: nn.Module, horizon: int, known: int, dense: bool):
        super().__init__()
        self.model, self.horizon, self.known, self.dense = model, horizon, known, dense

    def forward(self, x: Tensor, *more: Tensor) -> Tensor:
        rest = list(more)
        places = x.shape[1] if self.dense else 1
        future = rest.pop(0) if self.known else x.new_zeros(x.shape[0], places, self.horizon, 0)
        lengths = rest.pop(0) if self.dense else None
        if isinstance(self.model, Forecaster) and self.model.nade is not None:
            out, shift = self.model.parts(x, future, lengths)
            assert shift is not None
            return torch.cat([out, shift], -1)
        found: Tensor = self.model(x, future, lengths)
        return found


def forecaster_export(m: Any) -> Export:
    """Windows of inputs ``(batch, time, features)`` -> outputs ``(batch, places, horizon, targets)``; of joint targets
    ``(batch, places, horizon, targets + units)``, the parts of their `Chain`, which stands in the facts."""
    if isinstance(m.model_, Ancestor):
        raise AnaphoraError(
            f"the preset {m.settings_.model} is not a network; its run folder holds its few matrices. To export one, train with --model linear or lstm."
        )
    s, columns = m.settings_, m.columns_
    dense = not s.window or not s.horizon
    known, ahead, features = len(columns.known), max(s.horizon, 1), features_of(s, columns)
    asked = known and bool(s.horizon)

    def make(batch: int, length: int) -> dict[str, Tensor]:
        time = length if dense else s.window
        found = {"x": inputs.numbers((batch, time, features))}
        if asked:
            found["future"] = inputs.numbers((batch, time if dense else 1, ahead, known))
        if dense:
            found["lengths"] = inputs.lengths(batch, length)
        return found

    axes = {
        "x": ("batch", "time" if dense else "", ""),
        "future": ("batch", "time" if dense else "", "", ""),
        "lengths": ("batch",),
    }
    module = _Ahead(on_cpu(m.model_), ahead, known if asked else 0, dense)
    facts = {
        "window": s.window,
        "horizon": s.horizon,
        "errors": m._errors().tolist(),
        "read": read_as(m.recipe_.trained_on),
    }
    chain = chain_of(m.model_)
    if chain is not None:
        facts["chain"] = [chain.inward.tolist(), chain.outward.tolist()]
    return Export({"model": Graph(module, make, axes, ("outputs",))}, facts)
