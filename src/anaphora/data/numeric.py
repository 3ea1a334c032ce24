"""Numbers as people write them in tables: which cells are numbers, and what a comma and a point in them mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Flag, auto

LARGEST = 1e100
"""The largest value of a series or of a target, of either sign: sums of squares over all rows stay finite."""
MARKS = (".", ",")
"""What may stand before the decimals."""
_SPACES = re.compile(r"(?<=[0-9])[ '\u00a0\u2009\u202f\u2019](?=[0-9]{3}(?![0-9]))")
"""What may stand between thousands besides a comma and a point, and means nothing else."""
_BY_COMMA = re.compile(
    r"[+-]?[0-9]+,[0-9]*|[+-]?[0-9]{1,3}([.][0-9]{3})+,[0-9]*|[+-]?[0-9]{1,3}([.][0-9]{3}){2,}"
)
_BY_POINT = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+[.][0-9]*|[+-]?[0-9]{1,3}(,[0-9]{3}){2,}")
_EITHER = re.compile(r"[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}")
"""``1.690`` and ``1,690``."""


class Written(Flag):
    """What the cells of a column tell of its decimal mark."""

    NOTHING = 0
    POINT, COMMA = auto(), auto()
    EITHER_POINT, EITHER_COMMA = auto(), auto()
    """Cells such as ``1.690`` and ``1,690``, in which the mark may stand before decimals or between thousands."""
    ROUND = auto()
    """One of those ends in 0, which is left out of decimals unless all have as many of them."""
    WHOLE = auto()
    """A cell below 1 000 without a mark."""


def is_number(text: str) -> bool:
    """Whether Python reads ``text`` as a float: ``1``, ``-2.5e3``, ``nan``."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def like_number(text: str) -> bool:
    """Whether ``text`` is a number by either decimal mark.

    >>> [like_number(text) for text in ("1.5", "1.234,5", "1 690", "12:30")]
    [True, True, True, False]
    """
    plain = _SPACES.sub("", text)
    return is_number(plain) or bool(_BY_COMMA.fullmatch(plain) or _BY_POINT.fullmatch(plain))


def tells(text: str) -> Written:
    """What one cell tells of the decimal mark of its column."""
    text = _SPACES.sub("", text)
    if "." not in text and "," not in text:
        small = text.lstrip("+-").isdecimal() and len(text.lstrip("+-")) < 4
        return Written.WHOLE if small else Written.NOTHING
    if _EITHER.fullmatch(text):
        either = Written.EITHER_COMMA if "," in text else Written.EITHER_POINT
        return either | Written.ROUND if text.endswith("0") else either
    if _BY_COMMA.fullmatch(text):
        return Written.COMMA
    return Written.POINT if is_number(text) or _BY_POINT.fullmatch(text) else Written.NOTHING


def mark_of(column: Written, table: Written, separator: str) -> str | None:
    """The decimal mark of a column by what its cells tell, else by what those of the whole table do; None where it may be either.

    Cells of three decimals each are taken for such unless the columns of the file are separated by semicolons, as they are where a comma
    stands before decimals.
    """
    if Written.COMMA in column or Written.POINT in column:
        return "," if Written.COMMA in column else "."
    point = Written.EITHER_POINT in column
    if not point and Written.EITHER_COMMA not in column:
        return "."
    if Written.WHOLE in column and Written.ROUND in column:  # 990, 1.010
        return "," if point else "."
    if Written.COMMA in table or Written.POINT in table:
        return "," if Written.COMMA in table else "."
    return "." if point and Written.WHOLE not in column and separator != ";" else None


def number_in(text: str, mark: str) -> float:
    """The number that ``text`` is with that decimal mark; a ``ValueError`` where it is none."""
    if "." not in text and "," not in text:
        return float(_SPACES.sub("", text))
    text = _SPACES.sub("", text)
    if mark == ".":
        return float(
            text.replace(",", "")
            if _BY_POINT.fullmatch(text) or ("," in text and _EITHER.fullmatch(text))
            else text
        )
    if _BY_COMMA.fullmatch(text) or _EITHER.fullmatch(text):
        return float(text.replace(".", "").replace(",", "."))
    raise ValueError(text)


def summed(marks: Iterable[Written]) -> Written:
    found = Written.NOTHING
    for mark in marks:
        found |= mark
    return found
