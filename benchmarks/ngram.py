"""N-gram models: training and querying, words per second, beside nltk's and KenLM's on the same text. Run: python benchmarks/ngram.py [--json] [--tokens N]

One thread, in one process, after the kernels are compiled. The text is drawn from a seed: words of a Zipf law, each
depending on the one before, so that histories repeat as they do in language. nltk gets a part of it (it scores some
dozens of words a second); KenLM, which cannot train from Python, reads the ARPA file that we write, and both sides
must give the same probabilities. Goals against KenLM are None: the goals are in words per second, 0.5 million for
training and 5 million for queries, given as rows whose peer is the goal itself.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import anaphora as an
from rows import row, show

ORDER = 3
VOCABULARY = 20_000
SENTENCE = 25
NLTK_TOKENS, NLTK_ASKED = 50_000, 40


def text(tokens: int, seed: int = 0) -> list[list[str]]:
    """Sentences in which a word is drawn at random, or is one of four that often follow the last one."""
    rng = np.random.default_rng(seed)
    ranks = 1 / np.arange(1, VOCABULARY + 1)
    drawn = rng.choice(VOCABULARY, size=tokens, p=ranks / ranks.sum())
    habit = rng.random(tokens) < 0.6
    which = rng.integers(0, 4, size=tokens)
    ids, last = [], 0
    for fresh, usual, w in zip(drawn.tolist(), habit.tolist(), which.tolist(), strict=True):
        last = (last * 7919 + w * 104729) % 997 if usual else fresh
        ids.append(f"w{last}")
    return [ids[i : i + SENTENCE] for i in range(0, tokens, SENTENCE)]


def seconds(run: Callable[[], Any], times: int = 3) -> float:
    """Of the fastest run."""
    best = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    return best


def against_nltk(corpus: list[list[str]], train_speed: float, query_speed: float) -> list[dict[str, Any]]:
    from nltk.lm import KneserNeyInterpolated
    from nltk.lm.preprocessing import padded_everygram_pipeline

    part = corpus[: NLTK_TOKENS // SENTENCE]
    model = KneserNeyInterpolated(ORDER)
    fit = seconds(lambda: model.fit(*padded_everygram_pipeline(ORDER, part)), times=1)
    asked = [(s[i], s[i - 2 : i]) for s in part[:5] for i in range(2, SENTENCE)][:NLTK_ASKED]
    score = seconds(lambda: [model.score(word, history) for word, history in asked], times=1)
    theirs = (NLTK_TOKENS / fit, len(asked) / score)
    options = {"unit": "words/s", "goal": 10.0, "more_is_better": True}
    return [
        row(f"training, order {ORDER}", "nltk KneserNeyInterpolated", train_speed, theirs[0], **options),
        row(
            f"log p of words, order {ORDER}", "nltk KneserNeyInterpolated", query_speed, theirs[1], **options
        ),
    ]


def against_kenlm(model: an.NGram, asked: list[list[str]], query_speed: float) -> list[dict[str, Any]]:
    import kenlm

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.arpa")
        model.write_arpa(path)
        theirs = kenlm.Model(path)
    lines = [" ".join(s) for s in asked]
    np.testing.assert_allclose(
        [theirs.score(s) for s in lines[:200]], model.log_probs(lines[:200], base=10), rtol=1e-4
    )
    symbols = sum(len(s) + 1 for s in asked)
    their_speed = symbols / seconds(lambda: [theirs.score(s) for s in lines])
    our_speed = symbols / seconds(lambda: model.log_probs(lines))
    options = {"unit": "words/s", "goal": None, "more_is_better": True}
    return [
        row(
            f"log p of sentences from ids, order {ORDER}",
            "KenLM, sentences",
            query_speed,
            their_speed,
            **options,
        ),
        row(
            f"log p of sentences from text, order {ORDER}",
            "KenLM, sentences",
            our_speed,
            their_speed,
            **options,
        ),
    ]


def measure(tokens: int) -> list[dict[str, Any]]:
    corpus, asked = text(tokens), text(tokens // 2, seed=1)
    an.NGram(ORDER).fit(corpus[:10]).log_probs(corpus[:10])  # compiles
    model = an.NGram(ORDER)
    train_speed = tokens / seconds(lambda: model.fit(corpus), times=2)
    ids = model.encode(asked)
    model.query(ids[:100])  # builds the hash table
    query_speed = len(ids) / seconds(lambda: model.query(ids), times=5)
    options = {"unit": "words/s", "goal": 1.0, "more_is_better": True}
    rows = [
        row(f"training, order {ORDER}", "goal of 0.5 million", train_speed, 0.5e6, **options),
        row(f"log p of words from ids, order {ORDER}", "goal of 5 million", query_speed, 5e6, **options),
    ]
    for peer, compare in (
        ("nltk", lambda: against_nltk(corpus, train_speed, query_speed)),
        ("kenlm", lambda: against_kenlm(model, asked, query_speed)),
    ):
        try:
            rows += compare()
        except ModuleNotFoundError:
            print(
                f"{peer} is not installed, so there is nothing to compare with: pip install {peer}",
                file=sys.stderr,
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    options = parser.parse_args()
    show(measure(options.tokens), as_json=options.json)


if __name__ == "__main__":
    main()
