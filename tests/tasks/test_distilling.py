"""Distillation: soft targets of every task that has them, ensembles, and pairs that translators write."""

from __future__ import annotations

import json

import pytest
import torch
from tasks_tiny import is_one_sentence, pairs, tiny

import anaphora as an
from anaphora.cli import main
from anaphora.errors import DataError, RunError, SettingsError
from anaphora.tasks.distilling import written_pairs
from anaphora.training.objective import LossSum
from anaphora.training.teaching import Taught

PAIRS = pairs(60)
SMALL = {"hidden": 8, "steps": 4, "valid_every": 100, "save_every": 100, "device": "cpu", "dropout": 0.0}
TEXTS = [
    ("good fine nice", "plus"),
    ("bad poor weak", "minus"),
    ("fine good", "plus"),
    ("weak bad", "minus"),
] * 4
TAGGED = [(["a", "dog", "ran"], ["D", "N", "V"]), (["the", "cat", "sat"], ["D", "N", "V"])] * 5


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    """Two runs of one vocabulary."""
    folder = tmp_path_factory.mktemp("teachers")
    for seed in (1, 2):
        tiny(seed=seed, steps=8).fit(PAIRS, valid=PAIRS[:4], out=folder / f"t{seed}")
    return [str(folder / "t1"), str(folder / "t2")]


class _Plain:
    metric = "loss"

    def loss(self, model, batch):
        scores = model(batch)
        return LossSum(scores.logsumexp(-1).sum() - scores[:, 0].sum(), len(scores))


def test_the_loss_is_that_of_the_truth_and_the_divergence_by_hand():
    torch.manual_seed(0)
    student, one, two = (torch.nn.Linear(3, 4) for _ in range(3))
    x, t, w = torch.randn(5, 3), 2.0, 0.3
    taught = Taught(
        _Plain(), [one, two], weight=w, temperature=t, part=lambda m: m, real=lambda call, batch: None,
        answer=lambda teacher, call, batch: teacher(*call.arguments),
    )  # fmt: skip
    found = taught.loss(student.train(), x)
    q = 0.5 * (torch.softmax(one(x) / t, -1) + torch.softmax(two(x) / t, -1))
    p = torch.softmax(student(x) / t, -1)
    wanted = (1 - w) * _Plain().loss(student, x).total + w * t * t * (q * (q / p).log()).sum()
    torch.testing.assert_close(found.total, wanted)
    assert taught.metric == "loss"
    assert not one.weight.requires_grad
    assert taught.loss(student.eval(), x).total == _Plain().loss(student, x).total


def test_a_student_of_itself_has_nothing_to_learn_from_its_teacher(teachers):
    """The divergence from a teacher with the same weights is 0, so only the truth is left."""
    student = tiny(teacher=teachers[0], teacher_weight=1.0, steps=1, lr=1e-9).fit(PAIRS, valid=PAIRS[:4])
    assert student.tokenizer_.to_json() == an.load(teachers[0]).tokenizer_.to_json()
    from anaphora.tasks.teaching import taught

    student.model_.load_state_dict(an.load(teachers[0]).model_.state_dict())
    objective, batches = student._objective_and_batches(*student._open(PAIRS, PAIRS[:4], spill=None))
    loss = taught(student, objective).loss(student.model_.train(), next(batches))
    assert loss.total.item() == pytest.approx(0.0, abs=1e-4)


def test_a_student_learns_from_teachers_alone_and_can_be_resumed(teachers, tmp_path):
    whole = tiny(teacher=",".join(teachers), teacher_weight=1.0, hidden=8, steps=6)
    whole.fit(PAIRS, valid=PAIRS[:4], out=tmp_path / "whole")
    part = tiny(teacher=",".join(teachers), teacher_weight=1.0, hidden=8, steps=6, save_every=3, callbacks=[])
    part.fit(PAIRS, valid=PAIRS[:4], out=tmp_path / "part")
    again = an.Translator.resume(tmp_path / "part", checkpoint=3)
    for name, tensor in whole.model_.state_dict().items():
        assert torch.equal(tensor, again.model_.state_dict()[name])


def test_other_tasks_learn_from_runs_of_theirs(tmp_path):
    classifier = an.Classifier("lstm", embedding=8, tokens="word", **SMALL).fit(
        TEXTS, valid=TEXTS[:4], out=tmp_path / "c"
    )
    student = an.Classifier(
        "bow", embedding=4, teacher=str(tmp_path / "c"), **{k: v for k, v in SMALL.items() if k != "hidden"}
    )
    student.fit(TEXTS, valid=TEXTS[:4])
    assert student.settings_.tokens == "word"
    assert set(student.predict(["good", "bad"])) <= set(classifier.predict([text for text, _ in TEXTS])) | {
        "plus",
        "minus",
    }
    tags = tmp_path / "t.conll"
    tags.write_text(
        "\n\n".join("\n".join(f"{w} {t}" for w, t in zip(*row, strict=True)) for row in TAGGED) + "\n"
    )
    an.Tagger("bilstm-crf", embedding=8, **SMALL).fit(tags, valid=tags, out=tmp_path / "t")
    an.Tagger("bilstm", embedding=8, teacher=str(tmp_path / "t"), **SMALL).fit(tags, valid=tags)
    with pytest.raises(SettingsError, match="chain over its tags") as caught:
        an.Tagger("bilstm-crf", embedding=8, teacher=str(tmp_path / "t"), **SMALL).fit(tags, valid=tags)
    assert is_one_sentence(caught.value)


def test_language_models_learn_from_one_that_reads_windows(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\n" * 60)
    more = {"valid_symbols": 100, "batch_tokens": 64}
    an.LanguageModel("transformer", heads=2, feedforward=16, layers=1, context=16, **SMALL, **more).fit(
        text, out=tmp_path / "big"
    )
    an.LanguageModel("lstm", embedding=8, bptt=8, teacher=str(tmp_path / "big"), **SMALL, **more).fit(
        text, out=tmp_path / "small"
    )
    with pytest.raises(SettingsError, match="carries its state") as caught:
        an.LanguageModel("lstm", embedding=8, teacher=str(tmp_path / "small"), **SMALL, **more).fit(text)
    assert is_one_sentence(caught.value)


def test_teachers_of_other_tasks_symbols_and_settings_are_refused(teachers, tmp_path):
    tiny(steps=1).fit([("xyz", "zyx")] * 8, valid=[("xyz", "zyx")], out=tmp_path / "other")
    for asked, sentence in (
        ({"teacher": f"{teachers[0]},{tmp_path / 'other'}"}, "has other symbols or labels than"),
        ({"teacher": teachers[0], "tokens": "word"}, "tokens = 'word' differs from 'char'"),
        ({"teacher": str(tmp_path / "none")}, "there is no such folder"),
    ):
        with pytest.raises((RunError, SettingsError), match=sentence) as caught:
            tiny(**asked).fit(PAIRS, valid=PAIRS[:4])
        assert is_one_sentence(caught.value)
    with pytest.raises(RunError, match="learns from a run of its own task"):
        an.Classifier("bow", teacher=teachers[0]).fit(TEXTS)
    with pytest.raises(SettingsError, match=r"teacher_weight = 0\.3 is about teacher"):
        an.Translator(teacher_weight=0.3)
    with pytest.raises(SettingsError, match="leave one of the two out"):
        an.Translator(teacher=teachers[0], init=teachers[1])


def test_an_ensemble_is_the_mean_of_its_members(teachers):
    texts = [source for source, _ in PAIRS[:6]]
    both, alone = an.ensemble(teachers), an.ensemble(teachers[:1])
    assert alone.predict(texts) == an.load(teachers[0]).predict(texts)
    assert an.ensemble([teachers[0], teachers[0]]).predict(texts, beam=3) == alone.predict(texts, beam=3)
    first, second = an.load(teachers[0]), an.load(teachers[1])
    source, lengths = torch.tensor([[5, 6, 7]]), torch.tensor([3])
    memory = both.model_.encode(source, lengths)
    log_p, state = both.model_.step(torch.tensor([1]), both.model_.start(memory))
    wanted = 0.0
    for one in (first, second):
        p, _ = one.model_.eval().step(torch.tensor([1]), one.model_.start(one.model_.encode(source, lengths)))
        wanted = wanted + 0.5 * p.exp()
    torch.testing.assert_close(log_p.exp(), wanted)
    assert state.select(torch.tensor([0, 0])).each[0] is not None


def test_pairs_are_written_forwards_and_back(teachers):
    translator = an.ensemble(teachers[:1])
    texts = ["abc", "", "fed"]
    outputs = translator.predict(["abc", "fed"])
    found, left = written_pairs(translator, texts)
    assert [pair for pair in zip(["abc", "fed"], outputs, strict=True) if pair[1]] == found
    assert written_pairs(translator, texts, back=True)[0] == [(output, text) for text, output in found]
    assert left == 2 - len(found)


def test_the_commands(teachers, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS))
    (tmp_path / "more.txt").write_text("abcabc\n\nfff\n")
    sizes = [
        "--hidden",
        "8",
        "--steps",
        "2",
        "--set",
        "max_length=12",
        "--set",
        "valid_examples=2",
        "--device",
        "cpu",
    ]
    assert (
        main.run(
            [
                "distill",
                *teachers,
                "train.tsv",
                "--sequences",
                "--extra",
                "more.txt",
                *sizes,
                "-o",
                "s",
                "--json",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["model"] == "lstm-attention"
    config = json.loads((tmp_path / "s" / "config.json").read_text())
    assert config["settings"]["teacher"] == ",".join(teachers)
    assert (
        main.run(
            [
                "synthesize",
                teachers[0],
                "more.txt",
                "--back",
                "--add",
                "train.tsv",
                "-o",
                "both.tsv",
                "--json",
            ]
        )
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    rows = (tmp_path / "both.tsv").read_text().splitlines()
    assert said["added"] == 60
    assert len(rows) == 60 + said["written"]
    assert all(row.split("\t")[1] in ("abcabc", "fff") for row in rows[60:])
    assert main.run(["synthesize", teachers[0], "more.txt", "-o", "both.tsv"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main.run(["synthesize", teachers[0], "more.txt", "-o", "more.txt/out.tsv"]) == 2
    assert "more.txt is not a folder); choose another place." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\n \n", "more.txt holds empty lines only; give a text on each line."),
        ("abc\ncab\tbac\n", "more.txt:2: has a tab, so this is a table;"),
    ],
)
def test_files_that_hold_no_texts_are_refused(teachers, tmp_path, capsys, monkeypatch, text, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more.txt").write_text(text)
    assert main.run(["synthesize", teachers[0], "more.txt", "-o", "out.tsv"]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out.tsv").exists()


def test_teachers_that_cannot_teach_are_named(teachers, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS))
    an.Classifier("ngrams", char_ngrams=3).fit(TEXTS, valid=TEXTS[:4], out="counted")
    an.Forecaster("var", horizon=1, window=4).fit(torch.arange(60.0)[:, None].sin().numpy(), out="series")
    for runs, told in (
        (["series"], "series is a Forecaster; distill trains on what runs of Translator, Classifier"),
        ([teachers[0], "counted"], "counted is a Classifier, but"),
        (["counted"], "counted is of the preset ngrams, which gives no scores to learn from"),
    ):
        assert main.run(["distill", *runs, "train.tsv", "-o", "s"]) == 2
        assert told in capsys.readouterr().err


def test_data_without_a_label_of_the_teacher_are_refused(tmp_path):
    an.Classifier("bow", steps=2, embedding=4).fit(TEXTS, valid=TEXTS[:4], out=tmp_path / "teacher")
    student = an.Classifier("bow", steps=2, embedding=4, teacher=str(tmp_path / "teacher"))
    other = [(text, f"class {label}") for text, label in TEXTS]
    with pytest.raises(
        DataError, match=r"the training data have no label of the teachers: 'class .*' is none of"
    ):
        student.fit(other, out=tmp_path / "student")
    assert not (tmp_path / "student").exists()


def test_a_folder_of_seeds_stands_for_its_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny(steps=2).fit(PAIRS, valid=PAIRS[:4], out="seeds", seeds=2)
    assert len(an.ensemble("seeds").model_.members) == 2
    (tmp_path / "train.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS))
    sizes = ["--hidden", "8", "--steps", "1", "--set", "valid_examples=2", "--device", "cpu"]
    assert main.run(["distill", "seeds", "train.tsv", *sizes, "-o", "s"]) == 0
    config = json.loads((tmp_path / "s/config.json").read_text())
    assert config["settings"]["teacher"] == "seeds/seed-1,seeds/seed-2"
    with pytest.raises(RunError, match="at least one run"):
        an.ensemble([])


def test_students_of_several_seeds_have_the_symbols_of_the_teacher(teachers, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = [(source, target) for source, target in PAIRS if "a" not in source + target]
    assert few  # data that lack a symbol which the teachers know
    (tmp_path / "few.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in few * 4))
    asked = ["distill", teachers[0], "few.tsv", "--hidden", "8", "--steps", "2", "--set", "valid_examples=2"]
    asked += ["--device", "cpu", "--seeds", "2", "-o", "students", "--json"]
    assert main.run(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["seed"] for one in found["runs"]] == [1, 2]
    values = found["metrics"]["loss"]["values"]
    assert found["metrics"]["loss"]["mean"] == pytest.approx(sum(values) / 2)
    runs = [tmp_path / "students" / f"seed-{seed}" for seed in (1, 2)]
    first, second = (json.loads((run / "config.json").read_text()) for run in runs)
    assert first["settings"] == {**second["settings"], "seed": 1}
    assert first["data"] == second["data"]
    symbols = an.load(teachers[0]).tokenizer_.to_json()
    assert [an.load(run).tokenizer_.to_json() for run in runs] == [symbols, symbols]


@pytest.mark.parametrize("more", [[], ["--sequences"]])
def test_an_interrupt_between_students_leaves_what_resume_goes_on_with(
    teachers, tmp_path, capsys, monkeypatch, more
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS))
    asked = [
        "distill",
        teachers[0],
        "train.tsv",
        "--hidden",
        "8",
        "--steps",
        "2",
        "--set",
        "valid_examples=2",
    ]
    asked += ["--set", "max_length=12", "--device", "cpu", "--json", *more]
    assert main.run([*asked, "--seeds", "2", "-o", "whole"]) == 0
    whole = json.loads(capsys.readouterr().out)
    with monkeypatch.context() as patched:
        patched.setattr("anaphora.tasks.seeds.train_next", _interrupted)
        assert main.run([*asked, "--seeds", "2", "-o", "cut"]) == 130
    assert "resume cut" in capsys.readouterr().err
    assert main.run(["resume", "cut", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == whole["metrics"]


def _interrupted(*given):
    raise KeyboardInterrupt


INFLECTED = [(f"{a}{b}{c} V;PST", f"{a}{b}{c}ed") for a in "bcdfglmnprst" for b in "aeiou" for c in "knt"]
"""180 words with a tag."""


@pytest.mark.parametrize("model", ["lstm-attention", "transformer"])
def test_a_student_of_words_with_tags_is_trained_as_such_a_model_is(tmp_path, model):
    few = {"hidden": 8, "device": "cpu", "valid_every": 100}
    an.Translator(model, **few, steps=2).fit(INFLECTED, out=tmp_path / "teacher")
    alone, student = (
        an.Translator(model, **few),
        an.Translator(model, **few, teacher=str(tmp_path / "teacher")),
    )
    for one in (alone, student):
        one.plan(INFLECTED)
    assert alone.settings_.invented == 0.5
    assert student.settings_ == alone.settings_.model_copy(update={"teacher": str(tmp_path / "teacher")})
    chosen = an.Translator(model, **few, teacher=str(tmp_path / "teacher"), epochs=3, invented=0)
    chosen.plan(INFLECTED)
    assert (chosen.settings_.epochs, chosen.settings_.invented) == (3, 0)


def test_a_student_reads_as_its_teacher_whatever_its_rows_are(tmp_path):
    """A teacher of pieces, which leave no letters to invent words of."""
    few = {"hidden": 8, "device": "cpu", "valid_every": 100}
    an.Translator(**few, steps=2, tokens="bpe", vocab_size=60).fit(INFLECTED, out=tmp_path / "teacher")
    student = an.Translator(**few, teacher=str(tmp_path / "teacher"))
    student.plan(INFLECTED)
    found = student.settings_
    assert (found.tokens, found.vocab_size, found.invented, found.batch_tokens) == ("bpe", 60, 0, 1024)


def test_a_student_of_one_label_is_trained_and_reported(tmp_path, monkeypatch, capsys):
    """The note that compares it with n-grams, which need two labels, is left out."""
    monkeypatch.chdir(tmp_path)
    an.Classifier("bow", steps=2, device="cpu").fit(TEXTS, out="teacher")
    (tmp_path / "one.csv").write_text("text,label\n" + "good fine film,plus\n" * 120)
    few = ["--model", "bow", "--steps", "2", "--device", "cpu", "-o", "student"]
    assert main.run(["distill", "teacher", "one.csv", *few]) == 0
    assert "at least two classes" not in capsys.readouterr().err
    assert an.load("student").classes_ == ["minus", "plus"]


@pytest.mark.parametrize("model", ["ngrams", "fasttext"])
def test_a_student_that_cannot_be_taught_is_refused_by_its_name(tmp_path, monkeypatch, capsys, model):
    monkeypatch.chdir(tmp_path)
    an.Classifier("bow", steps=2, device="cpu").fit(TEXTS, out="teacher")
    assert main.run(["distill", "teacher", "rows.csv", "--model", model, "-o", "student"]) == 2
    said = capsys.readouterr().err
    assert f"--model {model} cannot learn from what runs predict; choose one of bow, conv" in said
