"""``an.Answerer``: learn to answer questions about pictures."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Unpack, overload

import numpy as np
from torch import Tensor

from anaphora.data.labelled_targets import UNKNOWN
from anaphora.data.pictures import PictureList
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import DataError
from anaphora.inference.session import check_finite
from anaphora.kinds.measures.classes import answer_measures, answers_judged
from anaphora.kinds.measures.judged import Judged, timed
from anaphora.models.answerer import PictureAnswerer
from anaphora.models.own import OwnAnswers
from anaphora.models.seeing import read_picture_weights
from anaphora.probe.trace import Trace
from anaphora.settings import build
from anaphora.tasks.answer.build import build_answerer
from anaphora.tasks.answer.inference import Answer, Row, among, choices_of, group, rows_of, spoken
from anaphora.tasks.answer.info import AnswererSettings, AnswerOptions
from anaphora.tasks.answer.objective import (
    AnswerObjective,
    Asked,
    Ids,
    Numbers,
    answer_batches,
    score_questions,
)
from anaphora.tasks.answer.probing import probe_answerer
from anaphora.tasks.artifacts import learn_tokenizer
from anaphora.tasks.guarding import probing, whatever_the_batch
from anaphora.tasks.keywords import AnswererKeywords, AnswererModel
from anaphora.tasks.looking import no_beam, symbol_vectors
from anaphora.tasks.own import own_model
from anaphora.tasks.pictured import PictureEstimator
from anaphora.training.objective import Batches, Objective
from anaphora.training.own import own_measures
from anaphora.training.seeding import seed_everything

FORMAT = 1


class Answerer(PictureEstimator):
    """Answer a question about a picture: p(answer | question, picture) over the answers of the training data.

        m = an.Answerer(model="lstm-attention")
        m.fit("questions.tsv", out="runs/questions")     # path⇥question⇥answer
        m.predict([("kitchen.jpg", "what is on the table ?")])

    A picture is a path or an array ``(height, width, 3)``. ``anaphora models answer`` lists the presets and
    ``anaphora explain`` the settings. After training ``answers_`` are the answers in the order of `predict_proba`.

    >>> dark, bright = (np.full((32, 32, 3), value, np.uint8) for value in (0, 255))
    >>> rows = [(dark, "how is it ?", "dark"), (bright, "how is it ?", "bright")] * 4
    >>> m = an.Answerer("lstm-attention", hidden=4, embedding=4, steps=2).fit(rows, valid=rows)
    >>> m.predict_proba([(dark, "how is it ?")]).shape
    (1, 2)
    """

    command = "answer"
    texts = "questions"
    seeing = "pictures."
    begun_parts = ("pictures.network.",)
    settings_: AnswererSettings
    model_: PictureAnswerer
    tokenizer_: Tokenizer
    answers_: list[str]

    def __init__(
        self, model: AnswererModel | str | None = None, **settings: Unpack[AnswererKeywords]
    ) -> None:
        super().__init__(model, **settings)

    # ------------------------------------------------------------------ training

    def _learn(self, data: PictureList) -> None:
        s = self.settings_
        rows = [row for about in data.texts for row in about]
        self.tokenizer_ = learn_tokenizer(s, (text for about in self._texts(data) for text in about))
        counts = Counter(row[1] for row in rows)
        if len(counts) < 2:
            raise DataError(
                f"All {len(rows)} questions have the answer {rows[0][1][:40]}; there is nothing to learn."
            )
        commonest = sorted(counts, key=lambda answer: (-counts[answer], answer))[: s.answers]
        self.answers_ = sorted(commonest)

    def _symbols(self, data: PictureList) -> float:
        return sum(len(ids) + 1 for about in self._questions(data) for ids in about)

    def _fresh_model(self) -> PictureAnswerer | OwnAnswers:
        seed_everything(self.settings_.seed, "model")
        symbols = self.tokenizer_.size
        own = own_model(
            self.command,
            self.settings_,
            inputs=symbols,
            outputs=len(self.answers_),
            vocabulary=self.tokenizer_,
            labels=self.answers_,
        )
        if own is not None:
            return OwnAnswers(own, len(self.answers_))
        return build_answerer(
            self.settings_, symbols=self.tokenizer_.size, answers=len(self.answers_), eye=self._eye
        )

    def _inherited(self) -> dict[str, Tensor]:
        path, pictures = self.settings_.picture_weights, self.model_.pictures
        if self._eye is not None and pictures is not None:
            return self._public_weights()
        if not path or pictures is None:
            return {}
        return read_picture_weights(path, pictures.network, prefix="pictures.network.")

    def _objective_and_batches(self, data: PictureList, dev: PictureList) -> tuple[Objective, Batches]:
        s = self.settings_
        questions, answers = self._questions(data), self._numbers(data)
        short = [[len(ids) <= s.max_tokens for ids in about] for about in questions]
        long = sum(not fits for about in short for fits in about)
        if long == data.rows:
            raise DataError(f"None of the {long} questions fits into max_tokens = {s.max_tokens}; raise it.")
        if long:
            warnings.warn(
                f"{long} of {data.rows} questions are longer than max_tokens = {s.max_tokens} and are left out",
                stacklevel=2,
            )
        batches = answer_batches(
            data,
            [_kept(about, fits) for about, fits in zip(questions, short, strict=True)],
            [_kept(about, fits) for about, fits in zip(answers, short, strict=True)],
            self._augmentation(),
            batch_tokens=s.batch_tokens,
            seed=s.seed,
        )
        return AnswerObjective(s, self.answers_, self._asked(dev), dev.texts), batches

    def _questions(self, data: PictureList) -> list[list[Ids]]:
        """The questions about each picture as symbols."""
        encoded = iter(self._encode([text for about in self._texts(data) for text in about]))
        return [[next(encoded) for _ in about] for about in data.texts]

    def _texts(self, data: PictureList) -> list[list[str]]:
        """What is read for each question: itself, after those about the picture that came before, with their answers."""
        history = self.settings_.history
        said = [[(row[0], row[1]) for row in about] for about in data.texts]
        return [[spoken(about[:i], about[i][0], history) for i in range(len(about))] for about in said]

    def _numbers(self, data: PictureList) -> list[list[int]]:
        """The answers about each picture by their numbers; those that training does not know are `UNKNOWN`."""
        place = {answer: number for number, answer in enumerate(self.answers_)}
        return [[place.get(row[1], UNKNOWN) for row in about] for about in data.texts]

    def _asked(self, data: PictureList) -> list[Asked]:
        cut = [self._cut(about) for about in self._questions(data)]
        return [
            Asked(data.load(i), questions, answers)
            for i, (questions, answers) in enumerate(zip(cut, self._numbers(data), strict=True))
        ]

    def _vocabulary(self) -> dict[str, int]:
        return {"symbols": self.tokenizer_.size, "answers": len(self.answers_)}

    # ------------------------------------------------------------------ use

    @overload
    def predict(self, inputs: Iterable[Any], *, details: Literal[False] = False) -> list[str]: ...

    @overload
    def predict(self, inputs: Iterable[Any], *, details: Literal[True]) -> list[Answer]: ...

    def predict(self, inputs: Iterable[Any], *, details: bool = False) -> list[str] | list[Answer]:
        """The answer to each ``(picture, question)``; with ``details`` each is an `Answer` with its probability.

        Of ``(picture, question, choices)`` the best of the choices, a list or ``a|b|c``. With ``history`` a question may
        be a dialogue, ``[(question, answer), …, question]``.
        """
        scores = self._scores(self._rows(inputs))
        found = [self.answers_[int(i)] for i in scores.argmax(1)]
        if not details:
            return found
        best = probabilities(scores).max(1).tolist() if found else []
        return [Answer(text, chance) for text, chance in zip(found, best, strict=True)]

    def predict_proba(self, inputs: Iterable[Any]) -> Numbers:
        """p(answer | question, picture), ``(inputs, answers)``; rows sum to 1."""
        return probabilities(self._scores(self._rows(inputs)))

    def _rows(self, inputs: Iterable[Any]) -> list[Row]:
        self._check_trained()
        return rows_of(inputs, self.size, self.answers_, self.settings_.history)

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
        """Accuracy in percent: of all questions, and of each kind of question (named by a fourth column of the data,
        else by the question's first two words). ``majority`` is that of always giving the commonest answer.

        With ``choices`` the fourth column lists the answers to choose among, ``a|b|c``, and ``guess`` is the accuracy of
        choosing blindly. With ``history`` the answers before a question are those of the data."""
        self._check_trained()
        chosen = build(AnswerOptions, options, owner="score")
        fields = {"source_field": source_field, "target_field": target_field}
        pictures = self._scored(data, bad_rows, **fields)
        self.model_.eval()
        scores = score_questions(self.model_, self._asked(pictures))
        check_finite(scores, "question")
        rows = [row for about in pictures.texts for row in about]
        several = choices_of(rows, self.answers_) if chosen.choices else []
        if several:
            scores, rows = among(scores, several), [row[:2] for row in rows]
        answers = [self.answers_[int(i)] for i in scores.argmax(1)]
        measured = answer_measures(rows, answers).report
        commonest = Counter(row[1] for row in rows).most_common(1)[0][1]
        skipped = sum(pictures.facts.get("skipped", {}).values())
        own = own_measures(self.settings_, [row[1] for row in rows], answers, {"accuracy": 0.0})
        return {
            "questions": len(rows),
            "pictures": len(pictures),
            **({"skipped": skipped} if skipped else {}),
            "accuracy": measured["accuracy"],
            "majority": 100.0 * commonest / len(rows),
            **({"guess": 100.0 * float(np.mean([1 / len(one) for one in several]))} if several else {}),
            "by_kind": measured["by_kind"],
            **own,
        }

    @whatever_the_batch
    def _judge(self, data: PictureList, options: Mapping[str, Any]) -> Judged:
        build(AnswerOptions, options, owner="score")
        self.model_.eval()
        scores, seconds = timed(lambda asked: score_questions(self.model_, asked), self._asked(data))
        check_finite(scores, "question")
        return answers_judged(data.texts, probabilities(scores), self.answers_, seconds)

    @probing
    def probe(
        self, x: Any, target: str | None = None, *, what: Sequence[str] = (), beam: int | None = None
    ) -> Trace:
        """Where the model looks while it reads one ``(picture, question)``."""
        self._check_trained()
        no_beam(self, beam)
        return probe_answerer(self, x, target, what)

    def probe_embeddings(self) -> Trace:
        """The vectors of the symbols, for the view embeddings."""
        self._check_trained()
        return symbol_vectors(self, self.model_, self.tokenizer_)

    def _example(self, dev: PictureList, number: int) -> tuple[Any, str]:
        question, answer, *_ = dev.texts[number][0]
        return (dev.load(number), question), answer

    def _with_words(self, x: Any, words: str) -> Any:
        return (x[0] if isinstance(x, tuple) else x, words)

    @whatever_the_batch
    def _scores(self, rows: Sequence[Row]) -> Numbers:
        """Scores ``(rows, answers)``; a picture that several rows are about is seen once."""
        self._check_trained()
        self.model_.eval()
        asked, order = group(rows, self._cut(self._encode([row.question for row in rows])))
        found: Numbers = score_questions(self.model_, asked)[order]
        check_finite(found, "input")
        chosen: Numbers = among(found, [row.choices for row in rows])
        return chosen

    def _encode(self, questions: list[str]) -> list[Ids]:
        found = [np.array(ids, dtype=np.int32) for ids in self.tokenizer_.encode_batch(questions)]
        return [ids[-self.settings_.max_tokens :] for ids in found] if self.settings_.history else found

    def _cut(self, questions: list[Ids]) -> list[Ids]:
        longest = self.settings_.max_tokens
        long = sum(len(ids) > longest for ids in questions)
        if long:
            warnings.warn(
                f"{long} questions were longer than max_tokens = {longest} and were cut", stacklevel=3
            )
        return [ids[:longest] for ids in questions]


def probabilities(scores: Numbers) -> Numbers:
    """softmax over the answers, ``(n, answers)``."""
    shifted = np.exp(scores - scores.max(1, keepdims=True))
    found: Numbers = shifted / shifted.sum(1, keepdims=True)
    return found


def _kept(values: list[Any], fits: list[bool]) -> list[Any]:
    return [value for value, fit in zip(values, fits, strict=True) if fit]
