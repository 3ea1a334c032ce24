"""What all settings share: unknown words are refused with a suggestion, all mistakes are reported at once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from anaphora.errors import SettingsError
from anaphora.settings.removed import REMOVED
from anaphora.settings.synonyms import SYNONYMS


class Settings(BaseModel):
    """A frozen set of settings. The description of a field is what ``anaphora explain`` prints."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, protected_namespaces=())

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """To Python ``True`` is 1; to someone who writes ``steps = true`` it is a slip."""
        kind = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and kind in (int, float):
            raise ValueError("it must be a whole number" if kind is int else "it must be a number")
        return value

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults that follow from what was ``given``: they go before those of the preset."""
        return {}

    @classmethod
    def problem(cls, s: Any) -> str | None:
        """What contradicts what among the settings of this group in complete settings ``s``, in a sentence without its
        full stop. Called for the groups that the preset uses."""
        return None


S = TypeVar("S", bound=Settings)


def build(
    kind: type[S], values: Mapping[str, Any], *, owner: str, where: Mapping[str, str] | None = None
) -> S:
    """Check ``values`` and make a ``kind`` of them, or raise one ``SettingsError`` with every mistake.

    ``owner`` is the name users know (``Translator``); ``where`` maps a key to its place (``run.toml:14``).
    """
    try:
        return kind(**values)
    except ValidationError as error:
        raise SettingsError(
            [_sentence(kind, problem, owner, where or {}) for problem in error.errors()]
        ) from None


def _sentence(kind: type[Settings], problem: Any, owner: str, where: Mapping[str, str]) -> str:
    key = str(problem["loc"][0]) if problem["loc"] else ""
    place = f"{where[key]}: " if key in where else ""
    if problem["type"] == "extra_forbidden" and key in REMOVED:
        return f"{place}{REMOVED[key]}"
    if problem["type"] == "extra_forbidden":
        return f"{place}{key} is not a setting of {owner}.{suggestion(key, list(kind.model_fields))}"
    if not key:  # a rule between several settings
        return f"{_plain(problem)}."
    value = problem.get("input")
    near = ""
    if problem["type"] == "literal_error" and isinstance(value, str):
        near = suggestion(
            value, [str(word) for word in get_args(kind.model_fields[key].annotation)], otherwise=""
        )
    plain = _plain(problem)
    end = "" if plain.endswith("?") else "."
    return (
        f"{place}{key} = {written(value)} cannot be used: {plain}{end}{near}"
        f" `anaphora explain {key}` says more."
    )


def suggestion(
    word: str, known: Sequence[str], *, otherwise: str = " `anaphora explain` lists all settings."
) -> str:
    """ " Did you mean hidden?" when something is near or called so elsewhere, else a hint where to look."""
    meant, note = SYNONYMS.get(word.lower().replace("-", "_"), ("", ""))
    if meant in known:
        return f" Did you mean {meant}?{note}"
    near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f" Did you mean {near[0]}?" if near else otherwise


def written(value: Any) -> str:
    """A value as it is written in TOML, shortened if it is long."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _plain(problem: Any) -> str:
    """pydantic's reason in plain words."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "literal_error":
        return f"it must be {context['expected']}"
    plain = {
        "greater_than": "it must be greater than {gt}",
        "greater_than_equal": "it must be at least {ge}",
        "less_than": "it must be less than {lt}",
        "less_than_equal": "it must be at most {le}",
        "int_parsing": "it must be a whole number",
        "int_type": "it must be a whole number",
        "int_from_float": "it must be a whole number",
        "float_parsing": "it must be a number",
        "float_type": "it must be a number",
        "finite_number": "it must be a finite number",
        "bool_parsing": "it must be true or false",
        "bool_type": "it must be true or false",
        "string_type": "it must be text",
        "value_error": "{error}",
    }
    template = plain.get(kind)
    return template.format(**context) if template else str(problem["msg"])
