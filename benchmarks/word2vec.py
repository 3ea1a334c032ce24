"""word2vec: words per second and quality of the vectors, beside gensim's on the same text with the same settings. Run: python benchmarks/word2vec.py [--json] [--tokens N] [--real TEXT … --similarity FILE … --analogies FILE]

Time is that of the whole fit, from lists of words to vectors, in one process, alternately, the fastest of several. The
text is drawn from a seed: each sentence has a topic, half of its words are of the topic and half of any, all by Zipf's
law. Purity is the share of a word's ten nearest neighbours that have its topic. Analogies are those of the embedded
corpus `kin`, where king - man + woman can be learned. Rows of quality ask for gensim's figure less 0.01.

With --real, both learn from these text files instead (lower-cased) and are scored on files of word pairs and questions.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import anaphora as an
from anaphora.data.corpora import generate, kin
from anaphora.models.embeddings.text import sentences_of
from rows import row, show

VOCABULARY, TOPICS, SENTENCE = 20_000, 100, 20
METHODS = {
    "skip-gram, negative sampling": ({"method": "skipgram", "loss": "negative"}, {"sg": 1, "hs": 0, "negative": 5}),
    "CBOW, negative sampling": ({"method": "cbow", "loss": "negative"}, {"sg": 0, "hs": 0, "negative": 5}),
    "skip-gram, hierarchical softmax": ({"method": "skipgram", "loss": "hierarchical"}, {"sg": 1, "hs": 1, "negative": 0}),
}  # fmt: skip
Sentences = list[list[str]]


def text(tokens: int, seed: int = 0) -> Sentences:
    """Sentences of one topic each; the word w17.123 is the 123rd of topic 17."""
    random = np.random.default_rng(seed)
    size, rows = VOCABULARY // TOPICS, tokens // SENTENCE
    zipf = 1 / np.arange(1, size + 1)
    words = random.choice(size, size=(rows, SENTENCE), p=zipf / zipf.sum())
    topics = np.repeat(random.integers(0, TOPICS, (rows, 1)), SENTENCE, axis=1)
    any_topic = random.integers(0, TOPICS, (rows, SENTENCE))
    topics = np.where(random.random((rows, SENTENCE)) < 0.5, topics, any_topic)
    return [
        [f"w{t}.{w}" for t, w in zip(*both, strict=True)]
        for both in zip(topics.tolist(), words.tolist(), strict=True)
    ]


def purity(vectors: an.WordVectors) -> float:
    """How many of the ten nearest neighbours of all words have their topic."""
    topics = np.array([int(word[1:].split(".")[0]) for word in vectors.words])
    right = 0
    for begin in range(0, len(vectors), 1000):
        some = np.arange(begin, min(begin + 1000, len(vectors)))
        scores = vectors.units[some] @ vectors.units.T
        scores[np.arange(len(some)), some] = -np.inf
        near = np.argpartition(-scores, 10, axis=1)[:, :10]
        right += int((topics[near] == topics[some, None]).sum())
    return right / (10 * len(vectors))


def kin_questions(folder: Path) -> Path:
    """All questions that the corpus's rule implies, in a file."""
    path = folder / "questions.txt"
    sections = [
        f": {name}\n" + "".join(f"{' '.join(q)}\n" for q in asked) for name, asked in kin.questions().items()
    ]
    path.write_text("".join(sections), encoding="utf-8")
    return path


def ours(sentences: Any, settings: dict[str, Any], **more: Any) -> an.WordVectors:
    return an.Word2Vec(100, seed=1, **settings, **more).fit(sentences).vectors


def theirs(
    sentences: Any, settings: dict[str, Any], *, lr: float | None = None, **more: Any
) -> an.WordVectors:
    from gensim.models import Word2Vec

    more |= {} if lr is None else {"alpha": lr}
    found = Word2Vec(sentences, vector_size=100, window=5, sample=1e-3, seed=1, **settings, **more).wv
    return an.WordVectors(found.index_to_key, found.vectors)


def alternately(runs: list[Callable[[], Any]], times: int) -> tuple[list[float], list[Any]]:
    """Seconds of the fastest run of each, and what its last run gave."""
    best, made = [float("inf")] * len(runs), [None] * len(runs)
    for _ in range(times):
        for i, run in enumerate(runs):
            begin = time.perf_counter()
            made[i] = run()
            best[i] = min(best[i], time.perf_counter() - begin)
    return best, made


def measure(tokens: int) -> list[dict[str, Any]]:
    sentences = text(tokens)
    ours(sentences[:200], {}, min_count=1)  # compiles
    rows = []
    options = {"unit": "words/s", "more_is_better": True}
    for name, (mine, other) in METHODS.items():
        for workers in (1, 2) if name.startswith("skip-gram, n") else (1,):
            more = {"epochs": 1, "min_count": 5, "workers": workers}
            seconds, vectors = alternately(
                [lambda o=mine, m=more: ours(sentences, o, **m), lambda o=other, m=more: theirs(sentences, o, **m)], 3
            )  # fmt: skip
            goal = 2.0 if name.startswith("skip-gram, n") else None
            label = f"{name}, {workers} worker{'s' * (workers > 1)}"
            rows.append(row(label, "gensim", tokens / seconds[0], tokens / seconds[1], goal=goal, **options))
            if workers == 1:
                pure = [purity(v) for v in vectors]
                rows.append(quality(f"{name}, purity of neighbours", pure))
    return rows + analogies()


def analogies() -> list[dict[str, Any]]:
    """Both on all of `kin`."""
    sentences = [source.split() for source, _ in generate("kin")]
    more = {"epochs": 5, "min_count": 5, "workers": 1}
    with tempfile.TemporaryDirectory() as folder:
        asked = kin_questions(Path(folder))
        mine, other = METHODS["skip-gram, negative sampling"]
        both = [ours(sentences, mine, **more), theirs(sentences, other, **more)]
        found = [vectors.evaluate_analogies(asked) for vectors in both]
    return [
        quality("skip-gram, negative sampling, analogies of kin", [one["accuracy"] for one in found]),
        quality("the same, none of the question's words left out", [one["honest"] for one in found]),
    ]


def quality(name: str, figures: list[float]) -> dict[str, Any]:
    return row(name, "gensim less 0.01", figures[0], figures[1] - 0.01, "", goal=1.0, more_is_better=True)


def real(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Both on real text: CPU seconds, and the score of the vectors on each file."""
    sentences = list(sentences_of([Path(path) for path in options.real], lowercase=True))
    found: dict[str, dict[str, Any]] = {"text": {"words": sum(map(len, sentences)), "lines": len(sentences)}}
    for name, (mine, other) in METHODS.items():
        more = {"epochs": 5, "min_count": 5, "workers": 1}
        for whose, run in (("ours", lambda o=mine, m=more: ours(sentences, o, **m)), ("gensim", lambda o=other, m=more: theirs(sentences, o, **m))):  # fmt: skip
            begin = time.process_time()
            vectors = run()
            seconds = time.process_time() - begin
            figures_of: dict[str, Any] = {"vocabulary": len(vectors), "CPU seconds": round(seconds, 1)}
            for path in options.similarity:
                judged = vectors.evaluate_similarity(path, lowercase=True)
                figures_of[Path(path).stem] = (
                    f"{judged['spearman']:.3f} ({judged['found']} of {judged['pairs']})"
                )
            if options.analogies:
                asked = vectors.evaluate_analogies(options.analogies, lowercase=True, vocab_size=30_000)
                figures_of["analogies"] = f"{asked['accuracy']:.3f}, honestly {asked['honest']:.3f} ({asked['found']} of {asked['questions']})"  # fmt: skip
            found[f"{name}, {whose}"] = figures_of
            print(f"{name}, {whose}: {figures_of}", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--real", nargs="+", metavar="TEXT", help="text files to learn from")
    parser.add_argument(
        "--similarity", nargs="*", default=[], metavar="FILE", help="two words and a number a line"
    )
    parser.add_argument("--analogies", metavar="FILE", help="four words a line")
    options = parser.parse_args()
    try:
        import gensim  # noqa: F401
    except ModuleNotFoundError:
        print(
            "gensim is not installed, so there is nothing to compare with: pip install gensim",
            file=sys.stderr,
        )
        show([], as_json=options.json)
        return
    if options.real:
        print(json.dumps(real(options), indent=2))
    else:
        show(measure(options.tokens), as_json=options.json)


if __name__ == "__main__":
    main()
