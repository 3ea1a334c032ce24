"""Which of several named columns hold the input and the output."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from anaphora.errors import DataError

USUAL = (("source", "target"), ("src", "tgt"), ("text", "label"), ("path", "label"))
INPUTS = (
    "source",
    "src",
    "text",
    "sentence",
    "input",
    "message",
    "review",
    "question",
    "document",
    "content",
)
OUTPUTS = ("target", "tgt", "label", "class", "category", "output", "answer", "sentiment", "intent", "y")


def choose_fields(
    where: str,
    names: Sequence[str],
    source: str | None,
    target: str | None,
    learnt: Mapping[str, Any] | None = None,
) -> tuple[str, str]:
    """The two columns requested; else those of the training data; else a usual pair of names; else both of two columns.

    ``learnt``: what `describe` said of the data a model was trained on. More than two columns without usual names are an error: a guess would train on the wrong ones without a word.
    """
    if len(names) < 2:
        raise DataError(f"{where} has only the field {_listed(names) or '(none)'}; a pair needs two.")
    trained = (str((learnt or {}).get("source_field")), str((learnt or {}).get("target_field")))
    usual = next((p for p in (trained, *USUAL) if set(p) <= set(names)), None) or _one_of_each(names)
    if usual is None and len(names) == 2:
        usual = (names[0], names[1])
    if usual is None and not (source and target):
        raise DataError(
            f"{where} has the columns {_listed(names)}; name the input and the output with "
            "source_field and target_field (--source-field, --target-field)."
        )
    chosen = (source or (usual or ("",))[0], target or (usual or ("", ""))[1])
    for name in chosen:
        check_named(where, names, name)
    if chosen[0] == chosen[1]:
        raise DataError(
            f"{where}: source and target are both {chosen[0]}; name source_field and target_field."
        )
    return chosen


def choose_input(where: str, names: Sequence[str], learnt: Mapping[str, Any], given: str | None) -> str:
    """The column that a model reads: the one ``given``, the one it was trained on, a usual name, or the only one.

    ``learnt``: what `describe` says of the training data.
    """
    if given is not None:
        check_named(where, names, given)
        return given
    trained = learnt.get("source_field")
    if trained in names:
        return str(trained)
    if len(names) == 1:
        return names[0]
    target = learnt.get("target_field")
    usual = [name for name in names if name.lower() in INPUTS and name != target]
    if len(usual) == 1 and trained is None:
        return usual[0]
    was = f", and the model was trained on {trained}" if trained else ""
    raise DataError(
        f"{where} has the columns {_listed(names)}{was}; name the one to read with source_field (--source-field)."
    )


def check_named(where: str, names: Sequence[str], name: str) -> None:
    """A `DataError` with the nearest name when there is no such column."""
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {_listed(names)}."
        raise DataError(f"{where} has no field {name}; {hint}")


def _one_of_each(names: Sequence[str]) -> tuple[str, str] | None:
    """A usual name of an input and one of an output, where there is exactly one of each."""
    inputs = [name for name in names if name.lower() in INPUTS]
    outputs = [name for name in names if name.lower() in OUTPUTS]
    return (inputs[0], outputs[0]) if len(inputs) == len(outputs) == 1 else None


def _listed(names: Sequence[str]) -> str:
    """Names in one line, whatever a file calls its columns."""
    return ", ".join(" ".join(name.split())[:60] for name in names[:20])
