"""Graphs of the tasks that write symbol by symbol: what is read becomes the decoder's first state, and a step goes on from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.data.audio.frames import Ear
from anaphora.data.audio.preprocessing import margin_of
from anaphora.data.tokenizers import PairTokenizer
from anaphora.errors import AnaphoraError
from anaphora.models.ctc import CTCModel, JointModel
from anaphora.models.memory import Memory
from anaphora.models.seq2seq import Seq2Seq, WatchedState
from anaphora.models.whisper import PromptedDecoder
from anaphora.nn import inside
from anaphora.settings import SearchSettings
from anaphora.settings.own import Part
from anaphora.tasks.exporting import inputs
from anaphora.tasks.exporting.graph import Export, Graph, on_cpu
from anaphora.tasks.exporting.states import Layout, Stepped, layout_of, leaves, outputs_of, random_states
from anaphora.tasks.transcribe.inference.unsaid import never_by

Make = Callable[[int, int], dict[str, Tensor]]
BEGIN = "begin_"
"""Before the name of a state that the encoder gives."""


class _Reads(nn.Module):
    """Inputs -> the tensors of the decoder's first state, how many places are real, and the scores of frames for CTC."""

    def __init__(self, model: Seq2Seq, layout: Layout):
        super().__init__()
        self.model, self.layout = model, layout

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        memory: Memory = self.model.encoder(*given)
        found = dict(leaves(_start(self.model, memory)))
        more: list[Tensor] = []
        if isinstance(self.model, JointModel):
            more.append(torch.log_softmax(self.model.frames(memory)[0].float(), -1))
        return (memory.mask.sum(1), *more, *(found[name] for name in self.layout.begins))


def _start(model: Seq2Seq, memory: Memory) -> Any:
    return model.start_watched(memory) if model.decoder.attentions else model.start(memory)


def _step(model: Seq2Seq, symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
    """A step that also says where it looked, which coverage needs."""
    if not model.decoder.attentions:
        return model.step(symbols, state)
    with inside.record() as notes:
        log_probs, new = model.step(symbols, state.state)
    # The highest attention notes last; while a graph is traced, modules are replaced and cannot be compared.
    weights = [note.value for note in notes if note.name == "weights"][-1]
    weights = (weights.mean(1) if weights.dim() == 4 else weights).squeeze(1).float()
    return log_probs, WatchedState(new, weights, state.places)


def writer_graphs(model: Any, size: int, make: Make, axes: dict[str, tuple[str, ...]]) -> dict[str, Graph]:
    """``encoder`` of what ``make`` gives, and ``step`` over ``size`` symbols."""
    if not isinstance(model, Seq2Seq):
        raise AnaphoraError(
            "a model of your own that writes cannot be exported to ONNX; an encoder or a cell can."
        )
    with torch.no_grad():
        layout = layout_of(
            lambda rows, source: _start(model, model.encoder(*make(rows, source).values())),
            lambda state, rows: _step(model, inputs.symbols(size, (rows,)), state)[1],
        )

    def step(batch: int, length: int) -> dict[str, Tensor]:
        return {"symbols": inputs.symbols(size, (batch,)), **random_states(layout, batch, length)}

    scores = ("frame_log_probs",) if isinstance(model, JointModel) else ()
    outputs = ("places", *scores, *(BEGIN + name for name in layout.begins))
    return {
        "encoder": Graph(_Reads(model, layout), make, axes, outputs),
        "step": Graph(
            Stepped(model, lambda symbols, state: _step(model, symbols, state), layout),
            step,
            {"symbols": ("rows",), **layout.axes},
            outputs_of(layout),
            layout.kept,
        ),
    }


def search_facts(m: Any, model: Any) -> dict[str, Any]:
    """What the runtime searches with by default."""
    s = m.settings_
    usual = {key: getattr(s, key) for key in SearchSettings.model_fields if key != "int8" and hasattr(s, key)}
    return {"search": usual, "places": model.decoder.places, "attends": bool(model.decoder.attentions)}


def translator_export(m: Any) -> Export:
    """Source symbols ``(batch, time)`` with EOS, and lengths."""
    for side in (m.tokenizer_.source, m.tokenizer_.target):
        inputs.check_reading(side)
    if type(m.tokenizer_) is not PairTokenizer:
        inputs.check_reading(m.tokenizer_)
    model = on_cpu(m.model_)
    size = m.tokenizer_.source.size

    def make(batch: int, length: int) -> dict[str, Tensor]:
        return {"source": inputs.symbols(size, (batch, length)), "lengths": inputs.lengths(batch, length)}

    axes = {"source": ("batch", "time"), "lengths": ("batch",)}
    graphs = writer_graphs(model, m.tokenizer_.target.size, make, axes)
    return Export(graphs, {**search_facts(m, model), "max_tokens": m.settings_.max_tokens})


def captioner_export(m: Any) -> Export:
    """Images ``(batch, 3, height, width)`` from 0 to 1."""
    inputs.check_reading(m.tokenizer_)
    model = on_cpu(m.model_)
    height, width = m.size

    def make(batch: int, length: int) -> dict[str, Tensor]:
        return {"images": inputs.numbers((batch, 3, height, width)).abs().clamp(max=1)}

    graphs = writer_graphs(model, m.tokenizer_.size, make, {"images": ("batch", "", "", "")})
    return Export(graphs, {**search_facts(m, model), "size": [height, width]})


# ------------------------------------------------------------------ sound


class _Frames(nn.Module):
    """Frames -> log p of symbols at every frame that is left, and how many of each row are real."""

    def __init__(self, model: CTCModel):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        scores, places = self.model(x, lengths)
        return torch.log_softmax(scores.float(), -1), places


def transcriber_export(m: Any) -> Export:
    """Frames ``(batch, time, features)`` and lengths -> log p at every frame; or an encoder and a step as a translator has."""
    ear: Ear = m.ear_
    s = m.settings_
    if s.model == "transducer":
        raise AnaphoraError(
            "a transducer writes and listens in turn, for which there is no graph yet; export a preset with CTC."
        )
    inputs.check_reading(m.tokenizer_)
    if ear.kind == "audio" and isinstance(s.features, Part):
        inputs.check_reading(None, s.features)
    model = on_cpu(m.model_)

    def make(batch: int, length: int) -> dict[str, Tensor]:
        return {
            "frames": inputs.numbers((batch, length * each, ear.width)),
            "lengths": inputs.lengths(batch, length) * each,
        }

    each = 2 * s.subsample if s.features == "samples" else 1  # else there would be no place at all
    axes = {"frames": ("batch", "time", ""), "lengths": ("batch",)}
    if isinstance(model, CTCModel):
        graphs = {"model": Graph(_Frames(model), make, axes, ("log_probs", "places"))}
    elif isinstance(model, Seq2Seq) and isinstance(model.decoder, PromptedDecoder):
        graphs = prompted_graphs(model, m.tokenizer_.size, make, axes)
    else:
        graphs = writer_graphs(model, m.tokenizer_.size, make, axes)
    return Export(graphs, sound_facts(m))


class _Prompted(nn.Module):
    """Frames -> how many places there are, the last symbol of the prompt, and the tensors of the state before it is read."""

    def __init__(self, model: Seq2Seq, layout: Layout):
        super().__init__()
        self.model, self.layout = model, layout

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        memory: Memory = self.model.encoder(x, lengths)
        state, symbols = _decoder(self.model).before_first(memory)
        found = dict(leaves(state))
        return (memory.mask.sum(1), symbols, *(found[name] for name in self.layout.begins))


def _decoder(model: Seq2Seq) -> PromptedDecoder:
    assert isinstance(model.decoder, PromptedDecoder)
    return model.decoder


def prompted_graphs(
    model: Seq2Seq, size: int, make: Make, axes: dict[str, tuple[str, ...]]
) -> dict[str, Graph]:
    """As `writer_graphs`, of a decoder that reads a prompt first: the encoder's graph reads all of it but its last symbol."""
    decoder = _decoder(model)
    most: int = model.encoder.front.most  # type: ignore[union-attr, assignment]

    def heard(batch: int, length: int) -> dict[str, Tensor]:
        return make(batch, min(length, most))

    with torch.no_grad():
        layout = layout_of(
            lambda rows, source: decoder.before_first(model.encoder(*heard(rows, source).values()))[0],
            lambda state, rows: decoder.next_log_probs(inputs.symbols(size, (rows,)), state)[1],
        )

    def step(batch: int, length: int) -> dict[str, Tensor]:
        room = (decoder.places or length) - 3  # `random_states` has two more steps, and one is made
        return {
            "symbols": inputs.symbols(size, (batch,)),
            **random_states(layout, batch, max(1, min(length, room))),
        }

    outputs = ("places", "start", *(BEGIN + name for name in layout.begins))
    return {
        "encoder": Graph(_Prompted(model, layout), heard, axes, outputs),
        "step": Graph(
            Stepped(model, lambda symbols, state: decoder.next_log_probs(symbols, state), layout),
            step,
            {"symbols": ("rows",), **layout.axes},
            outputs_of(layout),
            layout.kept,
        ),
    }


def sound_facts(m: Any) -> dict[str, Any]:
    """How sound becomes frames, and how texts are searched for."""
    s = m.settings_
    sound = {
        key: getattr(s, key)
        for key in ("features", "bins", "bands", "power", "frame_length", "hop", "normalise")
    }
    sound["margin"] = margin_of(s)
    sound["least"] = m.model_.encoder.front.reach if s.features == "samples" else 0
    found = {"sound": sound, "factor": s.subsample, "ctc_weight": s.ctc_weight, "voices": m.usual_voices}
    found["never"] = list(never_by(m.model_, m.unsaid_))
    if s.model != "whisper":
        return found
    sound["most"] = s.max_tokens
    decoder = _decoder(m.model_)
    return found | {"prompted": {"places": decoder.places, "never_first": decoder.never_first}}
