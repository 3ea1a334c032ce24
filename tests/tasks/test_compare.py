"""Runs side by side: the measures are those of ``score``, the intervals and tests those of the textbook."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import answer_tiny
import caption_tiny
import classify_tiny
import forecast_tiny
import numpy as np
import pytest
import tasks_tiny
import transcribe_tiny
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from tasks_tiny import is_one_sentence

import anaphora as an
from anaphora.cli.main import run
from anaphora.kinds.measures.judged import Floats, mean
from anaphora.kinds.measures.texts import bleu, chrf
from anaphora.tasks.comparing.resampling import bootstrap, grouped, interval, p_value

LINES = [
    f"{a} {b} {c}" for a, b, c in itertools.product(["red", "blue"], ["old", "new", "odd"], ["cat", "dog"])
]
TEXT = "\n".join(["", *LINES[:6], "", "  ", *LINES[6:], ""])
TAGGED = [(line.split(), ["B-C", "O", "B-A"] if "cat" in line else ["O", "O", "B-A"]) for line in LINES]
RATED = [(line, str(len(line) + 0.5 * line.count("o"))) for line in LINES]
SEVERAL = [(line, "|".join(word for word in line.split() if word != "old")) for line in LINES]
KINDS = [(line, line.split()[1]) for line in LINES]
LANGUAGE: dict[str, Any] = {
    "hidden": 8,
    "embedding": 8,
    "layers": 1,
    "steps": 3,
    "batch_tokens": 64,
    "device": "cpu",
}
TAGS: dict[str, Any] = {
    "hidden": 8,
    "embedding": 8,
    "steps": 4,
    "batch_tokens": 64,
    "device": "cpu",
    "characters": "none",
}


def classifier(seed: int, **more: Any) -> an.Classifier:
    return classify_tiny.tiny("lstm last", steps=4, seed=seed, **more)


CASES: dict[str, tuple[Callable[[int], Any], Any, Any]] = {
    "class": (
        classifier,
        KINDS,
        [*KINDS[3:], ("blue old fox", "fox")],
    ),  # a label that training does not know
    "classes": (lambda seed: classifier(seed, target="classes"), SEVERAL, SEVERAL),
    "number": (lambda seed: classifier(seed, target="number"), RATED, RATED),
    "spans": (lambda seed: an.Tagger("bilstm", seed=seed, **TAGS), TAGGED, TAGGED),
    "hmm": (lambda seed: an.Tagger("hmm", order=seed + 1), TAGGED, TAGGED),
    "translate": (
        lambda seed: tasks_tiny.tiny(seed=seed, steps=8),
        tasks_tiny.pairs(80),
        tasks_tiny.pairs(9, seed=2),
    ),
    "lines": (lambda seed: an.LanguageModel("lstm", lines=True, seed=seed, **LANGUAGE), [TEXT], [TEXT]),
    "stream": (
        lambda seed: an.LanguageModel("lstm", tokens=["char", "word"][seed - 1], **LANGUAGE),
        [TEXT],
        [TEXT],
    ),
    "ngram": (lambda seed: an.LanguageModel("ngram", order=seed + 1, tokens="char"), [TEXT], [TEXT]),
    "transcribe": (
        lambda seed: transcribe_tiny.tiny(seed=seed, steps=6),
        transcribe_tiny.recordings(20),
        transcribe_tiny.recordings(6, seed=3),
    ),
    "caption": (
        lambda seed: caption_tiny.tiny(seed=seed, steps=4),
        caption_tiny.pictures(8),
        caption_tiny.pictures(5, seed=1),
    ),
    "answer": (
        lambda seed: answer_tiny.tiny(seed=seed, steps=4),
        answer_tiny.scenes(8),
        answer_tiny.scenes(4, seed=2),
    ),
    "forecast": (
        lambda seed: forecast_tiny.tiny("linear", seed=seed, steps=4),
        forecast_tiny.waves(90),
        forecast_tiny.waves(60, seed=1),
    ),
    "aligned": (
        lambda seed: forecast_tiny.tiny("lstm", horizon=0, targets="x2", seed=seed, steps=4),
        forecast_tiny.waves(90),
        forecast_tiny.waves(60, seed=1),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_measures_are_those_of_score(case: str) -> None:
    make, train, test = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [make(seed).fit(train, valid=test) for seed in (1, 2)]
        found = an.compare(*models, data=test, samples=100)
        scores = [model.score(test) for model in models]
    assert found.measures
    for measure in found.measures:
        for place, score in enumerate(scores):
            assert measure.estimates[place].value == score[measure.name], measure.name
            assert measure.estimates[place].low <= measure.estimates[place].high
    json.dumps(found.to_dict())
    assert all(run.examples_per_second > 0 for run in found.runs)
    for one in found.disagreements:
        assert len(set(one.outputs)) > 1


def brute_force_p(a: Floats, b: Floats, value: Callable[[Floats], Floats]) -> float:
    """Every one of the 2ⁿ exchanges, one after the other."""
    observed, large, tried = abs(value(a.sum(0)) - value(b.sum(0))), 0, 0
    for swaps in itertools.product([False, True], repeat=len(a)):
        mine = sum(b[i] if swap else a[i] for i, swap in enumerate(swaps))
        theirs = sum(a[i] if swap else b[i] for i, swap in enumerate(swaps))
        large += int(abs(value(mine) - value(theirs)) >= observed - 1e-9)
        tried += 1
    return large / tried


def f_measure(sums: Floats) -> Floats:
    return np.asarray(2 * sums[..., 0] / np.maximum(sums[..., 1] + sums[..., 2], 1e-9))


@pytest.mark.parametrize("seed", range(3))
def test_the_paired_test_is_exact_where_all_exchanges_are_few(seed: int) -> None:
    random = np.random.default_rng(seed)
    a, b = (random.integers(1, 6, size=(8, 3)).astype(float) for _ in range(2))
    b[2] = a[2]  # an example on which both did the same changes nothing
    assert p_value(a, b, f_measure, samples=300, seed=1) == pytest.approx(brute_force_p(a, b, f_measure))


def test_drawn_exchanges_come_near_the_exact_test() -> None:
    random = np.random.default_rng(5)
    a, b = (random.integers(1, 6, size=(11, 3)).astype(float) for _ in range(2))
    exact = brute_force_p(a, b, f_measure)
    assert p_value(a, b, f_measure, samples=2000, seed=1) == pytest.approx(exact, abs=0.05)


def test_the_paired_test_of_right_and_wrong_is_the_sign_test() -> None:
    """Six examples that only one of two runs gets right, all the same one: p = 2 · (1/2)⁶, McNemar's exact test."""
    a = np.stack([np.r_[np.ones(10), np.zeros(6)], np.ones(16)], axis=1)
    b = np.stack([np.ones(16), np.ones(16)], axis=1)
    assert p_value(a, b, mean, samples=100, seed=1) == pytest.approx(2 / 64)
    assert p_value(a, a, mean, samples=100, seed=1) == 1


def test_the_bootstrap_draws_examples_with_replacement() -> None:
    statistics = np.stack([np.array([0.0, 1.0, 5.0]), np.ones(3)], axis=1)
    (drawn,) = bootstrap([statistics], mean, samples=20_000, seed=1)
    exact = [np.mean(draw) for draw in itertools.product([0.0, 1.0, 5.0], repeat=3)]
    for value in set(exact):
        share = np.mean(np.isclose(drawn, value))
        assert share == pytest.approx(np.mean(np.isclose(exact, value)), abs=0.015)
    assert interval(np.arange(101.0), 0.9) == pytest.approx((5, 95))


def test_runs_are_resampled_together() -> None:
    """A run that is better by 1 on every example is better by 1 in every sample."""
    a = np.stack([np.arange(9.0), np.ones(9)], axis=1)
    first, second = bootstrap([a, a + np.array([1, 0])], mean, samples=100, seed=1)
    assert np.allclose(second - first, 1)
    assert first.std() > 0.1


def test_examples_of_a_group_are_drawn_together() -> None:
    sums = grouped(np.array([[1.0], [2.0], [4.0], [8.0]]), np.array([7, 3, 7, 3]))
    assert sums.tolist() == [[10], [5]]


def test_bleu_and_chrf_are_sacrebleus_for_every_choice_of_texts() -> None:
    random = np.random.default_rng(3)
    words = ["the", "cat", "sat", "on", "a", "mat", ".", "ö"]
    texts = [
        [" ".join(random.choice(words, size=random.integers(0, 9))) for _ in range(30)] for _ in range(2)
    ]
    outputs, references = texts
    measures = [
        bleu(outputs, [[one] for one in references], tokenize="13a")[0],
        chrf(outputs, references, basis=""),
    ]
    for size in (1, 2, 3, 10, 30):
        for _ in range(6):
            chosen = random.choice(30, size=size).tolist()
            given, wanted = [outputs[i] for i in chosen], [[references[i] for i in chosen]]
            peers = [BLEU(force=True).corpus_score(given, wanted), CHRF().corpus_score(given, wanted)]
            for measure, peer in zip(measures, peers, strict=True):
                assert measure.value(measure.statistics[chosen].sum(0)) == pytest.approx(peer.score, abs=1e-6)


def test_runs_that_count_different_symbols_get_no_test() -> None:
    models = [
        an.LanguageModel("ngram", order=2, tokens=kind).fit([TEXT], valid=[TEXT]) for kind in ("char", "word")
    ]
    found = an.compare(*models, data=[TEXT], samples=100)
    rows = {row.name: row for row in found.measures}
    assert rows["bits_per_character"].differences[1] is not None
    assert rows["perplexity"].differences == [None, None]
    assert any("perplexity is not compared" in note for note in found.notes)


def test_forecasters_with_other_windows_are_measured_where_both_forecast() -> None:
    data = forecast_tiny.waves(60)
    models = [forecast_tiny.tiny("linear", window=w, steps=3).fit(data, valid=data) for w in (8, 16)]
    found = an.compare(*models, data=data, samples=100)
    assert found.examples == 60 - 16 - 4 + 1
    assert any("measured are the 41" in note for note in found.notes)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classifiers with the same dev data, one with other dev data, and a translator."""
    folder = tmp_path_factory.mktemp("runs")
    rows = classify_tiny.texts(40)
    (folder / "train.tsv").write_text("".join(f"{x}\t{y}\n" for x, y in rows))
    (folder / "test.tsv").write_text("".join(f"{x}\t{y}\n" for x, y in classify_tiny.texts(12, seed=4)))
    for name, seed, train in (("a", 1, "train"), ("b", 2, "train"), ("c", 1, "test")):
        model = classify_tiny.tiny("lstm last", steps=5, seed=seed)
        model.fit(folder / f"{train}.tsv", valid=folder / f"{train}.tsv", out=folder / name)
    tasks_tiny.tiny(steps=2).fit(tasks_tiny.pairs(20), valid=tasks_tiny.pairs(4), out=folder / "t")
    return folder


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = run(["compare", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_command_prints_one_table(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, runs / "a", runs / "b", "--samples", 100)
    assert code == 0
    assert "seed" in out
    assert "accuracy ↑" in out
    assert "p = " in out
    assert "parameters" in out
    code, out, _ = command(
        capsys, runs / "a", runs / "b", "--data", runs / "test.tsv", "--json", "--examples", 2
    )
    found = json.loads(out)
    assert code == 0
    assert found["examples"] == 12
    assert found["settings"] == {"seed": [1, 2]}
    assert found["runs"][0]["facts"]["steps"] == 5
    assert len(found["disagreements"]) <= 2
    again = json.loads(
        command(capsys, runs / "a", runs / "b", "--data", runs / "test.tsv", "--json", "--examples", 2)[1]
    )
    assert again["measures"] == found["measures"]  # the same samples every time


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a"], "at least two runs"),
        (["a", "a"], "named twice"),
        (["a", "t"], "compare runs of one task"),
        (["a", "c"], "different dev data"),
        (["a", "nowhere"], "nowhere does not exist"),
        (["a", "b", "--data", "nothing.tsv"], "nothing.tsv"),
        (["a", "b", "--samples", "5"], "samples = 5 cannot be used"),
        (["a", "b", "--level", "2"], "level = 2.0 cannot be used"),
        (["a", "b", "--set", "beam=3"], "beam"),
        (["a", "b", "--target", "x.txt"], "--data"),
        (["a", "b", "--time", "when"], "time_field"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str],
    sentence: str,
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(runs)
    code, out, err = command(capsys, *words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err


def test_models_from_python_need_data() -> None:
    models = [an.LanguageModel("ngram", order=n, tokens="char").fit([TEXT], valid=[TEXT]) for n in (2, 3)]
    with pytest.raises(an.AnaphoraError) as raised:
        an.compare(*models)
    assert "name data" in str(raised.value)
    assert is_one_sentence(raised.value)
