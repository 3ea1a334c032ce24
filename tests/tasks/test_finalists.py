"""Greedy outputs found fast, and the weights that a run ends with: chosen by the decoding that users get."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tasks_tiny import PRESETS, pairs, tiny, words

import anaphora as an
from anaphora.data.table import HeldTable
from anaphora.data.tokenizers.vocabularies import Around
from anaphora.errors import SettingsError
from anaphora.kinds.measures.texts import standard_error
from anaphora.tasks.translate.inference import encode_sources, greedy_outputs, search_outputs
from anaphora.tasks.translate.objective import TranslationObjective
from anaphora.training.progress import Reporter

PAIRS = pairs(60)


@pytest.mark.parametrize(
    "preset", ["rnn", "lstm-attention bilinear", "gru-attention", "transformer norm first"]
)
@pytest.mark.parametrize("steps", [1, 25])
def test_greedy_outputs_are_those_of_a_beam_of_one(preset, steps):
    """Also of a model that has learned little, whose outputs run into their limit."""
    assert preset in PRESETS
    model = tiny(preset, steps=steps).fit(PAIRS)
    sources = encode_sources(model.tokenizer_, words(70, seed=4), 256)
    model.model_.eval()
    for longest in (0, 9):
        beam = search_outputs(model.model_, sources, beam=1, length_penalty=0.0, max_length=longest)
        found = greedy_outputs(model.model_, sources, max_length=longest, around=Around())
        assert found == [list(best[0].tokens) for best in beam]


def test_the_best_by_the_users_search_is_kept(monkeypatch, tmp_path):
    """Greedy outputs prefer the last evaluation, the search as used the first one: that one is exported."""
    greedy = iter([10.0, 20.0, 30.0])
    used = iter([7.0, 5.0])
    seen = []

    def evaluate(self, model):
        return {"loss": 1.0, "chrf": next(greedy)}

    def final(self, model):
        seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return {"loss": 1.0, "chrf": next(used)}

    monkeypatch.setattr(TranslationObjective, "evaluate", evaluate)
    monkeypatch.setattr(TranslationObjective, "final", final)
    run = tmp_path / "run"
    m = tiny(steps=6, valid_every=2, save_every=2, keep_best=2, ema=0.5).fit(PAIRS, valid=PAIRS[:4], out=run)
    assert (m.result_.best_step, m.result_.best) == (4, 7.0)
    assert len(seen) == 2
    for name, tensor in an.load(run).model_.state_dict().items():
        assert torch.equal(tensor, seen[0][name])
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["dev"]["chrf"] for line in metrics if "dev" in line] == [10.0, 20.0, 30.0]


@pytest.mark.parametrize(("error", "kept"), [(0.5, 2), (1.5, 4), (2.5, 6)])
def test_of_what_few_dev_pairs_cannot_tell_apart_the_latest_is_kept(monkeypatch, tmp_path, error, kept):
    """The last weights are judged too, though their greedy outputs are not among the best."""
    greedy, used = iter([30.0, 20.0, 10.0]), iter([9.0, 8.0, 7.0])

    def final(self, model):
        self.uncertainty = error
        return {"loss": 1.0, "chrf": next(used)}

    monkeypatch.setattr(TranslationObjective, "evaluate", lambda *_: {"loss": 1.0, "chrf": next(greedy)})
    monkeypatch.setattr(TranslationObjective, "final", final)
    run = tmp_path / "run"
    m = tiny(steps=6, valid_every=2, save_every=2, keep_best=2).fit(PAIRS, valid=PAIRS[:4], out=run)
    assert m.result_.best_step == kept
    wanted = of_step(run, kept)
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in an.load(run).model_.state_dict().items())


@pytest.mark.parametrize(
    ("dev", "settings", "said"),
    [(299, {}, True), (300, {}, False), (9, {"metric": "loss"}, False), (9, {"tokens": "word"}, False)],
)
def test_only_measures_of_few_outputs_of_letters_are_uncertain(dev, settings, said):
    m = tiny(steps=1, **settings).fit(PAIRS)
    objective = TranslationObjective(m.settings_, m.tokenizer_, (PAIRS * 5)[:dev])
    assert hasattr(objective, "uncertainty") is said


@pytest.mark.parametrize(
    ("write", "said"), [(lambda number: "A B" if number % 2 else "B A", True), (str, False)]
)
def test_measures_of_few_outputs_of_phones_are_uncertain_too(write, said):
    """Pieces of pronunciations are whole phones, one of which is wrong as soon as the word is."""
    rows = [
        (f"word{number}", f"{write(number)} {write(number + 1)} {write(number)}") for number in range(120)
    ]
    m = an.Translator("lstm-attention", hidden=8, embedding=8, steps=1, tokens="bpe", target_tokens="bpe")
    m.fit(rows, valid=rows[:20])
    objective, _ = m._objective_and_batches(
        HeldTable(rows, {"kind": "pairs"}), HeldTable(rows[:20], {"kind": "pairs"})
    )
    assert hasattr(objective, "uncertainty") is said


def test_the_uncertainty_is_the_standard_error_of_a_difference():
    m = tiny(steps=30, metric="exact_match").fit(PAIRS)
    m.model_.eval()
    objective = TranslationObjective(m.settings_, m.tokenizer_, PAIRS[:20])
    share = objective.final(m.model_)["exact_match"] / 100
    assert objective.uncertainty == pytest.approx(100 * (2 * share * (1 - share) / 19) ** 0.5)
    assert standard_error(["ab", "cd"], ["ab", "xy"], "chrf") == pytest.approx(50)


def test_without_finalists_nothing_is_judged_again(monkeypatch):
    monkeypatch.setattr(TranslationObjective, "final", lambda self, model: pytest.fail("judged"))
    tiny(steps=4, valid_every=2, keep_best=0).fit(PAIRS, valid=PAIRS[:4])


def test_the_last_measures_are_those_of_score():
    m = tiny(steps=20, valid_every=10, save_every=10, keep_best=2, valid_examples=8, beam=3).fit(
        PAIRS, valid=PAIRS[:8]
    )
    assert m.result_.metrics["chrf"] == pytest.approx(m.score(PAIRS[:8])["chrf"])


def test_what_evaluations_and_finalists_took_is_in_the_timings(tmp_path):
    run = tmp_path / "run"
    tiny(steps=4, valid_every=2, save_every=2, keep_best=2).fit(PAIRS, valid=PAIRS[:4], out=run)
    lines = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    took = [(line["event"], line["took"]) for line in lines if "took" in line]
    assert [event for event, _ in took] == ["evaluate", "evaluate", "finalists"]
    assert all(seconds > 0 for _, seconds in took)
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "evaluation_share.py"
    spec = importlib.util.spec_from_file_location("evaluation_share", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (run / "timings.jsonl").write_text(
        '{"event": "start"}\n{"step": 5, "seconds": 20.0, "event": "evaluate", "took": 2.0}\n{"event": "resume"}\n'
        '{"step": 9, "seconds": 10.0, "event": "finalists", "took": 1.0}\n'
    )
    assert module.share(run)["share"] == 0.1


def of_step(run, step):
    """The weights of a checkpoint, averaged ones where it has them."""
    return an.load(run, checkpoint=step).model_.state_dict()


@pytest.mark.parametrize("mean", [9.0, 7.0])
def test_the_mean_of_the_best_weights_is_a_finalist(monkeypatch, tmp_path, mean):
    """It is kept where it is better than each, and only there."""
    greedy, used, said = iter([10.0, 20.0, 30.0]), iter([7.0, 8.0, mean]), []
    monkeypatch.setattr(TranslationObjective, "evaluate", lambda *_: {"loss": 1.0, "chrf": next(greedy)})
    monkeypatch.setattr(TranslationObjective, "final", lambda *_: {"loss": 1.0, "chrf": next(used)})

    class Heard(Reporter):
        def say(self, text):
            said.append(text)

    run = tmp_path / "run"
    m = tiny(steps=6, valid_every=2, save_every=2, keep_best=2, average_best=2, ema=0.5)
    m.fit(PAIRS, valid=PAIRS[:4], out=run, reporter=Heard())
    first, second = of_step(run, 4), of_step(run, 6)
    better = mean == 9.0
    assert (m.result_.best_step, m.result_.best) == (6, max(mean, 8.0))
    for name, tensor in an.load(run).model_.state_dict().items():
        wanted = ((first[name].double() + second[name]) / 2).float() if better else second[name]
        assert torch.equal(tensor, wanted)
    told = "the mean of the weights of steps 4, 6 is better than each: chrf 9"
    assert (told in said) == better
    assert torch.equal(
        m.model_.state_dict()[name], tensor
    )  # what the estimator predicts with is what is saved


def test_tasks_without_a_search_average_too_and_resume_to_the_same_bytes(tmp_path):
    rows = [(f"{'good' if i % 2 else 'bad'} film {i % 7}", "01"[i % 2]) for i in range(60)]
    settings = {
        "embedding": 4,
        "steps": 12,
        "valid_every": 3,
        "save_every": 3,
        "device": "cpu",
        "metric": "macro_f1",
    }
    m = an.Classifier("bow", average_best=3, lr=0.5, warmup=0, ema=0, **settings)
    m.fit(rows, valid=rows[:20], out=tmp_path / "run")
    assert m.settings_.keep_best == 3
    before = (tmp_path / "run/model.safetensors").read_bytes()
    an.Classifier.resume(tmp_path / "run")
    assert (tmp_path / "run/model.safetensors").read_bytes() == before
    single = [
        json.loads(line)["dev"]
        for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
        if "dev" in line
    ]
    assert m.result_.best >= max(one["macro_f1"] for one in single)
    assert an.load(tmp_path / "run").score(rows[:20])["macro_f1"] == pytest.approx(m.result_.best)


@pytest.mark.parametrize("given", [{"average_best": 1}, {"average_best": 3, "keep_best": 2}])
def test_a_mean_of_too_few_or_too_many_is_refused(given):
    with pytest.raises(
        SettingsError, match=r"average_best = \d is a mean of at least 2 and at most keep_best"
    ):
        tiny(**given)


def test_a_module_of_ones_own_may_end_with_a_mean(tmp_path):
    torch.manual_seed(0)
    x = torch.linspace(0, 1, 16)[:, None]
    module, losses = torch.nn.Linear(1, 1), iter([5.0, 4.0, 3.0])
    done = an.fit(
        module,
        torch.nn.MSELoss(),
        [(x, 2 * x)],
        out=tmp_path / "run",
        evaluate=lambda _: {"wrong": next(losses, 1.0)},
        metric="-wrong",
        steps=3,
        valid_every=1,
        save_every=1,
        average_best=2,
        verbose=False,
    )
    assert (done.best, done.best_step) == (1.0, 3)
    kept = [
        load_file(tmp_path / f"run/checkpoints/step-0000000{n}/model.safetensors")["weight"] for n in (2, 3)
    ]
    assert torch.equal(module.weight, ((kept[0].double() + kept[1]) / 2).float())
    with pytest.raises(SettingsError, match="average_best = 1"):
        an.fit(module, torch.nn.MSELoss(), [(x, x)], average_best=1)
