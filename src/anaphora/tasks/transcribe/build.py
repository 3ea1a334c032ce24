"""The settings of a transcriber become a model here, and only here."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anaphora.data.audio.features import MFCC
from anaphora.data.audio.frames import Ear
from anaphora.data.audio.preprocessing import margin_of
from anaphora.data.symbols import UNK
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import DataError
from anaphora.models.banded import BandConvolutions, BesideBands, smooth_spectrum
from anaphora.models.bridge import Bridge, LearntStart
from anaphora.models.classical.ngram import NGram
from anaphora.models.classical.ngram.counts import Words
from anaphora.models.classifier import VectorInput
from anaphora.models.conformer import ConformerEncoder
from anaphora.models.ctc import CTCModel, FrameScores, JointModel, MemberScores
from anaphora.models.decoders import BahdanauDecoder
from anaphora.models.encoders import RecurrentEncoder, TransformerEncoder
from anaphora.models.frontend import ConvolvedFrames, DenseFrames, Framed
from anaphora.models.listener import ConvolutionListener, Differences, Listener, Stacking, Subsampling
from anaphora.models.samples import ConvolvedPositions, SampleFront
from anaphora.models.seq2seq import Seq2Seq
from anaphora.models.transducer import Joiner, TransducerModel
from anaphora.models.whisper import PromptedDecoder, WhisperFront
from anaphora.nn import transformer
from anaphora.nn.attention import Additive, Bilinear, MultiHead
from anaphora.nn.conformer import ConformerLayer
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.positions import Learned, Rotary, Sinusoidal
from anaphora.nn.recurrent import Recurrent
from anaphora.search import Lexicon
from anaphora.search.lexicon._lexicon import spelled_in_file
from anaphora.settings.own import Part
from anaphora.settings.transcribe import TranscriberSettings
from anaphora.tasks.parts import (
    decoder_layer,
    encoder_layer,
    entrance,
    frame_network,
    make_feedforward,
    make_reader,
    make_recurrent,
    own_encoder,
    transformer_encoder,
)

Model = CTCModel | Seq2Seq | TransducerModel
Fewer = Stacking | Subsampling | BandConvolutions | BesideBands
"""What leaves fewer frames."""


def build_transcriber(s: TranscriberSettings, *, ear: Ear, symbols: int) -> Model:
    """The model a preset names, with fresh weights, from frames as ``ear`` hears them to ``symbols`` symbols."""
    if s.model == "whisper":
        return _whisper(s, ear.width, symbols)
    encoder = _listener(s, ear)
    if s.model.endswith("-ctc") or s.model == "wav2vec2":
        return CTCModel(encoder, _frame_scores(s, encoder, symbols))
    if s.model == "transducer":
        return _transducer(s, encoder, symbols)
    decoder = _decoder(s, encoder, symbols)
    if s.model == "joint":
        return JointModel(encoder, decoder, FrameScores(encoder.width, symbols, dropout=s.dropout))
    return Seq2Seq(encoder, decoder)


def _frame_scores(s: TranscriberSettings, encoder: Listener, symbols: int) -> FrameScores:
    """Of each of the networks side by side, where there are several; an encoder of the user's own is one."""
    chosen: dict[str, Any] = {"dropout": s.dropout, "prior": s.label_prior}
    if s.members == 1 or s.encoder != "auto":
        return FrameScores(encoder.width, symbols, **chosen)
    return MemberScores(encoder.width // s.members, symbols, s.members, **chosen)


def _listener(s: TranscriberSettings, ear: Ear) -> Listener:
    if s.model == "wav2vec2":
        return _sample_listener(s)
    features = ear.width
    network = frame_network(s, features, s.hidden)
    read = (network.width if network else features) * (1 + s.differences)
    margin = margin_of(s) // s.subsample
    if s.model in ("conv-ctc", "mfcc-ctc", "transformer-ctc") and s.encoder == "auto":
        front = _front(s, network, _halved(s, ear, read))
        if s.model != "transformer-ctc":
            convolved = ConvolutionListener(
                s.hidden, s.kernel, s.layers, dropout=s.dropout, members=s.members
            )
            return Listener(front, convolved, margin=margin)
        places = -(-s.max_tokens // s.subsample)
        body = transformer_encoder(s, VectorInput(s.hidden, s.hidden), places=places)
        return Listener(front, body, margin=margin)
    stacked = _front(s, network, Stacking(read, s.subsample))
    if own := own_encoder("transcribe", s, VectorInput(stacked.width), dropout=0.0):
        return Listener(stacked, own, margin=margin)
    if s.model == "conformer-ctc":
        chunked = ConformerEncoder(
            VectorInput(stacked.width, s.hidden),
            [_conformer_layer(s) for _ in range(s.layers)],
            dropout=s.dropout,
        )
        return Listener(stacked, chunked, margin=margin)
    layers = make_reader(s, stacked.width, bidirectional=s.bidirectional)
    return Listener(stacked, RecurrentEncoder(VectorInput(stacked.width), layers), margin=margin)


def _halved(s: TranscriberSettings, ear: Ear, read: int) -> Fewer:
    """What reads ``read`` numbers of a frame and leaves fewer frames; some of its networks may read bands."""
    plain = s.members - s.band_members
    asked: dict[str, Any] = {}
    if s.band_members:
        if isinstance(ear.features, MFCC) and ear.usual is not None:
            asked["spectrum"] = smooth_spectrum(ear.features.transform, ear.usual.deviation.tolist())
        asked |= {"streams": 1 + s.differences, "members": s.band_members}
        banded = BandConvolutions(ear.width, s.hidden, s.subsample, **asked)
        if not plain:
            return banded
        return BesideBands(Subsampling(read, s.hidden, s.subsample, members=plain), banded)
    return Subsampling(read, s.hidden, s.subsample, members=plain)


def _front(
    s: TranscriberSettings, network: DenseFrames | ConvolvedFrames | None, fewer: Fewer
) -> Framed | Differences | Fewer:
    """What reads frames by themselves, then with how they change, and leaves fewer of them."""
    further = Differences(fewer, s.differences) if s.differences else fewer
    return Framed(network, further) if network else further


def _conformer_layer(s: TranscriberSettings) -> ConformerLayer:
    return ConformerLayer(
        MultiHead(s.hidden, s.heads, positions=Rotary()),
        (make_feedforward(s), make_feedforward(s)),
        kernel=s.kernel,
        chunk=s.chunk,
        left=s.left,
        dropout=s.dropout,
    )


def _sample_listener(s: TranscriberSettings) -> Listener:
    front = SampleFront(
        list(map(int, s.kernels.split())),
        list(map(int, s.strides.split())),
        s.filters,
        s.hidden,
        norm=s.filter_norm,
        bias=s.filter_bias,
        eps=s.norm_eps,
        share=s.hidden_share,
        length=s.hidden_length,
        dropout=s.dropout,
    )
    body = TransformerEncoder(
        VectorInput(s.hidden),
        transformer.TransformerEncoder(encoder_layer(s), s.layers),
        positions=ConvolvedPositions(s.hidden, s.position_kernel, s.position_groups),
        dropout=s.dropout,
        **entrance(s),
    )
    return Listener(front, body)


def _whisper(s: TranscriberSettings, features: int, symbols: int) -> Seq2Seq:
    places = Learned(s.hidden, -(-s.max_tokens // 2))
    with torch.no_grad():
        places.weight.copy_(Sinusoidal(s.hidden).table(len(places.weight), places.weight))
    body = TransformerEncoder(
        VectorInput(s.hidden),
        transformer.TransformerEncoder(encoder_layer(s), s.layers),
        positions=places.requires_grad_(False),
        dropout=s.dropout,
    )
    embedding = Embedding(symbols, s.hidden)
    decoder = PromptedDecoder(
        embedding,
        transformer.TransformerDecoder(decoder_layer(s), s.decoder_layers or s.layers),
        Output(s.hidden, symbols, tied=embedding),
        positions=Learned(s.hidden, s.written_positions),
        dropout=s.dropout,
        prompt=[-1 if mark == "?" else int(mark) for mark in s.prompt.split()],
        languages=list(map(int, s.languages.split())),
        never=list(map(int, s.never.split())),
        never_first=list(map(int, s.never_first.split())),
    )
    decoder.output.bias.requires_grad_(False)  # which Whisper does not have
    return Seq2Seq(Listener(WhisperFront(features, s.hidden, s.max_tokens), body), decoder)


def _transducer(s: TranscriberSettings, encoder: Listener, symbols: int) -> TransducerModel:
    """One layer predicts: what was written says little beside what is heard."""
    single = s.model_copy(update={"layers": 1})
    layer = make_recurrent(single, s.embedding, bidirectional=False)
    return TransducerModel(
        encoder,
        nn.Embedding(symbols, s.embedding),
        layer,
        Joiner(encoder.width, s.hidden, s.hidden, symbols, dropout=s.dropout),
        FrameScores(encoder.width, symbols, dropout=s.dropout),
        dropout=s.dropout,
    )


def _decoder(s: TranscriberSettings, encoder: Listener, symbols: int) -> BahdanauDecoder:
    """A decoder whose state knows where it listened last: without that, a word said twice is one place too many."""
    reader = getattr(encoder.body, "recurrent", None)
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
        bridge=Bridge(reader, layer) if isinstance(reader, Recurrent) else LearntStart(layer),
        annotations=encoder.width,
        dropout=s.dropout,
    )


TRAIN = "train"
"""The name of the lexicon of all words in the training transcripts."""


def make_lexicon(name: str, tokenizer: Tokenizer, known: Iterable[str]) -> Lexicon:
    """The lexicon that ``name`` means, a file or `TRAIN` (the words ``known``), spelled in the model's symbols.

    A word without a spelling of its own is spelled as the transcripts are. In a model of characters words are kept
    apart by the space; pieces and phones need nothing between words.
    """
    names = {spelling.strip() or spelling: i for i, spelling in enumerate(tokenizer.spellings)}
    entries = ((w, None, "") for w in known) if name == TRAIN else _in_file(name)
    spellings: dict[str, list[list[int]]] = {}
    for word, symbols, where in entries:
        own = tokenizer.encode(word) if symbols is None else [names.get(s, UNK) for s in symbols]
        if UNK in own or not own:
            lack = "no symbol for a part of it" if symbols is None else "no such symbol as is in its spelling"
            raise DataError(
                f"{where}the model has {lack}: {word!r}; take the word out, or spell it otherwise."
            )
        if own not in spellings.setdefault(tokenizer.normalized(word), []):
            spellings[tokenizer.normalized(word)].append(own)
    if not spellings:
        raise DataError(f"{name}: there are no words; give a file with a word per line.")
    return Lexicon(spellings, names, separator=names.get(" ") if tokenizer.kind == "char" else None)


def _in_file(name: str) -> Iterator[tuple[str, list[str] | None, str]]:
    for word, symbols, where in spelled_in_file(name, None, False):
        named = [str(symbol) for symbol in symbols]
        yield word, None if "".join(named) == word else named, f"{where}: "


def read_language_model(name: str) -> Any:
    """The language model in an ARPA file, in the run folder of a LanguageModel, or the user's own object."""
    if isinstance(name, Part):
        made = name.bring(where="lm = ").made()
        return _spelled(made) if getattr(made, "command", None) == "language" else made
    path = Path(name)
    if not path.is_dir():
        if not path.exists():
            raise DataError(f"{name}: there is no such language model; give an ARPA file or a run folder.")
        return NGram.read_arpa(path)
    from anaphora.tasks.load import load

    model = load(path, device="cpu")
    if model.command != "language":
        raise DataError(f"{name} is a {type(model).__name__}, not a LanguageModel; give the run of one.")
    return _spelled(model)


def _spelled(model: Any) -> Any:
    """A LanguageModel as the searches for words take it: an n-gram's table they read themselves, once its numbers have
    names."""
    if model.settings_.model != "ngram" or model.settings_.tokens != "word":
        return model
    spelled: NGram = copy.copy(model.model_)
    spelled._words = Words(len(model.tokenizer_), [s.strip() or s for s in model.tokenizer_.spellings])
    return spelled
