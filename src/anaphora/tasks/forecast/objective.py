"""What the training loop needs for forecasting: the loss, the dev measures and the samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from anaphora.data.series import SeriesData
from anaphora.data.series_ahead import LARGEST, Chain, expected
from anaphora.data.series_scale import Columns
from anaphora.data.series_windows import WindowBatch, Windows
from anaphora.errors import SettingsError
from anaphora.models.forecaster_ancestor import Ancestor
from anaphora.tasks.forecast.build import fitted_ancestors, is_roll, units_of
from anaphora.tasks.forecast.inference.intervals import Errors, error_quantiles, errors_of, late
from anaphora.tasks.forecast.inference.running import Found, chain_of, outputs, point, run_unseen
from anaphora.tasks.forecast.info import ForecasterSettings
from anaphora.training.objective import LossSum
from anaphora.training.own import ItemLoss, chosen_metric, own_loss, own_measures

Floats = NDArray[np.float64]
KEYS = 2  # a wider range needs more passes for the same loss


class ForecastObjective:
    """Squared or absolute error per value in standardised units; −log p per step for counts and for 0s and 1s.

    The log-probability of a step is the sum over its targets, as music models are measured. An evaluation also notes
    the quantiles of |error| for every step ahead in the model, from which intervals are made.
    """

    counts = "values"

    chance = None

    def __init__(
        self,
        settings: ForecasterSettings,
        columns: Columns,
        dev: Windows,
        train: Windows,
        *,
        samples: int = 3,
    ):
        self.settings, self.columns = settings, columns
        self.metric, greater = chosen_metric(settings)
        self.greater_is_better = bool(greater)
        self._loss: str | ItemLoss = own_loss(settings) or settings.loss
        self._dev, self._chosen, self._train = dev, dev.spread(settings.valid_examples), train
        self._shown = samples
        self._transposed = transposed(settings, columns)
        self._chained = units_of(settings, columns) > 0

    def loss(self, model: Any, batch: WindowBatch) -> LossSum:
        t = batch.tensors(next(model.parameters()).device)
        x, y = t.x, t.y
        if self._transposed:
            keys = torch.randint(-self._transposed, self._transposed + 1, (len(batch),), device="cpu")
            x, y = (moved(one, keys.to(one.device)) for one in (x, y))
        given = (y,) if self._chained else ()
        out = model(x, t.future, t.lengths, *given).float()
        each = value_losses(out, y, self.columns.output, self._loss)
        total = each.masked_fill(~t.real, 0.0).sum()
        if self.columns.output == "continuous":
            return LossSum(total, t.real.sum())
        return LossSum(total, t.real.any(-1).sum())

    @torch.no_grad()
    def evaluate(self, model: Any) -> dict[str, float]:
        found = list(outputs(model, self._dev, self._chosen))
        measures = dev_measures(found, self.columns, self._loss)
        if self.settings.metrics:
            chain = chain_of(model)
            if chain is not None:  # forecasts must not see the truth
                unseen = list(outputs(model, self._dev, self._chosen, by=run_unseen))
            answers = truth_and_forecasts(found if chain is None else unseen, self.columns, chain)
            measures |= own_measures(self.settings, *answers, measures)
        away = errors_of(found, self._dev)
        before = None if self.columns.output == "binary" else _before(model, away, lambda: self._train)
        model.errors.copy_(torch.from_numpy(error_quantiles(away, before)))
        return measures

    @torch.no_grad()
    def samples(self, model: Any) -> list[dict[str, str]]:
        """Evenly spread dev windows: the end of what was read, what followed, and what was forecast."""
        chosen = self._dev.spread(self._shown)
        rows = []
        for out, batch in outputs(model, self._dev, chosen, by=run_unseen):
            for row in range(len(batch)):
                last = -1 if batch.lengths is None else int(batch.lengths[row]) // 2
                read = batch.x[row, :last] if batch.lengths is not None else batch.x[row]
                rows.append(
                    {
                        "source": _written(read[-8:, 0]),
                        "reference": self._words(batch.y[row, last]),
                        "output": self._words(expected(out[row, last], self.columns, chain_of(model))),
                    }
                )
        return rows

    def _words(self, values: NDArray[Any]) -> str:
        """The first target over the horizon, or, of 0s and 1s, the targets that are on in its first step."""
        if self.columns.output == "binary":
            on = [name for name, value in zip(self.columns.targets, values[0], strict=True) if value > 0.5]
            return " ".join(on) or "none"
        return _written(values[:12, 0])


def solved(
    s: ForecasterSettings,
    columns: Columns,
    data: SeriesData,
    dev: SeriesData,
    windows_of: Callable[[SeriesData], Windows],
) -> tuple[dict[str, float], Ancestor]:
    """The dev measures and the model of a direct preset: of several that it fits, the best on the dev data.

    Dev data that were held out of the training series and have chosen nothing are learned from afterwards, too: the last steps matter most. The
    measures, and the errors that intervals are made of, are those before.
    """
    windows = windows_of(dev)
    chosen = windows.spread(s.valid_examples)
    best: tuple[dict[str, float], Ancestor] | None = None
    for model in fitted_ancestors(s, columns, data):
        found = list(outputs(model, windows, chosen))
        measures = dev_measures(found, columns, "mse")
        away = errors_of(found, windows)
        model.errors = error_quantiles(away, _before(model, away, lambda: windows_of(data)))
        if best is None or measures[s.metric] < best[0][s.metric]:
            best = measures, model
    assert best is not None
    if s.model == "median" and dev.facts.get("kind") == "held-out":
        (again,) = fitted_ancestors(s, columns, dev)
        again.errors = best[1].errors
        best = best[0], again
    return best


def _before(model: Any, dev: Errors, train: Callable[[], Windows]) -> Errors | None:
    """Errors of forecasts from places of the training series, where those of the dev data are few."""
    if dev.enough:
        return None
    windows = train()
    return errors_of(list(outputs(model, windows, late(windows))), windows)


def transposed(s: ForecasterSettings, columns: Columns) -> int:
    """By how many keys pieces are moved while training; a `SettingsError` where the columns are no keys."""
    roll = is_roll(s, columns)
    if s.transpose > 0 and not roll:
        raise SettingsError(
            [
                f"transpose = {s.transpose} needs output = 'binary' and a piano roll (the columns note21 … note108); leave it out."
            ]
        )
    return (KEYS if s.transpose < 0 else s.transpose) if roll else 0


def moved(notes: Tensor, keys: Tensor) -> Tensor:
    """Notes ``(batch, …, 88)``, each row moved up by ``keys`` ``(batch,)``; what leaves the piano is silent."""
    count = notes.shape[-1]
    shape = (-1, *(1,) * (notes.dim() - 1))
    source = torch.arange(count, device=notes.device) - keys.view(shape)  # (batch, 1 …, 88)
    found = notes.gather(-1, source.clamp(0, count - 1).expand_as(notes))
    return found.masked_fill((source < 0) | (source >= count), 0.0)


def value_losses(out: Tensor, y: Tensor, output: str, loss: str | ItemLoss) -> Tensor:
    """The loss of every value; outputs are values, logits, or logarithms of rates."""
    if callable(loss):
        return loss(out.flatten(), y.flatten()).view_as(out)
    if output == "binary":
        return F.binary_cross_entropy_with_logits(out, y, reduction="none")
    if output == "count":
        rate = out.clamp(max=LARGEST)
        return rate.exp() - y * rate + torch.lgamma(y + 1)
    return F.l1_loss(out, y, reduction="none") if loss == "mae" else F.mse_loss(out, y, reduction="none")


def dev_measures(found: Sequence[Found], columns: Columns, loss: str | ItemLoss) -> dict[str, float]:
    """``loss``, and for values and counts ``mse`` and ``mae`` (values in standardised units, counts as they are)."""
    total = squares = absolutes = 0.0
    count = values = 0
    for out, batch in found:
        real = ~np.isnan(batch.y)
        filled = torch.from_numpy(np.where(real, batch.y, 0.0)).double()
        each = value_losses(torch.from_numpy(out), filled, columns.output, loss).numpy()
        error = (point(out, columns.output) - batch.y)[real]
        total += float(each[real].sum())
        squares, absolutes = squares + float(error @ error), absolutes + float(np.abs(error).sum())
        values += int(real.sum())
        count += int(real.sum() if columns.output == "continuous" else real.any(-1).sum())
    measures = {"loss": total / max(count, 1)}
    if columns.output != "binary":
        measures |= {"mse": squares / max(values, 1), "mae": absolutes / max(values, 1)}
    return measures


def truth_and_forecasts(
    found: Sequence[Found], columns: Columns, chain: Chain | None = None
) -> tuple[Floats, Floats]:
    """What came and what was forecast, value by value, ``(n,)`` each; values in standardised units."""
    real = [~np.isnan(batch.y) for _, batch in found]
    truth = [batch.y[which] for (_, batch), which in zip(found, real, strict=True)]
    forecast = [expected(out, columns, chain)[which] for (out, _), which in zip(found, real, strict=True)]
    return np.concatenate(truth, dtype=np.float64), np.concatenate(forecast, dtype=np.float64)


def _written(values: NDArray[Any]) -> str:
    return " ".join(f"{value:.3g}" for value in values)
