"""A look into a transcriber while it listens to one recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

from anaphora.data.audio.features import LogMel
from anaphora.data.audio.preprocessing import Samples
from anaphora.data.audio.recordings import frames_of
from anaphora.data.batches.padded import tensors_of
from anaphora.data.symbols import BOS, EOS
from anaphora.errors import DataError
from anaphora.models.ctc import BLANK, CTCModel, log_probabilities
from anaphora.models.listener import Listener
from anaphora.models.seq2seq import Seq2Seq
from anaphora.models.transducer import TransducerModel
from anaphora.probe.attribution import attribution_arrays, integrated_gradients, occluded, stretches
from anaphora.probe.ctc import probe_ctc
from anaphora.probe.noted import as_numpy, inner_arrays, run_noted, said_layers, weights_hash
from anaphora.probe.reading import position_arrays, probe_reading
from anaphora.probe.seq2seq import END, START, heads_by_kind
from anaphora.probe.trace import Array, Layer, Trace
from anaphora.search import Hypothesis, TransducerHypothesis, transducer_loss
from anaphora.search.transducer import transducer_posteriors
from anaphora.tasks.looking import facts_of
from anaphora.tasks.transcribe.inference.decoding import (
    PLAIN,
    Frames,
    Heard,
    Search,
    search_alignments,
    search_frames,
    search_symbols,
    spellable,
)
from anaphora.tasks.transcribe.inference.unsaid import never_by
from anaphora.tasks.transcribe.inference.words import in_order, transcript

if TYPE_CHECKING:
    from anaphora.tasks.transcribe.estimator import Transcriber

MOST_PLACES = 512
"""Places of an encoder up to which its heads are kept."""
LONGEST = 60.0
"""Seconds of a recording that can be looked at at once."""


def probe_transcriber(m: Transcriber, x: Any, target: str | None, what: Sequence[str]) -> Trace:
    """One recording on its way to the best text, or to ``target``. Arrays: ``spectrogram`` (frame, feature); of models with
    CTC ``posteriors``, ``lattice`` and ``best_path`` as in `probe_ctc`; of those with attention, and of transducers,
    ``alignment`` (target, source); and what the encoder's layers hold. The table ``words`` has the time and the confidence of each word."""
    frames = m._hear(x)
    s = m.settings_
    if len(frames) * s.hop > LONGEST:
        raise DataError(f"the recording is longer than {LONGEST:g} s; cut out what you want to look at.")
    spelled = None if target is None else m.tokenizer_.encode(target)
    if spelled is not None and not spelled:
        raise DataError("the target is empty; give the text that was said.")
    facts = facts_of(m, x if isinstance(x, str) else "")
    look = _look_at_decoder
    if isinstance(m.model_, CTCModel):
        look = _look_at_frames
    elif isinstance(m.model_, TransducerModel):
        look = _look_at_alignments
    trace, heard, h = look(m, frames, spelled, facts, what)
    seconds = s.hop * s.subsample
    written = transcript(m.model_, heard, h, m.tokenizer_, seconds=seconds)
    known = {"frame_seconds": s.hop, "posterior_seconds": seconds, "output": written.text}
    more: dict[str, Array] = {}
    if "attribution" in what:
        more, shared = _attributed(m, frames, h.tokens)
        known |= shared
    features = m.ear_.features
    if margin := getattr(features, "margin", 0):
        # what is shown is the recording, without the quiet around it
        frames = frames[margin : len(frames) - margin]
        more = {
            name: one._replace(values=one.values[margin : len(one.values) - margin])
            if one.axes[0] == "frame"
            else one
            for name, one in more.items()
        }
    if isinstance(features, Samples):  # to look at, as the energies of others
        features = LogMel(features.rate)
        known["frame_seconds"] = features.hop / features.rate
        frames = frames_of(frames[:, 0], features)
    if isinstance(features, LogMel) and s.features != "mfcc":
        known["frequencies"] = [float(f) for f in features.centres]
    return replace(
        trace,
        arrays={**trace.arrays, **more, "spectrogram": Array(("frame", "feature"), frames)},
        facts={**trace.facts, **known},
        tables={**trace.tables, "words": [asdict(word) for word in written.words]},
    )


def _look_at_frames(
    m: Transcriber, frames: Frames, target: list[int] | None, facts: dict[str, Any], what: Sequence[str]
) -> tuple[Trace, Heard, Hypothesis]:
    model = m.model_
    x, lengths = tensors_of([frames], next(model.parameters()).device)
    factor = m.settings_.subsample
    listener = getattr(model, "encoder", None)
    count = listener.places(len(frames)) if isinstance(listener, Listener) else -(-len(frames) // factor)
    trace, scores = probe_reading(
        model,
        lambda: model(x, lengths)[0],
        places=_places(m, count),
        facts=facts,
        losses=lambda z: -log_probabilities(z).amax(-1)[0],
        what=what,
        margin=getattr(listener, "margin", 0),
    )
    log_probs = log_probabilities(scores[0]).cpu()
    if not len(log_probs):
        raise DataError("the recording is too short: not a single place is left of it; give a longer one.")
    h = search_frames(log_probs, _searched(m))[0] if target is None else _known(target)
    return _with_frames(m, trace, log_probs, h), Heard([h], log_probs), h


def _look_at_alignments(
    m: Transcriber, frames: Frames, target: list[int] | None, facts: dict[str, Any], what: Sequence[str]
) -> tuple[Trace, Heard, Hypothesis]:
    """``alignment`` is γ: the share of alignments, by probability, that write a symbol at a frame."""
    model = m.model_
    assert isinstance(model, TransducerModel)
    tokens = target
    if tokens is None:
        tokens = search_alignments(model, [frames], _searched(m))[0].hypotheses[0].tokens
    x, lengths = tensors_of([frames], next(model.parameters()).device)
    wanted = torch.tensor([tokens], dtype=torch.int64, device=x.device)
    noted = run_noted(model, lambda: model(model.encode(x, lengths), wanted)[0])
    shares, steps = transducer_posteriors(noted.output[0], tokens)
    count = len(shares)
    places = in_order(shares.T.double().cpu().numpy())
    own = [float(steps[t, u]) for u, t in enumerate(places)]
    log_p = -float(transducer_loss(noted.output, [tokens], reduction="sum"))
    h = TransducerHypothesis(tokens, log_p, log_p, own, True, frames=places)
    arrays = {
        "alignment": Array(("target", "source"), as_numpy(shares.T)),
        "log_probs": Array(("target",), np.array(own, np.float32)),
    }
    inner, layers = inner_arrays(noted, under="encoder", side="encoder", axis="source", places=count)
    arrays |= inner
    names = {
        "source": _places(m, count),
        "target": m.tokenizer_.pieces(tokens),
        "time": _places(m, count),
    }
    known = {
        **facts,
        **said_layers(layers),
        "model": weights_hash(model),
        "dtype": "float32",
        "max_difference": noted.difference,
        "alignment": "alignments",
    }
    trace = Trace(names, arrays, known)
    with torch.no_grad():
        log_probs = log_probabilities(model.frames(model.encode(x, lengths))[0][0]).cpu()
    if spellable(tokens, len(log_probs)):
        trace = _with_frames(m, trace, log_probs, h)
    return trace, Heard([h]), h


def _look_at_decoder(
    m: Transcriber, frames: Frames, target: list[int] | None, facts: dict[str, Any], what: Sequence[str]
) -> tuple[Trace, Heard, Hypothesis]:
    model = m.model_
    assert isinstance(model, Seq2Seq)
    (heard,) = search_symbols(model, [frames], _searched(m))
    x, lengths = tensors_of([frames], next(model.parameters()).device)
    h = heard.hypotheses[0] if target is None else _known(target)
    target_in = torch.tensor([[BOS, *h.tokens]], device=x.device)
    noted = run_noted(model, lambda: model(x, lengths, target_in))
    log_probs = log_probabilities(noted.output[0])
    wanted = torch.tensor([*h.tokens, EOS], device=x.device)
    own = log_probs.gather(1, wanted[:, None])[:, 0]
    attention = {id(module): path for path, module in model.named_modules()}[id(model.decoder.attentions[-1])]
    found = noted.kept("weights", ndim=3, under=attention)
    by_head = noted.kept("weights", ndim=4, under=attention)  # (heads, target, source)
    weights = as_numpy(found[0].value[0] if found else by_head[0].value[0].mean(0))
    weights = weights[-len(wanted) :]  # a prompt stands before them
    count = weights.shape[1]
    arrays = {
        "alignment": Array(("target", "source"), weights),
        "log_probs": Array(("target",), as_numpy(own)),
    }
    layers: dict[str, list[Layer]] = {}
    prompt = 10**9  # of any length
    for inner, known_layers in (
        inner_arrays(noted, under="encoder", side="encoder", axis="source", places=count),
        inner_arrays(noted, under="decoder", side="decoder", axis="fed", places=len(wanted), beyond=prompt),
        heads_by_kind(model, noted, prompted=len(wanted), source=count if count <= MOST_PLACES else 0),
    ):
        arrays |= inner
        layers |= known_layers
    arrays |= position_arrays(model.encoder, count)
    pieces = m.tokenizer_.pieces(h.tokens)
    tokens = {
        "source": _places(m, count),
        "target": [*pieces, END],
        "fed": [START, *pieces],
        "time": _places(m, count),
    }
    known = {
        **facts,
        **said_layers(layers),
        "model": weights_hash(model),
        "dtype": "float32",
        "max_difference": noted.difference,
        "alignment": "attention",
    }
    trace = Trace(tokens, arrays, known)
    if target is not None:
        h = replace(h, steps=own[:-1].tolist())
    if heard.log_probs is not None and spellable(h.tokens, len(heard.log_probs)):
        trace = _with_frames(m, trace, heard.log_probs, h)
    return trace, heard, h


def _attributed(m: Transcriber, frames: Frames, tokens: list[int]) -> tuple[dict[str, Array], dict[str, Any]]:
    """log p of the transcript (of CTC the sum over all paths) shared out over the frames."""
    model = m.model_.eval()
    x, lengths = tensors_of([frames], next(model.parameters()).device)
    wanted = torch.tensor([tokens], dtype=torch.int64, device=x.device)

    def score(inputs: Tensor) -> Tensor:
        n = len(inputs)
        if isinstance(model, CTCModel):
            scores, counts = model(inputs, lengths.expand(n))
            logs = log_probabilities(scores).transpose(0, 1)
            sizes = torch.full((n,), len(tokens), device=x.device)
            return -ctc_loss(logs, wanted.expand(n, -1), counts, sizes, blank=BLANK, reduction="none")[
                :, None
            ]
        if isinstance(model, TransducerModel):
            logits, counts = model(model.encode(inputs, lengths.expand(n)), wanted.expand(n, -1))
            losses = transducer_loss(logits, wanted.expand(n, -1), counts, reduction="none")
            return -losses[:, None]
        fed = torch.tensor([[BOS, *tokens]], device=x.device).expand(n, -1)
        written = torch.tensor([[*tokens, EOS]], device=x.device).expand(n, -1)
        logs = log_probabilities(model(inputs, lengths.expand(n), fed))
        return logs.gather(2, written[..., None])[..., 0].sum(1, keepdim=True)

    blank, steps = torch.zeros_like(x), len(frames)
    found = integrated_gradients(score, x, blank)
    falls = occluded(score, x, blank, stretches(steps, 40), like=(steps,))
    return attribution_arrays(found, falls, ("frame",), of="log p(transcript)", without="set to zero")


def _with_frames(m: Transcriber, trace: Trace, log_probs: Tensor, h: Hypothesis) -> Trace:
    """The same with the posteriors of every frame and the ways of spelling the text."""
    names = ["–", *m.tokenizer_.pieces(list(range(1, m.tokenizer_.size)))]
    seen = probe_ctc(log_probs.numpy(), h.tokens, symbols=names, blank=BLANK)
    return replace(
        trace,
        tokens={**trace.tokens, **seen.tokens},
        arrays={**trace.arrays, **seen.arrays},
        facts={**trace.facts, **seen.facts},
    )


def _searched(m: Transcriber) -> Search:
    return Search(PLAIN, ctc_weight=m.settings_.ctc_weight, never=never_by(m.model_, m.unsaid_))


def _known(target: list[int]) -> Hypothesis:
    return Hypothesis(target, 0.0, 0.0, [], finished=True)


def _places(m: Transcriber, count: int) -> list[str]:
    """The moment of each frame after subsampling, in seconds."""
    seconds = m.settings_.hop * m.settings_.subsample
    return [f"{i * seconds:.2f}" for i in range(count)]
