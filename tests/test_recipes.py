"""``benchmarks/recipes.py``: how a default is chosen."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PLAN = """
task = "classify"
seeds = [1, 2]
folds = 3
[common]
model = "ngrams"
char_ngrams = 0
[variants.base]
[variants.stiff]
penalty = 1000
[corpora]
small = {{ data = "{data}", rows = 24 }}
"""


@pytest.fixture(scope="module")
def recipes():
    path = ROOT / "benchmarks" / "recipes.py"
    spec = importlib.util.spec_from_file_location("recipes", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["recipes"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def plan(tmp_path):
    rows = [(f"good {i} film" if i % 2 else f"bad {i} film", "01"[i % 2]) for i in range(40)]
    data = tmp_path / "train.tsv"
    data.write_text("".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.format(data=data), encoding="utf-8")
    return path


def line(recipes, trial, score, metric="accuracy"):
    return {"key": trial.key, "score": score, "metric": metric, "seconds": 2.0}


def trial(recipes, variant, corpus, seed):
    return recipes.Trial(
        "classify", variant, {"penalty": len(variant)}, corpus, {"data": corpus}, seed, 5, "accuracy"
    )


def test_the_mean_rank_chooses_and_not_the_best_corpus(recipes):
    """b wins by much on one corpus and loses on two: by the mean score it would be first."""
    trials = [trial(recipes, v, c, 1) for c in ("x", "y", "z") for v in ("a", "bb")]
    scores = {
        ("x", "a"): 50,
        ("x", "bb"): 90,
        ("y", "a"): 71,
        ("y", "bb"): 70,
        ("z", "a"): 81,
        ("z", "bb"): 80,
    }
    lines = [line(recipes, t, scores[t.corpus, t.variant]) for t in trials]
    first, second = recipes.standings(trials, lines)
    assert (first.variant, first.rank) == ("a", pytest.approx(4 / 3))
    assert (second.variant, second.rank) == ("bb", pytest.approx(5 / 3))
    assert second.gain == pytest.approx((40 - 1 - 1) / 3)


def test_only_what_all_variants_have_is_compared_and_less_may_be_better(recipes):
    trials = [trial(recipes, v, "x", seed) for seed in (1, 2, 3) for v in ("a", "bb")]
    known = [t for t in trials if (t.variant, t.seed) != ("bb", 3)]
    lines = [line(recipes, t, {"a": 10.0, "bb": 8.0}[t.variant] + t.seed, "mse") for t in known]
    first, second = recipes.standings(trials, lines)
    assert (first.variant, first.rank, first.trials) == ("bb", 1.0, 2)
    assert first.corpora["x"] == (pytest.approx(9.5), pytest.approx(0.5**0.5), 2)
    assert (first.gain, first.spread) == (2.0, 0.0)
    assert (second.rank, second.gain) == (2.0, 0.0)
    assert "best on average: bb" in recipes.table([first, second])


def test_equal_scores_share_their_rank(recipes):
    trials = [trial(recipes, v, "x", 1) for v in ("a", "bb", "ccc")]
    ranks = {s.variant: s.rank for s in recipes.standings(trials, [line(recipes, t, 5.0) for t in trials])}
    assert ranks == {"a": 2.0, "bb": 2.0, "ccc": 2.0}


def test_a_trial_is_judged_on_rows_it_has_not_learnt_from(recipes, plan, monkeypatch):
    """Two seeds are judged on two parts; the part is neither training nor dev data."""
    import anaphora as an

    seen = []
    fit, score = an.Classifier.fit, an.Classifier.score
    monkeypatch.setattr(an.Classifier, "fit", lambda m, rows, **k: (seen.append(rows), fit(m, rows, **k))[1])
    monkeypatch.setattr(an.Classifier, "score", lambda m, rows: (seen.append(rows), score(m, rows))[1])
    trials = recipes.read_plan(plan)
    assert [(t.seed, t.variant) for t in trials] == [(1, "base"), (1, "stiff"), (2, "base"), (2, "stiff")]
    found = [recipes.judge(trials[0]), recipes.judge(trials[2])]
    assert all(one["metric"] == "accuracy" and 0 <= one["score"] <= 100 for one in found)
    learnt, judged, learnt_2, judged_2 = (set(map(tuple, rows)) for rows in seen)
    assert (len(learnt), len(judged)) == (16, 8)
    assert not learnt & judged
    assert not judged & judged_2
    assert learnt | judged == learnt_2 | judged_2


def test_a_log_is_gone_on_with_and_a_cut_line_is_left_out(recipes, plan, monkeypatch, capsys):
    trials = recipes.read_plan(plan)
    log = plan.with_suffix(".jsonl")
    whole = [{**line(recipes, t, 60.0 + t.seed), "variant": t.variant} for t in trials[:3]]
    log.write_text("".join(json.dumps(x) + "\n" for x in whole) + '{"key": "cut', encoding="utf-8")
    begun = []

    class Pool:  # in this process
        def __init__(self, *_, **__): ...
        def __enter__(self):
            return self

        def __exit__(self, *_): ...
        def submit(self, function, trial):
            from concurrent.futures import Future

            begun.append(trial)
            future = Future()
            future.set_result(function(trial))
            return future

    monkeypatch.setattr(recipes, "ProcessPoolExecutor", Pool)
    recipes.main([str(plan), "--json"])
    assert begun == [trials[3]]
    assert len(recipes.read_log(log)) == 4
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [one["trials"] for one in found] == [2, 2]


def test_what_goes_wrong_is_logged_and_a_bad_plan_is_refused(recipes, plan, tmp_path):
    bad = recipes.Trial("classify", "v", {"hiden": 3}, "c", {"data": "reviews"}, 1, 3, "accuracy")
    assert "hiden is not a setting" in recipes.judge(bad)["error"]
    plan.write_text("task = 'classify'\n[corpora]\n", encoding="utf-8")
    with pytest.raises(ValueError, match="variants is missing"):
        recipes.read_plan(plan)
    with pytest.raises(SystemExit) as ended:
        recipes.main([str(tmp_path / "none.toml")])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("task =", "task", "it is not TOML"),
        ("seeds =", "sedes =", "sedes is no key of a plan (see --help). Did you mean seeds?"),
        ('"classify"', '"clasify"', "task = 'clasify' is not a task (classify, tag,"),
        ("[1, 2]", "[1, 1]", "seeds = [1, 1]: a list of different whole numbers"),
        ("[1, 2]", "3", "seeds = 3: a list of different whole numbers"),
        ("folds = 3", "folds = 1", "folds = 1: at least 2 are needed"),
        ("penalty = 1000", "penaltyy = 1", "variants.stiff: penaltyy is not a setting of Classifier. Did you mean penalty?"),
        ("penalty = 1000", "penalty = -1", "variants.stiff: penalty = -1 cannot be used"),
        ("train.tsv", "trian.tsv", "is neither a file nor an embedded corpus"),
        ("rows = 24", "row = 24", "corpora.small: has data, and may have dev and rows."),
        ("[variants.base]", "[variants]\nbase = 3", "variants.base is a table of settings"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_plan_is_one_sentence_before_anything_is_trained(
    recipes, plan, capsys, old, new, told
):
    text = plan.read_text(encoding="utf-8")
    assert old in text
    plan.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        recipes.main([str(plan)])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("recipes.py: ")
    assert said.count("\n") == 1
    assert told in said
    assert not plan.with_suffix(".jsonl").exists()


def test_other_words_of_a_plan_are_refused(recipes, plan, capsys):
    with pytest.raises(SystemExit) as ended:
        recipes.main([str(plan), "--only", "stif"])
    assert ended.value.code == 2
    assert "--only stif is neither a variant nor a corpus of it." in capsys.readouterr().err
    trial = recipes.read_plan(plan)[0]
    found = recipes.judge(dataclasses.replace(trial, metric="acuracy"))
    assert "metric = 'acuracy' is not measured here (examples, accuracy" in found["error"]


@pytest.mark.parametrize("metric", ["", "bleu", "exact_match", "chrf"])
def test_pairs_are_dealt_to_parts_and_judged_as_translations(recipes, tmp_path, monkeypatch, metric):
    """Of two parallel files both sides stay together; what has no BLEU is judged by chrF."""
    import anaphora as an

    words = [(f"a{i} b{i}", f"x{i} y{i} z{i} w{i}" if metric == "bleu" else f"x{i}") for i in range(30)]
    for name, side in (("train.en", 0), ("train.de", 1)):
        (tmp_path / name).write_text("".join(f"{row[side]}\n" for row in words), encoding="utf-8")
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'task = "translate"\nseeds = [1]\nfolds = 3\n'
        + (f'metric = "{metric}"\n' if metric else "")
        + '[common]\nmodel = "gru-attention"\nhidden = 4\nembedding = 4\ntokens = "word"\nsteps = 1\nbeam = 1\n'
        + "[variants.base]\n[variants.other]\nlr = 0.01\n"
        + f'[corpora]\nsmall = {{ data = ["{tmp_path}/train.en", "{tmp_path}/train.de"], rows = 24 }}\n',
        encoding="utf-8",
    )
    seen = []
    fit, score = an.Translator.fit, an.Translator.score
    monkeypatch.setattr(an.Translator, "fit", lambda m, rows, **k: (seen.append(rows), fit(m, rows, **k))[1])
    monkeypatch.setattr(an.Translator, "score", lambda m, rows: (seen.append(rows), score(m, rows))[1])
    trials = recipes.read_plan(plan)
    found = recipes.judge(trials[0])
    assert found["metric"] == {"": "chrf"}.get(metric, metric)
    assert 0 <= found["score"] <= 100
    assert found["steps"] == 1
    learnt, judged = (set(map(tuple, rows)) for rows in seen)
    assert (len(learnt), len(judged)) == (16, 8)
    assert not learnt & judged
    assert learnt | judged <= set(words)


PARENT = """
import os, sys, time
sys.path.insert(0, {folder!r})
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
import recipes

if __name__ == "__main__":
    with ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), initializer=recipes.end_with, initargs=(os.getpid(),)
    ) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 600).result()
"""


@pytest.mark.skipif(
    sys.platform == "win32", reason="a process whose parent is gone gets another one on POSIX alone"
)
def test_a_plan_that_is_killed_leaves_no_training_behind(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(folder=str(ROOT / "benchmarks")), encoding="utf-8")
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        worker = int(parent.stdout.readline())
        parent.kill()
        parent.stdout.close()
    for _ in range(600):  # the worker looks twice a second; a busy machine may take its time
        if not _alive(worker):
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker went on")


def _alive(process: int) -> bool:
    """Whether it runs; one that has ended and that nothing waits for is a zombie, not alive."""
    try:
        os.kill(process, 0)
        return not Path("/proc/self/stat").is_file() or _state(process) != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def _state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
