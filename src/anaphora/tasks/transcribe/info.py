"""The transcriber as the registry knows it: its settings and presets. Nothing here imports torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from anaphora.settings import (
    DirectionSettings,
    EmbeddingSettings,
    HoldoutSettings,
    InitSettings,
    NetworkSettings,
    RecurrentSettings,
    StackSettings,
    TextSettings,
    TrainingSettings,
    TransformerSettings,
    TuningSettings,
)
from anaphora.settings.encoder import EncoderSettings
from anaphora.settings.frames import FrameSettings
from anaphora.settings.own import Own, OwnMetric
from anaphora.settings.prompt import PromptSettings
from anaphora.settings.search import SeveralOutputs
from anaphora.settings.seq2seq import ForcingSettings, SmoothingSettings
from anaphora.settings.sound import SoundSettings
from anaphora.settings.text import BadInput
from anaphora.settings.wave import WaveSettings
from anaphora.tasks.info import Preset, TaskInfo, Uses, budget, budgeted


class TranscribeOptions(SeveralOutputs, BadInput):
    """How recordings are read and texts searched for."""

    beam: int = Field(
        0,
        ge=0,
        le=1000,
        description="Beginnings of the text kept while searching; 1 is greedy; 0 = 8, or 64 with a lexicon.",
    )
    search: Annotated[Literal["auto"], Own()] = Field(
        "auto",
        description="How texts are searched for: as the other settings say, or yours: of log p (1, frames, symbols) called "
        "as an.search.ctc_beam is, of a decoder as an.search.beam is; it gives each item's hypotheses, best first.",
    )
    lexicon: str = Field(
        "",
        description="The words that may come out: a file with a word per line, or word⇥symbols; or train, for the words of "
        "the training transcripts. Without it anything may be spelled.",
    )
    lm: Annotated[str, Own(objects=True)] = Field(
        "",
        description="A language model over words: an ARPA file, the run of a LanguageModel, or such an object (an.NGram, "
        "an.LanguageModel, or your own an.search.WordModel). It needs a lexicon, which is train where none is given.",
    )
    lm_weight: float = Field(
        0.5, ge=0, allow_inf_nan=False, description="What log p of the language model counts in the score."
    )
    word_bonus: float = Field(
        0.0,
        allow_inf_nan=False,
        description="Added to the score for every word; above 0 against words that are swallowed.",
    )
    hot_words: str = Field(
        "",
        description="Words and phrases that are expected, with commas between them, such as anaphora, new york:4; a number after "
        "a colon is the bonus of that one. They need a lexicon, which is train where none is given.",
    )
    hot_bonus: float = Field(
        2.0, allow_inf_nan=False, description="Added to the score for each of hot_words that is said."
    )
    voices: int = Field(
        1,
        ge=1,
        le=15,
        description="A recording is heard as if so many speakers with vocal tracts up to 15 % shorter or longer had said it, and what "
        "CTC thinks of them is averaged; log-mel and mfcc. It takes as many times as long, and helps with voices unlike those of training.",
    )
    window: float = Field(
        30.0,
        gt=0,
        allow_inf_nan=False,
        description="Recordings of more seconds are read in windows of this length.",
    )
    overlap: float = Field(
        8.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds that neighbouring windows share; half of it at each end is heard only as context.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> TranscribeOptions:
        if self.overlap >= self.window:
            raise ValueError(f"overlap = {self.overlap:g} must be less than window = {self.window:g}")
        if self.word_bonus and not (self.lexicon or self.lm or self.hot_words):
            raise ValueError("word_bonus is about words: give a lexicon, or lexicon = train")
        self.expected()
        if self.search != "auto" and (self.lexicon or self.lm or self.beam or self.hot_words):
            raise ValueError("search is a search of your own: leave beam, lexicon and lm to it")
        if self.beam and self.n_best > self.beam:
            raise ValueError(f"n_best = {self.n_best} needs a beam at least as wide, not {self.beam}")
        return self

    def expected(self) -> dict[str, float]:
        """The bonus of each of ``hot_words``."""
        found = {}
        for part in filter(None, (part.strip() for part in self.hot_words.split(","))):
            phrase, _, bonus = part.rpartition(":")
            try:
                found[" ".join((phrase or bonus).split())] = float(bonus) if phrase else self.hot_bonus
            except ValueError:
                raise ValueError(
                    f"hot_words: {bonus!r} after the colon of {part!r} must be a number"
                ) from None
        return found


class TranscriberSettings(
    EncoderSettings,
    SoundSettings,
    WaveSettings,
    PromptSettings,
    FrameSettings,
    TextSettings,
    NetworkSettings,
    ForcingSettings,
    SmoothingSettings,
    InitSettings,
    TuningSettings,
    HoldoutSettings,
    TrainingSettings,
):
    model: Annotated[str, Own()] = Field(
        "bilstm-ctc", description="The preset: `anaphora models` lists them."
    )
    tokens: Literal["char", "word", "bpe"] = Field(
        "char",
        description="What one symbol of the transcript is: a character, whatever stands between spaces (a word, or a "
        "phone), or a piece learned by byte pair encoding.",
    )
    subsample: int = Field(
        2,
        ge=1,
        le=4096,
        description="So many frames become one at the front, which makes everything above it that much quicker. CTC "
        "needs at least one frame for every symbol that is left.",
    )
    differences: int = Field(
        0,
        ge=0,
        le=2,
        description="Beside each frame the network reads how it changes over the five frames around it: 1 its slope, 2 also the slope of "
        "that. A frame then needs some that come later, so sound is not heard while it arrives.",
    )
    kernel: int = Field(
        5,
        ge=1,
        le=63,
        description="Places that a convolution of conv-ctc, mfcc-ctc or conformer-ctc sees; odd, unless it is conformer-ctc with a chunk.",
    )
    chunk: int = Field(
        16,
        ge=0,
        le=1000,
        description="Places, each of `subsample` frames, that conformer-ctc hears at once: each sees all of its chunk, so that words come at "
        "most so much later; 0: the whole recording, which cannot be heard while it arrives.",
    )
    left: int = Field(
        4, ge=0, le=1000, description="Chunks before its own that a place of conformer-ctc sees."
    )
    attention: Literal["additive", "bilinear"] = Field(
        "additive",
        description="How a decoder state is compared with an annotation: vᵀtanh(Ws+Uh), or sᵀWh.",
    )
    ctc_weight: float = Field(
        0.3,
        gt=0,
        lt=1,
        description="w in w·CTC + (1 − w)·attention, of the loss of the preset joint and of the scores of its outputs; of the "
        "loss of the preset transducer alike.",
    )
    order_weight: float = Field(
        0.2,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="Added to the loss of a decoder, in nats, for every frame that its attention goes back: speech is "
        "written in the order it is heard. 0 leaves attention free.",
    )
    consistency: float = Field(
        0.0,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="Each recording is heard as two copies, varied and masked each in its own way but at the same pace, and so many times "
        "what CTC thinks of them differs (KL) is added to the loss (CR-CTC); a batch then holds half as many recordings. 0.2 is usual.",
    )
    label_prior: float = Field(
        0.0,
        ge=0,
        le=1,
        description="CTC divides the probability of each symbol, and of the blank, by its share of all frames to this power. Symbols then "
        "last as long as they sound instead of a single frame, and voices unlike those of training leave fewer words out. 0 is plain CTC.",
    )
    batch_tokens: int = Field(
        4000,
        ge=1,
        description="Frames in one batch (padded), over all devices together. More is smoother and, on a GPU, faster.",
    )
    max_tokens: int = Field(
        3000,
        ge=2,
        description="Training recordings of more frames are left out (and counted); longer ones at prediction are read "
        "in overlapping windows.",
    )
    valid_examples: int = Field(
        200,
        ge=1,
        description="Of the dev recordings so many, the first ones, are transcribed at an evaluation.",
    )
    metric: Annotated[Literal["wer", "cer", "loss"], OwnMetric()] = Field(
        "wer", description="The dev measure that decides which weights are best; the smaller the better."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> TranscriberSettings:
        if self.model in ("conv-ctc", "mfcc-ctc", "transformer-ctc") and self.subsample & (
            self.subsample - 1
        ):
            raise ValueError(
                f"subsample = {self.subsample} must be 1, 2, 4, 8 or 16 for {self.model}, whose front halves the frames"
            )
        if self.subsample > 16 and self.model != "wav2vec2":
            raise ValueError(f"subsample = {self.subsample} must be at most 16 for {self.model}")
        if self.features == "samples" and self.model != "wav2vec2":
            raise ValueError(
                f"features = 'samples' is for wav2vec2, whose convolutions read them; {self.model} reads frames"
            )
        if self.features == "whisper" and self.model != "whisper":
            raise ValueError(f"features = 'whisper' is for the preset whisper, not for {self.model}")
        if self.model == "conformer-ctc" and (self.hidden % self.heads or self.hidden // self.heads % 2):
            raise ValueError(
                f"hidden = {self.hidden} cannot be divided among heads = {self.heads} into parts of even width"
            )
        centred = self.model in ("conv-ctc", "mfcc-ctc") or (self.model == "conformer-ctc" and not self.chunk)
        if centred and self.kernel % 2 == 0:
            raise ValueError(f"kernel = {self.kernel} must be odd, so that a window has a middle")
        return self


_ALWAYS: Uses = (
    EncoderSettings,
    *(SoundSettings, TextSettings, TrainingSettings, StackSettings),
    *(FrameSettings, "subsample", "differences", "valid_examples", "metric"),
)
_RECURRENT: Uses = (RecurrentSettings, DirectionSettings)
_WRITING: Uses = (
    *(*_ALWAYS, *_RECURRENT, EmbeddingSettings),
    *("attention", "order_weight", "label_smoothing", "teacher_forcing", "forcing_schedule"),
)
_TRAINED: dict[str, Any] = {
    "hidden": 128,
    "layers": 2,
    "dropout": 0.2,
    "batch_tokens": 4000,
    "steps": 900,
    "lr": 3e-3,
    "warmup": 100,
    "ema": 0.99,
    "valid_every": 100,
    "save_every": 200,
}
_HEARING: dict[str, Any] = {"normalise": "running", "volume": 6.0}
_ARRIVING: dict[str, Any] = {**_HEARING, "cell": "lstm", "bidirectional": False, "hidden": 192}
_FEW_VOICES: dict[str, Any] = {
    "features": "mfcc",
    "bins": 13,
    "normalise": "adapted",
    "frequency_mask": 0,
    "speed": 0.15,
    "warp": 0.15,
    "channel": 10.0,
    "noise": 0.03,  # more of it hides what tells six from eight: weak consonants
    "pauses": 0.05,
    "edges": 0.16,
    "bend": 0.35,
    "differences": 2,
    "label_prior": 0.5,
    "dropout": 0.3,
}
_DECODING: dict[str, Any] = {**_TRAINED, "cell": "gru", "embedding": 64, "subsample": 4}

_PRESETS = (
    Preset(
        "bilstm-ctc",
        "LSTM in both directions, a distribution over symbols and blank at every frame (Graves 2006).",
        {**_TRAINED, "cell": "lstm"},
        (
            *_ALWAYS,
            *_RECURRENT,
            "consistency",
            "label_prior",
            InitSettings,
            TuningSettings,
        ),  # init names another preset
    ),
    Preset(
        "mfcc-ctc",
        "conv-ctc for speech of few speakers: cepstra, which leave the pitch out, varied as if others spoke through other microphones.",
        {**_TRAINED, **_FEW_VOICES, "layers": 6},
        (*_ALWAYS, "consistency", "label_prior", "kernel"),
    ),
    Preset(
        "lstm-ctc",
        "LSTM that reads forwards alone and hears sound as it arrives, a distribution over symbols and blank at every frame.",
        {**_TRAINED, **_ARRIVING},
        (*_ALWAYS, *_RECURRENT, "consistency", "label_prior"),
    ),
    Preset(
        "transducer",
        "What an LSTM hears as it arrives joins what another has written (RNN-T, Graves 2012); CTC on the encoder while training.",
        {**_TRAINED, **_ARRIVING, "subsample": 4, "embedding": 64},
        (*_ALWAYS, *_RECURRENT, EmbeddingSettings, "ctc_weight"),
    ),
    Preset(
        "conv-ctc",
        "Dilated convolutions with residual connections: each frame sees a fixed stretch of sound around it.",
        {**_TRAINED, "layers": 6, "hidden": 160},
        (*_ALWAYS, "consistency", "label_prior", "kernel"),
    ),
    Preset(
        "transformer-ctc",
        "Self-attention over frames that convolutions have thinned out.",
        {**_TRAINED, "layers": 4, "feedforward": 512, "subsample": 4, "lr": 1e-3, "warmup": 200},
        (*_ALWAYS, TransformerSettings, "consistency", "label_prior"),
    ),
    Preset(
        "conformer-ctc",
        "Attention within chunks and to those before them, and convolutions that look back (Conformer, Gulati 2020); hears sound as it arrives.",
        {
            **_TRAINED,
            **_HEARING,
            "layers": 4,
            "feedforward": 256,
            "activation": "silu",
            "kernel": 15,
            "subsample": 4,
            "lr": 2e-3,
            "warmup": 200,
        },
        (
            *_ALWAYS,
            "heads",
            "feedforward",
            "activation",
            "kernel",
            "chunk",
            "left",
            "consistency",
            "label_prior",
        ),
    ),
    Preset(
        "wav2vec2",
        "Convolutions over the samples themselves, self-attention above them (wav2vec 2.0, Baevski 2020); with init a public one.",
        {
            **_TRAINED,
            "rate": 16_000,
            "features": "samples",
            "hop": 1 / 16_000,
            "frame_length": 1 / 16_000,
            "normalise": "unit",
            "speed": 0.0,
            "masks": 0,
            "subsample": 320,
            "layers": 4,
            "feedforward": 512,
            "activation": "gelu",
            "positions": "none",
            "norm_first": False,
            "embedding_norm": True,
            "batch_tokens": 640_000,
            "max_tokens": 480_000,
            "lr": 5e-4,
            "warmup": 200,
        },
        (
            *(one for one in _ALWAYS if one not in (EncoderSettings, FrameSettings, "differences")),
            *(TransformerSettings, WaveSettings, "norm_eps", "embedding_norm", InitSettings, TuningSettings),
        ),
    ),
    Preset(
        "whisper",
        "A Transformer that hears 30 s at a time and writes them down (Whisper, Radford 2022); with init a public one.",
        {
            **_TRAINED,
            "rate": 16_000,
            "features": "whisper",
            "bins": 80,
            "normalise": "none",
            "masks": 0,
            "speed": 0.0,
            "layers": 4,
            "feedforward": 512,
            "activation": "gelu",
            "positions": "learned",
            "tokens": "bpe",
            "batch_tokens": 12_000,
            "max_tokens": 3000,
            "order_weight": 0.0,
            "lr": 5e-4,
            "warmup": 200,
        },
        (
            *(one for one in _ALWAYS if one not in (EncoderSettings, FrameSettings, "differences")),
            *(TransformerSettings, PromptSettings, "order_weight", "label_smoothing"),
            *(InitSettings, TuningSettings),
        ),
    ),
    Preset(
        "attention",
        "Listen, attend and spell: a decoder that writes symbol by symbol and looks where to listen (Chan 2016).",
        _DECODING,
        _WRITING,
    ),
    Preset(
        "joint",
        "The same with CTC on the encoder, which keeps sound and text in step (Kim 2017).",
        _DECODING,
        (*_WRITING, "ctc_weight"),
    ),
)

TRANSCRIBE = TaskInfo(
    command="transcribe",
    name="Transcriber",
    summary="recordings of speech, pen strokes or other frames into text, with the time of every word",
    data_help="TSV path⇥transcript (WAV, FLAC, OGG, or frames as .npy or .csv), an embedded corpus, or pairs of a file or "
    "an array and its text",
    settings=TranscriberSettings,
    presets=budgeted(_PRESETS, budget(6.0, 900, 12_000, patience=5)),
    default_preset="bilstm-ctc",
    home="anaphora.tasks.transcribe.estimator",
    predicting=TranscribeOptions,
    folders=True,
    next_steps=(
        ("Use it:", "predict {run} SOUND"),
        ("Look inside:", "inspect {run} --view spectrogram --text '#1'"),
    ),
)
