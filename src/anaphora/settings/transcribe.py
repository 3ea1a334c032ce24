"""All settings of a transcriber. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from anaphora.settings import (
    HoldoutSettings,
    InitSettings,
    NetworkSettings,
    TextSettings,
    TrainingSettings,
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

_SPREAD_KEPT = ("adapted", "running")
"""Values of normalise that tell how much each of the features varies."""


class TranscribeOptions(SeveralOutputs, BadInput):
    """How recordings are read and texts searched for."""

    beam: int = Field(
        0,
        ge=0,
        le=1000,
        description="Beginnings of the text kept while searching; 1 is greedy; 0 = 8, or 64 with a lexicon. With a lexicon CTC keeps at "
        "least 8: fewer lose the word that is being spelled.",
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
        0,
        ge=0,
        le=15,
        description="A recording is heard as if so many speakers with vocal tracts up to 15 % shorter or longer had said it, and what "
        "CTC thinks of them is averaged; log-mel and mfcc. It takes as many times as long, and helps with voices unlike those of training. "
        "0 = 5 for mfcc-ctc, but for sound that is still arriving, else 1.",
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
        for weight, of in (("lm_weight", "lm"), ("hot_bonus", "hot_words")):
            if not getattr(self, of) and getattr(self, weight) != type(self).model_fields[weight].default:
                raise ValueError(f"{weight} has no effect without {of}: give {of}, or leave {weight} out")
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
    members: int = Field(
        1,
        ge=1,
        le=64,
        description="So many networks of conv-ctc or mfcc-ctc, which differ in how they began, learn side by side from the same recordings, and "
        "what they think of each frame is averaged; half of the loss is that of this average. Fewer errors, and about as many times the time.",
    )
    band_members: int = Field(
        0,
        ge=0,
        le=64,
        description="Of the members so many read sound as a picture of time and bands, with filters that slide along both, and are so less "
        "misled by a voice whose resonances lie elsewhere; log-mel, or mfcc with normalise = adapted or running.",
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
    mixup: float = Field(
        0.0,
        ge=0,
        le=100,
        description="While training, each recording is heard with another one below it, and the loss is mixed by the same shares; α of the "
        "Beta distribution that says how much of it the quieter one is. 0 = off; 0.2 to 0.5 are usual, and help with voices unlike those of training.",
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

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        found = super().implied(given)
        if (
            given.get("model") == "mfcc-ctc" and "band_members" not in given
        ):  # the preset's, as far as the rest allows
            members = given.get("members", 6)
            readable = (
                given.get("features", "mfcc") in ("log-mel", "mfcc")
                and (given.get("features") == "log-mel" or given.get("normalise", "adapted") in _SPREAD_KEPT)
                and given.get("subsample", 2) in (1, 2, 4)
                and given.get("frontend", "none") == "none"
            )
            found["band_members"] = members // 2 if readable and isinstance(members, int) else 0
        return found

    @model_validator(mode="after")
    def _fits_together(self) -> TranscriberSettings:
        if self.model in ("conv-ctc", "mfcc-ctc", "transformer-ctc") and self.subsample & (
            self.subsample - 1
        ):
            raise ValueError(
                f"subsample = {self.subsample} must be 1, 2, 4, 8 or 16 for {self.model}, whose front halves the frames"
            )
        if problem := _banded(self):
            raise ValueError(problem)
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


def _banded(s: TranscriberSettings) -> str | None:
    """Why so many members cannot read bands."""
    if not s.band_members:
        return None
    if s.band_members > s.members:
        return f"band_members = {s.band_members} are more than members = {s.members}; raise members, or lower band_members"
    if s.subsample > 4:
        return f"subsample = {s.subsample} must be 1, 2 or 4 where band_members read bands"
    if s.features not in ("log-mel", "mfcc") or s.frontend != "none":
        return "band_members read the bands of log-mel and mfcc, with nothing before them: set band_members = 0, or choose such features without a frontend"
    if s.features == "mfcc" and s.normalise not in _SPREAD_KEPT:
        return (
            f"band_members turn mfcc back into bands, for which normalise = {s.normalise} does not keep how much each varies; choose "
            "normalise = adapted, or band_members = 0"
        )
    return None
