"""I7: Settings as users write them: every value keeps its place, and reading goes on after a mistake."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.errors import SettingsError
from anaphora.settings.files import in_order, parse_value, read_assignments, read_toml


def written(tmp_path: Path, text: str | bytes) -> tuple[Path, object]:
    path = tmp_path / "run.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path, read_toml(path)


def test_every_key_knows_its_line(tmp_path):
    path, read = written(
        tmp_path,
        '# a run\ntask = "translate"\n\ndata = [\n  "a.en",  # hidden = 3 is no key here\n'
        '  "b.de",\n]\nhidden = 64 # wide\n',
    )
    assert read.values == {"task": "translate", "data": ["a.en", "b.de"], "hidden": 64}
    assert read.where == {"task": f"{path}:2", "data": f"{path}:4", "hidden": f"{path}:8"}
    assert read.problems == []


def test_text_over_several_lines_hides_nothing_and_invents_nothing(tmp_path):
    path, read = written(tmp_path, 'note = """\nhidden = 1\n"""\nsteps = 5\n')
    assert read.values == {"note": "hidden = 1\n", "steps": 5}
    assert read.where["steps"] == f"{path}:4"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("tokens = bpe", 'text needs quotes: tokens = "bpe".'),
        ("joint = True", "write joint = true, in lower case."),
        ("hidden", "`hidden` has no `=`; write key = value."),
        ("hidden =", "hidden has no value; write key = value."),
        ('tokens = "bpe', "this is not TOML: illegal character '\\n'."),
        ("data = [1 2]", "this is not TOML: unclosed array."),
        ("[model]", "[model] begins a section, but settings have none; write its keys without it."),
    ],
)
def test_a_broken_line_is_named_and_reading_goes_on(tmp_path, line, sentence):
    path, read = written(tmp_path, f"steps = 5\n{line}\nseed = 3\n")
    assert read.problems == [f"{path}:2: {sentence}"]
    assert read.values == {"steps": 5, "seed": 3}


@pytest.mark.parametrize("value", ["[" * 5000, "9" * 5000])
def test_values_without_end_are_a_sentence(tmp_path, value):
    path = tmp_path / "run.toml"
    path.write_text(f"steps = {value}\nhidden = 8\n")
    written = read_toml(path)
    assert written.problems == [f"{path}:1: the value is too long or too deep; write a shorter one."]
    assert written.values == {"hidden": 8}
    assert parse_value(value) == value


def test_a_key_given_twice_names_both_lines(tmp_path):
    path, read = written(tmp_path, "hidden = 1\nsteps = 5\nhidden = 2\n")
    assert read.problems == [f"{path}:3: hidden is given twice, first at {path}:1; keep one of them."]


def test_a_list_that_is_never_closed_is_one_mistake(tmp_path):
    path, read = written(tmp_path, 'steps = 5\ndata = [\n "a",\nseed = 3\n')
    assert len(read.problems) == 1
    assert read.problems[0].startswith(f"{path}:")
    assert read.values == {"steps": 5}


def test_windows_line_ends_and_a_byte_order_mark(tmp_path):
    path, read = written(tmp_path, b"\xef\xbb\xbfhidden = 1\r\nsteps = 5\r\n")
    assert read.values == {"hidden": 1, "steps": 5}
    assert read.where["steps"] == f"{path}:2"


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(SettingsError, match=r"there is no such file\."):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(SettingsError, match="is a folder"):
        read_toml(tmp_path)
    with pytest.raises(SettingsError, match=r"run.toml:2: this is not UTF-8"):
        written(tmp_path, b"a = 1\nb = \xff\n")
    with pytest.raises(SettingsError, match="too large"):
        written(tmp_path, b"#" * 1_000_001)


names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
values = st.one_of(
    st.integers(-(2**40), 2**40),
    st.booleans(),
    st.text(
        alphabet=st.characters(codec="utf-8", exclude_characters='\\"\r\n', min_codepoint=32), max_size=8
    ),
)


@given(st.dictionaries(names, values, max_size=8))
def test_agrees_with_tomllib_on_every_flat_file(tmp_path_factory, table):
    def toml(value):
        return (
            str(value).lower()
            if isinstance(value, bool)
            else f'"{value}"'
            if isinstance(value, str)
            else str(value)
        )

    try:
        text = "".join(f"{key} = {toml(value)}\n" for key, value in table.items())
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # a control character that TOML does not allow
    path = tmp_path_factory.mktemp("toml") / "run.toml"
    path.write_text(text, encoding="utf-8", newline="")
    read = read_toml(path)
    assert read.values == expected
    assert read.problems == []
    assert [read.where[key] for key in table] == [f"{path}:{line}" for line in range(1, len(table) + 1)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("256", 256),
        ("1e-3", 0.001),
        ("true", True),
        ("bpe", "bpe"),
        ('"bpe"', "bpe"),
        ("cuda:1", "cuda:1"),
        ("[1, 2]", [1, 2]),
        ("2020-01-01", "2020-01-01"),
        ("{a = 1}", "{a = 1}"),
        ("1\nb = 2", "1\nb = 2"),
    ],
)
def test_values_on_the_command_line(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_assignments():
    read = read_assignments(["hidden=256", "batch-tokens = 100", "out=a=b"])
    assert read.values == {"hidden": 256, "batch_tokens": 100, "out": "a=b"}
    assert read.where["hidden"] == "--set hidden=256"
    assert read_assignments(["hidden", "=3", "lr="]).problems == [
        f"--set {text!r} must have the form key=value, as in --set hidden=256."
        for text in ("hidden", "=3", "lr=")
    ]
    assert read_assignments(["a=1", "a=1"]).problems == []
    assert read_assignments(["a=1", "a=2"]).problems == [
        "--set a=2: a is given twice, first at --set a=1; keep one of them."
    ]


def test_problems_come_in_the_order_of_the_lines():
    path = Path("run.toml")
    mixed = ["run.toml:10: b.", "--set x: c.", "run.toml:9: a.", "run.toml:9: a."]
    assert in_order(mixed, path) == ["run.toml:9: a.", "run.toml:10: b.", "--set x: c."]
