"""What a request may ask for besides its inputs: the options of ``predict``, within the server's limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic.fields import FieldInfo

from anaphora.errors import SettingsError
from anaphora.serving.limits import Limits
from anaphora.serving.refusals import unusable
from anaphora.settings.base import build
from anaphora.settings.search import BOUNDS
from anaphora.tasks.info import TaskInfo

FOREIGN = {"search", "lm", "lm_weight", "lexicon"}
"""They name files or code of the server's machine, which is none of a client's business."""
NO_FILE: dict[str, Any] = {"lexicon": Literal["", "train"]}
"""Of those, what names none: the words that the run itself knows."""
ABOUT_FILES = {"source_field", "target_field", "form", "bad_rows", "positives", "choices"}
"""They say how files are read; requests have no files of that kind."""
DETAILS = "details"
LONGEST = 10_000
"""Characters of an option that is a text."""


def options_of(task: TaskInfo) -> dict[str, FieldInfo]:
    """The options of a request to a run of ``task``, by name."""
    fields = {name: info for name, info in task.predicting.model_fields.items() if name not in ABOUT_FILES}
    for name in FOREIGN & fields.keys():
        info = fields.pop(name)
        if name in NO_FILE:
            fields[name] = FieldInfo.merge_field_infos(info, annotation=NO_FILE[name])
    return fields


def most_of(limits: Limits) -> dict[str, int]:
    """The server's own bounds, which are below those of the settings."""
    most = {"hypotheses": limits.beam, "symbols": limits.output}
    return {name: most[bound] for name, bound in BOUNDS.items()} | {"horizon": limits.output}


def checked_options(task: TaskInfo, given: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """The options that were given, and ``details``. Raises a `Refusal` (422) with every mistake."""
    asked = {name: value for name, value in given.items() if value is not None}
    details = asked.pop(DETAILS, False)
    if not isinstance(details, bool):
        raise unusable("details must be true or false.")
    for name, value in asked.items():
        if name in FOREIGN and value not in get_args(NO_FILE.get(name)):
            other = " or give train, for the words of training" if name in NO_FILE else ""
            raise unusable(
                f"{name} names files of the server's machine and is not an option of requests; leave it out{other}."
            )
        if isinstance(value, str | list) and len(str(value)) > LONGEST:
            raise unusable(f"{name} may have {LONGEST:,} characters; make it shorter.")
        if name in ABOUT_FILES:
            raise unusable(f"{name} is about files and not an option of requests; leave it out.")
    try:
        built = build(task.predicting, asked, owner=f"predicting with a {task.name}")
    except SettingsError as error:
        raise unusable(" ".join(error.problems)) from None
    for name, most in most_of(limits).items():
        value = asked.get(name)
        if value is not None and value > most:
            raise unusable(f"{name} = {value} is more than this server allows ({most}); ask for less.")
    if asked.get("window", 1.0) < 1.0:
        raise unusable("window must be at least 1 second; ask for longer windows.")
    return {**{name: getattr(built, name) for name in asked}, DETAILS: details}
