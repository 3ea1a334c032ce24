"""The n-gram language model: p(w₁…w_L) = Π p(w_i | w_{i−N+1}…w_{i−1}), never zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.symbols import BOS, EOS, UNK
from anaphora.errors import AnaphoraError, DataError, SettingsError
from anaphora.models.classical.arrays import reading
from anaphora.models.classical.ngram import files
from anaphora.models.classical.ngram.counts import (
    Sentence,
    Text,
    Words,
    count_levels,
    count_levels_on_disk,
    kept_by_count,
    learn,
)
from anaphora.models.classical.ngram.table import LONGEST, BackoffTable, assemble, estimate

Array = np.ndarray[Any, Any]

SMOOTHINGS = ("kneser-ney", "witten-bell", "add-k")
_LN10 = math.log(10.0)


class NGram:
    """An n-gram language model over words, characters or ids.

    Ids follow the library's special symbols: 0 <pad>, 1 <unk>, 2 <s>, 3 </s>, then the vocabulary. Every symbol
    but <pad> and <s> has a probability above zero after every history.

    Args:
        order: N, the length of the longest n-gram; a history has N − 1 symbols.
        smoothing: "kneser-ney" (interpolated, modified: three discounts per order), "witten-bell" or "add-k".
        k: what add-k adds to every count.
        tokens: how a line or a text is cut: "word" (at white space) or "char".
        vocab_size: the most frequent words are kept, the special symbols included in the number; for ids, how
            many there are. None: all.
        min_count: rarer words become <unk>.
        prune: n-grams seen this many times or fewer are dropped; one number per order, the last one for all higher
            orders. The first must be 0.

    >>> model = an.NGram(order=2, smoothing="witten-bell").fit(["a b", "a b", "a c"])
    >>> model.log_prob("a b") > model.log_prob("a c")
    True
    """

    def __init__(
        self,
        order: int = 3,
        *,
        smoothing: str = "kneser-ney",
        k: float = 1.0,
        tokens: str = "word",
        vocab_size: int | None = None,
        min_count: int = 1,
        prune: Sequence[int] = (0,),
    ):
        self.order, self.smoothing, self.k, self.tokens = order, smoothing, k, tokens
        self.vocab_size, self.min_count, self.prune = vocab_size, min_count, tuple(prune)
        problems = list(_problems(self))
        if problems:
            raise SettingsError(problems)
        self.discounts: list[tuple[float, float, float]] = []
        """D₁, D₂, D₃₊ of each order (Kneser-Ney)."""
        self._words: Words | None = None
        self._table: BackoffTable | None = None

    def fit(self, data: Text, *, spill: str | Path | None = None) -> NGram:
        """Count and smooth. ``data``: a path (a sentence per line) or sentences (texts, lists of words, lists of ids).

        ``spill`` is a folder for texts larger than memory: what grows with the text (12 to 16 bytes a token) goes
        there, into nameless files; memory holds the distinct n-grams alone. The model is the same.
        """
        folder = None if spill is None else Path(spill)
        if folder is not None and not folder.is_dir():
            raise DataError(f"{folder} is not a folder; give spill one that is there.")
        ids, words = learn(
            data, self.tokens, vocab_size=self.vocab_size, min_count=self.min_count, spill=folder
        )
        if folder is None:
            levels = count_levels(ids, self.order, words.size)
        else:
            levels = count_levels_on_disk(ids, self.order, words.size, folder)
        least = [self.prune[min(n, len(self.prune) - 1)] for n in range(self.order)]
        kept = kept_by_count(levels, least)
        estimates, used = estimate(levels, kept, self.smoothing, self.k)
        self.discounts = [(d[0], d[1], d[2]) for d in used]
        self._words, self._table = words, assemble(levels, estimates, kept)
        return self

    @property
    def table(self) -> BackoffTable:
        """The trained model as arrays."""
        if self._table is None:
            raise AnaphoraError("This NGram holds no model yet; call fit, load or read_arpa first.")
        return self._table

    @property
    def words(self) -> Words:
        """The vocabulary."""
        self.table  # noqa: B018  raises where there is no model
        assert self._words is not None
        return self._words

    def __len__(self) -> int:
        """How many n-grams are stored, of all orders."""
        return len(self.table.word) - 1

    def encode(self, sentences: Text) -> Array:
        """Ids of all sentences, ``(tokens,)``, each from <s> to </s>: what `query` reads."""
        return self.words.encode(sentences, self.tokens)

    def query(self, ids: Array) -> Array:
        """log₁₀ p of each of ``ids (tokens,)`` given those before it in its sentence; <s> begins one and costs 0."""
        ids = np.asarray(ids)
        if ids.ndim != 1 or (len(ids) and not 0 < int(ids.min()) <= int(ids.max()) < self.table.symbols):
            raise DataError(f"query takes one row of ids from 1 to {self.table.symbols - 1}; see encode.")
        return self.table.walk(ids)

    def log_probs(self, sentences: Text, *, base: float = math.e) -> Array:
        """log p of each sentence, its end included, ``(sentences,)``; natural logarithm, or ``base=10``."""
        ids = self.encode(sentences)
        if not len(ids):
            return np.zeros(0)
        sums = np.add.reduceat(self.query(ids), np.flatnonzero(ids == BOS))
        return np.asarray(sums * (_LN10 / math.log(base)))

    def log_prob(self, sentence: Sentence, *, base: float = math.e) -> float:
        """log p(w₁ … w_L </s>); natural logarithm, or ``base=10``."""
        return float(self.log_probs([sentence], base=base)[0])

    def perplexity(self, data: Text) -> float:
        """exp(−mean log p) over all symbols, </s> and unknown ones included."""
        return self.score(data)["perplexity"]

    def score(self, data: Text) -> dict[str, float]:
        """Perplexity with and without unknown words (∞ beyond 10³⁰⁸), and what it is made of.

        ``symbols`` counts </s>, not <s>. Without unknown words, their log p is left out of the sum and they are left
        out of the count; they stay in the histories.
        """
        ids = self.encode(data)
        real = ids != BOS
        if not real.any():
            raise DataError("There is no sentence to score; give at least one.")
        found = self.query(ids)[real]
        known = ids[real] != UNK
        total, known_total = float(found.sum()), float(found[known].sum())
        return {
            "perplexity": _power(-total / len(found)),
            "perplexity_known": _power(-known_total / int(known.sum())),
            "log_prob": total * _LN10,
            "symbols": float(len(found)),
            "sentences": float((~real).sum()),
            "unknown": float((~known).sum()),
        }

    def distribution(self, history: Sentence = (), *, begin: bool = True) -> Array:
        """p of every next symbol after ``history``, ``(V,)``; ``begin``: the history starts with <s>."""
        ids = self.encode([history])[:-1]
        node = np.zeros(1, dtype=np.int64)
        for i in ids if begin else ids[1:]:
            node = self.table.advance(node, np.array([i]))
        return np.asarray(10.0 ** self.table.distributions(node)[0])

    def start(self, batch: int) -> Tensor:
        """The state before <s> for ``batch`` rows: what `anaphora.search` carries, ``(batch,)``."""
        return torch.zeros(batch, dtype=torch.long)

    def step(self, symbols: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Read ``symbols (rows,)`` in ``state (rows,)``: natural log p of every next symbol ``(rows, V)``, new state."""
        nodes = self.table.advance(state.cpu().numpy(), symbols.cpu().numpy())
        scores = torch.from_numpy(self.table.distributions(nodes) * _LN10)
        return scores.float().to(symbols.device), torch.from_numpy(nodes).to(symbols.device)

    def sample(
        self, count: int = 1, *, temperature: float = 1.0, seed: int = 0, max_length: int = 100
    ) -> list[list[Any]]:
        """``count`` sentences drawn symbol by symbol from p^(1/temperature); each ends at </s> or ``max_length``.

        A sentence depends on ``seed`` and its own place alone, not on ``count``. <unk> is not drawn.
        """
        if temperature <= 0:
            raise SettingsError([f"temperature must be above 0, not {temperature}."])
        draws = [np.random.default_rng((seed, row)) for row in range(count)]
        nodes = self.table.advance(np.zeros(count), np.full(count, BOS))
        rows = np.arange(count)
        drawn: list[list[int]] = [[] for _ in range(count)]
        for _ in range(max_length):
            if not len(rows):
                break
            scores = self.table.distributions(nodes) * (_LN10 / temperature)
            scores[:, UNK] = -np.inf
            mass = np.exp(scores - scores.max(1, keepdims=True)).cumsum(1)
            picks = np.array([draws[r].random() for r in rows]) * mass[:, -1]
            words = (mass <= picks[:, None]).sum(1)
            going = words != EOS
            rows, words = rows[going], words[going]
            for row, word in zip(rows.tolist(), words.tolist(), strict=True):
                drawn[row].append(word)
            nodes = self.table.advance(nodes[going], words)
        return [self.words.spell(ids) for ids in drawn]

    def write_arpa(self, path: str | Path) -> None:
        """Write the model as an ARPA file (log₁₀, exact to the last bit); ids are spelled as numbers."""
        files.write_arpa(path, self.table, self.words, self.tokens)

    @classmethod
    def read_arpa(cls, path: str | Path, *, tokens: str = "word") -> NGram:
        """A model from an ARPA file, as SRILM, KenLM and others write them (also .gz)."""
        table, words = files.read_arpa(path, tokens)
        model = cls(table.order, tokens=tokens)
        model.smoothing, model._words, model._table = "arpa", words, table
        return model

    def save(self, folder: str | Path) -> None:
        """Write ``ngram.json`` and ``ngram.safetensors`` into ``folder``."""
        files.save(folder, self.settings(), self.discounts, self.words, self.table)

    @classmethod
    def load(cls, folder: str | Path) -> NGram:
        """The model that `save` wrote."""
        settings, discounts, words, table = files.load(folder)
        with reading(folder):
            smoothing = settings.pop(
                "smoothing"
            )  # also that of another program, where it came from an ARPA file
            model = cls(**settings)
        model.smoothing, model.discounts = str(smoothing), discounts
        model._words, model._table = words, table
        return model

    def settings(self) -> dict[str, Any]:
        """What the model was made with."""
        names = ("order", "smoothing", "k", "tokens", "vocab_size", "min_count", "prune")
        return {name: getattr(self, name) for name in names}


def _power(exponent: float) -> float:
    return 10**exponent if exponent < 308 else math.inf


def _problems(model: NGram) -> list[str]:
    checks = (
        (not 1 <= model.order <= LONGEST, f"order must be from 1 to {LONGEST}, not {model.order}."),
        (
            model.smoothing not in SMOOTHINGS,
            f"smoothing must be one of {', '.join(SMOOTHINGS)}, not {model.smoothing!r}.",
        ),
        (
            not (0 < model.k < math.inf),
            f"k must be above 0, not {model.k}: with nothing added p could be zero.",
        ),
        (model.tokens not in ("word", "char"), f'tokens must be "word" or "char", not {model.tokens!r}.'),
        (
            model.vocab_size is not None and model.vocab_size < 4,
            f"vocab_size must be 4 or more (the special symbols), not {model.vocab_size}.",
        ),
        (
            not model.prune or model.prune[0] != 0 or any(n < 0 for n in model.prune),
            f"prune must begin with 0 (words are dropped by min_count) and hold counts, not {model.prune}.",
        ),
    )
    return [sentence for wrong, sentence in checks if wrong]
