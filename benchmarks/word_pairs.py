"""Words letter by letter: inflection (sigmorphon 2017) and pronunciation (cmudict), with the defaults of a translator.

    python benchmarks/word_pairs.py inflection german-train-high [german-dev] [--model lstm-attention] [--seeds 1 2 3] [--set NAME=VALUE …]
    python benchmarks/word_pairs.py phones cmudict.dict [--held-out 6000] …

Inflection: rows ``lemma⇥form⇥tags``, as a translator reads them; the dev rows choose the weights and are what is reported. Without dev rows, 1 500 of the
training rows, drawn in one fixed order, are judged and 500 choose the weights: with these, settings are chosen. ``--others german-train-high``, for few training rows: 2 000 rows of
that file that are not among them are judged, and 100 of them choose the weights. Phones: of all words, drawn likewise,
``--held-out`` are judged and 1 000 choose the weights; stress is left out, and an output is right where it is one of the pronunciations listed for its word.
``--rows 200``: learn from so few rows, of which a tenth choose the weights; others are judged, 1 000 at most. ``--only 'N;DAT;PL'`` takes the rows of inflection with these tags
and leaves the tags out: pairs of single words.
A line for each seed as soon as it is known, then the mean and standard deviation in percent, and with ``--ensemble`` what all seeds reach together.
``--watch`` adds a line for each evaluation: greedy outputs of the judged rows beside the dev measures, which alone choose the weights.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import anaphora as an
from anaphora.tasks.translate.inference import encode_sources, greedy_outputs
from anaphora.tasks.translate.objective import TranslationObjective
from fsdd_holdout import value

Pairs = list[tuple[str, str]]
DEV = 1000
JUDGED, CHOOSING = 1500, 500  # rows of inflection
ORDER = 7  # seed of the order in which words are drawn


def inflected(path: Path) -> Pairs:
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line)
    return [(f"{lemma} {tags}", form) for lemma, form, tags in rows]


def fewest(pairs: Pairs, rows: int) -> tuple[Pairs, Pairs, Pairs]:
    """Training, dev and judged pairs where ``rows`` are all that there is to learn from."""
    random.Random(ORDER).shuffle(pairs)
    learned = {source for source, _ in pairs[:rows]}
    judged = [pair for pair in pairs[rows:] if pair[0] not in learned]
    return pairs[rows // 10 : rows], pairs[: rows // 10], judged[:1000]


def few(train: Pairs, others: Pairs) -> tuple[Pairs, Pairs, Pairs]:
    """Training, dev and judged pairs of few training rows: 2 000 ``others`` whose tags are known are judged."""
    draw, seen = random.Random(ORDER), {source for source, _ in train}
    known = {tag for source in seen for tag in source.rpartition(" ")[2].split(";")}
    judged = [pair for pair in others if pair[0] not in seen]
    draw.shuffle(judged)
    judged = [pair for pair in judged if set(pair[0].rpartition(" ")[2].split(";")) <= known][:2000]
    draw.shuffle(train)
    return train[100:], train[:100], judged


def pronounced(path: Path) -> dict[str, list[str]]:
    """The pronunciations of each word, without stress."""
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        word, *phones = line.split("#")[0].split()
        said = " ".join(phone.rstrip("012") for phone in phones)
        known = found.setdefault(word.split("(")[0], [])
        if said not in known:
            known.append(said)
    return found


def split(words: dict[str, list[str]], held_out: int) -> tuple[Pairs, Pairs, list[str]]:
    """Training pairs, dev pairs and the words that are judged."""
    order = sorted(words)
    random.Random(ORDER).shuffle(order)
    if len(order) <= held_out + DEV:
        raise SystemExit(f"{len(order)} words are too few to hold {held_out + DEV} out of them.")
    judged, dev, train = order[:held_out], order[held_out : held_out + DEV], order[held_out + DEV :]
    pairs = [(word, said) for word in train for said in words[word]]
    return pairs, [(word, words[word][0]) for word in dev], judged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("inflection", "phones"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--model", default="lstm-attention")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--held-out", type=int, default=6000)
    parser.add_argument("--others", type=Path, help="inflection: a larger file to draw judged rows from")
    parser.add_argument("--only", help="inflection: rows with these tags alone, which are left out")
    parser.add_argument("--rows", type=int, help="learn from so few rows")
    parser.add_argument("--ensemble", action="store_true", help="also predict with the mean of all seeds")
    parser.add_argument("--watch", action="store_true", help="judge at every evaluation, too")
    parser.add_argument("--set", nargs="*", type=value, default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    if len(given.files) > (2 if given.kind == "inflection" else 1):
        parser.error("inflection takes a training file and a dev file; phones takes cmudict.dict")
    if given.kind == "inflection":
        train = inflected(given.files[0])
        if given.only:
            ending = f" {given.only}"
            train = [(x.removesuffix(ending), form) for x, form in train if x.endswith(ending)]
        if given.rows:
            train, dev, judged_pairs = fewest(train, given.rows)
        elif len(given.files) == 2:
            dev = judged_pairs = inflected(given.files[1])
        elif given.others:
            train, dev, judged_pairs = few(train, inflected(given.others))
        else:
            random.Random(ORDER).shuffle(train)
            judged_pairs, dev = train[:JUDGED], train[JUDGED : JUDGED + CHOOSING]
            train = train[JUDGED + CHOOSING :]
        truth: dict[str, list[str]] = {}
        for source, form in judged_pairs:
            truth.setdefault(source, []).append(form)
    else:
        words = pronounced(given.files[0])
        train, dev, judged = split(words, given.held_out)
        if given.rows:
            train, dev, _ = fewest(train, given.rows)
        truth = {word: words[word] for word in judged}
    if given.watch:
        watch(truth)
    with tempfile.TemporaryDirectory() as folder:
        runs = [Path(folder) / str(seed) for seed in given.seeds]
        rights = [
            one(given.model, seed, dict(given.set), train, dev, truth, run)
            for seed, run in zip(given.seeds, runs, strict=True)
        ]
        if len(rights) > 1:
            print(f"mean {statistics.mean(rights):.2f} ± {statistics.stdev(rights):.2f}", flush=True)
        if given.ensemble:
            print(
                f"ensemble of {len(runs)}: right {judged_right(an.ensemble(runs), truth):.2f} %", flush=True
            )


def one(
    model: str,
    seed: int,
    settings: dict[str, Any],
    train: Pairs,
    dev: Pairs,
    truth: dict[str, list[str]],
    run: Path,
) -> float:
    began = time.perf_counter()
    translator = an.Translator(model, seed=seed, **settings)
    translator.fit(train, valid=dev, out=run, verbose=False)
    trained = time.perf_counter() - began
    right = judged_right(translator, truth)
    found = translator.result_
    print(
        f"{model} seed {seed}  right {right:.2f} %  best step {found.best_step} of {found.steps}  trained in {trained:.0f} s",
        flush=True,
    )
    return right


def watch(truth: dict[str, list[str]]) -> None:
    """Print at every evaluation of a training how many of the judged outputs are right."""
    evaluate = TranslationObjective.evaluate

    @torch.no_grad()
    def watched(self: TranslationObjective, model: Any) -> dict[str, float]:
        found, s = evaluate(self, model), self.settings
        sources = encode_sources(self.tokenizer, list(truth), s.max_tokens)
        written = greedy_outputs(model, sources, max_length=s.max_length, around=self.tokenizer.around)
        right = [self.tokenizer.target.decode(o) in t for o, t in zip(written, truth.values(), strict=True)]
        measures = "  ".join(f"{name} {number:.3f}" for name, number in found.items())
        print(f"  step {self._step}  right {100 * statistics.mean(right):.2f} %  dev: {measures}", flush=True)
        return found

    TranslationObjective.evaluate = watched  # type: ignore[method-assign]


def judged_right(model: Any, truth: dict[str, list[str]]) -> float:
    """Outputs that are among the right ones of their source, in percent."""
    sources = list(truth)
    outputs = model.predict(sources)
    return 100 * statistics.mean(
        output in truth[source] for source, output in zip(sources, outputs, strict=True)
    )


if __name__ == "__main__":
    main()
