"""Every form of data a Translator takes, and the dev data it holds out when it gets none."""

from __future__ import annotations

import gzip
import itertools
import json

import pytest
from tasks_tiny import is_one_sentence, pairs, tiny

from anaphora.data.sources.opening import ROW_READER, open_source
from anaphora.data.split import Split, split
from anaphora.errors import DataError, RunError, SettingsError
from anaphora.tasks.recipe import Recipe

ROWS = pairs(60)


def write_tsv(folder):
    path = folder / "train.tsv"
    path.write_text("".join(f"{s}\t{t}\n" for s, t in ROWS))
    return {"data": path}


def write_gzip(folder):
    path = folder / "train.tsv.gz"
    path.write_bytes(gzip.compress("".join(f"{s}\t{t}\n" for s, t in ROWS).encode()))
    return {"data": path}


def write_parallel(folder):
    paths = folder / "train.en", folder / "train.de"
    for side, path in enumerate(paths):
        path.write_text("".join(f"{row[side]}\n" for row in ROWS))
    return {"data": paths}


def write_csv(folder):
    path = folder / "train.csv"
    path.write_text("id,loud,quiet\n" + "".join(f'{n},"{t}",{s}\n' for n, (s, t) in enumerate(ROWS)))
    return {"data": path, "source_field": "quiet", "target_field": "loud"}


def write_jsonl(folder):
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps({"src": s, "tgt": t}) + "\n" for s, t in ROWS))
    return {"data": path}


def examples(folder):
    return {"data": (pair for pair in ROWS)}


FORMS = [write_tsv, write_gzip, write_parallel, write_csv, write_jsonl, examples]


@pytest.fixture(scope="module")
def expected():
    """The outputs of a model trained on the rows in memory."""
    return tiny().fit(list(ROWS)).predict([s for s, _ in ROWS[:8]])


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_the_data_makes_no_difference(form, tmp_path, expected):
    translator = tiny().fit(**form(tmp_path), out=tmp_path / "run")
    assert translator.predict([s for s, _ in ROWS[:8]]) == expected
    described = Recipe.read(tmp_path / "run").data
    assert described["train"]["rows"] + described["valid"]["rows"] == len(ROWS)


@pytest.mark.parametrize("form", FORMS)
def test_the_data_of_a_run_can_be_opened_again(form, tmp_path):
    tiny(steps=1).fit(**form(tmp_path), out=tmp_path / "run")
    train, dev = ROW_READER.reopen(Recipe.read(tmp_path / "run").data)
    assert sorted([*train, *dev]) == sorted(ROWS)


def test_examples_of_a_run_that_was_moved_are_found(tmp_path):
    tiny(steps=1).fit(iter(ROWS), valid=iter(ROWS[:5]), out=tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    train, dev = ROW_READER.reopen(Recipe.read(tmp_path / "there").data, tmp_path / "there" / "data")
    assert (list(train), list(dev)) == (ROWS, ROWS[:5])
    assert tiny().resume(tmp_path / "there").result_.stopped == "finished"


def test_an_embedded_corpus_comes_with_its_dev_split(tmp_path):
    tiny(steps=1, max_length=3).fit("copy", out=tmp_path / "run")
    data = Recipe.read(tmp_path / "run").data
    assert (data["train"]["split"], data["valid"]["split"]) == ("train", "dev")


def test_dev_data_of_ones_own_is_used(tmp_path):
    translator = tiny(steps=1, valid_examples=3).fit(
        ROWS, valid=[("a", "A"), ("b", "B")], out=tmp_path / "run"
    )
    assert Recipe.read(tmp_path / "run").data["valid"]["rows"] == 2
    samples = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert [(one["source"], one["reference"]) for one in samples] == [("a", "A"), ("b", "B")]
    assert translator.result_.metrics["loss"] > 0


@pytest.mark.parametrize(("rows", "held"), [(2, 1), (19, 1), (40, 2), (60, 3), (30_000, 1000)])
def test_a_twentieth_is_held_out_and_at_most_a_thousand(rows, held):
    whole = open_source([(str(n), str(n)) for n in range(rows)])
    train, dev = split(whole, Split("rows", seed=1))
    assert len(dev) == held
    assert set(train).isdisjoint(dev)
    assert sorted([*train, *dev]) == sorted(whole)


def test_the_seed_decides_what_is_held_out():
    whole = open_source([(str(n), str(n)) for n in range(200)])
    first, again, other = (list(split(whole, Split("rows", seed=seed))[1]) for seed in (1, 1, 2))
    assert first == again != other


def test_one_pair_is_too_little():
    with pytest.raises(DataError, match="one example is too little") as caught:
        tiny().fit([("a", "A")])
    assert is_one_sentence(caught.value)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ([], "train examples has no usable row"),
        ([("a", "A"), ("b",)], "train examples:2: not a pair of texts"),
        ([("a", "A"), ("b", 3)], "a field that is not text .target, a int"),
        ([("a", "A"), ("b", " ")], "train examples:2"),
        (17, "A int cannot be read as pairs"),
        ("nowhere.tsv", "nowhere.tsv cannot be read"),
        ("numbrs", "did you mean numbers?"),
    ],
)
def test_data_that_cannot_be_used_is_named_and_the_folder_stays_free(data, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=told.replace("?", r"\?")) as caught:
        tiny().fit(data, out=tmp_path / "run")
    assert is_one_sentence(caught.value)
    tiny(steps=1).fit(ROWS, out=tmp_path / "run")  # the same place can be used once the data is right


def test_dev_data_that_cannot_be_used_leaves_the_folder_free_too(tmp_path):
    with pytest.raises(DataError, match="dev examples"):
        tiny().fit(iter(ROWS), valid=[("a", "")], out=tmp_path / "run")
    tiny(steps=1).fit(ROWS, out=tmp_path / "run")


def test_bad_rows_can_be_skipped_and_are_counted(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("a\tA\nb\nc\tC\n\tD\n" * 3)
    tiny(steps=1, bad_rows="skip").fit(path, valid=ROWS[:2], out=tmp_path / "run")
    described = Recipe.read(tmp_path / "run").data["train"]
    assert described["rows"] == 6
    assert sum(described["skipped"].values()) == 6


def test_examples_longer_than_max_tokens_leave_nothing_to_train_on():
    with pytest.raises(DataError, match="None of the 57 examples fits into max_tokens = 2") as caught:
        tiny(max_tokens=2).fit([(s * 3, t * 3) for s, t in ROWS])
    assert is_one_sentence(caught.value)


def test_a_folder_with_something_in_it_is_refused_unless_forced(tmp_path):
    run = tmp_path / "run"
    tiny(steps=1).fit(ROWS, out=run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match="already holds a run") as caught:
        tiny(steps=1).fit(ROWS, out=run)
    assert is_one_sentence(caught.value)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert tiny(steps=2).fit(ROWS, out=run, force=True).result_.steps == 2
    assert [path.name for path in sorted((run / "checkpoints").iterdir())] == ["step-00000002"]


def test_without_out_the_run_goes_when_the_estimator_goes(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    translator = tiny(steps=1).fit(ROWS)
    assert [path.name.partition("-")[0] for path in tmp_path.iterdir()] == ["anaphora"]
    del translator
    assert list(tmp_path.iterdir()) == []


def test_an_endless_iterable_can_be_cut_by_its_maker(tmp_path):
    endless = itertools.cycle(ROWS)
    translator = tiny(steps=1).fit(itertools.islice(endless, 130), out=tmp_path / "run")
    assert translator.result_.steps == 1


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    path = write_tsv(tmp_path)["data"]
    for name in ("one", "two"):
        tiny(dropout=0.2, valid_every=10).fit(path, out=tmp_path / name)
    tiny(dropout=0.2, valid_every=10, seed=2).fit(path, out=tmp_path / "other")
    for name in ("model.safetensors", "metrics.jsonl", "samples.jsonl", "config.json", "README.md"):
        one, two, other = ((tmp_path / run / name).read_bytes() for run in ("one", "two", "other"))
        assert one == two, name
        assert one != other or name == "samples.jsonl"


def test_a_plan_says_what_fit_would_do(tmp_path):
    translator = tiny(steps=30)
    plan = translator.plan(write_tsv(tmp_path)["data"])
    assert (plan["train"]["rows"], plan["valid"]["rows"], plan["steps"]) == (57, 3, 30)
    assert not hasattr(translator, "model_")
    fitted = translator.fit(ROWS)
    assert plan["parameters"] == sum(weight.numel() for weight in fitted.model_.parameters())
    assert plan["vocabulary"] == {
        "source": fitted.tokenizer_.source.size,
        "target": fitted.tokenizer_.target.size,
    }
    # 57 words of 6.5 letters with their end on average, batches of 300
    assert plan["epochs"] == pytest.approx(30 * 300 / (57 * plan["symbols_per_example"]), abs=0.1)


def test_a_plan_refuses_a_device_that_is_not_there(tmp_path):
    with pytest.raises(SettingsError, match="device = 'gpu' is not a device"):
        tiny(device="gpu").plan(write_tsv(tmp_path)["data"])


def test_data_that_cannot_be_read_leave_no_folder_behind(tmp_path):
    broken = tmp_path / "broken.tsv"
    broken.write_text("no tab here\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"broken\.tsv:1"):
        tiny().fit(broken, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(DataError, match=r"broken\.tsv:1"):
        tiny().fit(broken, out=tmp_path / "mine")
    assert (tmp_path / "mine").exists()


def test_outputs_may_be_as_long_as_what_was_trained_on(tmp_path):
    """Three times the source and 20 more would cut these outputs: the limit follows from the data, and stays with the run."""
    rows = [("a", "b" * 40), ("c", "d" * 3)] * 4
    run = tmp_path / "run"
    translator = tiny(steps=2, max_length=0).fit(rows, valid=rows[:2], out=run)
    assert translator.settings_.max_length == Recipe.read(run).settings.max_length == 61
    again = tiny().resume(run, steps=3)
    assert again.settings_.max_length == 61
    assert tiny(steps=1, max_length=0).fit(ROWS).settings_.max_length == 0
