"""How far back models remember: success against lag, and the gradient that reaches every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.views.curve import Curve, Series
from anaphora.views.length import wilson
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.picture import Picture

TITLE = "Memory against lag"
READING = (
    "Above, each line is one kind of model: the share of test examples it gets right when the answer must be "
    "remembered for so many steps. Below, how much the loss at the end feels of the state at each step, on a "
    "logarithmic axis: a line that falls to the left has lost the beginning. Before training it shows what there is to "
    "learn from; after it, what was learned to be kept."
)
CAUTION = (
    "Each point is one training with the same few settings and one seed; longer training or other sizes move the "
    "lines. Lines of the gradient start from losses and states of different scale: compare their slopes."
)
NAMES = {"rnn": "Elman", "lstm": "LSTM", "gru": "GRU", "transformer": "Transformer"}


def picture(found: Mapping[str, Any]) -> Picture:
    """The picture of what the study of memory found."""
    return Picture(memory(found), name="memory")


def memory(found: Mapping[str, Any]) -> Panels:
    """Success against lag, and the gradients over time at the longest lag before and after training."""
    longest = max(found["gradients"])
    charts: list[Any] = [_success(found)]
    charts += [_gradients(found["gradients"][longest], when, longest) for when in ("before", "after")]
    subtitle = (
        f"{found['corpus']} · {found['examples']} test examples per point · bands: 95 % Wilson intervals"
    )
    return Panels(TITLE, subtitle, charts, reading=READING, caution=CAUTION)


def _success(found: Mapping[str, Any]) -> Curve:
    lags = sorted({lag for shares in found["success"].values() for lag in shares})
    lines = []
    for model, shares in found["success"].items():
        bands = [wilson(shares[lag], found["examples"]) for lag in lags]
        lows, highs = zip(*bands, strict=True)
        counts = [found["examples"]] * len(lags)
        lines.append(Series(NAMES[model], [shares[lag] for lag in lags], [*lows], [*highs], counts))
    return Curve(
        title="Success",
        subtitle="share of test examples that come out right",
        x_title="lag",
        y_title="success",
        places=[str(lag) for lag in lags],
        series=lines,
    )


def _gradients(models: Mapping[str, Any], when: str, lag: int) -> Lines:
    lines = []
    for model, norms in models.items():
        largest = max(norms[when]) or 1.0
        steps = list(range(1, len(norms[when]) + 1))
        lines.append(Line(NAMES[model], [float(t) for t in steps], [norm / largest for norm in norms[when]]))
    return Lines(
        title=f"Gradient {when} training, lag {lag}",
        subtitle="‖∂L/∂s_t‖ as a share of its largest value; s_t: the state after step t (Transformer: its input)",
        x_title="step t",
        y_title="‖∂L/∂s_t‖ / max",
        lines=lines,
        log=True,
    )
