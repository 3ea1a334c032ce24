"""``an.Transcriber``: learn to write down what is said."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, Unpack, overload

from torch import Tensor

from anaphora.data.audio.features import LogMel
from anaphora.data.audio.frames import Ear, make_features
from anaphora.data.audio.recordings import Item, Recordings
from anaphora.data.audio.recordings_readers import (
    RECORDING_READER,
    as_item,
    open_recordings,
)
from anaphora.data.audio.warping import tracts
from anaphora.data.split import Split
from anaphora.data.symbols import UNK
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import DataError, SettingsError
from anaphora.kinds.measures.judged import Judged, timed
from anaphora.kinds.measures.transcripts import error_measures, transcription_report, transcripts_judged
from anaphora.models.ctc import CTCModel
from anaphora.models.own import OwnFrames
from anaphora.probe.trace import Trace
from anaphora.settings import build
from anaphora.settings.transcribe import TranscribeOptions, TranscriberSettings
from anaphora.tasks.artifacts import learn_tokenizer
from anaphora.tasks.begin_senses import adopt_sense, of_task, sense_donor
from anaphora.tasks.estimator import Estimator
from anaphora.tasks.guarding import probing, whatever_the_batch
from anaphora.tasks.keywords import TranscriberKeywords, TranscriberModel
from anaphora.tasks.looking import no_beam
from anaphora.tasks.own import own_model
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.spoken import spoken_batches
from anaphora.tasks.transcribe.build import Model, build_transcriber
from anaphora.tasks.transcribe.inference.adapting import BALANCE, ROUNDS
from anaphora.tasks.transcribe.inference.adapting_model import adapted
from anaphora.tasks.transcribe.inference.asking import listening_of
from anaphora.tasks.transcribe.inference.listening import Listening
from anaphora.tasks.transcribe.inference.reading import items_of
from anaphora.tasks.transcribe.inference.session import Session
from anaphora.tasks.transcribe.inference.streaming import open_hearing
from anaphora.tasks.transcribe.inference.unsaid import unsaid_in
from anaphora.tasks.transcribe.inference.updates import Endpoint
from anaphora.tasks.transcribe.inference.words import Transcript
from anaphora.tasks.transcribe.objective import TranscriptionObjective
from anaphora.tasks.transcribe.probing import probe_transcriber
from anaphora.training.objective import Batches, Objective
from anaphora.training.own import own_measures
from anaphora.training.run import RunFolder
from anaphora.training.seeding import seed_everything
from anaphora.training.weights import snapshot

FORMAT = 1
VOICES = 5
"""As how many voices the preset for few speakers hears a recording."""
MOST_WORDS = 200_000
"""Words of the training transcripts that a run remembers as its lexicon, the commonest ones."""


class Transcriber(Estimator):
    """Write down what is said: p(y | x_1 … x_T), frames of sound x to symbols y.

        m = an.Transcriber(model="bilstm-ctc")
        m.fit("train.tsv", valid="dev.tsv", out="runs/speech")
        m.predict(["hello.wav"])

    A recording is a file, samples ``(n,)`` at the rate of training, or ready-made frames ``(time, features)``.
    ``anaphora models transcribe`` lists the presets and ``anaphora explain`` the settings.

    >>> frames = torch.zeros(20, 8).numpy()                             # ready-made features (time, features)
    >>> m = an.Transcriber("conv-ctc", hidden=4, layers=1, steps=2).fit([(frames, "ab")] * 8)
    >>> len(m.predict([frames]))
    1
    """

    command = "transcribe"
    settings_: TranscriberSettings
    model_: Model
    tokenizer_: Tokenizer
    ear_: Ear
    words_: list[str]
    counts_: Sequence[int] = ()
    """How often each of ``words_`` stands in the training transcripts; empty where that is not known."""
    unsaid_: Sequence[int] = ()
    """Symbols that no text has, see `inference.unsaid`; empty where the training transcripts are not known."""
    begun_parts = ("encoder.", "decoder.")
    _donor: Any = None

    def __init__(
        self, model: TranscriberModel | str | None = None, **settings: Unpack[TranscriberKeywords]
    ) -> None:
        super().__init__(model, **settings)

    # ------------------------------------------------------------------ training

    def _open(
        self, data: Any, valid: Any | None, *, spill: Path | None, **fields: str | None
    ) -> tuple[Recordings, Recordings]:
        self._begin()
        s = self.settings_
        return RECORDING_READER.training(
            data,
            valid,
            Split("rows", s.holdout, s.seed),
            features=partial(make_features, s),
            bad_rows=s.bad_rows,
            spill=spill,
            **fields,
        )

    def _learn(self, data: Recordings) -> None:
        s = self.settings_
        self.ear_ = Ear.learn(s, data)
        if s.model in ("wav2vec2", "whisper", "mfcc-ctc") and self.ear_.kind != "audio":
            raise DataError(
                f"the preset {s.model} hears sound, but the data are frames; choose another preset, or give recordings."
            )
        if s.edges and self.ear_.kind != "audio":
            raise DataError("edges puts quiet around sound, but the data are frames; set edges = 0.")
        if s.band_members and self.ear_.kind != "audio":
            raise DataError(
                "band_members read the bands of sound, but the data are frames; set band_members = 0."
            )
        self.tokenizer_ = self._symbols_of(data)
        self.unsaid_ = unsaid_in(self.tokenizer_.encode_batch(data.transcripts))
        counts: dict[str, int] = {}
        for text in data.transcripts:
            for word in self.tokenizer_.normalized(text).split():
                counts[word] = counts.get(word, 0) + 1
        self.words_ = sorted(counts, key=lambda word: (-counts[word], word))[:MOST_WORDS]
        self.counts_ = [counts[word] for word in self.words_]

    def _begin(self) -> None:
        """Take over the sizes of the model that ``init`` names."""
        s = self.settings_
        self._donor = sense_donor(s.init) if s.init else None
        if not s.init:
            return
        if self._donor is None:
            raise SettingsError(
                [
                    f"init = {s.init!r} holds no recogniser: give wav2vec2, hubert or whisper, or a run of such."
                ]
            )
        of_task(self._donor, self.task(), s.init)
        own = {"freeze": "encoder.front.convolutions"} if self._donor.settings_.model == "wav2vec2" else {}
        busy = any(self._given.get(key) for key in ("lora", "unfreeze"))
        self.settings_ = adopt_sense(self.task(), self._given, self._donor, s.init, {} if busy else own)

    def _symbols_of(self, data: Recordings) -> Tokenizer:
        """The symbols of the model that ``init`` names, unless it has none; else those of the transcripts."""
        if self._donor is None or getattr(self._donor, "bare", False):
            learnt = list(data.transcripts)
            if self.settings_.joined > 1:  # the space between joined texts, which single words do not have
                learnt.append(" ".join(learnt[:2]))
            return learn_tokenizer(self.settings_, learnt)
        known: Tokenizer = self._donor.tokenizer_
        texts = list(data.transcripts)
        unknown = sum(UNK in ids for ids in known.encode_batch(texts))
        if unknown:
            warnings.warn(
                f"{unknown} of {len(texts)} transcripts have characters that the model of init does not write; they become <unk>",
                stacklevel=5,
            )
        return known

    def _inherited(self) -> dict[str, Tensor]:
        donor = self._donor if self._donor is not None else sense_donor(self.settings_.init)
        if donor is None:
            return {}
        bare = getattr(donor, "bare", False)
        return {
            name: value
            for name, value in snapshot(donor.model_).items()
            if not bare or name.startswith("encoder.")
        }

    def _symbols(self, data: Recordings) -> float:
        return float(data.lengths.sum())

    def _fresh_model(self) -> Model:
        seed_everything(self.settings_.seed, "model")
        symbols = self.tokenizer_.size
        own = own_model(
            self.command,
            self.settings_,
            inputs=self.ear_.width,
            outputs=symbols,
            vocabulary=self.tokenizer_,
        )
        if own is not None:
            return OwnFrames(own, symbols)
        return build_transcriber(self.settings_, ear=self.ear_, symbols=self.tokenizer_.size)

    def _objective_and_batches(self, data: Recordings, dev: Recordings) -> tuple[Objective, Batches]:
        s, ear = self.settings_, self.ear_
        batches = spoken_batches(s, data, ear, self.tokenizer_)
        shown = range(min(len(dev), s.valid_examples))
        heard = [ear.normalised(dev.load(i)) for i in shown]
        examples = (heard, [dev.transcripts[i] for i in shown], [dev.names[i] for i in shown])
        return TranscriptionObjective(s, self.tokenizer_, examples, self.unsaid_), batches

    def _reopen(self, run: RunFolder, recipe: Recipe) -> tuple[Recordings, Recordings]:
        return RECORDING_READER.reopen(recipe.data, run.path / "data", features=self.ear_.features)

    def _dev(self, run: RunFolder, recipe: Recipe) -> Recordings:
        return RECORDING_READER.reopen_dev(recipe.data, run.path / "data", features=self.ear_.features)

    def _vocabulary(self) -> dict[str, int]:
        return {"features": self.ear_.width, "symbols": self.tokenizer_.size}

    # ------------------------------------------------------------------ use

    @overload
    def predict(self, inputs: Any, *, details: Literal[False] = False, **options: Any) -> list[str]: ...

    @overload
    def predict(self, inputs: Any, *, details: Literal[True], **options: Any) -> list[Transcript]: ...

    @whatever_the_batch
    def predict(self, inputs: Any, *, details: bool = False, **options: Any) -> list[str] | list[Transcript]:
        """The text of each recording: files, samples ``(n,)`` at the rate of training (or pairs of samples and their
        rate), or frames ``(time, features)``; or the name of a file, of a folder, or of a list of files.

        ``options`` are those of `TranscribeOptions`: ``beam``, ``lexicon``, ``lm`` and others. With ``details``
        each is a `Transcript` with the time and the confidence of every word.
        """
        asked = self._options(options)
        listening, heard = listening_of(self, asked), self._all(inputs, asked.voices)
        if details:
            return [found[0] for found in self._transcribed(listening, heard)]
        return listening.texts(heard)

    def transcribe(self, inputs: Any, **options: Any) -> list[list[Transcript]]:
        """The ``n_best`` texts of each recording, best first, with the time and the confidence of every word."""
        asked = self._options(options)
        return self._transcribed(listening_of(self, asked), self._all(inputs, asked.voices))

    def adapt(self, inputs: Any, *, rounds: int = ROUNDS, balance: float = BALANCE, **options: Any) -> Self:
        """A copy of this model that has adapted to a speaker or a microphone by recordings without transcripts, ``inputs`` as in
        `predict`: dozens to hundreds of them, all of the same kind. The model itself stays as it is.

            theo = m.adapt("recordings-of-theo", lexicon="train")
            theo.predict(["new.wav"])

        In each of the ``rounds`` it transcribes them and learns from the transcripts that it is surest of (`inference.adapting`).
        ``balance``: how far words are drawn to how often training had them; 0 where these recordings have other words than
        training, up to 1 where they have the same. ``options`` are those of `TranscribeOptions`: a lexicon helps much. Raises a
        `SettingsError` for a model without CTC, a `DataError` where there is nothing to learn from.
        """
        other: Self = adapted(self, inputs, self._options(options), rounds=rounds, balance=balance)
        return other

    def listening(self, rate: int, *, endpoint: float = 0.0, every: float = 0.0, **options: Any) -> Session:
        """Hear one recording as it arrives at ``rate`` samples a second: push its pieces, and ``finish``.

            session = m.listening(16_000)
            for piece in pieces:                # samples (n,)
                update = session.push(piece)    # words that are certain now, and those that may change; None: not asked yet
            print(session.finish().text, session.report())

        endpoint: seconds of silence that end an utterance; 0: all is one, whose text is that of ``predict`` where the model hears as
        sound arrives (`lstm-ctc`, `conformer-ctc`, `transducer`). every: seconds of new sound after which words are written; 0: as the model can.
        """
        self._check_trained()
        if self.ear_.kind != "audio":
            raise DataError("the model was trained on frames; listening needs one of sound.")
        rule = Endpoint(endpoint) if endpoint else None
        return Session(open_hearing(self, rate, options, endpoint=rule), rate, every)

    @whatever_the_batch
    def score(
        self,
        data: Any,
        *,
        source_field: str | None = None,
        target_field: str | None = None,
        bad_rows: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Word and character error in percent (WER, CER), the share of texts without an error, the errors of each kind,
        the commonest ones, and the texts with most errors, each error in brackets: ``(wanted→given)``."""
        asked = self._options(options)
        rows = self._scored(data, bad_rows, source_field=source_field, target_field=target_field)
        heard = [self._voiced(item, asked.voices) for item in rows.items]
        outputs = listening_of(self, asked).texts(heard)
        references = [self.tokenizer_.normalized(text) for text in rows.transcripts]
        skipped = {"skipped": rows.skipped} if rows.skipped else {}
        scores = transcription_report(rows.names, references, outputs) | skipped
        return scores | own_measures(self.settings_, references, outputs, scores)

    def _open_test(self, data: Any, bad_rows: str | None, **fields: Any) -> Recordings:
        return open_recordings(
            data,
            role="test",
            features=self.ear_.features,
            bad_rows=bad_rows or self.settings_.bad_rows,
            **fields,
        )

    @whatever_the_batch
    def _judge(self, data: Recordings, options: Mapping[str, Any]) -> Judged:
        asked = self._options(options)
        listening = listening_of(self, asked)
        heard = [self._voiced(item, asked.voices) for item in data.items]
        outputs, seconds = timed(listening.texts, heard)
        references = [self.tokenizer_.normalized(text) for text in data.transcripts]
        measures = error_measures(references, outputs)
        return transcripts_judged(data.names, references, outputs, measures, seconds)

    @probing
    def probe(
        self, x: Any, target: str | None = None, *, what: Sequence[str] = (), beam: int | None = None
    ) -> Trace:
        """What happens inside while one recording becomes the best text, or the ``target`` given."""
        self._check_trained()
        no_beam(self, beam)
        return probe_transcriber(self, x, target, what)

    def _inputs(self) -> Literal["text", "numbers", "series", "file"]:
        return "file"

    def _example(self, dev: Recordings, number: int) -> tuple[Any, str]:
        x = dev.load(number) if self.ear_.kind == "features" else dev.wave(number)
        return x, dev.transcripts[number]

    def _all(self, inputs: Any, voices: int = 1) -> list[Any]:
        return [self._voiced(item, voices) for item in items_of(self, inputs)]

    def _voiced(self, item: Item, voices: int) -> Any:
        """The frames of one input as the model reads them, or with several ``voices`` a list of them."""
        if voices == 1:
            return self.ear_.hear(item)
        if not isinstance(self.ear_.features, LogMel):
            raise SettingsError([f"voices = {voices} needs a model of log-mel or mfcc; leave it out."])
        if not isinstance(self.model_, CTCModel):
            raise SettingsError([f"voices = {voices} needs a preset with CTC; leave it out."])
        return [self.ear_.hear(item, tract) for tract in tracts(voices)]

    @property
    def usual_voices(self) -> int:
        """As how many voices recordings are heard where ``voices`` does not say it."""
        able = isinstance(self.ear_.features, LogMel) and isinstance(self.model_, CTCModel)
        return VOICES if able and self.settings_.model == "mfcc-ctc" else 1

    def _hear(self, x: Any, number: int = 1, voices: int = 1) -> Any:
        """See `_voiced`."""
        return self._voiced(as_item(x, f"input {number}", self.ear_.rate), voices)

    @whatever_the_batch
    def _transcribed(self, listening: Listening, heard: list[Any]) -> list[list[Transcript]]:
        return listening.transcripts(heard)

    def _options(self, given: Mapping[str, Any]) -> TranscribeOptions:
        self._check_trained()
        asked = {key: value for key, value in given.items() if value is not None}
        found = build(TranscribeOptions, asked, owner="predict")
        return found if found.voices else found.model_copy(update={"voices": self.usual_voices})
