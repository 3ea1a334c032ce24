"""A solution of every exercise, and answers that are wrong."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import torch

import anaphora as an

SOLUTIONS: dict[str, Any] = {}
WRONG: dict[str, tuple[Any, ...]] = {}

# ---------------------------------------------------------------- 14: linear recurrences and scans
SOLUTIONS["14.1"] = 10  # 2¹⁰ = 1024
WRONG["14.1"] = (9, 1000, 9.97)


def combine(first: Any, second: Any) -> tuple[Any, Any]:
    (a1, b1), (a2, b2) = first, second
    return a2 * a1, a2 * b1 + b2


SOLUTIONS["14.2"] = combine
WRONG["14.2"] = (
    lambda first, second: (first[0] * second[0], first[1] + second[1]),
    lambda first, second: combine(second, first),
    lambda first, second: first,
)
SOLUTIONS["14.3"] = lambda bit: (1 - 2 * bit, 0)
WRONG["14.3"] = (lambda bit: (1 - bit, bit), lambda bit: (0.5 - bit, 0), lambda bit: (-1, 0))

# ---------------------------------------------------------------- 13: pre-training and scaling
SOLUTIONS["13.1"] = 1.5  # 0.5, 0.25, 0.125 above it
WRONG["13.1"] = (1.625, 0, 1.6)
SOLUTIONS["13.2"] = 0.5  # 4^(−½) = ½
WRONG["13.2"] = (2, 0.25, -0.5)


def hidden(words: list[str], share: float, seed: int) -> list[int]:
    draw = random.Random(seed)
    return sorted(draw.sample(range(len(words)), max(1, round(share * len(words)))))


SOLUTIONS["13.3"] = hidden
WRONG["13.3"] = (
    lambda words, share, seed: [],
    lambda words, share, seed: list(range(30)),
    lambda words, share, seed: hidden(words, share, 0) if len(words) > 100 else [],
    lambda words, share, seed: [p for p in hidden(words, share, seed) if len(words) > 100],
    lambda words, share, seed: [*hidden(words, share, seed)[:-1], len(words)],
)

# ---------------------------------------------------------------- 2: counting
SOLUTIONS["2.1"] = 20
WRONG["2.1"] = (5, 0.05, 100)
SOLUTIONS["2.2"] = lambda p, T: [x ** (1 / T) / sum(y ** (1 / T) for y in p) for x in p]
WRONG["2.2"] = (
    lambda p, T: [x**T / sum(y**T for y in p) for x in p],
    lambda p, T: [x ** (1 / T) for x in p],
    lambda p, T: p[:1],
)
SOLUTIONS["2.3"] = "hug"  # after ug (20 times) and un (16), hug is there 15 times
WRONG["2.3"] = ("ug", "un", "hugs", 3)

# ---------------------------------------------------------------- 3: hidden states
SOLUTIONS["3.1"] = math.log2(1000)
WRONG["3.1"] = (1000, 31.6, 9)


def forward(start: Any, transitions: Any, emissions: Any, symbols: Any) -> float:
    alpha = [p * e[symbols[0]] for p, e in zip(start, emissions, strict=True)]
    for symbol in symbols[1:]:
        moved = [sum(a * t[j] for a, t in zip(alpha, transitions, strict=True)) for j in range(len(alpha))]
        alpha = [m * e[symbol] for m, e in zip(moved, emissions, strict=True)]
    return sum(alpha)


SOLUTIONS["3.2"] = forward
WRONG["3.2"] = (
    lambda s, t, e, x: math.log(forward(s, t, e, x)),
    lambda s, t, e, x: sum(p * row[x[0]] for p, row in zip(s, e, strict=True)),
    lambda s, t, e, x: forward(s, [list(column) for column in zip(*t, strict=True)], e, x),
)
SOLUTIONS["3.3"] = 3  # the gain is 3/4
WRONG["3.3"] = (2, 4, 1)

# ---------------------------------------------------------------- 4: a recurrent network, unrolled
SOLUTIONS["4.1"] = 40  # 12 + 9 + 3 + 12 + 4
WRONG["4.1"] = (33, 28, 43)
SOLUTIONS["4.2"] = lambda W_hh, W_xh, b, h, x: torch.tanh(W_hh @ h + W_xh @ x + b)
WRONG["4.2"] = (
    lambda W_hh, W_xh, b, h, x: W_hh @ h + W_xh @ x + b,
    lambda W_hh, W_xh, b, h, x: torch.tanh(W_hh @ h + W_xh @ x),
    lambda W_hh, W_xh, b, h, x: x,
)
SOLUTIONS["4.3"] = 0.75  # h_4 = w³
WRONG["4.3"] = (0.125, 3, 0.25)

# ---------------------------------------------------------------- 5: vanishing gradients
SOLUTIONS["5.1"] = 0.9**100
WRONG["5.1"] = (0.9, 90, 1e-10)


def clip(gradients: list[torch.Tensor], limit: float) -> list[torch.Tensor]:
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
    return [g * min(1.0, limit / norm) for g in gradients]


SOLUTIONS["5.2"] = clip
WRONG["5.2"] = (
    lambda g, limit: [one * min(1.0, limit / float(one.norm())) for one in g],
    lambda g, limit: [one * limit / float(torch.cat([o.flatten() for o in g]).norm()) for one in g],
    lambda g, limit: g,
    lambda g, limit: [one.clamp(-limit, limit) for one in g],
)
SOLUTIONS["5.3"] = 0.5**0.01
WRONG["5.3"] = (0.5, 0.99, 0.995)

# ---------------------------------------------------------------- 6: gates
SOLUTIONS["6.1"] = 4 * (100 * 200 + 200 * 200 + 200)
WRONG["6.1"] = (60_200, 240_000, 241_600)
SOLUTIONS["6.2"] = lambda bit: (bit, 1)
WRONG["6.2"] = (lambda bit: (bit, 1 - bit), lambda bit: (1, 1), lambda bit: (2, 1))


class SimpleGRU(an.nn.Cell):
    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.update = an.nn.Affine(inputs, hidden, hidden)
        self.new = an.nn.Affine(inputs, hidden, hidden)

    def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        u = torch.sigmoid(self.update(x, h))
        return (1 - u) * h + u * torch.tanh(self.new(x, h))


class Swapped(SimpleGRU):
    def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        u = torch.sigmoid(self.update(x, h))
        return u * h + (1 - u) * torch.tanh(self.new(x, h))


SOLUTIONS["6.3"] = SimpleGRU
WRONG["6.3"] = (Swapped, an.nn.GRU, an.nn.Elman)

# ---------------------------------------------------------------- 1: order
SOLUTIONS["1.1"] = 720
WRONG["1.1"] = (36, 6, 719)
SOLUTIONS["1.2"] = lambda word, words: [int(word == one) for one in words]
WRONG["1.2"] = (
    lambda word, words: [0] * len(words),
    lambda word, words: [1],
    lambda word, words: words.index(word),
)


def mean(rows: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    real = (torch.arange(rows.shape[1]) < lengths[:, None])[..., None]  # (batch, time, 1)
    return (rows * real).sum(1) / lengths[:, None]


SOLUTIONS["1.3"] = mean
WRONG["1.3"] = (
    lambda rows, lengths: rows.mean(1),
    lambda rows, lengths: mean(rows, lengths).sum(),
    lambda rows, lengths: rows[:, 0],
)

# ---------------------------------------------------------------- 11: CTC
SOLUTIONS["11.1"] = lambda path, blank: [s for s, _ in itertools.groupby(path) if s != blank]
WRONG["11.1"] = (
    lambda path, blank: [s for s, _ in itertools.groupby([s for s in path if s != blank])],
    lambda path, blank: [s for s in path if s != blank],
    lambda path, blank: path,
)
SOLUTIONS["11.2"] = 13  # OO, KK and EE
WRONG["11.2"] = (10, 12, 20)
SOLUTIONS["11.3"] = 15
WRONG["11.3"] = (6, 16, 81)

# ---------------------------------------------------------------- 12: the Transformer
SOLUTIONS["12.1"] = 64
WRONG["12.1"] = (8, 1, 4096)


def attention(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, causal: bool) -> torch.Tensor:
    scores = Q @ K.T / Q.shape[1] ** 0.5
    if causal:
        scores = scores + torch.full_like(scores, -math.inf).triu(1)
    return scores.softmax(-1) @ V


SOLUTIONS["12.2"] = attention
WRONG["12.2"] = (
    lambda Q, K, V, causal: attention(Q, K, V, False),
    lambda Q, K, V, causal: (Q @ K.T).softmax(-1) @ V,
    lambda Q, K, V, causal: (Q @ K.T / Q.shape[1] ** 0.5).softmax(0) @ V,
)
SOLUTIONS["12.3"] = lambda code, omega, k: (
    code[0] * math.cos(omega * k) + code[1] * math.sin(omega * k),
    code[1] * math.cos(omega * k) - code[0] * math.sin(omega * k),
)
WRONG["12.3"] = (
    lambda code, omega, k: code,
    lambda code, omega, k: (math.sin(omega * k), math.cos(omega * k)),
)

# ---------------------------------------------------------------- 7: words as vectors
SOLUTIONS["7.1"] = (3, 2)
WRONG["7.1"] = ((5, 2), (3, 0), (1, 2, 3), 5)


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


SOLUTIONS["7.2"] = cosine
WRONG["7.2"] = (
    lambda a, b: sum(x * y for x, y in zip(a, b, strict=True)),
    lambda a, b: cosine(a, b) ** 2,
    lambda a, b: math.dist(a, b),
)


def near(words: list[str], window: int) -> list[tuple[str, str]]:
    places = [(i, j) for i in range(len(words)) for j in range(len(words)) if 0 < abs(i - j) <= window]
    return [(words[i], words[j]) for i, j in places]


SOLUTIONS["7.3"] = near
WRONG["7.3"] = (
    lambda words, window: near(words, window)[::2],
    lambda words, window: near(words, window + 1),
    lambda words, window: [*sorted(set(near(words, window))), ("x", "x")],
)

# ---------------------------------------------------------------- 8: tagging
SOLUTIONS["8.1"] = 9**20
WRONG["8.1"] = (180, 20**9, 9)
SOLUTIONS["8.2"] = lambda before, tag: tag[0] != "I" or (before[0] in "BI" and before[2:] == tag[2:])
WRONG["8.2"] = (
    lambda before, tag: True,
    lambda before, tag: tag[0] != "I" or before[0] == "B",
    lambda before, tag: tag[0] != "I" or before != "O",
)


def spans(tags: list[str]) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    for place, tag in enumerate(tags):
        if tag[0] == "B":
            found.append((tag[2:], place, place + 1))
        elif tag[0] == "I":
            found[-1] = (*found[-1][:2], place + 1)
    return found


SOLUTIONS["8.3"] = spans
WRONG["8.3"] = (
    lambda tags: [],
    lambda tags: spans(tags)[:1],
    lambda tags: [(k, a, b - 1) for k, a, b in spans(tags)],
)

# ---------------------------------------------------------------- 9: encoder, decoder, beam
SOLUTIONS["9.1"] = math.log(2)
WRONG["9.1"] = (13 * math.log(2), 1, 0.5)
SOLUTIONS["9.2"] = lambda target, sos, eos: ([sos, *target], [*target, eos])
WRONG["9.2"] = (
    lambda target, sos, eos: ([*target], [*target, eos]),
    lambda target, sos, eos: ([sos, *target], [*target]),
    lambda target, sos, eos: ([sos, *target, eos], [*target, eos]),
)


def search(following: Any, k: int, length: int) -> tuple[Any, ...]:
    kept: list[tuple[float, tuple[Any, ...]]] = [(0.0, ())]
    for _ in range(length):
        longer = [(score + p, (*row, one)) for score, row in kept for one, p in following(row).items()]
        kept = sorted(longer, reverse=True)[:k]
    return kept[0][1]


SOLUTIONS["9.3"] = search
WRONG["9.3"] = (
    lambda following, k, length: search(following, 1, length),
    lambda following, k, length: search(following, 81, length),
    lambda following, k, length: ("a",) * length,
)

# ---------------------------------------------------------------- 10: attention
SOLUTIONS["10.1"] = 0.75
WRONG["10.1"] = (3, 1 / 3, 0.25)


def attend(s: torch.Tensor, H: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weights = (H @ s).softmax(0)
    return weights, weights @ H


SOLUTIONS["10.2"] = attend
WRONG["10.2"] = (
    lambda s, H: (H @ s, (H @ s) @ H),
    lambda s, H: ((H @ s).softmax(0), H.mean(0)),
    lambda s, H: ((H @ s / s.shape[0] ** 0.5).softmax(0), s),
)
SOLUTIONS["10.3"] = 520
WRONG["10.3"] = (500, 510, 600)
