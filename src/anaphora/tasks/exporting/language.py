"""Graphs of language models: reading with states carried on, or windows and a step with keys and values kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from anaphora.errors import AnaphoraError
from anaphora.models.classical.ngram import NGram
from anaphora.models.language import Language, TransformerBody
from anaphora.models.language_masked import MaskedLanguage
from anaphora.tasks.exporting import inputs
from anaphora.tasks.exporting.graph import Export, Graph, on_cpu
from anaphora.tasks.exporting.states import Stepped, layout_of, outputs_of, random_states


def language_export(m: Any) -> Export:
    """``model``: symbols ``(rows, time)`` and states -> log p ``(rows, time, symbols)`` and new states. A Transformer has two
    graphs: ``model`` reads a window, ``step`` one symbol more ``(rows,)`` after keys and values of those before."""
    refuse_counts(m)
    inputs.check_reading(m.tokenizer_)
    s, model = m.settings_, on_cpu(m.model_)
    facts = {
        "begin": m.begin,
        "end": m.end,
        "lines": s.lines,
        "backward": s.backward,
        "context": getattr(getattr(model, "body", None), "context", None),
        "sample": {key: getattr(s, key) for key in ("length", "temperature", "top_k", "top_p", "min_p")},
    }
    if isinstance(model, MaskedLanguage):
        return Export({"model": _masked(model, m.tokenizer_.size)}, facts | {"context": model.context})
    if not isinstance(model, Language):
        raise AnaphoraError(
            "a language model of your own cannot be exported to ONNX; a cell of your own can."
        )
    if isinstance(model.body, TransformerBody):
        return Export(_windows(model, m.tokenizer_.size), facts)
    return Export({"model": _carried(model, m.tokenizer_.size)}, facts)


def refuse_counts(m: Any) -> None:
    """An `AnaphoraError` for a table of counts, which is no network that another format could hold."""
    if isinstance(m.model_, NGram):
        raise AnaphoraError(
            "an n-gram model is a table of counts, not a network; export it --to arpa, or train a network such as --model lstm."
        )


class _Logits(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, *given: Tensor) -> Tensor:
        return torch.log_softmax(self.model(*given).float(), -1)


def _masked(model: MaskedLanguage, size: int) -> Graph:
    def make(batch: int, length: int) -> dict[str, Tensor]:
        length = min(length, model.context)
        return {"symbols": inputs.symbols(size, (batch, length)), "lengths": inputs.lengths(batch, length)}

    return Graph(_Logits(model), make, {"symbols": ("rows", "time"), "lengths": ("rows",)}, ("log_probs",))


def _carried(model: Language, size: int) -> Graph:
    """A body that carries states: a step is a reading of one symbol."""

    def advance(symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, reading = model.read(symbols, state)
        return torch.log_softmax(model.output(y).float(), -1), reading.carried

    layout = layout_of(
        lambda rows, source: model.start(rows),
        lambda state, rows: model.read(inputs.symbols(size, (rows, 1)), state)[1].carried,
    )

    def make(batch: int, length: int) -> dict[str, Tensor]:
        return {
            "symbols": inputs.symbols(size, (batch, length)),
            **random_states(layout, batch, length, size),
        }

    axes = {"symbols": ("rows", "time"), **layout.axes}
    return Graph(Stepped(model, advance, layout), make, axes, outputs_of(layout), fills=layout.fills)


def _windows(model: Language, size: int) -> dict[str, Graph]:
    body = model.body

    def advance(symbols: Tensor, past: Any) -> tuple[Tensor, Any]:
        y, past = body._advance(symbols, past)
        return torch.log_softmax(model.output(model.towards_output(y)).float(), -1), past

    def one(state: Any, rows: int) -> Any:
        return body._advance(inputs.symbols(size, (rows,)), state)[1]

    layout = layout_of(lambda rows, source: None, one)

    def make(batch: int, length: int) -> dict[str, Tensor]:
        before = max(1, min(length, body.context - 3))
        return {"symbols": inputs.symbols(size, (batch,)), **random_states(layout, batch, before)}

    def window(batch: int, length: int) -> dict[str, Tensor]:
        return {"symbols": inputs.symbols(size, (batch, min(length, body.context)))}

    axes = {"symbols": ("rows",), **layout.axes}
    return {
        "model": Graph(_Logits(model), window, {"symbols": ("rows", "time")}, ("log_probs",)),
        "step": Graph(Stepped(model, advance, layout), make, axes, outputs_of(layout)),
    }
