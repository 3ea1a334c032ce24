"""The answer in a trace, whatever the task: classes, tags, text, a forecast, or what comes next, with probabilities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anaphora.probe.trace import Trace

MOST = 12
"""Classes or next symbols that are named, the most probable first."""


def answer_of(trace: Trace) -> dict[str, Any]:
    """``kind`` and what belongs to it, as JSON:

    ``classes`` (names, probabilities; best first), ``tags`` (places with ``tag`` and ``p``; of a masked language model what it
    would put there), ``text`` (``text``, its
    ``pieces`` with ``p`` each, ``log_p`` of the whole, further ``outputs`` of the search), ``transcript`` (``text`` and
    ``words`` with times), ``next`` (as classes), ``forecast`` (``history``, ``mean``, ``low``, ``high`` of each
    output), ``number`` (``text``), or ``none``.
    """
    arrays, facts = trace.arrays, trace.facts
    if "forecast" in arrays:
        return _forecast(trace)
    if "viterbi" in arrays and "smoothed" in arrays and "time" in trace.tokens:
        return _states(trace)
    if "words" in trace.tables:
        return {"kind": "transcript", "text": str(facts.get("output", "")), "words": trace.tables["words"]}
    if "log_probs" in arrays:
        return _text(trace)
    if "probabilities" in arrays:
        shares = arrays["probabilities"]
        if shares.axes == ("symbol",):
            return _ranked("classes", trace.tokens["symbol"], np.asarray(shares.values))
        return _tags(trace)
    if facts.get("top") == "here" and trace.tables.get("top"):
        return _filled(trace)
    if "sorted_log_probs" in arrays and trace.tables.get("top"):
        last = trace.tables["top"][-1]
        shares_ = [0.0 if v is None else math.exp(v) for v in last["log_probs"]]
        return {"kind": "next", "names": last["pieces"][:MOST], "probabilities": shares_[:MOST]}
    if "output" in facts:
        return {"kind": "number", "text": str(facts["output"])}
    return {"kind": "none"}


def in_words(trace: Trace, *, most: int = 8) -> str:
    """The answer in a trace in a few words, with its probability where it has one."""
    answer = answer_of(trace)
    if answer["kind"] in ("classes", "next"):
        name, share = answer["names"][0], answer["probabilities"][0]
        return f"{name} ({percent(share)}" + (" to come next)" if answer["kind"] == "next" else ")")
    if answer["kind"] == "tags":
        rows = answer["tags"]
        shown = " ".join(f"{row['tag']} ({percent(row['p'])})" for row in rows[:most])
        return shown + (" …" if len(rows) > most else "")
    if answer["kind"] == "text":
        return f"{answer['text']} ({percent(math.exp(answer['log_p']))})"
    if answer["kind"] == "forecast":
        return " ".join("?" if v is None else f"{v:.4g}" for v in answer["mean"][0][:most])
    return str(answer.get("text", ""))


def percent(share: float) -> str:
    """``65 %``; as many digits as tell a small share, or one near 100 %, from nothing and from all."""
    value = 100 * share
    if 0 < value < 0.05:
        return f"{value:.1g} %"
    return f"{value:.3g} %" if value <= 99.95 or value >= 100 else f"{value:.6g} %"


def _ranked(kind: str, names: list[str], shares: Any) -> dict[str, Any]:
    order = np.argsort(-shares, kind="stable")[:MOST]
    return {
        "kind": kind,
        "names": [names[int(i)] for i in order],
        "probabilities": [float(shares[int(i)]) for i in order],
    }


def _tags(trace: Trace) -> dict[str, Any]:
    names, shares = trace.tokens["symbol"], trace.array("probabilities", "time", "symbol")
    places = trace.tokens["time"]
    chosen = trace.facts.get("tags")
    if not isinstance(chosen, list) or len(chosen) != len(places):
        chosen = [names[int(row.argmax())] for row in shares]
    rows = []
    for place, tag, row in zip(places, chosen, shares, strict=True):
        known = isinstance(tag, str) and tag in names
        shown = tag if isinstance(tag, str) else "|".join(map(str, tag))
        rows.append(
            {
                "place": place,
                "tag": shown,
                "p": float(row[names.index(tag)] if known else row.max(initial=0.0)),
            }
        )
    return {"kind": "tags", "tags": rows}


def _filled(trace: Trace) -> dict[str, Any]:
    """What a masked language model would put at each place."""
    rows = [
        {"place": place, "tag": row["pieces"][0], "p": math.exp(row["log_probs"][0])}
        for place, row in zip(trace.tokens["time"], trace.tables["top"], strict=True)
    ]
    return {"kind": "tags", "tags": rows}


def _states(trace: Trace) -> dict[str, Any]:
    names, shares = trace.tokens["state"], trace.array("smoothed", "time", "state")
    path = trace.array("viterbi", "time")
    return {
        "kind": "tags",
        "tags": [
            {"place": place, "tag": names[int(s)], "p": float(row[int(s)])}
            for place, s, row in zip(trace.tokens["time"], path, shares, strict=True)
        ],
    }


def _text(trace: Trace) -> dict[str, Any]:
    logs = np.asarray(trace.array("log_probs"), np.float64)
    pieces = trace.tokens.get("target") or trace.tokens.get("output") or [str(i) for i in range(len(logs))]
    text = trace.facts.get("output_text") or trace.facts.get("output")
    spelled = "".join(pieces[:-1]).replace("▁", " ").strip()
    return {
        "kind": "text",
        "text": str(text) if trace.tokens.get("output") or trace.facts.get("output_text") else spelled,
        "pieces": [
            {"piece": piece, "p": float(np.exp(log))} for piece, log in zip(pieces, logs, strict=True)
        ],
        "log_p": float(logs.sum()),
        "outputs": outputs_of(trace),
    }


def outputs_of(trace: Trace) -> list[dict[str, Any]]:
    """Return all that the search finished, best first: ``text``, ``pieces``, ``score``, ``log_p`` and ``ways``.

    Hypotheses that read the same are one output: the best of them, with their number in ``ways``. Of a search whose tree
    was not kept, these are the outputs that it gave.
    """
    finished = [row for row, _ in finished_paths(trace)] or [
        {**row, "pieces": list(map(str, row["pieces"]))} for row in trace.tables.get("nbest", [])
    ]
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(finished, key=lambda row: -float(row["score"])):
        text = "".join(row["pieces"]).replace("▁", " ").strip()
        first = found.setdefault(
            text,
            {
                "text": text,
                "pieces": row["pieces"],
                "score": row["score"],
                "log_p": row["log_prob"],
                "ways": 0,
            },
        )
        first["ways"] += 1
    return list(found.values())


def finished_paths(trace: Trace) -> list[tuple[dict[str, Any], list[int]]]:
    """Return each finished hypothesis of the table ``beam``, its ``pieces`` without the end, and its records' places in the
    table from the first symbol on."""
    records = trace.tables.get("beam", [])
    kept = {
        (int(record["step"]), int(record["rank"])): i
        for i, record in enumerate(records)
        if record["fate"] == "kept" and record["rank"] is not None
    }
    found = []
    for i, record in enumerate(records):
        if record["fate"] != "finished":
            continue
        path, at = [i], record
        while int(at["step"]) > 0:
            path.append(kept[int(at["step"]) - 1, int(at["parent"])])
            at = records[path[-1]]
        path.reverse()
        pieces = [str(records[k]["piece"]) for k in path if records[k]["piece"] != "</s>"]
        found.append(({**record, "pieces": pieces}, path))
    return found


def _forecast(trace: Trace) -> dict[str, Any]:
    def columns(name: str, axis: str) -> list[list[float | None]]:
        values = np.asarray(trace.array(name, axis, "output"), np.float64).T
        return [[float(v) if np.isfinite(v) else None for v in row] for row in values]

    return {
        "kind": "forecast",
        "history": columns("history", "frame"),
        "mean": columns("forecast", "step"),
        "low": columns("forecast_low", "step"),
        "high": columns("forecast_high", "step"),
    }
