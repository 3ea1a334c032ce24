"""``corpora``, ``models``, ``explain``, ``doctor``: what there is, and whether the machine is ready."""

from __future__ import annotations

import json

import click
import pytest

from anaphora.cli import health, main
from anaphora.data.corpora import CORPORA, generate


def test_corpora_are_listed(capsys):
    assert main.run(["corpora"]) == 0
    shown = capsys.readouterr()
    assert all(name in shown.out for name in CORPORA)
    assert main.run(["corpora", "--json"]) == 0
    assert [c["name"] for c in json.loads(capsys.readouterr().out)] == list(CORPORA)


def test_examples_are_those_that_training_sees(capsys):
    assert main.run(["corpora", "numbers:fr", "--split", "dev", "--size", "3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [tuple(pair) for pair in document["pairs"]] == generate("numbers", "fr", "dev", 3)
    assert main.run(["corpora", "copy"]) == 0
    assert generate("copy", None, "train", 1)[0][1] in capsys.readouterr().out


def test_written_pairs_are_tsv_and_no_file_is_replaced_unasked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    order = ["corpora", "numbers", "--write", "train.tsv", "--size", "7"]
    assert main.run(order) == 0
    rows = [tuple(line.split("\t")) for line in (tmp_path / "train.tsv").read_text().splitlines()]
    assert rows == generate("numbers", None, "train", 7)
    assert capsys.readouterr().out == ""
    assert main.run(order) == 2
    assert "train.tsv exists already; --force replaces it." in capsys.readouterr().err
    assert main.run([*order, "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": "train.tsv", "pairs": 7}
    for corpus, name, told in (
        ("numbers", "a.csv", "numbers is not written as .csv; name the file a.tsv."),
        ("names", "a.conll", "names is not written as .conll; name the file a.tsv."),
        ("numbers", "a.tsv.gz", "a.tsv.gz: nothing is packed here; name it a.tsv, and pack it afterwards."),
        ("tones", "a.wav", "tones is not written as .wav; name a folder, as in a."),
    ):
        assert main.run(["corpora", corpus, "--write", name]) == 2
        assert told in capsys.readouterr().err
    assert main.run(["corpora", "numbers", "--write", "train.tsv/where.tsv"]) == 2
    assert "where.tsv: cannot be written (" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["numbrs"], "numbrs is not an embedded corpus; did you mean numbers?"),
        (["numbers:xx"], "numbers:xx does not exist; numbers has"),
        (["--write", "x.tsv"], "--write needs the NAME of a corpus."),
        (["numbers", "--split", "tset"], "--split"),
        (["numbers", "--size", "0"], "--size"),
    ],
)
def test_unknown_corpora(capsys, arguments, told):
    assert main.run(["corpora", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_explain_says_meaning_values_defaults_and_presets(capsys):
    assert main.run(["explain", "cell"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in (
        "The recurrent cell.",
        "elman, irnn, lstm, slstm, gru, gru-before, gru-after, simple-gru, mgu, mingru",
        "in gru-attention",
        "no effect in",
        "transformer",
    ):
        assert words in shown
    assert main.run(["explain", "batch-tokens", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["Translator"]["allowed"] == "a whole number, at least 1"


def test_explain_knows_the_options_of_trained_runs(capsys):
    assert main.run(["explain", "dynamic"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Dynamic evaluation (Krause 2018)" in shown
    assert "anaphora score RUN … --set dynamic=0.0" in shown
    assert "LanguageModel (score)" in shown
    assert main.run(["explain", "cache_weight", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["LanguageModel (score)"]["default"] == 0.1
    assert main.run(["explain", "--task", "language"]) == 0
    assert "Options of score, LanguageModel" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "told", "shown"),
    [
        ("muon", "muon is a value of optimizer:", "orthogonalised momentum"),
        (
            "dynamic-evaluation",
            "dynamic-evaluation is called dynamic here.",
            "Dynamic evaluation (Krause 2018)",
        ),
        ("batch_size", "called batch_tokens here. It counts symbols", "Symbols in one batch"),
        ("rocket", "`anaphora explain --model rocket` lists its settings.", "of classify"),
        ("lstm", "and `anaphora explain cell` another meaning of the word.", "of forecast"),
    ],
)
def test_explain_knows_values_presets_and_the_words_of_others(capsys, word, told, shown):
    assert main.run(["explain", word]) == 0
    seen = capsys.readouterr()
    assert told in seen.err
    assert shown in " ".join(seen.out.split())


def test_values_and_presets_are_explained_as_json(capsys):
    assert main.run(["explain", "muon", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["Tagger"]["key"] == "optimizer"
    assert main.run(["explain", "lstm", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "classify" in found["presets"]
    assert "cell" in found["settings"]
    assert main.run(["explain", "muon", "--task", "tag", "--model", "hmm"]) == 2
    assert "muon is not a setting." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("back-translation", "it is `anaphora synthesize RUN FILE --back`."),
        ("seeds", "it is `anaphora train TASK DATA --seeds N`."),
    ],
)
def test_explain_knows_techniques_by_their_names(capsys, word, told):
    assert main.run(["explain", word]) == 2
    assert told in capsys.readouterr().err


def test_options_of_score_are_no_settings_of_training(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("some words\n" * 40)
    assert (
        main.run(["train", "language", str(text), "--set", "dynamic=0.1", "-o", str(tmp_path / "run")]) == 2
    )
    told = "dynamic is not a setting of LanguageModel but an option of `anaphora score`; give it there."
    assert told in capsys.readouterr().err


def test_commands_by_other_names_get_a_suggestion(capsys):
    assert main.run(["settings"]) == 2
    assert "Did you mean explain?" in capsys.readouterr().err


def test_explain_lists_every_setting_once(capsys):
    from anaphora.tasks.registry import TASKS

    assert main.run(["explain", "--json"]) == 0
    listed = [entry["key"] for entry in json.loads(capsys.readouterr().out)["Translator"]]
    assert sorted(listed) == sorted(TASKS["translate"].settings.model_fields)


def test_models_show_presets_with_what_they_change(capsys):
    assert main.run(["models"]) == 0
    shown = capsys.readouterr().out
    assert "* lstm-attention" in shown
    assert "bidirectional=false" in shown


def test_doctor_is_ready_here(capsys):
    assert main.run(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ready"] is True
    topics = {finding["topic"] for finding in document["findings"]}
    assert {"Python", "packages", "threads", "GPU", "CPU", "compiler", "current folder", "terminal"} <= topics
    assert main.run(["doctor"]) == 0
    assert "Ready" in capsys.readouterr().out


def test_doctor_says_what_is_in_the_way(capsys, monkeypatch, tmp_path):
    def refuse(**options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(health.tempfile, "TemporaryFile", refuse)
    monkeypatch.setattr(health, "PACKAGES", ("torch", "no-such-package"))
    assert main.run(["doctor"]) == 2
    shown = capsys.readouterr().out
    assert "cannot be written (permission denied)" in shown
    assert "no-such-package is missing" in shown
    assert "3 things in the way" in shown


def test_doctor_mentions_the_amx_guard(monkeypatch):
    monkeypatch.setattr(health, "_cpu_facts", lambda: ("A CPU", {"avx2", "amx_bf16"}))
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
    told = [finding.text for finding in health.examine() if finding.topic == "CPU"]
    assert told[0] == "A CPU: avx2, amx_bf16"
    assert "AMX is left unused" in told[1]


def test_doctor_tunes_no_gpu_where_there_is_none(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main.run(["doctor", "--tune"]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.count("\n") == 1
    assert "torch finds none here" in shown.err


def test_doctor_tunes_each_kind_of_gpu_once(capsys, monkeypatch, tmp_path):
    """The GPUs are made up, and so are their times."""
    from anaphora.engine import measure, tuning

    monkeypatch.setenv("ANAPHORA_CACHE", str(tmp_path))
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 3,
        "get_device_name": lambda index: ("Fast", "Fast", "Slow")[index],
    }.items():
        monkeypatch.setattr(f"torch.cuda.{name}", value)
    monkeypatch.setattr(tuning, "driver_version", lambda: 12080)
    times = {"triton": 1.0, "cudnn": 2.0}
    monkeypatch.setattr(measure, "measure", lambda index: [tuning.Measurement(512, 64, "bf16", times)])
    assert main.run(["doctor", "--tune", "--json"]) == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert sorted(gpu["name"] for gpu in document["gpus"]) == ["Fast", "Slow"]
    assert document["gpus"][0]["measurements"][0]["times"] == times
    assert "512 units, 64 rows: triton 1.00 ms, cudnn 2.00 ms" in shown.err
    assert len(list(tmp_path.rglob("tuning-*.json"))) == 2
    assert main.run(["doctor", "--tune"]) == 0
    assert "persistent over cudnn nowhere" in " ".join(capsys.readouterr().out.split())


def test_explain_names_only_tasks_and_presets_that_use_a_setting(capsys):
    assert main.run(["explain", "joint", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["Translator"]
    assert main.run(["explain", "--task", "classify", "--model", "ngrams", "--json"]) == 0
    shown = {entry["key"]: entry for entry in json.loads(capsys.readouterr().out)["Classifier"]}
    assert "penalty" in shown
    assert "hidden" not in shown
    assert shown["vocab_size"]["default"] == 500_000
    assert main.run(["explain", "--model", "bilstn"]) == 2
    assert "Did you mean bilstm?" in capsys.readouterr().err


def test_set_completes_what_the_preset_uses():
    from anaphora.cli.commands.train import command
    from anaphora.cli.words import complete_assignment

    context = click.Context(command)
    context.params = {"task": "classify", "model": "bilstm"}
    assert complete_assignment(context, command.params[0], "he") == []
    assert "cell=" in complete_assignment(context, command.params[0], "c")
    context.params = {"task": "classify", "model": "transformer"}
    assert complete_assignment(context, command.params[0], "he") == ["heads="]


def test_models_keep_to_the_width_of_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run(["models"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_the_help_of_a_preset_lists_its_settings(capsys):
    assert main.run(["train", "classify", "--model", "conv", "--help"]) == 0
    page = capsys.readouterr().out
    assert "Settings of classify, preset conv" in page
    from anaphora.tasks.registry import TASKS

    listed = {
        line.split()[0]
        for line in page.partition("Settings of")[2].splitlines()
        if line.startswith("  ") and line[2] != " "
    }
    assert listed == set(TASKS["classify"].used("conv"))
    assert main.run(["train", "--help"]) == 0
    assert "Settings of" not in capsys.readouterr().out


def test_choices_of_a_missing_option_stand_in_its_sentence(capsys):
    assert main.run(["export", "runs/x", "-o", "out"]) == 2
    assert "anaphora: missing option '--to'. Choose from: onnx, hf, " in capsys.readouterr().err
