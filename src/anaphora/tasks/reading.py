"""What the tasks share that make one answer of a whole sequence: inputs, an encoder, a pooling, outputs in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from anaphora.data.batches.padded import tensors_of
from anaphora.data.batches.pooled import Input, in_order, together
from anaphora.data.contexts import Context
from anaphora.data.labelled_inputs import TextInputs, VectorInputs
from anaphora.data.symbols import BOS
from anaphora.data.table import Table
from anaphora.data.tokenizers import ENOUGH_TEXT, Tokenizer
from anaphora.models.classifier import BagEncoder, ConvolutionEncoder, VectorInput
from anaphora.models.encoders import RecurrentEncoder
from anaphora.models.pooling import (
    AttentionPooling,
    Concatenated,
    FirstState,
    FirstThrough,
    LastState,
    Maximum,
    Mean,
)
from anaphora.models.pretrained.contextual import ContextualWords
from anaphora.nn.embedding import Embedding
from anaphora.settings.own import Part
from anaphora.tasks.artifacts import learn_tokenizer
from anaphora.tasks.estimator import Estimator, whatever_the_batch
from anaphora.tasks.given import check_finite
from anaphora.tasks.parts import (
    ACTIVATIONS,
    ENDS,
    frame_network,
    make_reader,
    own_encoder,
    transformer_encoder,
)
from anaphora.tasks.plan import LOOK
from anaphora.tasks.pretrained import context_reader

FORMAT = 1
Numbers = np.ndarray[Any, np.dtype[np.float64]]


def sequence_encoder(
    task: str, s: Any, symbols: int, features: int, context: Sequence[Context] = ()
) -> tuple[nn.Module, int]:
    """What reads a sequence of ``symbols`` or of vectors of ``features``, and the width of its states."""
    if isinstance(s.encoder, Part):
        words = VectorInput(features) if features else Embedding(symbols, s.embedding, scaled=True)
        own = own_encoder(task, s, words, dropout=0.0 if features else s.dropout)
        assert own is not None
        return own, own.width
    if s.model == "bow":
        words = VectorInput(features, s.embedding) if features else Embedding(symbols, s.embedding)
        return BagEncoder(words, width=s.embedding, dropout=s.dropout), s.embedding
    frames = frame_network(s, features, s.hidden) if features else None
    if s.model == "transformer":
        room = s.hidden - sum(one.width for one in context)
        wide: Any = (
            (frames or VectorInput(features, s.hidden))
            if features
            else Embedding(symbols, room, scaled=s.embedding_scale)
        )
        if context:
            wide = ContextualWords(wide, [context_reader(one, symbols) for one in context])
        return transformer_encoder(
            s, wide, places=s.max_tokens + ENDS, causal=getattr(s, "causal", False)
        ), s.hidden
    # Vectors of rare words that begin small cannot fill a max over time; recurrent layers take those of a language
    # model, which are scaled.
    scaled = s.model != "conv"
    embedding: Any = (
        (frames or VectorInput(features)) if features else Embedding(symbols, s.embedding, scaled=scaled)
    )
    if context:
        embedding = ContextualWords(embedding, [context_reader(one, symbols) for one in context])
    noise = (
        0.0 if features else s.dropout
    )  # a vector is measured; a symbol's vector is learned and can be spared
    if s.model == "conv":
        widths = range(min(3, s.kernel), s.kernel + 1)
        conv = ConvolutionEncoder(
            embedding, embedding.width, s.hidden, widths, deeper=s.layers - 1, dropout=noise
        )
        return conv, conv.width
    layers = make_reader(s, embedding.width, bidirectional=s.bidirectional)
    return RecurrentEncoder(embedding, layers, dropout=noise), layers.output_size


def ends_of(pooling: str, inputs: TextInputs | VectorInputs) -> dict[str, Any]:
    """The symbol a text begins with, if any, and whether one ends it."""
    if not isinstance(inputs, TextInputs):
        return {"begin": None, "end": True}
    return {"begin": BOS if pooling == "first" else inputs.begin, "end": inputs.end}


def sequence_pooling(s: Any, width: int) -> nn.Module:
    """How states of that ``width`` become one vector, as ``pooling`` says."""
    if s.model == "bow":
        return Mean()
    if s.pooling == "attention":
        return AttentionPooling(width)
    if s.pooling.startswith("first-"):
        return FirstThrough(width, ACTIVATIONS[s.pooling.removeprefix("first-")])
    kinds = {"last": LastState, "max": Maximum, "mean": Mean, "first": FirstState, "concat": Concatenated}
    return kinds[s.pooling]()


@torch.no_grad()
def score_inputs(model: Any, inputs: Sequence[Input]) -> Numbers:
    """Scores ``(n, outputs)`` of all inputs, in their order."""
    device = next(model.parameters()).device
    found = np.zeros((len(inputs), model.outputs))
    for rows in in_order(inputs, together(inputs)):
        source, lengths = tensors_of([inputs[i] for i in rows], device)
        found[rows] = model(source, lengths).double().cpu().numpy()
    return found


class SequenceReader(Estimator):
    """A task whose inputs are whole sequences: texts by a tokenizer, or vectors by their mean and scale (``inputs_``)."""

    inputs_: Any
    settings_: Any

    def _learn_symbols(self, data: Table, sides: int = 1) -> Tokenizer:
        """A tokenizer of the first ``sides`` texts of the rows; of much text a part is read."""
        rows = data.read(range(0, len(data), 1 + data.text_bytes // ENOUGH_TEXT))
        return learn_tokenizer(self.settings_, (text for row in rows for text in row[:sides]))

    def _symbols(self, data: Table) -> float:
        rows = data.read(range(0, len(data), max(1, len(data) // LOOK)))
        lengths = [len(x) + 1 for x in self._encode([row[0] for row in rows])]
        return sum(lengths) / len(lengths) * len(data)

    def _inputs(self) -> Literal["text", "numbers", "series", "file"]:
        if not isinstance(self.inputs_, VectorInputs):
            return "text"
        return "numbers" if self.inputs_.size is None else "file"

    def _encode(self, given: Sequence[Any]) -> list[Input]:
        found: list[Input] = self.inputs_.encode(given, getattr(self.settings_, "scan", "rows"))
        return found

    @whatever_the_batch
    def _outputs(self, inputs: Sequence[Input]) -> Numbers:
        """What the model puts out, ``(n, outputs)``; numbers that are not finite are an error."""
        self.model_.eval()
        found = score_inputs(self.model_, inputs)
        check_finite(found, "input")
        return found
