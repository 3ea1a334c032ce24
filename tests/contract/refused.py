"""Bad input as data, and the checks that every door rejects it: one sentence, which names what the user gave.

`INPUTS` are refused by ``predict``: in Python, from a file by the command, over HTTP. `DATA` are refused by ``fit`` and ``train``, which
leave no run folder.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import case_data as data
import numpy as np
from cases import Case
from checks import Subject, check, predicting
from command import command, done, refusal

from trained_runs import setting_words


def refused_by_command(folder: Path, words: list[Any], *names: str) -> None:
    ended = command(*words, folder=folder)
    assert ended.code == 2, f"exit code {ended.code}: {ended.err or ended.out}"
    (last,) = [line for line in ended.err.splitlines() if line.startswith("anaphora: ")] or [ended.err]
    refusal(last.removeprefix("anaphora: "), *names, folder=folder)


@contextlib.contextmanager
def _refused(*names: str, folder: Path | None = None) -> Any:
    import anaphora

    try:
        yield
    except anaphora.AnaphoraError as error:
        refusal(str(error), *names, folder=folder)
    else:
        raise AssertionError("it was not refused")


# ---------------------------------------------------------------------- inputs of predict
NAN, SOME = math.nan, [[[0, 0, 0]] * 12] * 12
INPUTS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "text": {
        "kind": lambda _: 5,
        "half": lambda _: "a \ud800",
    },
    "vectors": {
        "empty": lambda _: [],
        "kind": lambda _: "a text",
        "width": lambda good: [step * 2 for step in good],
        "nan": lambda good: [*good, [NAN] * len(good[0])],
        "ragged": lambda good: [*good, good[0] * 2],
    },
    "picture": {
        "empty": lambda _: [],
        "kind": lambda _: 5,
        "nan": lambda good: [[[NAN] * 3] * 12] * 12,
        "ragged": lambda good: [*good[:-1], good[0][:-1]],
    },
    "question": {
        "empty": lambda good: {**good, "question": " "},
        "kind": lambda good: {**good, "question": 5},
        "ragged": lambda good: {**good, "picture": [*SOME, [[1, 2]]]},
    },
    "sound": {
        "empty": lambda _: [],
        "kind": lambda _: "a text",
        "nan": lambda good: [*good[:99], NAN],
        "loud": lambda good: [1e30, *good],
    },
    "series": {
        "empty": lambda _: [],
        "kind": lambda _: "a text",
        "width": lambda good: [step * 2 for step in good],
        "nan": lambda good: [[NAN, NAN] for _ in good],
        "infinite": lambda good: [*good[:-1], [math.inf, 1.0]],
        "ragged": lambda good: [*good[:-1], [1.0]],
    },
}
"""By the kind of input: what is wrong with an input in its JSON form, made of a good one."""
HELD: Mapping[tuple[str, Any], Collection[str]] = {
    ("vectors", data.write_vectors): INPUTS["vectors"].keys(),
    ("vectors", data.write_arrays): ("empty", "width", "nan"),
    ("sound", data.write_wavs): ("empty",),
    ("series", data.write_series): ("empty", "nan", "infinite"),
    ("question", data.write_pictures): ("empty",),
}
"""What files of inputs can hold of these; any line is a text, and any pixel is a number."""
TOO_LONG = {"text": "a " * 30_000, "vectors": [[0.0, 0.0]] * 20_001}
"""What a server refuses, as its work is bounded."""


def _raw(case: Case, value: Any) -> Any:
    """As Python's ``predict`` takes it, or as it is where it cannot be that."""
    try:
        return case.python(value)
    except (TypeError, ValueError, KeyError):
        if isinstance(value, dict):
            return value.get("picture"), value.get("question")
        return value


def _bad(subject: Subject, name: str) -> list[Any]:
    """A good input and a bad one, or a bad one alone where no more than one is taken."""
    good, made = subject.inputs[0], INPUTS[subject.case.kind][name]
    return [made(good)] if "many" in subject.case.lacks else [good, made(good)]


def _check_inputs(name: str) -> None:
    def applies(case: Case) -> bool:
        return name in INPUTS[case.kind] and "predict" not in case.lacks

    @check(f"refuses-{name}-python", share="kinds", applies=applies)
    def python(subject: Subject) -> None:
        given = [_raw(subject.case, x) for x in _bad(subject, name)]
        with _refused(".") if "many" in subject.case.lacks else _refused(r"\b2\b|^a text:"):
            subject.model.predict(given[0] if "many" in subject.case.lacks else given, **subject.case.options)

    @check(f"refuses-{name}-http", share="kinds", applies=applies)
    def http(subject: Subject) -> None:
        bad = _bad(subject, name)
        status, answer = subject.serve().ask(subject.name, {"inputs": bad})
        assert status in (400, 422), answer
        assert list(answer) == ["error"]
        refusal(answer["error"], rf"\binput {len(bad)}\b" if status == 422 else "the body")

    @check(
        f"refuses-{name}-command",
        share="kinds",
        applies=lambda case: applies(case) and name in HELD.get((case.kind, case.ask), ()),
    )
    def by_command(subject: Subject) -> None:
        asked = subject.case.ask(subject.folder, "inputs", [(x, "") for x in _bad(subject, name)])
        names = rf"\b{asked}:\d+\b|-(npy|wav)/1\.|\bseries inputs\b|\b{asked}: "
        refused_by_command(subject.folder, predicting(subject, asked), names)


for _name in dict.fromkeys(name for bad in INPUTS.values() for name in bad):
    _check_inputs(_name)


@check("refuses-too-long-http", "predict", share="kinds", applies=lambda case: case.kind in TOO_LONG)
def too_long(subject: Subject) -> None:
    """A server refuses an input that is longer than it reads."""
    bad = TOO_LONG[subject.case.kind]
    status, answer = subject.serve().ask(subject.name, {"inputs": [subject.inputs[0], bad]})
    assert status == 422, answer
    refusal(answer["error"], r"\binput 2\b", "at most")


@check("empty", "predict", share="kinds", applies=lambda case: case.kind == "text")
def empty_texts(subject: Subject) -> None:
    """A text with nothing in it gets the same answer at every door: what the command writes for an empty line."""
    case, good = subject.case, subject.inputs[0]
    for blank in ("", " "):
        asked = case.ask(subject.folder, "inputs", [(good, ""), (blank, "")])
        records = done(*predicting(subject, asked, "--json"), folder=subject.folder).records
        wanted = records[1].get(case.printed)
        found = subject.model.predict([good, blank], **case.options)[1]
        assert np.isnan(found).all() if isinstance(found, np.ndarray) and wanted is None else found == wanted
        status, answer = subject.serve().ask(subject.name, {"inputs": [good, blank], **case.options})
        assert status == 200, answer
        assert answer["outputs"][1] == wanted


@check(
    "refuses-damaged-command",
    "predict",
    share="kinds",
    applies=lambda case: case.ask in (data.write_pictures, data.write_wavs, data.write_arrays),
)
def damaged_file(subject: Subject) -> None:
    """One of several files that a list names is no picture, sound or array."""
    asked = subject.case.write_inputs(subject.folder)
    bad = sorted(subject.folder.glob("inputs-*/*"))[1]
    bad.write_bytes(b"nothing of this kind" * 20)
    refused_by_command(subject.folder, predicting(subject, asked), f"{bad.parent.name}/{bad.name}")


# ---------------------------------------------------------------------- data of training
@dataclass(frozen=True)
class Data:
    """What cannot be used, and what the message must name. ``file`` is None for good data."""

    names: str
    file: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    valid: str | None = None


def _written(name: str, content: bytes) -> Callable[[Case, Path, str], Data]:
    def made(case: Case, folder: Path, end: str) -> Data:
        if end:
            (folder / f"{name}{end}").write_bytes(content)
        else:
            (folder / name).mkdir()
        return Data(name, f"{name}{end}")

    return made


def _broken(case: Case, folder: Path, end: str) -> Data:
    """A row of too many columns or too few, after good ones."""
    good = (folder / f"train{end}").read_bytes()
    (folder / f"broken{end}").write_bytes(good + b'x\ty\tz\tw\t"q\n{')
    return Data(rf"broken{end}:\d+", f"broken{end}")


def _label(case: Case, folder: Path, end: str) -> Data:
    """Dev data with a label that the training data have not."""
    rows = [(x, "strange") for x, _ in case.rows(2, 2)]
    return Data("strange", valid=case.write(folder, "dev", rows))


Maker = Callable[[Case, Path, str], Data]
BY_ROWS = (
    data.write_tsv,
    data.write_csv,
    data.write_jsonl,
    data.write_conll,
    data.write_arrays,
    data.write_wavs,
)
DATA: Mapping[str, tuple[Maker, Callable[[Case], bool]]] = {
    "missing-file": (lambda case, folder, end: Data("none", f"none{end}"), lambda case: True),
    "empty-file": (_written("empty", b""), lambda case: True),
    "noise": (_written("noise", bytes(range(256)) * 20), lambda case: case.write is not data.write_by_label),
    "broken-row": (_broken, lambda case: case.write in (*BY_ROWS, data.write_pictures, data.write_series)),
    "column": (lambda *_: Data("nope|source", fields={"source_field": "nope"}), lambda case: True),
    "label": (
        _label,
        lambda case: case.settings.get("target", "class") == "class" and case.task == "classify",
    ),
    "value": (lambda *_: Data("seed", settings={"seed": -1}), lambda case: True),
    "setting": (lambda *_: Data("holdut.* holdout", settings={"holdut": 4}), lambda case: True),
    "preset": (lambda *_: Data("no-such", settings={"model": "no-such"}), lambda case: True),
}


def _check_data(name: str, made: Maker, applies: Callable[[Case], bool]) -> None:
    def prepared(subject: Subject) -> tuple[Data, str]:
        train = subject.case.write(subject.folder, "train", subject.case.rows(subject.case.train, 1))
        found = made(subject.case, subject.folder, Path(train).suffix)
        return found, found.file or train

    @check(f"refuses-{name}-fit", share="kinds", applies=applies)
    def python(subject: Subject) -> None:
        case, folder = subject.case, subject.folder
        bad, train = prepared(subject)
        with contextlib.chdir(folder), _refused(bad.names, folder=folder):
            model = case.estimator(**{"model": case.model, **case.settings, **bad.settings})
            valid = {} if bad.valid is None else {"valid": bad.valid}
            model.fit(train, out="run", **valid, **{**case.fields, **bad.fields})
        assert not (folder / "run").exists()

    @check(f"refuses-{name}-train", share="kinds", applies=applies)
    def by_command(subject: Subject) -> None:
        case = subject.case
        bad, train = prepared(subject)
        settings = {"model": case.model, **case.settings, **bad.settings}
        words = ["train", case.task, train, "--model", settings.pop("model"), "-o", "run"]
        words += [] if bad.valid is None else ["--valid", bad.valid]
        for key, value in {**case.fields, **bad.fields}.items():
            words += [f"--{key.replace('_', '-')}", value]
        refused_by_command(subject.folder, [*words, *setting_words(settings)], bad.names)
        assert not (subject.folder / "run").exists()


for _name, _data in DATA.items():
    _check_data(_name, *_data)


@check("refuses-full-folder", share="tasks")
def full_folder(subject: Subject) -> None:
    """A folder with something in it is no place for a run or a model; nothing in it changes."""
    place = subject.trained.copy(subject.folder / "run")
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    with contextlib.chdir(subject.folder):
        with _refused("^run"):
            subject.trained.fit(Path("run"))
        with _refused("^run"):
            subject.model.save("run")
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
