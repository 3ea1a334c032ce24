"""A model with CTC adapts to the recordings it is asked to transcribe, by its own transcripts of them.

Speaker and microphone are the same in many recordings, so what is sure in some of them tells how the others sound. In each round

1. every recording is searched for its likely texts h, log p(h | x);
2. in the first two rounds, each word w gets a bonus b_w, by which it is heard about as often as the training transcripts have it:

       n_w(b) + s = (N q_w + s)^β (n_w(0) + s)^(1−β),    n_w(b) = Σ_x Σ_h p_b(h | x) · #_w(h),    p_b(h | x) ∝ p(h | x) exp Σ_{w in h} b_w

   with N words in all, q_w the share of w in training, and s against chance where a word is rare. It brings back words that are taken for
   others; later rounds go without, so that words may be as frequent as they are in these recordings;
3. of all that was heard as the same word, the share that the model is surest of is kept, or else a word that is often mistaken for
   another would never be. Recordings are cut into pieces: words in a row that are all kept;
4. the weights move along the gradient of CTC for these pieces, varied as in training.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from anaphora.data.audio.frames import Ear
from anaphora.data.audio.recordings import HeldFeatures, HeldSound, Item, Recordings
from anaphora.data.batches.padded import tensors_of
from anaphora.data.sources.report import say
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import DataError
from anaphora.models.ctc import CTCModel
from anaphora.search import Hypothesis
from anaphora.tasks.transcribe.inference.decoding import (
    Heard,
    Search,
    factor_of,
    frame_log_probs,
    search_frames,
    spellable,
)
from anaphora.tasks.transcribe.inference.words import placed_words, text_of
from anaphora.tasks.transcribe.objective import frame_loss

Numbers = NDArray[np.float64]
ROUNDS, BALANCE = 6, 0.5
STEPS, RATE, FRAMES = 40, 1e-3, 4000
"""Of a round: steps of Adam, how far each goes, and frames in each (padded)."""
BALANCED = 2
"""Rounds in which words have bonuses."""
LIKELY = 32
"""Texts of a recording among which bonuses choose."""
PASSES = 2
"""Times that recordings are searched in a round; the bonuses of one search are those of the next."""
SWEEPS = 50
"""Times that the bonuses are corrected."""
CHANCE = 2.0
"""s: words more or less that say nothing about how often a word is said."""
MARGIN = 0.2
"""Seconds around the words of a piece that are heard with them, at most."""
SHARE = 0.6
"""Of what was heard as the same word, so much is learned from: that which is surest."""


class Said(NamedTuple):
    """A word that was heard: its first place and the one after its last, in the sound and among the symbols of the text."""

    word: str
    confidence: float
    start: int
    end: int
    first: int
    last: int


class Piece(NamedTuple):
    """Of recording ``row`` the places from ``start`` to before ``end``, and the symbols that are said in them."""

    row: int
    start: int
    end: int
    symbols: list[int]


@dataclass(frozen=True)
class Adaptation:
    """What a model adapts with: recordings without transcripts, and how they are heard.

    usual: how often each word stands in the training transcripts, in any unit. balance: β, from 0 to 1.
    """

    recordings: Recordings
    ear: Ear
    tokenizer: Tokenizer
    search: Search
    usual: Mapping[str, float]
    rounds: int = ROUNDS
    balance: float = BALANCE
    seed: int = 1

    def learn(self, model: CTCModel) -> None:
        """Move the weights of ``model``, and say what each round learns from. Raises a `DataError` where no word is heard."""
        random = np.random.RandomState(self.seed)
        heard = [self.ear.normalised(self.recordings.load(i)) for i in range(len(self.recordings))]
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=RATE)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            for number in range(self.rounds):
                pieces = self.pieces(model, heard, self.balance if number < BALANCED else 0.0)
                if not pieces:
                    raise DataError(
                        f"No word was heard in the {len(heard)} recordings, so there is nothing to adapt to; give a lexicon, or train longer."
                    )
                say(
                    f"round {number + 1} of {self.rounds}: learning from the surest {len(pieces):,} pieces of {len(heard):,} recordings"
                )
                self._round(model, pieces, optimizer, random, number * STEPS)

    def pieces(self, model: CTCModel, heard: Sequence[NDArray[np.float32]], balance: float) -> list[Piece]:
        """What the model is sure of in all recordings, of which ``heard`` are the frames."""
        model.eval()
        found = frame_log_probs(model, heard)
        best = self._texts(found, balance)
        said = [self._said(log_probs, h) for log_probs, h in zip(found, best, strict=True)]
        margin = max(1, round(MARGIN / (self.ear.settings.hop * factor_of(model))))
        pieces: list[Piece] = []
        for row, (words, kept) in enumerate(zip(said, surest(said, SHARE), strict=True)):
            pieces += cut(row, words, kept, best[row].tokens, margin)
        return pieces

    def _texts(self, found: Sequence[torch.Tensor], balance: float) -> list[Hypothesis]:
        """The text of each recording, with the bonuses of words."""
        bonus: dict[str, float] = {}
        texts: list[Hypothesis] = []
        for _ in range(PASSES if self.search.lexicon is not None and balance else 1):
            likely = [search_frames(one, self._searched(bonus)) for one in found]
            words = [[text_of(h, self.tokenizer).split() for h in of] for of in likely]
            plain = [
                [h.score - sum(bonus.get(w, 0.0) for w in said) for h, said in zip(of, each, strict=True)]
                for of, each in zip(likely, words, strict=True)
            ]
            best, bonus = chosen(plain, words, self.usual, balance)
            texts = [of[b] for of, b in zip(likely, best, strict=True)]
        return texts

    def _searched(self, bonus: Mapping[str, float]) -> Search:
        """The search for likely texts; with a ``bonus`` it finds those that only the bonus makes likely."""
        hot = dict(self.search.hot_words)
        for word, more in bonus.items():
            hot[word] = hot.get(word, 0.0) + more
        return replace(self.search, n_best=LIKELY, width=max(LIKELY, self.search.width), hot_words=hot)

    def _said(self, log_probs: torch.Tensor, h: Hypothesis) -> list[Said]:
        if not spellable(h.tokens, len(log_probs)):
            return []
        found = placed_words(Heard([h], log_probs), h, self.tokenizer, self.search.lexicon)
        return [Said(w, sure, start, end, places[0], places[-1] + 1) for w, places, start, end, sure in found]

    def _round(
        self,
        model: CTCModel,
        pieces: Sequence[Piece],
        optimizer: torch.optim.Optimizer,
        random: np.random.RandomState,
        done: int,
    ) -> None:
        rows = self._as_recordings(pieces, factor_of(model))
        frames = FRAMES * max(1, factor_of(model) // 4)
        together = min(len(pieces), max(2, int(frames / max(float(rows.lengths.mean()), 1.0))))
        device = next(model.parameters()).device
        model.train()
        for step in range(done, done + STEPS):
            drawn = random.randint(len(pieces), size=together).tolist()
            x = [self.ear.vary(rows, [i], self.seed, step, i, copy=place) for place, i in enumerate(drawn)]
            scores, lengths = model(*tensors_of(x, device))
            targets = [pieces[i].symbols for i in drawn]
            total = frame_loss(model.frames, scores, lengths, targets)
            optimizer.zero_grad()
            loss = total / sum(len(one) + 1 for one in targets)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()

    def _as_recordings(self, pieces: Sequence[Piece], factor: int) -> Recordings:
        items: list[Item] = []
        for piece in pieces:
            name = f"a piece of {self.recordings.names[piece.row]}"
            if self.recordings.features is None:
                x = self.recordings.load(piece.row)
                items.append(HeldFeatures(name, x[_scaled(piece, factor)]))
            else:
                rate = self.recordings.features.rate
                wave = self.recordings.wave(piece.row)
                part = wave[_scaled(piece, factor * self.ear.settings.hop * rate)]
                items.append(HeldSound(name, part, rate))
        return Recordings(items, [""] * len(items), {}, features=self.recordings.features)


def _scaled(piece: Piece, by: float) -> slice:
    """The places of a piece in numbers of which each place has ``by``."""
    return slice(round(piece.start * by), round(piece.end * by))


def cut(
    row: int, words: Sequence[Said], kept: Sequence[bool], symbols: Sequence[int], margin: int
) -> list[Piece]:
    """The words in a row that are ``kept``, as pieces of recording ``row``: from the middle between two words to another, but no more than
    ``margin`` places before the first and after the last. Where more than twice as many lie between two words, one may have been missed,
    and there is a cut."""
    pieces, first = [], 0
    for after in range(1, len(words) + 1):
        last = words[after - 1]
        gap = words[after].start - last.end if after < len(words) else None
        if kept[first] and kept[after - 1] and gap is not None and kept[after] and gap <= 2 * margin:
            continue
        if kept[first]:
            before = words[first].start - words[first - 1].end if first else 2 * words[first].start
            start = words[first].start - min(margin, before // 2)
            end = last.end + (margin if gap is None else min(margin, (gap + 1) // 2))
            pieces.append(Piece(row, start, end, list(symbols[words[first].first : last.last])))
        first = after
    return pieces


def surest(said: Sequence[Sequence[Said]], share: float) -> list[list[bool]]:
    """Which words of each recording are kept: of those that were heard as the same word the ``share`` with the greatest confidence, at
    least one."""
    of: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    for row, words in enumerate(said):
        for place, one in enumerate(words):
            of[one.word].append((-one.confidence, row, place))
    kept = [[False] * len(words) for words in said]
    for found in of.values():
        for _, row, place in sorted(found)[: math.ceil(share * len(found))]:
            kept[row][place] = True
    return kept


def chosen(
    scores: Sequence[Sequence[float]],
    words: Sequence[Sequence[Sequence[str]]],
    usual: Mapping[str, float],
    balance: float,
) -> tuple[list[int], dict[str, float]]:
    """Which of its texts is each recording's, once every word has its bonus b (see above); and b. ``scores``: log p of the texts of each
    recording; ``words``: those of each text; ``usual``: how often training has each word."""
    names = sorted({w for of in words for text in of for w in text})
    place = {w: i for i, w in enumerate(names)}
    owner = np.array([i for i, of in enumerate(scores) for _ in of], dtype=np.int64)
    flat = np.array([s for of in scores for s in of], dtype=np.float64)
    starts = np.cumsum([0, *(len(of) for of in scores)])
    counts = np.zeros((len(flat), len(names)))
    for row, text in enumerate(text for of in words for text in of):
        for w, times in Counter(text).items():
            counts[row, place[w]] = times
    share = np.array([usual.get(w, 0.0) for w in names]) / max(sum(usual.values()), 1e-9)
    bonus, heard = np.zeros(len(names)), _posterior(flat, starts, owner) @ counts
    goal = balance * np.log(heard.sum() * share + CHANCE) + (1 - balance) * np.log(heard + CHANCE)
    for _ in range(SWEEPS if balance and share.any() else 0):
        bonus += 0.5 * (goal - np.log(heard + CHANCE))
        heard = _posterior(flat + counts @ bonus, starts, owner) @ counts
    total = flat + counts @ bonus
    best = [int(np.argmax(total[a:b])) for a, b in itertools.pairwise(starts)]
    return best, dict(zip(names, bonus.tolist(), strict=True))


def _posterior(total: Numbers, starts: NDArray[np.int64], owner: NDArray[np.int64]) -> Numbers:
    """p of each text, of scores ``total`` of the texts of all recordings in a row, those of recording ``owner[i]`` from its start on."""
    top = np.maximum.reduceat(total, starts[:-1])
    shares = np.exp(total - top[owner])
    found: Numbers = shares / np.add.reduceat(shares, starts[:-1])[owner]
    return found
