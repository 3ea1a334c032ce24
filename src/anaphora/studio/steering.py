"""The search of one input under the rules that a person clicks: the answer of `anaphora.steer` as the page draws it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from anaphora.data.symbols import EOS
from anaphora.errors import DataError
from anaphora.probe.seq2seq import END
from anaphora.studio.panels import Input, Panel, input_of
from anaphora.studio.pictures import Pictures
from anaphora.studio.runs import Run
from anaphora.views.code import opened

WIDEST = 20
MOST_NODES = 4000
MOST_FRAMES = 2000
_PATH = re.compile(r"[0-9]{1,7}(\.[0-9]{1,7}){0,2000}")
_NUMBER = re.compile(r"[0-9]{1,3}(\.[0-9]{1,4})?")


def steered(pictures: Pictures, run: Run, query: Mapping[str, str]) -> dict[str, Any]:
    """``s.force`` is a path of symbol numbers (``12.7``), ``s.ban`` several with ``~`` between; ``s.beam``, ``s.alpha`` (length
    penalty), ``s.heat`` (temperature) and ``s.lexicon`` as `steer` takes them; ``s.reference`` an output that is wanted."""
    from anaphora.tasks.steering import steer

    model = pictures.model_of(run)[0].model
    options: dict[str, Any] = {}
    if query.get("s.force"):
        options["force"] = _path(query["s.force"])
    if query.get("s.ban"):
        options["ban"] = [_path(one) for one in query["s.ban"].split("~")]
    beam = _number(query, "s.beam")
    if beam is not None:
        options["beam"] = max(1, min(int(beam), WIDEST))
    given = input_of(pictures, run, query, beam=options.get("beam"))
    alpha, heat = _number(query, "s.alpha"), _number(query, "s.heat")
    if alpha is not None:
        options["length_penalty"] = alpha
    if heat is not None:
        options["temperature"] = heat
    if query.get("s.lexicon") == "1":
        options["lexicon"] = True
    reference = query.get("s.reference") or given.reference or None
    trace = steer(model, given.x, reference=reference, **options)
    spell = _speller(model)
    rules: dict[str, Any] = {name: options[name] for name in ("force", "ban") if name in options}
    pieces: dict[str, Any] = {
        name: [spell(one) for one in value] if name == "ban" else spell(value)
        for name, value in rules.items()
    }
    return {
        **given.facts,
        "facts": {key: value for key, value in trace.facts.items() if key not in ("text", "model")},
        "wanted": reference or "",
        "force": [
            [symbol, piece]
            for symbol, piece in zip(rules.get("force", []), pieces.get("force", []), strict=True)
        ],
        "ban": [
            {"symbols": path, "pieces": named}
            for path, named in zip(rules.get("ban", []), pieces.get("ban", []), strict=True)
        ],
        **_drawn(trace),
        "lexicon": model.command == "transcribe",
        "code": _code(run, given, {**options, **pieces}, reference),
    }


def _drawn(trace: Any) -> dict[str, Any]:
    """The nodes of the beam with the index of their parents, or the prefixes of each frame of CTC."""
    if "prefix_beam" in trace.tables:
        frames: dict[int, list[dict[str, Any]]] = {}
        for row in trace.tables["prefix_beam"]:
            if row["frame"] < MOST_FRAMES:
                frames.setdefault(row["frame"], []).append(_without(row, "frame", "rank"))
        return {"frames": list(frames.values())}
    rows = trace.tables.get("beam", [])[:MOST_NODES]
    at = {(row["step"], row["rank"]): i for i, row in enumerate(rows) if row["fate"] == "kept"}
    nodes = [
        {**_without(row, "rank", "symbol"), "parent": at.get((row["step"] - 1, row["parent"]), -1)}
        for row in rows
    ]
    return {"nodes": nodes, "more": len(trace.tables.get("beam", [])) > MOST_NODES}


def _without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in names}


def _code(run: Run, given: Input, options: Mapping[str, Any], reference: str | None) -> str:
    """The lines of Python that do the same."""
    words = "".join(f", {key}={value!r}" for key, value in options.items())
    words += f", reference={reference!r}" if reference else ""
    if given.text.strip().startswith("#") and given.facts["kind"] != "text":
        find = ["from anaphora.tasks.looking import Asked", "", f"m = {opened(run.name, run.frame)}"]
        find += [f"x, _ = Asked(m, {run.name!r}).find({given.text!r})", f"trace = an.steer(m, x{words})"]
    else:
        find = ["", f"m = {opened(run.name, run.frame)}", f"trace = an.steer(m, {given.text!r}{words})"]
    return "\n".join(["import anaphora as an", *find])


def _speller(model: Any) -> Any:
    tokenizer = model.tokenizer_.target if model.command == "translate" else model.tokenizer_
    known = tokenizer.size

    def spell(symbols: list[int]) -> list[str]:
        if any(symbol >= known for symbol in symbols):
            raise DataError(f"there is no symbol {max(symbols)}; the model has 0 to {known - 1}.")
        return [END if symbol == EOS else tokenizer.pieces([symbol])[0] for symbol in symbols]

    return spell


def _path(text: str) -> list[int]:
    if not _PATH.fullmatch(text):
        raise DataError("a beginning is written as numbers of symbols with dots between, such as 12.7.")
    return [int(one) for one in text.split(".")]


def _number(query: Mapping[str, str], name: str) -> float | None:
    text = query.get(name, "")
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise DataError(f"{name.removeprefix('s.')} must be a number, not {text[:20]!r}.")
    return float(text)


def _why_not(model: Any) -> str | None:
    if model.command not in ("translate", "caption", "transcribe"):
        return f"a {type(model).__name__} searches for nothing; translate, caption and transcribe do."
    if model.settings_.model == "transducer":
        return "a transducer writes and listens in turn, which cannot be steered; take another preset."
    return None


PANEL = Panel(
    name="steer",
    title="Steer the search",
    question="search",
    reading="Each column is a step of the beam, each box a hypothesis with its last symbol and its score; thick edges lead to the "
    "output. Choose a box and force or ban it: the search goes on under that rule, and no probability changes.",
    answer=steered,
    why_not=_why_not,
)
