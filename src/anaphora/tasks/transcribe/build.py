"""The settings of a transcriber become a model here, and only here."""

from __future__ import annotations

from torch import nn

from anaphora.models.bridge import Bridge
from anaphora.models.classifier import VectorInput
from anaphora.models.ctc import CTCModel, FrameScores, JointModel
from anaphora.models.decoders import BahdanauDecoder
from anaphora.models.encoders import RecurrentEncoder
from anaphora.models.listener import ConvolutionListener, Listener, Stacking, Subsampling
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn.attention import Additive, Bilinear
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.recurrent import Recurrent
from anaphora.tasks.parts import make_recurrent, transformer_encoder
from anaphora.tasks.transcribe.info import TranscriberSettings

Model = CTCModel | Seq2Seq


def build_transcriber(s: TranscriberSettings, *, features: int, symbols: int) -> Model:
    """The model a preset names, with fresh weights, from frames of ``features`` numbers to ``symbols`` symbols."""
    encoder = _listener(s, features)
    if s.model.endswith("-ctc"):
        return CTCModel(encoder, FrameScores(encoder.width, symbols, dropout=s.dropout))
    decoder = _decoder(s, encoder, symbols)
    if s.model == "joint":
        return JointModel(encoder, decoder, FrameScores(encoder.width, symbols, dropout=s.dropout))
    return Seq2Seq(encoder, decoder)


def _listener(s: TranscriberSettings, features: int) -> Listener:
    if s.model == "conv-ctc":
        front = Subsampling(features, s.hidden, s.subsample)
        return Listener(front, ConvolutionListener(s.hidden, s.kernel, s.layers, dropout=s.dropout))
    if s.model == "transformer-ctc":
        front = Subsampling(features, s.hidden, s.subsample)
        return Listener(front, transformer_encoder(s, VectorInput(s.hidden, s.hidden)))
    stacked = Stacking(features, s.subsample)
    layers = make_recurrent(s, stacked.width, bidirectional=s.bidirectional)
    return Listener(stacked, RecurrentEncoder(VectorInput(stacked.width), layers))


def _decoder(s: TranscriberSettings, encoder: Listener, symbols: int) -> BahdanauDecoder:
    """A decoder whose state knows where it listened last: without that, a word said twice is one place too many."""
    reader = encoder.body.recurrent
    assert isinstance(reader, Recurrent)
    embedding = Embedding(symbols, s.embedding, scaled=True)
    single = s.model_copy(update={"layers": 1})
    layer = make_recurrent(single, s.embedding + encoder.width, bidirectional=False)
    attention: nn.Module = (
        Bilinear(s.hidden, encoder.width)
        if s.attention == "bilinear"
        else Additive(s.hidden, encoder.width, s.hidden)
    )
    return BahdanauDecoder(
        embedding,
        layer,
        attention,  # type: ignore[arg-type]
        Output(s.embedding, symbols, tied=embedding),
        bridge=Bridge(reader, layer),
        annotations=encoder.width,
        dropout=s.dropout,
    )
