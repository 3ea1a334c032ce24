"""What kinds of state can do: right answers against length, distance or the number of pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.views.curve import Curve, Series
from anaphora.views.length import wilson
from anaphora.views.panels import Panels
from anaphora.views.picture import Picture

_TRACKING = (
    "Each line is one kind of model: the share of right states in the last quarter of a row, against its length. Models were "
    "trained on rows of up to {trained} steps. A state whose factors are all positive answers short rows and guesses in "
    "long ones; factors that may be negative can change the sign of the state for ever."
)
_RECALL = (
    "Each line is one kind of model: the share of right answers. Above, letters to be said again in order, against the steps they "
    "were scattered over; below, keys to be answered with their values, against how many pairs had to be held at once."
)
_CAUTION = (
    "Each point is one training with one seed and few steps. A model that fails here may learn with more of them; a model that "
    "cannot, in theory, shows it by failing at lengths that were not trained on."
)
_ASKED = {
    "parity": ("Parity of a row of bits", "length"),
    "mod5": ("Sum of digits modulo 5", "length"),
    "s5": ("Order of five things after swaps (S₅)", "length"),
    "copying": ("Selective copying", "steps the letters are scattered over"),
    "pairs": ("Associative recall", "pairs of key and value"),
}


def picture(found: Mapping[str, Any]) -> Picture:
    """The picture of what the study of tracking or of recall found."""
    return Picture(abilities(found), name=found["study"])


def abilities(found: Mapping[str, Any]) -> Panels:
    """One chart for each problem."""
    charts: list[Any] = [_chart(found, problem) for problem in found["right"]]
    tracking = found["study"] == "tracking"
    return Panels(
        "Keeping track of a state" if tracking else "What fits into a state",
        f"{found['examples']} test rows per point · bands: 95 % Wilson intervals as if a row were one answer",
        charts,
        reading=_TRACKING.format(trained=found["trained"]) if tracking else _RECALL,
        caution=_CAUTION,
    )


def _chart(found: Mapping[str, Any], problem: str) -> Curve:
    shares = found["right"][problem]
    places = list(next(iter(shares.values())))
    title, x_title = _ASKED[problem]
    lines = []
    for model, of_model in shares.items():
        kind = found.get("states", {}).get(model)
        lows, highs = zip(*(wilson(of_model[p], found["examples"]) for p in places), strict=True)
        name = f"{model} ({kind})" if kind else model
        counts = [found["examples"]] * len(places)
        lines.append(Series(name, [of_model[p] for p in places], [*lows], [*highs], counts))
    return Curve(
        title=title,
        subtitle=f"a guess is right in {found['guess'][problem]:.1%}",
        x_title=x_title,
        y_title="share of right answers",
        places=places,
        series=lines,
    )
