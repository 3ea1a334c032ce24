"""Every view by name, and pictures made by it."""

from __future__ import annotations

import difflib
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.settings.own import Part, is_part
from anaphora.views import (
    alignment,
    captions,
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
    tracking,
    training,
    tree,
)
from anaphora.views.picture import Picture
from anaphora.views.view import View

VIEWS = {
    view.name: view
    for view in (
        View(
            "alignment",
            alignment.TITLE,
            ("alignment",),
            alignment.READING,
            alignment.CAUTION,
            "the model has no attention; lstm-attention, gru-attention and transformer have.",
            alignment.alignment,
        ),
        View(
            "length",
            length.TITLE,
            ("examples",),
            length.READING,
            length.CAUTION,
            "it is made of many examples (model, length, value), not of one run.",
            length.from_trace,
            of="examples",
        ),
        View(
            "curves",
            training.CURVES_TITLE,
            ("steps", "dev"),
            training.CURVES_READING,
            training.CURVES_CAUTION,
            "it is made of the journals of runs, not of one input.",
            training.curves,
            of="history",
        ),
        View(
            "samples",
            samples.TITLE,
            ("samples",),
            samples.READING,
            samples.CAUTION,
            "it is made of the journals of runs, not of one input.",
            samples.samples,
            of="history",
        ),
        View(
            "health",
            training.HEALTH_TITLE,
            ("steps",),
            training.HEALTH_READING,
            training.HEALTH_CAUTION,
            "it is made of the journals of runs, not of one input.",
            training.health,
            of="history",
        ),
        View(
            "states",
            states.TITLE,
            (),
            states.READING,
            states.CAUTION,
            "the model keeps no states of layers; recurrent networks, convolutions and Transformers do.",
            states.states,
            any_of=("states",),
        ),
        View(
            "gates",
            gates.TITLE,
            (),
            gates.READING,
            gates.CAUTION,
            "Elman cells, convolutions and Transformers have no gates; lstm and gru have.",
            gates.gates,
            any_of=tuple(f"gate_{name}" for name in gates.SIGMOID),
        ),
        View(
            "gradients",
            flow.TITLE,
            (),
            flow.READING,
            flow.CAUTION,
            "it holds no gradients: a translator, a captioner and a transcriber do not give them; models that read one "
            "sequence do (classify, tag, language, answer).",
            flow.gradients,
            what=("gradients",),
            any_of=tuple(flow.KINDS),
        ),
        View(
            "heads",
            heads.TITLE,
            (),
            heads.READING,
            heads.CAUTION,
            "it holds no attention of heads: only Transformers have heads.",
            heads.heads,
            what=("ablation",),
            any_of=tuple(heads.KINDS),
            axis="head",
        ),
        View(
            "spectrum",
            recurrences.DECAY_TITLE,
            (),
            recurrences.DECAY_READING,
            recurrences.DECAY_CAUTION,
            "it holds no linear recurrence: mingru, mamba, griffin, gla, deltanet and xlstm have one, and cells that are "
            "scanned; a translator, a captioner and a transcriber do not show theirs.",
            recurrences.spectrum,
            what=("recurrence",),
            any_of=("_spectrum",),
        ),
        View(
            "weights",
            recurrences.WEIGHTS_TITLE,
            (),
            recurrences.WEIGHTS_READING,
            recurrences.WEIGHTS_CAUTION,
            "it holds no weights of a linear recurrence: mingru, mamba, griffin, gla, deltanet and xlstm have them, for inputs "
            "of at most 512 symbols.",
            recurrences.weights,
            what=("recurrence",),
            any_of=("_weights",),
        ),
        View(
            "positions",
            places.TITLE,
            ("positions",),
            places.READING,
            places.CAUTION,
            "only Transformers take positions as input; recurrent networks and convolutions find them by themselves.",
            places.positions,
        ),
        View(
            "beam",
            tree.TITLE,
            ("beam",),
            tree.READING,
            tree.CAUTION,
            "it was made without a beam search; probe an encoder-decoder without a given target, with beam above 1.",
            tree.beam,
        ),
        View(
            "sampling",
            sampling.TITLE,
            ("sorted_log_probs", "top"),
            sampling.READING,
            sampling.CAUTION,
            "the model does not name its next symbol; language models do.",
            sampling.sampling,
        ),
        View(
            "ctc",
            lattice.TITLE,
            ("posteriors", "lattice"),
            lattice.READING,
            lattice.CAUTION,
            "the model has no CTC outputs; `anaphora.probe.ctc.probe_ctc` makes a trace of any posteriors.",
            lattice.ctc,
        ),
        View(
            "embeddings",
            projector.TITLE,
            ("embeddings", "projection"),
            projector.READING,
            projector.CAUTION,
            "it is of one input; `m.probe_embeddings()` of a model of text, or of word vectors, has them.",
            projector.embeddings,
            of="vectors",
        ),
        View(
            "hmm",
            markov.TITLE,
            ("smoothed", "viterbi"),
            markov.READING,
            markov.CAUTION,
            "the model is no hidden Markov model; `tag` has the preset hmm, and an.HMM stands by itself.",
            markov.hmm,
        ),
        View(
            "kalman",
            tracking.TITLE,
            ("observed", "predicted", "deviation", "nis"),
            tracking.READING,
            tracking.CAUTION,
            "the model is no Kalman filter; `forecast` has the preset kalman, and an.Kalman stands by itself.",
            tracking.kalman,
        ),
        View(
            "spectrogram",
            spectrogram.TITLE,
            ("spectrogram",),
            spectrogram.READING,
            spectrogram.CAUTION,
            "the model hears nothing; `transcribe` trains models that do.",
            spectrogram.spectrogram,
            typed=False,
        ),
        View(
            "captions",
            captions.TITLE,
            ("picture", "attention"),
            captions.READING,
            captions.CAUTION,
            "the model sees no picture or has no attention over it; `caption` and `answer` have presets with it.",
            captions.captions,
            typed=False,
        ),
        View(
            "glimpses",
            glimpses.TITLE,
            ("picture", "glimpses", "beliefs"),
            glimpses.READING,
            glimpses.CAUTION,
            "the model does not look at a picture bit by bit; `classify` has the presets glimpse and draw.",
            glimpses.glimpses,
            typed=False,
        ),
    )
}


def view(name: str) -> View:
    """The view of that name, or a sentence with the nearest one; ``module:name`` imports a view of the user's own."""
    if is_part(name):
        name = getattr(Part(name).bring(where="view ").object, "view_name", name)
    if name in VIEWS:
        return VIEWS[name]
    near = difflib.get_close_matches(name, VIEWS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(VIEWS)}."
    raise AnaphoraError(f"There is no view {name!r}; {hint}")


def picture(trace: Trace, name: str, **options: Any) -> Picture:
    """The picture `name` of `trace`; options are those of the view (alignment: layer, head)."""
    chosen = view(name)
    reason = chosen.missing(trace)
    if reason is not None:
        raise AnaphoraError(reason)
    chosen.check(options)
    chart = chosen.draw(trace, **options)
    given = "".join(f", {key}={value!r}" for key, value in options.items())
    what = f", what={chosen.what!r}" if chosen.what else ""
    sources = {
        "probe": f'an.load("RUN").probe("{"TEXT" if chosen.typed else "FILE"}"{what})',
        "history": 'an.history("RUN")',
        "vectors": 'an.load("RUN").probe_embeddings()',
    }
    source = sources.get(chosen.of, "trace")
    code = f'import anaphora as an\n\n{source}.view("{name}"{given}).save("{name}.html")'
    return Picture(chart, name=name, code=code)
