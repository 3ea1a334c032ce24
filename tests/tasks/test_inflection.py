"""A translator of words with tags, from the rows of UniMorph to an exported model."""

from __future__ import annotations

import json
import random

import pytest

import anaphora as an
from anaphora.data.sources.report import reported

DRAW = random.Random(5)
TINY = {"hidden": 16, "embedding": 16, "threads": 1, "valid_examples": 4, "batch_tokens": 256}


def rows(count: int) -> list[tuple[str, str, str]]:
    """Verbs with their past tense or participle."""
    found = []
    for _ in range(count):
        verb = "".join(DRAW.choice("aeiklmnorst") for _ in range(4))
        ending, tags = DRAW.choice((("ed", "V;PST"), ("ing", "V;V.PTCP;PRS"), ("", "V;NFIN")))
        found.append((verb, verb + ending, tags))
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inflection")
    for name, count in (("train", 60), ("dev", 6)):
        lines = "".join("\t".join(row) + "\n" for row in rows(count))
        (folder / name).write_text(lines, encoding="utf-8")
    said: list[str] = []
    with reported(said.append):
        m = an.Translator(**TINY, steps=4, valid_every=2, save_every=2)
        m.fit(folder / "train", valid=folder / "dev", out=folder / "run", verbose=False)
    return m, folder, said


def test_tags_are_symbols_without_a_setting_and_that_is_reported(run):
    m, _, said = run
    assert (m.settings_.source_tokens, m.settings_.target_tokens) == ("char+tags", "char")
    chosen = "source_tokens=char+tags, target_tokens=char, joint=true, lexical=true, invented=0.5"
    assert f"assumed, for words with tags: {chosen}" in said
    assert m.model_.encoder.embedding is m.model_.decoder.embedding
    assert m.model_.decoder.lexical is not None
    assert m.tokenizer_.source.pieces(m.tokenizer_.sources(["rest V;PST"])[0]) == [
        "r",
        "e",
        "s",
        "t",
        ";V",
        ";PST",
    ]


def test_a_loaded_run_reads_scores_and_resumes_the_same(run):
    m, folder, _ = run
    asked = ["rest V;PST", "mine V;NFIN"]
    again = an.load(folder / "run")
    assert again.predict(asked) == m.predict(asked)
    assert again.score(folder / "dev")["examples"] == 6
    resumed = an.Translator.resume(folder / "run", steps=6, verbose=False)
    assert resumed.settings_.source_tokens == "char+tags"
    assert resumed.result_.steps == 6


def test_a_look_inside_names_each_tag(run):
    m, _, _ = run
    trace = m.probe("rest V;PST", "rested")
    assert trace.tokens["source"][:6] == ["r", "e", "s", "t", ";V", ";PST"]


def test_an_exported_model_reads_tags_as_the_run_does(run, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    m, _, _ = run
    m.export(tmp_path / "exported")
    from anaphora import runtime

    exported = runtime.load(tmp_path / "exported")
    asked = ["rest V;PST", "mine V;NFIN", "lose V;V.PTCP;PRS"]
    assert exported.predict(asked) == m.predict(asked)


@pytest.mark.parametrize(
    ("settings", "joint", "lexical"),
    [
        pytest.param({"lexical": False}, False, False, marks=pytest.mark.slow),
        ({"lexical": False, "joint": True}, True, False),
        ({"joint": False}, False, True),
    ],
)
def test_vocabularies_that_were_asked_for_are_loaded_and_exported_as_they_were(
    run, tmp_path, settings, joint, lexical
):
    _, folder, _ = run
    m = an.Translator(**TINY, steps=2, **settings)
    m.fit(folder / "train", valid=folder / "dev", out=tmp_path / "run", verbose=False)
    assert (m.settings_.joint, m.settings_.lexical) == (joint, lexical)
    assert (m.model_.encoder.embedding is m.model_.decoder.embedding) is joint
    if not joint:
        assert not any(piece.startswith(";") for piece in m.tokenizer_.target.spellings)
    asked = ["rest V;PST", "mine V;NFIN"]
    again = an.load(tmp_path / "run")
    assert again.predict(asked) == m.predict(asked)
    assert (again.tokenizer_.source.kind, again.tokenizer_.target.kind) == ("char+tags", "char")
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    m.export(tmp_path / "exported")
    from anaphora import runtime

    assert runtime.load(tmp_path / "exported").predict(asked) == m.predict(asked)


def test_what_the_user_says_of_symbols_stands(run):
    _, folder, _ = run
    m = an.Translator(**TINY, steps=1, tokens="char").fit(
        folder / "train", valid=folder / "dev", verbose=False
    )
    assert len(m.tokenizer_.sources(["go V;PST"])[0]) == len("go V;PST")
    config = json.loads((folder / "run" / "config.json").read_text(encoding="utf-8"))
    assert config["data"]["train"]["source_field"] == "1+3"
