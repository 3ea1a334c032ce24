"""``train``: settings are put together, and every mistake in them is reported at once."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest

from anaphora.cli import main
from anaphora.cli.request import read_request
from anaphora.cli.training import duration, free_name, report
from anaphora.errors import SettingsError
from anaphora.tasks.registry import TASKS, resolve


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_text("one\teins\ntwo\tzwei\n")
    return tmp_path


class FakeEstimator:
    """Stands in for Translator: remembers what it was asked."""

    command = "translate"
    asked: ClassVar[dict] = {}
    stopped = "finished"

    def __init__(self, **settings):
        FakeEstimator.asked = {"settings": settings}
        self.settings_ = resolve(TASKS["translate"], settings)

    def _advice(self, run):
        return ""

    def fit(self, data, valid=None, out=None, **options):
        options.pop("reporter")
        FakeEstimator.asked.update(data=data, valid=valid, out=out, **options)
        self.result_ = SimpleNamespace(
            trained=True,
            steps=20,
            best=50.0,
            best_step=20,
            metrics={"bleu": 50.0, "loss": float("nan")},
            stopped=self.stopped,
        )
        return self

    def plan(self, data, valid=None, **options):
        return {"train": {"rows": 2}, "valid": {"rows": 1}, "parameters": 12345, "steps": 20}


@pytest.fixture
def fake(here, monkeypatch):
    import anaphora.tasks.registry as registry

    monkeypatch.setattr(registry, "estimator", lambda command: FakeEstimator)
    monkeypatch.setitem(
        sys.modules, "anaphora.cli.reporting", SimpleNamespace(make_reporter=lambda settings: None)
    )
    monkeypatch.setattr(FakeEstimator, "stopped", "finished")
    return FakeEstimator


def test_options_and_set_reach_the_estimator(fake, capsys):
    arguments = (
        "train translate train.tsv --valid train.tsv --model lstm --steps 20 --set hidden=16 -o runs/x"
    )
    assert main.run(arguments.split()) == 0
    assert fake.asked == {
        "settings": {"model": "lstm", "steps": 20, "hidden": 16},
        "data": "train.tsv",
        "valid": "train.tsv",
        "out": "runs/x",
        "force": False,
        "seeds": 1,
    }
    shown = capsys.readouterr()
    assert shown.out.split() == ["bleu", "50", "dev", "loss", "nan"]
    assert "anaphora predict runs/x" in shown.err


def test_two_parallel_files_and_named_fields(fake):
    arguments = (
        "train translate train.tsv --target train.tsv --valid train.tsv --valid-target train.tsv --force"
    )
    assert main.run([*arguments.split(), "--source-field", "en", "--target-field", "de"]) == 0
    assert fake.asked["data"] == fake.asked["valid"] == ("train.tsv", "train.tsv")
    assert fake.asked["force"] is True
    assert (fake.asked["source_field"], fake.asked["target_field"]) == ("en", "de")


def test_the_second_of_two_files_needs_a_first(here, capsys):
    assert main.run(["train", "translate", "train.tsv", "--valid-target", "x"]) == 2
    assert "the first is missing" in capsys.readouterr().err


def test_json_is_one_document_and_holds_no_nan(fake, capsys):
    assert main.run(["train", "translate", "train.tsv", "-o", "runs/x", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["run"] == "runs/x"
    assert document["metrics"] == {"bleu": 50.0, "loss": None}


def test_an_interrupted_run_exits_with_130_and_says_how_to_go_on(fake, capsys, monkeypatch):
    monkeypatch.setattr(fake, "stopped", "interrupted")
    assert main.run(["train", "translate", "train.tsv", "-o", "runs/x"]) == 130
    assert "anaphora resume runs/x" in capsys.readouterr().err


def test_who_stops_before_the_first_step_is_told_how_to_go_on(fake, here, capsys, monkeypatch):
    def fit(self, data, valid, out, **options):
        if out == "begun":
            (here / out).mkdir()
            (here / out / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(fake, "fit", fit)
    assert main.run(["train", "translate", "train.tsv", "-o", "begun"]) == 130
    assert "anaphora resume begun" in capsys.readouterr().err
    assert main.run(["train", "translate", "train.tsv", "-o", "not-yet"]) == 130
    assert capsys.readouterr().err == "anaphora: stopped.\n"


def test_what_to_type_next_can_be_typed(fake, capsys):
    assert main.run(["train", "translate", "train.tsv", "-o", "my runs/$x"]) == 0
    assert "anaphora predict 'my runs/$x' FILE" in capsys.readouterr().err


def test_a_dry_run_refuses_what_training_would_refuse(fake, capsys):
    order = ["train", "translate", "train.tsv", "--dry-run"]
    assert main.run([*order, "-o", "train.tsv"]) == 2
    assert "is a file, not a folder" in capsys.readouterr().err
    assert main.run([*order, "-o", "."]) == 2
    assert "write into it with --force" in capsys.readouterr().err
    assert main.run([*order, "-o", ".", "--force"]) == 0
    assert main.run([*order, "-o", "train.tsv/run"]) == 2
    assert "train.tsv is not a folder); choose another place." in capsys.readouterr().err
    assert main.run([*order, "--seeds", "0"]) == 2
    assert "it must be a number of seeds from 1 to" in capsys.readouterr().err
    assert main.run([*order, "--valid", "dve.tsv"]) == 2
    assert "dve.tsv is neither a file" in capsys.readouterr().err


def test_one_step_is_one_step(fake, capsys):
    model = fake().fit("train.tsv", reporter=None)
    for steps, said in ((1, "Trained for 1 step ("), (20, "Trained for 20 steps (")):
        model.result_.steps = steps
        report(model, "runs/x", seconds=1.0, as_json=False)
        assert said in capsys.readouterr().err


def test_a_dry_run_trains_nothing(fake, capsys):
    assert main.run(["train", "translate", "train.tsv", "--steps", "20", "--dry-run"]) == 0
    assert "data" not in fake.asked
    shown = capsys.readouterr()
    assert "12 345" in shown.out
    assert "* steps" in shown.out
    assert main.run(["train", "translate", "train.tsv", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["parameters"] == 12345
    assert (document["settings"]["steps"], document["settings"]["epochs"]) == (20, 47)


def test_every_mistake_of_a_run_file_is_told_with_its_line(here, capsys):
    (here / "run.toml").write_text(
        'task = "translate"\ndata = "train.tsv"\n\nhiden = 3\nsteps = 0\ntokens = bpe\nlr = 1\nlr = 2\n'
        "[training]\nheads = 2\n"
    )
    assert main.run(["train", "run.toml"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "anaphora: 6 mistakes in the settings:",
        "  run.toml:4: hiden is not a setting of Translator. Did you mean hidden?",
        "  run.toml:5: steps = 0 cannot be used: it must be at least 1. `anaphora explain steps` says more.",
        '  run.toml:6: text needs quotes: tokens = "bpe".',
        "  run.toml:8: lr is given twice, first at run.toml:7; keep one of them.",
        "  run.toml:9: [training] begins a section, but settings have none; write its keys without it.",
        "  run.toml:10: heads has no effect on the preset lstm-attention; leave it out or choose another model, such as transformer.",
    ]


def test_a_single_mistake_is_a_single_line(here, capsys):
    (here / "run.toml").write_text('task = "translate"\ndata = "train.tsv"\nhiden = 3\n')
    assert main.run(["train", "run.toml"]) == 2
    told = "anaphora: run.toml:3: hiden is not a setting of Translator. Did you mean hidden?\n"
    assert capsys.readouterr().err == told


def test_a_run_file_says_what_is_missing_or_misspelt(here, capsys):
    (here / "run.toml").write_text('tsk = "translate"\n')
    main.run(["train", "run.toml"])
    told = capsys.readouterr().err
    assert 'the task is missing; write task = "translate".' in told
    assert 'the data are missing; write data = "train.tsv".' in told
    (here / "run.toml").write_text('task = "translte"\ndata = 3\nvalid = ["a"]\n')
    main.run(["train", "run.toml"])
    told = capsys.readouterr().err
    known = ", ".join(TASKS)
    assert f"run.toml:1: 'translte' is not a task ({known}). Did you mean translate?" in told
    assert "run.toml:2: data must be text in quotes, or a list of two paths" in told
    assert "run.toml:3: valid must be text in quotes" in told
    (here / "run.toml").write_text('task = "translate"\ndata = "train.tsv"\nvalidd = "x"\n')
    main.run(["train", "run.toml"])
    assert "run.toml:3: validd is not a key of a run file. Did you mean valid?" in capsys.readouterr().err


def test_options_go_before_the_run_file(fake, here):
    (here / "run.toml").write_text(
        'task = "translate"\ndata = "train.tsv"\nout = "runs/a"\nsteps = 9\nseed = 4\n'
    )
    assert main.run(["train", "run.toml", "--steps", "7", "-o", "runs/b"]) == 0
    assert fake.asked["settings"] == {"steps": 7, "seed": 4}
    assert fake.asked["out"] == "runs/b"


def test_one_setting_given_twice_on_the_command_line():
    with pytest.raises(SettingsError, match="steps is given twice"):
        read_request(None, {"task": "translate", "data": "x"}, {"steps": 3}, ("steps=4",))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("train.tvs", "train.tvs is neither a file nor an embedded corpus. Did you mean train.tsv?"),
        ("numbrs", "numbrs is neither a file nor an embedded corpus. Did you mean numbers?"),
        ("no/where.tsv", "`anaphora corpora` lists the embedded ones."),
    ],
)
def test_missing_data_is_told_before_torch_is_loaded(here, name, told):
    code = "import sys; from anaphora.cli.main import run; c = run(sys.argv[1:]); print('torch' in sys.modules); sys.exit(c)"
    done = subprocess.run(
        [sys.executable, "-c", code, "train", "translate", name], capture_output=True, text=True, cwd=here
    )
    assert (done.returncode, done.stdout) == (2, "False\n")
    assert told in done.stderr


def test_a_free_name_never_meets_an_old_run(here):
    request = read_request(None, {"task": "translate", "data": "data/train.tsv.gz"}, {}, ())
    assert free_name(request) == "runs/train-lstm-attention"
    (here / "runs/train-lstm-attention").mkdir(parents=True)
    assert free_name(request) == "runs/train-lstm-attention-2"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.25, "0.2 s"), (9, "9 s"), (75, "1 min 15 s"), (7260, "2 h 1 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text
