"""Choose a default: settings × corpora × seeds, judged on parts of the training data. python benchmarks/recipes.py plan.toml

    task = "classify"                       # any task; metric = "macro_f1" judges by another of its measures
    seeds = [1, 2, 3]
    folds = 5

    [common]                                # settings of all variants
    model = "conv"

    [variants.base]                         # the first one is what the others are compared with
    [variants.words]
    tokens = "word"

    [corpora]
    sst2 = "train.tsv"                      # a file, an embedded corpus, or two parallel files ["a.en", "a.de"]
    small = { data = "train.tsv", rows = 500 }
    voices = { data = "known.tsv", dev = "unknown.tsv" }

The protocol:

1. Only training data are given here. The official dev and test parts choose nothing: they are looked at once, with the default chosen.
2. Of each corpus the rows are dealt to ``folds`` parts in an order that depends on the corpus alone. Seed s is judged on
   part s, so that as many seeds as folds are a cross-validation, and all variants see the same parts. Training holds its own
   dev data out of the other parts; the part that is judged chooses nothing, not even when to stop. What does not consist of rows (running text,
   series, speakers) names its own ``dev``, which is then judged by every seed.
3. Every trial is a line of the log: settings, seed, corpus, score, seconds. A plan that is run again skips the trials of the log.
4. Variants are ranked within each corpus and seed. The one with the best mean rank is chosen, not the one that is best on one corpus.

Options: --log FILE (plan.jsonl beside the plan), --jobs N processes side by side, --budget SECONDS after which no trial begins, --only
NAME (a variant or corpus; may be repeated), --report (run nothing), --json.
"""

from __future__ import annotations

import argparse
import difflib
import json
import multiprocessing
import os
import random
import statistics
import sys
import threading
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

METRICS = {
    "classify": "accuracy",
    "tag": "f1",
    "translate": "bleu",
    "transcribe": "wer",
    "language": "perplexity",
    "forecast": "mse",
    "answer": "f1",
    "embed": "mrr",
    "caption": "bleu",
}
INSTEAD = {"f1": "accuracy", "bleu": "chrf"}
"""Tags that mark no spans have no F1, and references of fewer than four words no BLEU."""
LESS_IS_BETTER = ("wer", "cer", "ter", "perplexity", "nll", "loss", "mse", "mae", "bits")
ORDER = 7  # seed of the order in which rows are dealt to the parts


@dataclass(frozen=True)
class Trial:
    """One training: what is trained on what, and which part judges it."""

    task: str
    variant: str
    settings: dict[str, Any]
    corpus: str
    data: dict[str, Any]
    seed: int
    folds: int
    metric: str

    @property
    def key(self) -> str:
        """What makes it the same trial; a variant may be renamed."""
        facts = {name: value for name, value in asdict(self).items() if name not in ("variant", "corpus")}
        return json.dumps(facts, sort_keys=True)


def read_plan(path: Path) -> list[Trial]:
    """The trials of a plan, seeds outermost, so that a plan which is cut short has compared all variants.

    Raises ValueError with a sentence for a plan that cannot be run: every setting and file is looked at before the first trial.
    """
    try:
        plan = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"it is not TOML ({error}).") from None
    seeds, folds = plan.get("seeds", [1, 2, 3]), plan.get("folds", 5)
    check_plan(plan, seeds, folds)
    found = []
    for seed in seeds:
        for corpus, given in plan["corpora"].items():
            data = dict(given) if isinstance(given, Mapping) else {"data": given}
            for variant, own in plan["variants"].items():
                settings = {**plan.get("common", {}), **own}
                metric = plan.get("metric", METRICS[plan["task"]])
                found.append(Trial(plan["task"], variant, settings, corpus, data, seed, folds, metric))
    for trial in found:
        check_trial(trial)
    return found


def check_plan(plan: Mapping[str, Any], seeds: Any, folds: Any) -> None:
    """A ValueError for keys and values that a plan does not have."""
    needed = ("task", "variants", "corpora")
    known = [*needed, "metric", "seeds", "folds", "common"]
    for key in plan.keys() - set(known):
        near = [f" Did you mean {word}?" for word in difflib.get_close_matches(key, known, n=1)]
        raise ValueError(f"{key} is no key of a plan (see --help).{''.join(near)}")
    for key in needed:
        if key not in plan:
            raise ValueError(f"{key} is missing; a plan has task, variants and corpora.")
    if plan["task"] not in METRICS:
        raise ValueError(f"task = {plan['task']!r} is not a task ({', '.join(METRICS)}).")
    for key in ("variants", "corpora"):
        if not isinstance(plan[key], Mapping) or not plan[key]:
            raise ValueError(f"{key} is a table with at least one entry.")
    for name, own in plan["variants"].items():
        if not isinstance(own, Mapping):
            raise ValueError(f"variants.{name} is a table of settings: write [variants.{name}].")
    if not isinstance(folds, int) or folds < 2:
        raise ValueError(f"folds = {folds}: at least 2 are needed, one to judge.")
    whole = isinstance(seeds, list) and all(isinstance(seed, int) and seed > 0 for seed in seeds)
    if not whole or not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds = {seeds}: a list of different whole numbers from 1 on is needed.")


def check_trial(trial: Trial) -> None:
    """A ValueError where the settings of a variant, or the files of a corpus, cannot be used."""
    from anaphora.data.corpora import CORPORA
    from anaphora.errors import AnaphoraError
    from anaphora.tasks.registry import TASKS, resolve

    try:
        resolve(TASKS[trial.task], trial.settings)
    except AnaphoraError as error:
        raise ValueError(f"variants.{trial.variant}: {error}") from None
    if trial.data.keys() - {"data", "dev", "rows"} or "data" not in trial.data:
        raise ValueError(f"corpora.{trial.corpus}: has data, and may have dev and rows.")
    for files in (trial.data["data"], trial.data.get("dev", [])):
        for file in files if isinstance(files, list) else [files]:
            if not Path(file).exists() and str(file).partition(":")[0] not in CORPORA:
                raise ValueError(f"corpora.{trial.corpus}: {file} is neither a file nor an embedded corpus.")


def rows_of(trial: Trial) -> list[Any]:
    """All rows of the training data of a corpus, dealt in an order of its own."""
    from anaphora.tasks.registry import estimator

    data = trial.data["data"]
    model = estimator(trial.task)(**{**_first(trial.settings), "holdout": 1})
    train, dev = model._open(tuple(data) if isinstance(data, list) else data, None, spill=None)
    embedded = isinstance(data, str) and not Path(data).exists()  # its dev split is an official one
    rows = [*train.read(range(len(train))), *([] if embedded else dev.read(range(len(dev))))]
    random.Random(ORDER).shuffle(rows)
    if trial.task == "tag" and isinstance(rows[0][0], str):  # as they are written, with tabs between words
        from anaphora.data.sources.conll import words_of

        rows = [(words_of(words), words_of(tags)) for words, tags in rows]
    return rows[: trial.data.get("rows")]


def _first(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What decides how data are read: the model alone."""
    return {key: value for key, value in settings.items() if key == "model"}


def judge(trial: Trial) -> dict[str, Any]:
    """Train and score one trial; what went wrong is a result too."""
    import torch

    from anaphora.errors import AnaphoraError
    from anaphora.tasks.registry import estimator

    torch.set_num_threads(1)
    begun = time.monotonic()
    try:
        model = estimator(trial.task)(**trial.settings)
        if "seed" in model.get_params():
            model.set_params(seed=trial.seed)
        if "dev" in trial.data:
            data, held = (
                tuple(x) if isinstance(x, list) else x for x in (trial.data["data"], trial.data["dev"])
            )
        else:
            rows, part = rows_of(trial), (trial.seed - 1) % trial.folds
            data, held = (
                [row for i, row in enumerate(rows) if i % trial.folds != part],
                rows[part :: trial.folds],
            )
        model.fit(data, verbose=False)
        measures = model.score(held)
        name = trial.metric if trial.metric in measures else INSTEAD.get(trial.metric, trial.metric)
        if name not in measures:
            numbers = [key for key, value in measures.items() if isinstance(value, int | float)]
            raise ValueError(f"metric = {name!r} is not measured here ({', '.join(numbers)}).")
        found: dict[str, Any] = {
            "score": float(measures[name]),
            "metric": name,
            "measures": {key: value for key, value in measures.items() if isinstance(value, int | float)},
            "steps": model.result_.steps,
        }
    except (AnaphoraError, KeyError, ValueError, RuntimeError) as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    return {**found, "seconds": round(time.monotonic() - begun, 1)}


def end_with(parent: int) -> None:
    """End this process when ``parent`` is gone: a plan that is killed leaves no training behind."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def read_log(path: Path) -> list[dict[str, Any]]:
    """The trials of a log; a last line that was cut short is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def run(trials: Sequence[Trial], log: Path, *, jobs: int, budget: float) -> None:
    """Train what is not in the log yet, ``jobs`` at a time, and append each result as it comes."""
    done = {line["key"] for line in read_log(log) if "score" in line}
    left = [trial for trial in trials if trial.key not in done]
    begun = time.monotonic()
    print(f"{len(left)} of {len(trials)} trials to run", flush=True)
    if log.is_file() and not log.read_bytes().endswith(b"\n") and log.stat().st_size:
        log.write_bytes(log.read_bytes() + b"\n")
    os.environ["OMP_NUM_THREADS"] = "1"
    with (
        ProcessPoolExecutor(
            jobs,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=end_with,
            initargs=(os.getpid(),),
        ) as pool,
        log.open("a") as file,
    ):
        waiting = iter(left)
        running: dict[Any, Trial] = {}
        while True:
            while len(running) < jobs and time.monotonic() - begun < budget:
                trial = next(waiting, None)
                if trial is None:
                    break
                running[pool.submit(judge, trial)] = trial
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                trial = running.pop(future)
                line = {**asdict(trial), **future.result(), "key": trial.key}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                file.flush()
                shown = f"{line['score']:.3f}" if "score" in line else line["error"]
                print(
                    f"{trial.variant:20} {trial.corpus:12} seed {trial.seed}  {shown}  {line['seconds']:.0f} s",
                    flush=True,
                )


@dataclass(frozen=True)
class Standing:
    """How a variant did: its mean rank, and by corpus mean, standard deviation and number of scores."""

    variant: str
    rank: float
    trials: int
    corpora: dict[str, tuple[float, float, int]]
    gain: float
    """Mean over corpora of (its mean − that of the first variant), better is positive."""
    spread: float
    """Standard error of the gain, from the differences within corpus and seed."""
    seconds: float


def standings(trials: Sequence[Trial], lines: Iterable[Mapping[str, Any]]) -> list[Standing]:
    """The variants, best mean rank first, over the corpora and seeds that all of them have."""
    known = {line["key"]: line for line in lines if "score" in line}
    cells: dict[tuple[str, int], dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for trial in trials:
        if trial.key in known:
            cells[trial.corpus, trial.seed][trial.variant] = known[trial.key]
    variants = list(dict.fromkeys(trial.variant for trial in trials))
    whole = {place: row for place, row in cells.items() if len(row) == len(variants)}
    found = []
    for variant in variants:
        ranks, gains = [], defaultdict(list)
        scores: dict[str, list[float]] = defaultdict(list)
        for (corpus, _), row in whole.items():
            better = -1 if row[variant]["metric"] in LESS_IS_BETTER else 1
            own, base = row[variant]["score"], row[variants[0]]["score"]
            others = [better * line["score"] for line in row.values()]
            above, equal = sum(x > better * own for x in others), sum(x == better * own for x in others)
            ranks.append(above + (equal + 1) / 2)
            scores[corpus].append(own)
            gains[corpus].append(better * (own - base))
        errors = [statistics.stdev(x) ** 2 / len(x) for x in gains.values() if len(x) > 1]
        found.append(
            Standing(
                variant,
                statistics.fmean(ranks) if ranks else float("nan"),
                len(ranks),
                {
                    c: (statistics.fmean(x), statistics.stdev(x) if len(x) > 1 else 0.0, len(x))
                    for c, x in scores.items()
                },
                statistics.fmean([statistics.fmean(x) for x in gains.values()]) if gains else float("nan"),
                sum(errors) ** 0.5 / max(len(gains), 1),
                statistics.fmean([row[variant]["seconds"] for row in whole.values()])
                if whole
                else float("nan"),
            )
        )
    return sorted(found, key=lambda one: one.rank)


def table(found: Sequence[Standing]) -> str:
    """The standings as lines of text, the chosen variant first."""
    corpora = list(dict.fromkeys(corpus for one in found for corpus in one.corpora))
    head = ["variant", "mean rank", "gain", "seconds", *corpora]
    rows = [
        [
            one.variant,
            f"{one.rank:.2f}",
            f"{one.gain:+.2f} ± {one.spread:.2f}",
            f"{one.seconds:.0f}",
            *("{:.2f} ± {:.2f} ({})".format(*one.corpora[c]) if c in one.corpora else "" for c in corpora),
        ]
        for one in found
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [head, *rows]
    ]
    best = f"best on average: {found[0].variant}" if found and found[0].trials else "nothing to compare yet"
    return "\n".join([*lines, best])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plan", type=Path)
    parser.add_argument(
        "--log", type=Path, help="where trials are appended; the plan's name with .jsonl if left out"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--budget", type=float, default=float("inf"), help="seconds after which no trial begins"
    )
    parser.add_argument("--only", action="append", default=[], help="a variant or a corpus; may be repeated")
    parser.add_argument("--report", action="store_true", help="run nothing, only print the table")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    if not asked.plan.is_file():
        parser.error(f"{asked.plan} is not a file; give a plan (see --help).")
    try:
        trials = read_plan(asked.plan)
    except ValueError as error:
        parser.exit(2, f"recipes.py: {asked.plan}: {error}\n")
    for name in asked.only:
        if not any(name in (trial.variant, trial.corpus) for trial in trials):
            parser.exit(
                2, f"recipes.py: {asked.plan}: --only {name} is neither a variant nor a corpus of it.\n"
            )
    for group in ({trial.variant for trial in trials}, {trial.corpus for trial in trials}):
        chosen = group & set(asked.only)
        trials = [t for t in trials if not chosen or {t.variant, t.corpus} & chosen]
    log = asked.log or asked.plan.with_suffix(".jsonl")
    if not asked.report:
        run(trials, log, jobs=max(1, asked.jobs), budget=asked.budget)
    found = standings(trials, read_log(log))
    print(json.dumps([asdict(one) for one in found]) if asked.json else table(found))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
    main()
