"""``an.Captioner``: learn to say what is in a picture."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from torch import Tensor

from anaphora.data.pictures import PictureList, Pixels, given_picture
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import DataError
from anaphora.kinds.measures.captions import (
    caption_measures,
    captions_judged,
    named_objects,
    share_on_objects,
)
from anaphora.kinds.measures.judged import Judged, timed
from anaphora.models.own import own_seq2seq
from anaphora.models.seeing import read_picture_weights
from anaphora.models.seq2seq import Seq2Seq
from anaphora.probe.trace import Trace
from anaphora.search import NBest
from anaphora.tasks.artifacts import learn_tokenizer
from anaphora.tasks.caption.build import build_captioner, picture_encoder_of
from anaphora.tasks.caption.inference import describe_pictures, where_it_looked
from anaphora.tasks.caption.info import CaptionerSettings
from anaphora.tasks.caption.objective import CaptionObjective, caption_batches
from anaphora.tasks.caption.probing import probe_captioner
from anaphora.tasks.guarding import probing, whatever_the_batch
from anaphora.tasks.keywords import CaptionerKeywords, CaptionerModel
from anaphora.tasks.looking import only_what, symbol_vectors
from anaphora.tasks.outputs import (
    Output,
    check_n_best,
    search_settings,
    searched_outputs,
    warn_of_limit,
)
from anaphora.tasks.own import own_model
from anaphora.tasks.pictured import PictureEstimator
from anaphora.tasks.writing import Writer
from anaphora.training.objective import Batches, Objective
from anaphora.training.own import own_measures
from anaphora.training.seeding import seed_everything

FORMAT = 1


class Captioner(PictureEstimator, Writer):
    """Say what is in a picture: p(y | picture) = ∏_τ p(y_τ | y_<τ, picture).

        m = an.Captioner(model="lstm-attention")
        m.fit("captions.tsv", out="runs/captions")
        m.predict(["scene.png"])

    A picture is a path, or an array ``(height, width, 3)``; it may have any number of captions. ``anaphora models
    caption`` lists the presets and ``anaphora explain`` the settings.

    >>> dark, bright = (np.full((32, 32, 3), value, np.uint8) for value in (0, 255))
    >>> m = an.Captioner("lstm", hidden=4, embedding=4, steps=2).fit([(dark, "dark"), (bright, "bright")] * 4)
    >>> len(m.predict([dark, bright]))
    2
    """

    command = "caption"
    texts = "captions"
    seeing = "encoder."
    begun_parts = ("encoder.network.",)
    settings_: CaptionerSettings
    model_: Seq2Seq
    tokenizer_: Tokenizer

    def __init__(
        self, model: CaptionerModel | str | None = None, **settings: Unpack[CaptionerKeywords]
    ) -> None:
        super().__init__(model, **settings)

    # ------------------------------------------------------------------ training

    def _learn(self, data: PictureList) -> None:
        self.tokenizer_ = learn_tokenizer(self.settings_, (text for rows in data.texts for (text,) in rows))

    def _symbols(self, data: PictureList) -> float:
        # an epoch takes one of a picture's captions
        return sum(sum(len(ids) + 1 for ids in about) / len(about) for about in self._captions(data))

    def _fresh_model(self) -> Seq2Seq:
        seed_everything(self.settings_.seed, "model")
        symbols = self.tokenizer_.size
        own = own_model(self.command, self.settings_, inputs=3, outputs=symbols, vocabulary=self.tokenizer_)
        if own is not None:
            return own_seq2seq(own, symbols, pictures=True)
        return build_captioner(self.settings_, symbols, self._eye)

    def _inherited(self) -> dict[str, Tensor]:
        path = self.settings_.picture_weights
        if self._eye is not None:
            return self._public_weights()
        if not path:
            return {}
        network = picture_encoder_of(self.model_).network
        return read_picture_weights(path, network, prefix="encoder.network.")

    def _objective_and_batches(self, data: PictureList, dev: PictureList) -> tuple[Objective, Batches]:
        s = self.settings_
        captions = self._captions(data)
        kept = [[ids for ids in about if len(ids) <= s.max_tokens] for about in captions]
        long = sum(map(len, captions)) - sum(map(len, kept))
        if long:
            warnings.warn(
                f"{long} captions are longer than max_tokens = {s.max_tokens} and are left out", stacklevel=4
            )
        if not any(kept):
            raise DataError(
                f"no caption has at most max_tokens = {s.max_tokens} symbols; raise it, or choose longer symbols (tokens)."
            )
        written = [len(ids) + 1 for about in kept for ids in about]
        warn_of_limit(written, [s.max_length] * len(written), f"max_length = {s.max_length}")
        batches = caption_batches(data, kept, self._augmentation(), batch_tokens=s.batch_tokens, seed=s.seed)
        shown = [(dev.load(i), _texts(dev, i)) for i in range(min(len(dev), s.valid_examples))]
        return CaptionObjective(s, self.tokenizer_, shown), batches

    def _captions(self, data: PictureList) -> list[list[list[int]]]:
        """The captions of every picture as symbols."""
        encoded = iter(self.tokenizer_.encode_batch([text for rows in data.texts for (text,) in rows]))
        return [[next(encoded) for _ in rows] for rows in data.texts]

    def _vocabulary(self) -> dict[str, int]:
        return {"symbols": self.tokenizer_.size}

    # ------------------------------------------------------------------ use

    def search(self, pictures: Iterable[Any], /, *, n_best: int = 1, **options: Any) -> list[list[Output]]:
        """The ``n_best`` captions of each picture with their scores, different texts and best first; samples as they were drawn. Options are
        those of `predict`."""
        return self._describe(self._see(pictures), n_best, options)

    @whatever_the_batch
    def _describe(
        self, pictures: Sequence[Pixels], n_best: int, options: Mapping[str, Any]
    ) -> list[list[Output]]:
        check_n_best(n_best)
        settings = search_settings(self.settings_, options, self.tokenizer_)

        def found(some: Sequence[Pixels], wide: int) -> list[NBest]:
            return describe_pictures(self.model_, some, n_best=wide, **settings)

        drawn = settings["decode"] == "sample"
        return searched_outputs(found, pictures, n_best, self.tokenizer_.decode, drawn=drawn)

    def score(
        self,
        data: Any,
        *,
        source_field: str | None = None,
        target_field: str | None = None,
        bad_rows: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """BLEU and exact match with any reference (in percent) and CIDEr-D (0 to 10) of the captions for ``data``.

        Where the data are an embedded corpus that knows the places of objects, and the model has attention: of the
        words that name an object in exact captions, the share during which the strongest place lay on that object.
        """
        self._check_trained()
        fields = {"source_field": source_field, "target_field": target_field}
        rows = self._scored(data, bad_rows, **fields)
        pictures = [rows.load(i) for i in range(len(rows))]
        references = [
            [self.tokenizer_.normalized(text) for text in _texts(rows, i)] for i in range(len(rows))
        ]
        options.pop("n_best", None)
        outputs = [captions[0].text for captions in self._describe(self._see(pictures), 1, options)]
        measured = caption_measures(outputs, references, tokenize=self.settings_.bleu_tokenize)
        scores = {**measured.report}
        scores |= self._looked(rows.facts, pictures, outputs, references)
        skipped = sum((rows.facts.get("skipped") or {}).values())
        scores |= own_measures(self.settings_, references, outputs, scores)
        return scores | ({"skipped": skipped} if skipped else {})

    def _judge(self, data: PictureList, options: Mapping[str, Any]) -> Judged:
        pictures = self._see([data.load(i) for i in range(len(data))])
        known = self.tokenizer_.normalized
        references = [[known(text) for text in _texts(data, i)] for i in range(len(data))]
        found, seconds = timed(lambda some: self._describe(list(some), 1, dict(options)), pictures)
        outputs = [captions[0].text for captions in found]
        measured = caption_measures(outputs, references, tokenize=self.settings_.bleu_tokenize)
        names = [f"picture {number}" for number in range(1, len(data) + 1)]
        return captions_judged(names, references, outputs, measured, seconds)

    @whatever_the_batch
    def _looked(
        self,
        facts: Mapping[str, Any],
        pictures: Sequence[Pixels],
        outputs: Sequence[str],
        references: Sequence[Sequence[str]],
    ) -> dict[str, float]:
        if not self.model_.decoder.attentions or self.tokenizer_.kind != "word":
            return {}
        named = named_objects(facts, outputs, references, self.size)
        weights = where_it_looked(
            self.model_,
            [pictures[i] for i in named],
            self.tokenizer_.encode_batch([outputs[i] for i in named]),
        )
        grid = picture_encoder_of(self.model_).grid
        return share_on_objects(zip(weights, named.values(), strict=True), grid=grid, size=self.size)

    def _example(self, dev: PictureList, number: int) -> tuple[Any, str]:
        return dev.load(number), _texts(dev, number)[0]

    @probing
    def probe(
        self, picture: Any, target: str | None = None, *, what: Sequence[str] = (), beam: int | None = None
    ) -> Trace:
        """What happens inside while a picture becomes the best caption, or the ``target`` given."""
        only_what(self, what, ("attribution",))
        (pixels,) = self._see([picture])
        return probe_captioner(
            self, pixels, str(picture) if isinstance(picture, str | Path) else "", target, beam, what
        )

    def probe_embeddings(self) -> Trace:
        """The vectors of the words, for the view embeddings."""
        self._check_trained()
        return symbol_vectors(self, self.model_, self.tokenizer_)

    def _see(self, pictures: Iterable[Any]) -> list[Pixels]:
        self._check_trained()
        if isinstance(pictures, str | Path):
            raise DataError("predict takes a list of pictures: write [picture] for a single one.")
        self.model_.eval()
        return [given_picture(picture, number, self.size) for number, picture in enumerate(pictures, start=1)]


def _texts(data: PictureList, index: int) -> list[str]:
    return [text for (text,) in data.texts[index]]
