"""Whether the first row of a table holds names of columns, by comparison with the rows below it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from anaphora.data.numeric import is_number
from anaphora.data.sources.roles import USUAL

ROWS = 200
"""Rows below the first that are looked at."""
FEW, MANY = 3, 20
"""Values from which all of them are a rule, and from which a value that never comes is no chance."""
_OFTEN = (
    "word words lemma lemmas form forms tag pos ner upos xpos features token title body summary name surname value date time "
    "id index number count kind type group topic subject author language lang country city code note notes comments "
    "english french german spanish italian portuguese dutch russian chinese japanese korean arabic turkish polish "
    "swedish danish norwegian finnish czech greek hebrew hindi latin ukrainian "
    "en fr de es it pt nl ru zh ja ko ar tr pl sv da no fi cs el he hi la uk"
)
_NAMES = frozenset(_OFTEN.split())
"""Names that columns often have beside those of `USUAL`; one of them alone may be a word of the data."""
_ENDS = tuple(".!?…。！？")


def like_data(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str | None:
    """What makes the first row look like data rather than ``names``, if anything does; ``rows`` stand below it."""
    for column, title in enumerate(names):
        values = _below(rows, column, len(names))
        if is_number(title) and values and all(map(is_number, values)):
            return f"{title} stands above numbers"
        if len(title) > 60 or len(title.split()) > 8:
            return f"{title[:24]!r} … is a sentence"
        if (
            title.endswith(_ENDS)
            and values
            and sum(value.endswith(_ENDS) for value in values) * 2 >= len(values)
        ):
            return f"{title} ends like the sentences below"
        if title and values.count(title) > 1 and len(set(values)) <= len(values) / 2:
            return f"{title} is also a value below"
        if (shape := _code(title)) and values and all(_code(value) == shape for value in values):
            return f"{title} is numbered like the values below"
        if (ending := _ending(title)) and values and all(_ending(value) == ending for value in values):
            return f"{title} is a file like those below"
    return None


def like_names(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the values below tell that the first row holds names of columns:

    - a column of numbers, or one of few values that come again and again, without the first of them;
    - an underscore that no value below has;
    - in each column a single word above texts of several words.
    """
    columns = [(title, _below(rows, column, len(names))) for column, title in enumerate(names)]
    columns = [(title, values) for title, values in columns if title]
    if any(len(values) < FEW for _, values in columns):
        return False
    for title, values in columns:
        if not is_number(title) and all(map(is_number, values)):
            return True
        if "_" in title.strip("_") and not any("_" in value for value in values):
            return True
        if len(values) >= MANY and title not in values and len(set(values)) * 5 <= len(values):
            return True
    return bool(columns) and all(_above_texts(title, values) for title, values in columns)


def known_names(names: Sequence[str]) -> bool:
    """Whether the first row has a usual name of a column, or only names that columns often have, or two such names and more than half."""
    lower = [title.lower() for title in names if title.strip()]
    often = sum(one in _NAMES for one in lower)
    return any(one in USUAL for one in lower) or often == len(lower) or (often > 1 and often * 2 > len(lower))


def shown(names: Sequence[str]) -> str:
    """A row in one line."""
    return " ".join(", ".join(name[:40] for name in names[:20]).split())


def _below(rows: Sequence[Sequence[str]], column: int, width: int) -> list[str]:
    return [row[column].strip() for row in rows if len(row) == width]


def _above_texts(title: str, values: Sequence[str]) -> bool:
    several = sum(" " in value for value in values)
    return title.replace("-", "").isalnum() and len(values) >= MANY and several * 10 >= len(values) * 9


def _code(text: str) -> str:
    """``LJ001-0001`` → ``LJ#-#``: the shape of a name with numbers in it; nothing for other names."""
    found = re.sub(r"\d{2,}", "#", text)
    return found if found.count("#") > 1 else ""


def _ending(text: str) -> str:
    """``.wav`` of the name of a file, nothing of other texts."""
    found = PurePath(text).suffix.lower()
    return found if 2 < len(found) < 6 and found[1:].isalnum() and not is_number(text) else ""
