"""The promises of the contract about training, keeping, answering and measuring; those about bad input are in `refused`."""

from __future__ import annotations

import copy
import json
import math
import pickle
import signal
import statistics
import warnings
from pathlib import Path
from typing import Any

from checks import Subject, check, close, curve, held, predicting, said, same_run
from command import command, done, refusal
from doors import environment, without_torch
from kept import plain

from warm_command import end_group, run, start_group


# ---------------------------------------------------------------------- training
@check("fit")
def trains_and_tells(subject: Subject) -> None:
    """A run has finite measures, a chosen model and whole files."""
    run, measures = subject.trained.run, subject.trained.metrics
    assert measures
    assert all(math.isfinite(value) for value in measures.values()), measures
    assert "README.md" in held(run)
    verified = done("verify", run)
    assert "damaged" not in verified.out + verified.err


@check("train", share="kinds")
def command_trains_the_same(subject: Subject) -> None:
    """``anaphora train`` with the same settings writes the same bytes as ``fit``."""
    done(*subject.trained.words(subject.folder / "run"))
    same_run(subject.folder / "run", subject.trained.run)


@check("killed", "steps", share="tasks")
def killed_and_resumed(subject: Subject) -> None:
    """Killed (SIGKILL) while it saves the second checkpoint, it goes on and ends with the same bytes."""
    place = subject.folder / "run"
    words = ["-m", "anaphora", *subject.trained.words(place)]
    ended = run(words, env={**environment(), "ANAPHORA_FAULT": "checkpoint.manifest:2"})
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert held(place) != held(subject.trained.run)
    done("resume", place)
    same_run(place, subject.trained.run)


@check("processes", "steps", share="tasks")
def two_processes(subject: Subject) -> None:
    """Two processes (gloo) follow the curve of one where nothing is drawn; both have the whole model, which can be loaded."""
    case, place = subject.case, subject.folder
    drawn = {"dropout": 0.0, "word_dropout": 0.0, "masks": 0, "input_dropout": 0.0, "r_drop": 0.0}
    calm = {name: drawn[name] for name in drawn if name in subject.model.get_params()}
    (place / "case.pickle").write_bytes(pickle.dumps((subject.trained, place, calm)))
    words = [str(Path(__file__).with_name("rank.py")), str(place / "case.pickle")]
    codes, output = end_group(start_group(words, 2, place, **environment()))
    assert codes == [0, 0], output
    if "curve" not in case.lacks:
        if calm:
            subject.trained.fit(place / "one", calm)
        found, wanted = curve(place / "run"), curve(place / "one" if calm else subject.trained.run)
        assert [step for step, _ in found] == [step for step, _ in wanted]
        close([loss for _, loss in found], [loss for _, loss in wanted], "loss")
    first, second = (json.loads((place / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    if "predict" not in case.lacks:
        import anaphora

        close(said(case, anaphora.load(place / "run", device="cpu"), subject.inputs), first)


@check("seeds", share="tasks")
def two_seeds(subject: Subject) -> None:
    """Two seeds are two runs, of which the first is that of one seed; the report has their mean and spread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = subject.trained.fit(subject.folder / "runs", seeds=2)
    runs = [subject.folder / "runs" / f"seed-{one.seed}" for one in model.seeds_.runs]
    same_run(runs[0], subject.trained.run)
    assert model.seeds_.measures
    for name, found in model.seeds_.measures.items():
        assert found["values"][0] == subject.trained.metrics[name]
        assert math.isclose(found["mean"], statistics.fmean(found["values"]))
    assert len(runs) == 2 or "chance" in subject.case.lacks
    if len(runs) == 2:
        assert held(runs[0])["model.safetensors"] != held(runs[1])["model.safetensors"]


# ---------------------------------------------------------------------- keeping
@check("saved", "predict")
def saved_and_loaded(subject: Subject) -> None:
    """A model that is saved and loaded says the same, to the bit, and so does one that is saved again."""
    import anaphora

    for number in range(2):
        model = subject.model if number == 0 else anaphora.load(subject.folder / "0", device="cpu")
        model.save(subject.folder / str(number))
    again = anaphora.load(subject.folder / "1", device="cpu")
    assert type(again) is type(subject.model)
    assert said(subject.case, again, subject.inputs) == subject.answers
    assert held(subject.folder / "0") == held(subject.folder / "1")
    assert "damaged" not in done("verify", subject.folder / "0").out


@check("cloned")
def cloned(subject: Subject) -> None:
    """A clone has the settings and is not trained; parameters can be read, set and given again."""
    case = subject.case
    model = case.estimator(case.model, **case.settings)
    copied = model.__sklearn_clone__()
    assert copied.get_params() == model.get_params()
    assert not hasattr(copied, "model_")
    assert not copied.__sklearn_is_fitted__()
    assert type(model)(**model.get_params()).get_params() == model.get_params()
    assert copied.set_params(seed=7) is copied
    assert copied.get_params()["seed"] == 7
    assert model.get_params()["seed"] != 7
    assert eval(repr(model), {type(model).__name__: type(model)}).get_params() == model.get_params()


@check("pickled", "predict")
def pickled(subject: Subject) -> None:
    """A pickled and a copied model say the same."""
    for again in (pickle.loads(pickle.dumps(subject.model)), copy.deepcopy(subject.model)):
        assert said(subject.case, again, subject.inputs) == subject.answers


# ---------------------------------------------------------------------- answering
@check("command", "predict")
def command_says_the_same(subject: Subject) -> None:
    """``predict --json`` prints what ``predict`` gives, for every input of a file."""
    case = subject.case
    asked = case.write_inputs(subject.folder)
    records = done(*predicting(subject, asked, "--json"), folder=subject.folder).records
    close([record[case.printed] for record in records], subject.answers, digits=2e-6)
    for record, details in zip(records, subject.details, strict=True):
        if isinstance(details, dict):  # a record of the command may have fewer
            shared = [key for key in details if key in record]
            close([record[key] for key in shared], [details[key] for key in shared], digits=2e-6)


@check("http", "predict", share="kinds")
def server_says_the_same(subject: Subject) -> None:
    """``POST /predict`` gives what ``predict`` gives, with details and without, and for one input alone."""
    server = subject.serve()
    asked = [({}, subject.answers), ({"details": True}, subject.details)]
    for more, wanted in asked[: 1 if "many" in subject.case.lacks else 2]:
        for few in (1, len(subject.inputs)):
            body = {"inputs": subject.inputs[:few], **subject.case.options, **more}
            status, answer = server.ask(subject.name, body)
            assert status == 200, answer
            assert answer["task"] == subject.case.task
            close(answer["outputs"], wanted[:few])


@check("exported", "predict", "export", share="tasks")
def runtime_says_the_same(subject: Subject) -> None:
    """What ``export --to onnx`` writes says the same in `anaphora.runtime`, which never imports torch."""
    case = subject.case
    done("export", subject.trained.run, "--to", "onnx", "-o", subject.folder / "onnx")
    given, options = case.given(subject.inputs), dict(case.options)
    if "many" in case.lacks:
        calls: list[Any] = [("predict", x, {}) for x in given]
        wanted = subject.answers
    else:
        calls, wanted = [("predict", given, options)], [subject.answers]
    if options:
        calls, wanted = [*calls, ("predict", given, {**options, "details": True})], [*wanted, subject.details]
    if isinstance(subject.details[0], dict) and subject.details[0].get("probabilities"):
        calls, wanted = (
            [*calls, ("predict_proba", given, {})],
            [*wanted, plain(subject.model.predict_proba(given))],
        )
    close(without_torch(subject.folder / "onnx", calls), wanted, digits=1e-4)


@check("batch", "predict", "many")
def alone_as_in_a_batch(subject: Subject) -> None:
    """An input gets the same answer alone, among others, and among others in another order."""
    case, inputs = subject.case, subject.inputs
    close([said(case, subject.model, [x], details=True)[0] for x in inputs], subject.details)
    close(said(case, subject.model, inputs[::-1], details=True)[::-1], subject.details)
    assert said(case, subject.model, []) == []


@check("bulk", "predict", "many")
def stopped_and_continued(subject: Subject) -> None:
    """``--out`` that stopped at a broken row goes on when it is corrected, and the file is what is printed."""
    case, folder = subject.case, subject.folder
    asked = folder / case.write_inputs(folder)
    whole = asked.read_bytes()
    printed = done(*predicting(subject, asked.name, "--json"), folder=folder)
    out = predicting(subject, asked.name, "--json", "--workers", "1", "--out", "out.jsonl")
    asked.write_bytes(whole + case.broken)
    stopped = command(*out, folder=folder)
    assert stopped.code == 2
    refusal(stopped.err.removeprefix("anaphora: "), "none.png" if b"none.png" in case.broken else asked.name)
    assert not (folder / "out.jsonl").exists()
    part = folder / "out.jsonl.part"  # of formats that are read whole there is none
    begun = part.read_text() if part.exists() else ""
    assert begun == (printed.out if case.by_rows else "")
    asked.write_bytes(whole)
    done(*out, folder=folder)
    assert (folder / "out.jsonl").read_text() == printed.out
    assert not list(folder.glob("out.jsonl.*"))
    assert len(printed.records) == len(subject.inputs)


@check("bulk-killed", "predict", "many", share="tasks")
def killed_and_continued(subject: Subject) -> None:
    """``--out`` that was killed (SIGKILL) between answers and its journal goes on, and the file is what is printed."""
    case, folder = subject.case, subject.folder
    asked = case.write_inputs(folder)
    out = predicting(subject, asked, "--json", "--workers", "1", "--out", "out.jsonl")
    fault = {**environment(), "ANAPHORA_FAULT": "predict.synced:1"}
    ended = run(["-m", "anaphora", *map(str, out)], cwd=folder, env=fault)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert not (folder / "out.jsonl").exists()
    done(*out, folder=folder)
    printed = done(*predicting(subject, asked, "--json"), folder=folder)
    assert (folder / "out.jsonl").read_text() == printed.out
    assert not list(folder.glob("out.jsonl.*"))


# ---------------------------------------------------------------------- scores
@check("score", "dev")
def score_is_the_dev_measure(subject: Subject) -> None:
    """``score`` of the dev rows is what the run recorded for the weights it kept: in Python, and in the command."""
    options = subject.case.scoring
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    found = plain(subject.model.score(subject.dev, **options))
    printed = json.loads(done("score", subject.trained.run, subject.dev, *words, "--json").out)
    recorded = dict(subject.trained.metrics)
    recorded.pop("loss", None) if "loss" not in found else None
    assert recorded
    for measured in (found, printed):
        close({name: measured[name] for name in recorded}, recorded, "score")
