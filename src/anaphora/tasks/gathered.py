"""What many dev examples of a run show together: mistakes, data and symbols, states of units, vectors of whole inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anaphora.data.symbols import SPELLINGS, UNK
from anaphora.errors import AnaphoraError, DataError
from anaphora.probe.noted import said_layers
from anaphora.probe.trace import MAX_TOKENS, Array, Trace
from anaphora.probe.vectors import probe_vectors
from anaphora.tasks.looking import Asked, facts_of

MOST_JUDGED = 2000
"""Dev examples that are answered for the error browser; of more, evenly spaced ones."""
MOST_READ = 2000
"""Dev examples whose lengths and symbols are counted."""
MOST_LOOKED_AT = 200
"""Dev examples whose states are gathered, until `MAX_TOKENS` places are there."""
KINDS = {
    "classify": "label",
    "answer": "label",
    "tag": "labels",
    "translate": "text",
    "caption": "text",
    "transcribe": "text",
}
"""What is compared with the reference; of other tasks there is a loss, and nothing is right or wrong."""
LEAST = 4
HALVES = "units are looked for on one half of the dev examples and checked on the other: four are needed."
MOST_TEXTS = 200
LONGEST = 2000
"""Characters of a text that are kept to be shown."""


def gather(asked: Asked, what: str, texts: Sequence[str] = ()) -> Trace:
    """A trace of many dev examples: ``what`` is ``judged``, ``data``, ``units`` or ``texts`` (of which ``texts`` are the user's).

        trace = gather(Asked(m, "runs/reviews"), "judged")
        trace.view("errors").save("errors.html")

    Raises a `DataError` in one sentence where the run has nothing of the kind.
    """
    return GATHER[what](asked, texts)


def judged(asked: Asked, texts: Sequence[str]) -> Trace:
    """The table ``judged``: number, input, reference, output and loss (0 is right) of each dev example; ``facts["measures"]``."""
    dev = asked.dev()
    found = asked.model._judge(dev, {})
    count = len(found.losses)
    kept = np.unique(np.linspace(0, count - 1, min(count, MOST_JUDGED)).round().astype(int))
    rows = [
        {
            "number": int(i) + 1,
            "input": str(found.inputs[i])[:LONGEST],
            "reference": str(found.references[i])[:LONGEST],
            "output": str(found.outputs[i])[:LONGEST],
            "loss": float(found.losses[i]),
        }
        for i in kept
    ]
    if not rows:
        raise DataError("the run has no dev examples, so there are no mistakes to look at.")
    measures = {one.name: one.of_all() for one in found.measures}
    kind = KINDS.get(asked.model.command, "score")
    numbers = getattr(getattr(asked.model, "targets_", None), "kind", "class") == "number"
    kind = "score" if numbers else kind
    facts = {**facts_of(asked.model, ""), "measures": measures, "examples": count, "kind": kind}
    facts["paired"] = asked.paired(count)
    return Trace({}, {}, facts, {"judged": rows})


def data(asked: Asked, texts: Sequence[str]) -> Trace:
    """The table ``data``: for each dev example the symbols of its input and of its output (None where it has none) and how many of
    them are unknown; ``counts`` (rank,) of the symbols, commonest first, with their names on the axis; ``pieces``, a few texts
    cut into symbols."""
    sides = _sides(asked.model)
    seen: Counter[int] = Counter()
    rows: list[dict[str, Any]] = []
    pieces: list[dict[str, Any]] = []
    for number, x, reference in asked.some(MOST_READ):
        row: dict[str, Any] = {"number": number, "input": len(x) if hasattr(x, "__len__") else None}
        row |= {"output": None, "unknown": 0}
        for side, text in (("input", x), ("output", reference)):
            if isinstance(text, (list, tuple)) and all(isinstance(word, str) for word in text):
                text = " ".join(text)
            if side not in sides or not isinstance(text, str) or (side == "output" and not text):
                continue
            ids = list(sides[side].encode(text))
            row[side] = len(ids)
            row["unknown"] += sum(symbol == UNK for symbol in ids)
            if side == "input" or "input" not in sides:
                seen.update(ids)
                if len(pieces) < 4:
                    spelled = sides[side].pieces(ids[:200])
                    pieces.append({"number": number, "ids": ids[:200], "pieces": spelled})
        rows.append(row)
    if not rows:
        raise DataError("the run has no dev examples to count.")
    common = [(symbol, n) for symbol, n in seen.most_common(MAX_TOKENS) if symbol >= len(SPELLINGS)]
    facts = {
        **facts_of(asked.model, ""),
        "examples": asked.count(),
        "vocabulary": asked.model._vocabulary(),
        "batch_tokens": getattr(asked.model.settings_, "batch_tokens", None),
        "symbols": sum(seen.values()),
        "kinds": len(seen),
    }
    arrays, tokens = {}, {}
    if common:
        own = sides.get("input") or sides["output"]
        tokens["symbol"] = own.pieces([symbol for symbol, _ in common])
        arrays["counts"] = Array(("symbol",), np.array([n for _, n in common]))
    return Trace(tokens, arrays, facts, {"data": rows, "pieces": pieces})


def _sides(model: Any) -> dict[str, Any]:
    """The tokenizers of a model's inputs and outputs, where these are texts."""
    own: Any = getattr(model, "tokenizer_", None) or getattr(
        getattr(model, "inputs_", None), "tokenizer", None
    )
    if hasattr(own, "source"):
        return {"input": own.source, "output": own.target}
    if own is None or not hasattr(own, "encode"):
        return {}
    reads = model._inputs() == "text"
    return {"input": own} if reads else {"output": own}


def units(asked: Asked, texts: Sequence[str]) -> Trace:
    """``pooled_states`` (layer, time, unit) of dev examples one after the other; the table ``places`` says of each place which
    ``example`` it belongs to, its ``token``, its ``place`` there (from 0), how many there are, and its tag."""
    values: list[Any] = []
    rows: list[dict[str, Any]] = []
    names: list[str] = []
    layers: dict[str, Any] = {}
    for number, x, reference in asked.some(MOST_LOOKED_AT):
        trace = asked.model.probe(x)
        name, axis = states_of(trace)
        states = trace.array(name, "layer", axis, "unit")
        layers = said_layers({"pooled_states": trace.layers(name)})
        if values and states.shape[::2] != values[0].shape[::2]:
            continue
        if len(names) + states.shape[1] > MAX_TOKENS:
            break
        tokens = trace.tokens[axis]
        tags = reference.split() if isinstance(reference, str) else list(map(str, reference))
        tagged = asked.model.command == "tag" and len(tags) == len(tokens)
        values.append(np.asarray(states, np.float32))
        names += tokens
        rows += [
            {"example": number, "place": t, "of": len(tokens), "tag": tags[t] if tagged else ""}
            for t in range(len(tokens))
        ]
    if len({row["example"] for row in rows}) < LEAST:
        raise DataError(HALVES)
    facts = {**facts_of(asked.model, ""), "examples": len({row["example"] for row in rows}), **layers}
    pooled = Array(("layer", "time", "unit"), np.concatenate(values, 1))
    return Trace({"time": names}, {"pooled_states": pooled}, facts, {"places": rows})


def states_of(trace: Trace) -> tuple[str, str]:
    """Name and axis of the states over the input, or a `DataError`."""
    for name, axis in (("states", "time"), ("encoder_states", "source")):
        if name in trace.arrays and axis in trace.tokens:
            return name, axis
    raise DataError("the model keeps no state for each place of its input, so it has no units to look at.")


def texts(asked: Asked, texts: Sequence[str]) -> Trace:
    """The vectors of whole inputs, the user's ``texts`` among dev inputs: an embedder's own, of another model the mean over the
    input of its last layer's states. ``facts["own"]`` counts the user's, which come last."""
    model = asked.model
    if model._inputs() != "text":
        raise DataError("the model reads no texts; `embeddings` and `trajectory` show others.")
    dev = [x for _, x, _ in asked.some(MOST_TEXTS)]
    own = [line for line in texts if line.strip()][:MOST_TEXTS]
    every = [x if isinstance(x, str) else " ".join(map(str, x)) for x in (*dev, *own)]
    if len(every) < 3:
        raise DataError("a map needs at least three texts; type some, one a line.")
    if model.embeds_inputs:
        matrix = np.asarray(model.predict(every))
    else:
        matrix = np.stack([_mean_state(model.probe(text)) for text in every])
    facts = {**facts_of(model, ""), "own": len(own), "of": "embedder" if model.embeds_inputs else "states"}
    return probe_vectors([text[:80] for text in every], matrix, facts=facts)


def _mean_state(trace: Trace) -> Any:
    name, axis = states_of(trace)
    return trace.array(name, "layer", axis, "unit")[-1].mean(0)


def why_not(asked: Asked, what: str) -> str | None:
    """None where `gather` can give ``what`` of this run, else the reason; nothing long is done to find out."""
    try:
        if not asked.count():
            return "the run has no dev examples."
        if what == "units" and asked.count() < LEAST:
            return HALVES
        if what in ("units", "texts") and not (what == "texts" and asked.model.embeds_inputs):
            if what == "texts" and asked.model._inputs() != "text":
                return "the model reads no texts; `embeddings` and `trajectory` show others."
            states_of(asked.model.probe(asked.example(1)[0]))
    except (AnaphoraError, OSError) as error:
        return str(error)
    return None


GATHER: dict[str, Callable[[Asked, Sequence[str]], Trace]] = {
    "judged": judged,
    "data": data,
    "units": units,
    "texts": texts,
}
