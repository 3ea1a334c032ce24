"""What the tasks share that make one answer of a whole sequence: inputs, an encoder, a pooling, a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import nn

from anaphora.data.contexts import Context
from anaphora.data.symbols import BOS
from anaphora.data.table import Table
from anaphora.data.tokenizers import ENOUGH_TEXT, Tokenizer
from anaphora.inference.session import Session
from anaphora.inference.torch_engine import TorchEngine
from anaphora.kinds.kind import Encoded, InputKind, Kinds
from anaphora.kinds.text import TextInputs
from anaphora.kinds.vectors import VectorInputs
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
from anaphora.tasks.estimator import Estimator
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

    @property
    def kinds(self) -> Kinds:
        """What goes in and what comes out, as they were learned."""
        raise NotImplementedError

    @property
    def _input(self) -> InputKind:
        """What is read, scanned as the settings say."""
        inputs: InputKind = self.inputs_
        return (
            inputs.reading(getattr(self.settings_, "scan", "rows"))
            if isinstance(inputs, VectorInputs)
            else inputs
        )

    @property
    def _longest(self) -> int:
        """Most steps of an input that are read."""
        return int(self.settings_.max_tokens)

    @property
    def session(self) -> Session:
        """The road to every answer of the model, as it is now."""
        self._check_trained()
        engine = TorchEngine(self.model_, invariant=self.settings_.batch_invariant)
        return Session(self.kinds, engine)

    def _encode(self, given: Sequence[Any]) -> list[Encoded]:
        return self._input.encode(given)
