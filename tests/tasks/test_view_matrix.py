"""Every view × every task and preset: drawn, or refused for a reason that the model bears out.

What a preset can show follows from its parts (`PARTS`), not from what the probe happens to hold: a view that is refused although
the model has what it needs, or drawn although it has not, fails here.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
import test_probing as reading
import test_probing_senses as senses
from torch import nn

import anaphora as an
from anaphora.models.ctc import CTCModel, JointModel
from anaphora.models.seq2seq import Seq2Seq
from anaphora.models.transducer import TransducerModel
from anaphora.nn.attention.multihead import MultiHead
from anaphora.nn.linear import LinearLayer
from anaphora.nn.positions import Learned, Sinusoidal
from anaphora.nn.recurrent import Recurrent
from anaphora.nn.transformer import TransformerEncoder as Stack
from anaphora.probe.answers import answer_of
from anaphora.views.registry import VIEWS, picture

PAIRS = [("a b c", "c b a"), ("b c", "c b"), ("a a b", "b a a"), ("c", "c")] * 4
WHAT = ("gradients", "jacobians", "ablation", "recurrence", "attribution", "lens")
ANSWERS = {
    "Translator": "text",
    "Captioner": "text",
    "Transcriber": "transcript",
    "Classifier": "classes",
    "Answerer": "classes",
    "Tagger": "tags",
    "LanguageModel": "next",
    "Forecaster": "forecast",
}
CASES = [(task, preset) for task in ANSWERS for preset in getattr(an, task).task().presets]
FEW = {
    ("Translator", "lstm-attention"),
    ("Translator", "transformer"),
    ("Captioner", "lstm-attention"),
    ("Transcriber", "joint"),
    ("Classifier", "ngrams"),
    ("Classifier", "rocket"),
    ("Classifier", "mamba"),
    ("Classifier", "glimpse"),
    ("Answerer", "lstm-attention"),
    ("Tagger", "hmm"),
    ("Tagger", "bilstm-crf"),
    ("LanguageModel", "gru"),
    ("LanguageModel", "masked"),
    ("Forecaster", "kalman"),
    ("Forecaster", "lstm"),
    ("Forecaster", "median"),
    ("Forecaster", "var"),
}
"""Those that are tried every time; all of them by `make test-all`."""


JUMPS = {
    ("Classifier", "glimpse"),  # where it looks next is chosen, which has no gradient
    ("Captioner", "lstm-hard"),
    ("Forecaster", "gla"),  # norms of an input of zeros are not smooth
    ("Forecaster", "deltanet"),
}
"""Models whose integral is not exact; their completeness error says so."""


@functools.cache
def looked_at(name, preset):
    """A small trained model of that preset, and a trace of one input with all that can be asked for."""
    if name == "Translator":
        fields = an.Translator.task().used(preset)
        sizes = {**reading.TINY, "hidden": 8, "embedding": 6, "heads": 2, "feedforward": 8, "layers": 1}
        given = {key: value for key, value in sizes.items() if key in fields}
        model = an.Translator(model=preset, tokens="word", max_length=4, **given).fit(PAIRS)
        return model, *probed(model, "a b c")
    heard = preset in ("wav2vec2", "whisper", "mfcc-ctc")  # sound itself, not frames
    if name in ("Captioner", "Answerer") or heard or (preset in reading.PICTURES and name == "Classifier"):
        task, rows = getattr(an, name), senses.DATA[name]
        known = task.task().used(preset).keys()
        sizes = {key: value for key, value in {**senses.SIZES, **senses.TINY}.items() if key in known}
        model = task(model=preset, **sizes).fit(rows, valid=rows[:2])
        return model, *probed(model, rows[0][:2] if name == "Answerer" else rows[0][0])
    model = reading.trained(name, preset)
    return model, *probed(model, reading.looked_at(name, preset))


def probed(model, x):
    """The trace, and what the model refused to be asked for."""
    trace, refused = model.probe(x), {}
    for one in WHAT:
        try:
            more = model.probe(x, what=(one,))
        except an.AnaphoraError as error:
            refused[one] = str(error)
            continue
        trace.arrays.update(more.arrays)
        trace.tables.update(more.tables)
        trace.tokens.update(more.tokens)
        trace.facts.update(more.facts)
    return trace, refused


def _read_by_the_output(net):
    """Whether every layer of a language model is of the kind that its output reads."""
    body = getattr(net, "body", None)
    return isinstance(getattr(body, "stack", None), Stack) or isinstance(
        getattr(body, "recurrent", None), Recurrent
    )


def parts(model, preset, held):
    """Which views the parts of the model can give; ``held`` names the arrays that a trace of it holds."""
    net = model.model_ if isinstance(model.model_, nn.Module) else None
    modules = list(net.modules()) if net is not None else []
    has = lambda *kinds: any(isinstance(module, kinds) for module in modules)  # noqa: E731
    name = type(model).__name__
    paths = net.named_modules() if net is not None else []
    # a word's characters are read by a network of their own
    cells = [module for path, module in paths if isinstance(module, Recurrent) and "spelling" not in path]
    gated = any(isinstance(cell, an.nn.LSTM | an.nn.GRU) for one in cells for cell in one.cells)
    heads = has(MultiHead)
    found = {
        "heads": heads and name not in ("Captioner", "Answerer"),
        "spectrum": has(LinearLayer) and not isinstance(net, Seq2Seq),
        "beam": isinstance(net, Seq2Seq) and name != "Transcriber",
        "sampling": name == "LanguageModel" and preset != "masked",  # which fills places and draws nothing
        "ctc": isinstance(net, CTCModel | JointModel | TransducerModel),
        "hmm": preset == "hmm",
        "kalman": preset == "kalman",
        "forecast": name == "Forecaster",
        "spectrogram": name == "Transcriber",
        "glimpses": preset in ("glimpse", "draw"),
        "alignment": isinstance(net, TransducerModel)
        or (isinstance(net, Seq2Seq) and bool(net.decoder.attentions)),
        "attribution": preset not in ("kalman", "median", "var"),
        "crf": preset.endswith("-crf"),
        "prefixes": isinstance(net, CTCModel | JointModel | TransducerModel),
        "lens": name == "LanguageModel" and _read_by_the_output(net),
        "trajectory": any(array in held for array in ("states", "encoder_states", "decoder_states")),
    }
    one = [module for module in modules if isinstance(module, Recurrent)]
    if name in ("LanguageModel", "Classifier", "Tagger") and not has(LinearLayer) and "glimpse" not in preset:
        found["jacobians"] = len(one) == 1 and not one[0].bidirectional
    if name != "Captioner":  # whose trace keeps what the decoder sees
        found["positions"] = has(Sinusoidal, Learned)
    if gated and name != "Classifier":
        found["gates"] = True
    if not cells and not has(LinearLayer):
        found["gates"] = preset in ("glimpse", "draw") or (name == "Captioner" and preset.startswith("lstm"))
    return found


@pytest.mark.parametrize(
    ("name", "preset"),
    [case if case in FEW else pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
)
def test_every_view_is_drawn_or_refused_truthfully(name, preset):
    model, trace, _ = looked_at(name, preset)
    can = parts(model, preset, trace.arrays)
    for view in VIEWS.values():
        if view.of != "probe":
            continue
        reason = view.missing(trace)
        if view.name in can:
            assert (reason is None) == can[view.name], f"{view.name}: {reason}"
        if reason is None:
            made = picture(trace, view.name)
            assert made.svg().startswith("<svg")
            assert made.text(80, colour=False)
            assert made.csv()
        else:
            assert "\n" not in reason
            assert reason.endswith(".")
    answer = answer_of(trace)
    assert answer["kind"] == ("tags" if preset == "masked" else ANSWERS[name])
    for p in answer.get("probabilities", []):
        assert 0 <= p <= 1 + 1e-6
    known = trace.facts.get("attribution", {})
    if "error" in known and (name, preset) not in JUMPS:
        gap = abs(known["value"] - known["baseline"])
        assert (
            known["error"] * gap < 0.1 * gap + 0.05
        )  # models of three steps may answer nothing and all alike
        assert np.isfinite(trace.arrays["integrated_gradients"].values).all()


def test_no_preset_is_left_out():
    assert set(CASES) >= FEW
    assert {name for name, _ in CASES} == {
        task.__name__
        for task in (
            an.Translator,
            an.Captioner,
            an.Transcriber,
            an.Classifier,
            an.Answerer,
            an.Tagger,
            an.LanguageModel,
            an.Forecaster,
        )
    }
