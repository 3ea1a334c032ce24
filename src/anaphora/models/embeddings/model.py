"""What all models of word vectors have in common: `fit`, `vectors`, questions to them, `save` and `load`."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np

from anaphora.errors import AnaphoraError, RunError, SettingsError, TrainingError
from anaphora.files.schemas import checked
from anaphora.models.classical.arrays import load_arrays, reading, save_arrays
from anaphora.models.embeddings.text import (
    Data,
    Listener,
    Phrases,
    Tally,
    Text,
    encode_text,
    listening,
    read_again,
    read_text,
    spill_folder,
)
from anaphora.models.embeddings.vectors import KIND, WordVectors, pack, unpack

Array = np.ndarray[Any, Any]


class VectorModel(ABC):
    """A method that learns a vector for each word of a text.

    A subclass fills ``weights`` in `_train` and makes the vectors of them in `_vectors`. Its settings are the
    arguments of its constructor.
    """

    embedding: int
    epochs: int
    min_count: int
    vocab_size: int | None
    lowercase: bool
    phrases: int
    seed: int
    workers: int

    def __init__(self, settings: dict[str, Any]):
        problems = []
        for name, parameter in inspect.signature(type(self)).parameters.items():
            setattr(self, name, settings[name])
            wanted, fits = _kind(settings[name], parameter.default)
            if not fits:
                problems.append(f"{name} must be {wanted}, not {settings[name]!r}.")
        if not problems:  # the checks compare numbers
            problems = [sentence for wrong, sentence in [*self._common_checks(), *self._checks()] if wrong]
        if problems:
            raise SettingsError(problems)
        self.losses: list[float] = []
        """Mean loss of each epoch."""
        self.weights: dict[str, Array] = {}
        """All learned arrays, by name."""
        self._found: WordVectors | None = None
        self._spill: Path | None = None

    def fit(self, data: Data, *, progress: bool | Listener = False, spill: str | Path | None = None) -> Self:
        """Learn from ``data``: a path (a sentence per line, also .gz), several paths, sentences (texts, or lists of
        words) or the name of an embedded corpus.

        progress: True draws a line on stderr; a function is called with each `Progress`.
        spill: a folder for what grows with the text, four bytes a token, read back block by block. Files of more
            than 1 GiB go to the system's folder for temporary files even without it.
        """
        with listening(progress) as listener:
            self._spill = spill_folder(data, spill)
            if self.phrases:
                data = read_again(data)
                joined = Phrases(passes=self.phrases, lowercase=self.lowercase).fit(data, spill=self._spill)
                data = joined.transform(data)
            text = read_text(
                data,
                lowercase=self.lowercase,
                min_count=self.min_count,
                vocab_size=self.vocab_size,
                spill=self._spill,
            )
            self._found = None
            tally = Tally(listener, self.epochs, len(text.ids))
            with np.errstate(over="ignore", invalid="ignore"):
                self._train(text, tally)
        self.losses = tally.losses
        if not all(np.isfinite(weight).all() for weight in self.weights.values()):
            raise TrainingError("The vectors grew beyond all bounds; set a lower lr and fit again.")
        self._found = WordVectors(text.words, self._vectors())
        return self

    @property
    def vectors(self) -> WordVectors:
        """The learned vectors."""
        if self._found is None:
            raise AnaphoraError(f"This {type(self).__name__} is not trained yet; call fit or load first.")
        return self._found

    def __getitem__(self, word: str) -> Array:
        return self.vectors[word]

    def __contains__(self, word: object) -> bool:
        return word in self.vectors

    def similarity(self, a: str, b: str) -> float:
        """See `WordVectors.similarity`."""
        return self.vectors.similarity(a, b)

    def most_similar(self, word: str | Array, n: int = 10) -> list[tuple[str, float]]:
        """See `WordVectors.most_similar`."""
        return self.vectors.most_similar(word, n)

    def analogy(
        self, a: str, b: str, c: str, n: int = 10, *, exclude: bool = True
    ) -> list[tuple[str, float]]:
        """See `WordVectors.analogy`."""
        return self.vectors.analogy(a, b, c, n, exclude=exclude)

    def evaluate_similarity(self, path: str | Path, *, lowercase: bool = False) -> dict[str, Any]:
        """See `WordVectors.evaluate_similarity`."""
        return self.vectors.evaluate_similarity(path, lowercase=lowercase)

    def evaluate_analogies(
        self, path: str | Path, *, lowercase: bool = False, vocab_size: int | None = None
    ) -> dict[str, Any]:
        """See `WordVectors.evaluate_analogies`."""
        return self.vectors.evaluate_analogies(path, lowercase=lowercase, vocab_size=vocab_size)

    def score(self, data: Data) -> dict[str, float]:
        """The loss of another text, mean over what is predicted; the model does not change."""
        text = encode_text(data, self.vectors.words, lowercase=self.lowercase)
        return self._score(text)

    def save(self, path: str | Path) -> None:
        """Write vectors, weights and settings into one safetensors file with a checksum."""
        vectors = self.vectors
        arrays = {"vectors": vectors.matrix, "words": pack(vectors.words)}
        arrays |= {f"weights.{name}": weight for name, weight in self.weights.items()}
        facts = {"model": type(self).__name__, "settings": self.settings(), "losses": self.losses}
        save_arrays(path, KIND, arrays, facts)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The model that `save` wrote."""
        arrays, facts = load_arrays(path, KIND)
        if facts.get("model") != cls.__name__:
            raise RunError(f"{path}: holds the vectors of a {facts.get('model')}; load it with that class.")
        with reading(path):
            model = cls(**facts["settings"])
            model.losses = checked(list[float], facts["losses"])
            kept = {name: array for name, array in arrays.items() if name.startswith("weights.")}
            model.weights = {name.removeprefix("weights."): array.copy() for name, array in kept.items()}
            model._found = WordVectors(unpack(arrays["words"], path), arrays["vectors"])
            model._check_weights(len(model._found))
        return model

    def _check_weights(self, words: int) -> None:
        """A ``ValueError`` where weights from a file are not those of the model: compiled code trusts their shapes."""
        wanted, there = self._shapes(words), {name: weight.shape for name, weight in self.weights.items()}
        if there != wanted:
            raise ValueError(f"weights of the shapes {there} where {wanted} belong")
        for name, weight in self.weights.items():
            kind = np.int64 if name == "counts" else np.float32
            if (
                weight.dtype != kind
                or not np.isfinite(weight).all()
                or (name == "counts" and weight.min() < 1)
            ):
                raise ValueError(f"the weights {name} hold numbers that training does not give")

    def settings(self) -> dict[str, Any]:
        """What the model was made with."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.settings().items())})"

    def _common_checks(self) -> list[tuple[bool, str]]:
        """Pairs (is wrong, sentence) about the settings that all models have."""
        counts = {"embedding": 1, "epochs": 1, "min_count": 1, "phrases": 0, "seed": 0, "workers": 1}
        return [
            *(
                (
                    not _is_count(value := getattr(self, name), least),
                    f"{name} must be {least} or more, not {value}.",
                )
                for name, least in counts.items()
            ),
            (
                self.vocab_size is not None and not _is_count(self.vocab_size, 1),
                f"vocab_size must be 1 or more, not {self.vocab_size}.",
            ),
        ]

    def _checks(self) -> list[tuple[bool, str]]:
        """The same about the settings of one model."""
        return []

    @abstractmethod
    def _train(self, text: Text, tally: Tally) -> None:
        """Fill the weights."""

    @abstractmethod
    def _shapes(self, words: int) -> dict[str, tuple[int, ...]]:
        """The shape of each weight for a vocabulary of so many words."""

    @abstractmethod
    def _vectors(self) -> Array:
        """The vectors ``(V, d)`` that the weights hold."""

    @abstractmethod
    def _score(self, text: Text) -> dict[str, float]:
        """The mean loss of a text."""


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int | np.integer) and int(value) >= least


def _kind(value: Any, default: Any) -> tuple[str, bool]:
    """What a setting with this default must be, and whether the value is that."""
    if isinstance(default, bool):
        return "True or False", isinstance(value, bool)
    if isinstance(default, str):
        return "a word", isinstance(value, str)
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return ("a number or None", number or value is None) if default is None else ("a number", number)
