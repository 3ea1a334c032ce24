"""Message catalogues: which messages are rows, which form of a plural, and what is left out and said."""

from __future__ import annotations

from pathlib import Path

import pytest

from anaphora.data.asked import asked_batches
from anaphora.data.sources.opening import ROW_READER, open_source
from anaphora.data.sources.report import reported
from anaphora.errors import DataError

HEADER = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n'
FORMS = '"Plural-Forms: nplurals={}; plural={};\\n"\n'


def catalogue(folder: Path, text: str, header: str = HEADER) -> Path:
    path = folder / "django.po"
    path.write_text(f"{header}\n{text}", encoding="utf-8")
    return path


def pairs(folder: Path, text: str, header: str = HEADER) -> list[tuple[str, ...]]:
    return list(open_source(catalogue(folder, text, header)))


def test_texts_of_several_lines_are_joined_and_escapes_read(tmp_path: Path) -> None:
    text = r"""
#: views.py:3
#, python-format
msgctxt "button"
msgid ""
"Delete %(name)s? "
"\"Yes\"\tdeletes C:\\x\101"
msgstr "%(name)s löschen?\n"
"„Ja“\x41"
"""
    assert pairs(tmp_path, text) == [('Delete %(name)s? "Yes"\tdeletes C:\\xA', "%(name)s löschen?\n„Ja“A")]


def test_entries_without_a_translation_in_doubt_or_obsolete_are_left_out_and_counted(tmp_path: Path) -> None:
    text = """
msgid "open"
msgstr "öffnen"

msgid "new"
msgstr ""
#, fuzzy, python-format
#| msgid "closing"
msgid "close"
msgstr "schließen?"
msgid "save"
msgstr "speichern"

#~ msgid "gone"
#~ msgstr "weg"
"""
    path, said = catalogue(tmp_path, text), list[str]()
    with reported(said.append):
        source = open_source(path)
    assert list(source) == [("open", "öffnen"), ("save", "speichern")]
    assert "2 rows, catalogue, 1 fuzzy and 1 obsolete and 1 untranslated left out" in said[0]
    assert list(ROW_READER.reopen_one(source.describe())) == list(source)


def test_predict_reads_what_has_no_translation_as_well(tmp_path: Path) -> None:
    text = 'msgid "open"\nmsgstr "öffnen"\n\nmsgid "new"\nmsgstr ""\n\n#, fuzzy\nmsgid "close"\nmsgstr "zu"\n'
    [batch] = asked_batches(str(catalogue(tmp_path, text)), {})
    assert [one.text for one in batch] == ["open", "new", "close"]
    assert '"prediction": "neu"' in batch[1].with_answer("neu")


@pytest.mark.parametrize(
    ("forms", "found"),
    [
        (FORMS.format(2, "(n != 1)"), [("%d dog", "a"), ("%d dogs", "b")]),
        # Arabic: 0, 1, 2, few, many, other
        (
            FORMS.format(6, "n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : 4"),
            [("%d dog", "b"), ("%d dogs", "d")],
        ),
        (FORMS.format(2, "n / 0"), [("%d dog", "a"), ("%d dogs", "b")]),  # no rule: the first two
        (FORMS.format(2, "__import__('os')"), [("%d dog", "a"), ("%d dogs", "b")]),
        ("", [("%d dog", "a"), ("%d dogs", "b")]),
    ],
)
def test_plurals_are_rows_with_the_forms_of_one_and_of_five(
    tmp_path: Path, forms: str, found: list[tuple[str, str]]
) -> None:
    written = "".join(f'msgstr[{place}] "{form}"\n' for place, form in enumerate("abcde"))
    text = f'msgid "%d dog"\nmsgid_plural "%d dogs"\n{written}'
    assert pairs(tmp_path, text, HEADER + forms) == found


def test_a_language_with_one_form_has_the_plural_alone(tmp_path: Path) -> None:
    text = 'msgid "%d dog"\nmsgid_plural "%d dogs"\nmsgstr[0] "犬%d匹"\n'
    assert pairs(tmp_path, text, HEADER + FORMS.format(1, "0")) == [("%d dogs", "犬%d匹")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('msgid "a"\nmsgstr "an "open" quote"\n', "django.po:5: neither a comment nor a text in quotes"),
        ('"a text of nothing"\n', "django.po:4: neither"),
        ("", "holds no message"),
        ('msgid "a"\nmsgstr ""\n', "has no usable row"),
    ],
)
def test_broken_catalogues_are_refused_in_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    header = "# only a comment\n\n" if text.startswith('"') else HEADER
    with pytest.raises(DataError, match=message):
        pairs(tmp_path, text, header)


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    path = catalogue(tmp_path, 'msgid "open"\nmsgstr "öffnen"\n', HEADER.replace("UTF-8", "ISO-8859-1"))
    with pytest.raises(DataError, match="written in ISO-8859-1; convert it"):
        open_source(path)
    path.write_bytes(path.read_text(encoding="utf-8").replace("ISO-8859-1", "UTF-8").encode("latin-1"))
    with pytest.raises(DataError, match="something else than UTF-8"):
        open_source(path)
