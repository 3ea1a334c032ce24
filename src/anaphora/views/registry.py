"""Every view by name, and pictures made by it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.settings.own import Part, is_part
from anaphora.views import (
    ahead,
    alignment,
    attribution,
    captions,
    change,
    flow,
    gates,
    glimpses,
    heads,
    lattice,
    length,
    markov,
    places,
    projector,
    recurrences,
    samples,
    sampling,
    spectrogram,
    states,
    together,
    tracking,
    training,
    tree,
)
from anaphora.views.code import code_for
from anaphora.views.further import FURTHER
from anaphora.views.picture import Picture
from anaphora.views.view import View
from anaphora.views.view import described as _view

_JOURNALS = "it is made of the journals of runs, not of one input."


VIEWS = {
    view.name: view
    for view in (
        _view(
            attribution,
            attribution.attribution,
            "explain",
            any_of=("integrated_gradients", "occlusion"),
            what=("attribution",),
            without="this answer has no score to share out, as those of Kalman filters, VAR and median, or its input one symbol.",
        ),
        _view(
            alignment,
            alignment.alignment,
            "attention",
            needs=("alignment",),
            without="the model has no attention from its output to its input; lstm-attention, gru-attention and transformer have.",
            together=together.alignment,
        ),
        _view(
            length,
            length.from_trace,
            "learning",
            name="length",
            of="examples",
            needs=("examples",),
            without="it is made of many examples (model, length, value), not of one run.",
        ),
        _view(
            training,
            training.curves,
            "learning",
            prefix="CURVES_",
            of="history",
            needs=("steps", "dev"),
            without=_JOURNALS,
        ),
        _view(samples, samples.samples, "learning", of="history", needs=("samples",), without=_JOURNALS),
        _view(
            training,
            training.health,
            "learning",
            prefix="HEALTH_",
            of="history",
            needs=("steps",),
            without=_JOURNALS,
        ),
        _view(
            change,
            change.change,
            "learning",
            of="film",
            needs=("moved",),
            without="it is made of the film of a run's training, not of one input.",
        ),
        _view(
            states,
            states.states,
            "memory",
            any_of=("*states",),
            without="the model keeps no state for each place; recurrent networks, deep convolutions and Transformers do.",
        ),
        _view(
            gates,
            gates.gates,
            "memory",
            any_of=("*gate_*",),
            without="none of its layers has gates or notes values between 0 and 1; LSTM, GRU and cells of your own can.",
        ),
        _view(
            flow,
            flow.gradients,
            "memory",
            what=("gradients",),
            any_of=(*flow.KINDS, "source_gradients"),
            without="it holds no gradients over places in time; captioners, decoders of sound and counted models give none.",
            together=together.gradients,
        ),
        _view(
            heads,
            heads.heads,
            "attention",
            what=("ablation",),
            more=True,
            any_of=("*attention",),
            axis="head",
            without="it holds no attention of heads: Transformers have them, though not every trace of one keeps them.",
        ),
        _view(
            recurrences,
            recurrences.spectrum,
            "memory",
            prefix="DECAY_",
            what=("recurrence",),
            any_of=("layer*_spectrum",),
            without="it holds no linear recurrence; mingru, mamba, griffin, gla, deltanet, xlstm and scanned cells have one.",
        ),
        _view(
            recurrences,
            recurrences.weights,
            "memory",
            prefix="WEIGHTS_",
            what=("recurrence",),
            any_of=("layer*_weights",),
            without="it holds no weights of a linear recurrence, which mingru, mamba, gla and others have up to 512 symbols.",
        ),
        _view(
            places,
            places.positions,
            "attention",
            needs=("positions",),
            without="no vectors of positions are added to its input, as sinusoidal and learned ones are; rotary ones are not.",
        ),
        _view(
            tree,
            tree.beam,
            "search",
            needs=("beam",),
            without="it was made without a beam search; probe an encoder-decoder without a given target, with beam above 1.",
        ),
        _view(
            sampling,
            sampling.sampling,
            "search",
            needs=("sorted_log_probs", "top"),
            without="the model does not name its next symbol; language models do.",
        ),
        _view(
            lattice,
            lattice.ctc,
            "search",
            needs=("posteriors", "lattice"),
            without="the model has no CTC outputs; `anaphora.probe.ctc.probe_ctc` makes a trace of any posteriors.",
        ),
        _view(
            projector,
            projector.embeddings,
            "symbols",
            of="vectors",
            needs=("embeddings", "projection"),
            without="it is of one input; `m.probe_embeddings()` of a model of text, or of word vectors, has them.",
        ),
        _view(
            markov,
            markov.hmm,
            "memory",
            needs=("smoothed", "viterbi"),
            without="the model is no hidden Markov model; `tag` has the preset hmm, and an.HMM stands by itself.",
        ),
        _view(
            tracking,
            tracking.kalman,
            "memory",
            needs=("observed", "predicted", "deviation", "nis"),
            without="the model is no Kalman filter; `forecast` has the preset kalman, and an.Kalman stands by itself.",
        ),
        _view(
            ahead,
            ahead.forecast,
            "explain",
            needs=("history", "forecast"),
            without="the model does not look ahead in time: forecasters do, unless their horizon is 0.",
        ),
        _view(
            spectrogram,
            spectrogram.spectrogram,
            "attention",
            needs=("spectrogram",),
            typed=False,
            without="the model hears nothing; `transcribe` trains models that do.",
        ),
        _view(
            captions,
            captions.captions,
            "attention",
            needs=("picture", "attention"),
            typed=False,
            without="the model sees no picture or has no attention over it; `caption` and `answer` have presets with it.",
        ),
        _view(
            glimpses,
            glimpses.glimpses,
            "attention",
            needs=("picture", "glimpses", "beliefs"),
            typed=False,
            without="the model does not look at a picture bit by bit; `classify` has the presets glimpse and draw.",
        ),
        *FURTHER,
    )
}
FIRST = (
    "captions",
    "glimpses",
    "alignment",
    "ctc",
    "hmm",
    "kalman",
    "forecast",
    "heads",
    "gates",
    "weights",
    "states",
    "sampling",
    "positions",
)
"""Views in the order in which they are tried when none is named: those that say most about a model first."""


def view(name: str) -> View:
    """The view of that name, or a sentence with the nearest one; ``module:name`` imports a view of the user's own."""
    if is_part(name):
        name = getattr(Part(name).bring(where="view ").object, "view_name", name)
    if name in VIEWS:
        return VIEWS[name]
    near = difflib.get_close_matches(name, VIEWS, n=1)
    hint = f"did you mean {near[0]}?" if near else "`anaphora inspect RUN --list` names those of a run."
    raise AnaphoraError(f"There is no view {name[:60]!r}; {hint}")


def picture(trace: Trace, name: str, **options: Any) -> Picture:
    """The picture `name` of `trace`; options are those of the view (alignment: layer, head)."""
    chosen = view(name)
    reason = chosen.missing(trace)
    if reason is not None:
        raise AnaphoraError(reason)
    chosen.check(options)
    chart = chosen.drawn(trace, **options)
    return Picture(chart, name=name, code=code_for(chosen, options, text=_text(trace)))


def picture_together(
    traces: Mapping[str, Trace], name: str, *, beside: bool = False, **options: Any
) -> Picture:
    """One picture of the traces of several runs, by their names: the same axes, the same scale.

        picture_together({run: an.load(run).probe("abc", what=("gradients",)) for run in ("elman", "lstm")}, "gradients")

    With ``beside`` a view that shows one run at a time is drawn for each of them, one below the other, on one scale. Raises an
    `AnaphoraError` for such a view without it, and where a trace lacks what it needs.
    """
    chosen = view(name)
    if chosen.together is None and not beside:
        can = ", ".join(one.name for one in VIEWS.values() if one.together)
        raise AnaphoraError(f"The view {name} shows one run at a time; these show several: {can}.")
    for run, trace in traces.items():
        if reason := chosen.missing(trace):
            raise AnaphoraError(f"{run}: {reason}")
    chosen.check(options)
    if chosen.together is None:
        return Picture(together.beside(traces, chosen.drawn, options), name=name)
    return Picture(chosen.together(traces, **options), name=name)


def _text(trace: Trace) -> str | None:
    """The text that was looked at; a series is not one, its trace only says which it was."""
    text = trace.facts.get("text") if trace.facts.get("task") != "forecast" else None
    return text if isinstance(text, str) and text else None
