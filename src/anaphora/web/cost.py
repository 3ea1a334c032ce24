"""What a request costs, known before it is computed: both servers refuse what is too much instead of beginning it.

The unit is one step of a small model: one symbol (or frame) read, or one hypothesis extended by one symbol. On a CPU a step of a
model with more than a million parameters costs as many units as it has millions; on a GPU one unit is a step of fifty millions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anaphora.inference.session import Cost, weighed
from anaphora.inference.torch_engine import weight_of
from anaphora.search._hypothesis import widths
from anaphora.settings.search import most_symbols


def tokenizer_of(estimator: Any) -> Any:
    """Return what cuts the texts that a model reads into symbols; None for a model that reads no texts, or reads them by words."""
    command = estimator.command
    if command in ("classify", "embed"):
        return getattr(estimator.inputs_, "tokenizer", None)
    if command == "translate":
        return estimator.tokenizer_.source
    return estimator.tokenizer_ if command in ("language", "answer") else None


def cost_of(
    estimator: Any, lengths: Sequence[int], options: Mapping[str, Any], *, weight: int | None = None
) -> Cost:
    """Return the cost of one call of ``predict``.

    Args:
        estimator: the model; what ``options`` leave out is as in its settings.
        lengths: symbols or steps of each input.
        options: of ``predict``, such as ``beam`` and ``max_length``.
        weight: of the model, if it is known already.
    """
    session = getattr(estimator, "session", None)
    if session is not None:
        found: Cost = session.cost(lengths, weight)
        return found
    settings = estimator.settings_

    def option(name: str) -> Any:
        value = options.get(name)
        return getattr(settings, name, None) if value is None else value

    read, times = sum(lengths), f"{len(lengths):,} inputs"
    weight = weight_of(estimator.model_) if weight is None else weight
    command, extended, heavy = estimator.command, 0, weight
    if command in ("translate", "caption"):
        wide = _hypotheses(option)
        shortest, longest = option("min_length") or 0, option("max_length") or 0
        written = sum(max(most_symbols(length, longest), shortest) for length in lengths)
        extended, times = (
            wide * written,
            f"{times} × {wide:,} hypotheses × {written // len(lengths):,} symbols",
        )
    elif command == "transcribe":
        wide = max(option("beam") or 1, options.get("n_best") or 1)
        # all but the presets with attention decide about hypotheses without the network
        heavy = weight if "attention" in str(settings.model) else 1
        extended, times = wide * read, f"{times} × {wide:,} hypotheses × {read // len(lengths):,} frames"
    elif command == "forecast":
        ahead = option("horizon") or 1
        extended, times = ahead * len(lengths), f"{times} × {ahead:,} steps ahead"
    elif command == "answer":
        times = f"{times} of {read:,} symbols"
    return Cost(read * weight + extended * heavy, weighed(times, weight))


def cost_of_drawing(
    prompts: Sequence[int], texts: int, length: int, alternatives: int, *, weight: int
) -> Cost:
    """Return the cost of ``texts`` drawn texts of ``length`` symbols for each of some prompts, of which the symbols are given."""
    written = len(prompts) * texts * length * (1 + alternatives // 4)
    reason = f"{len(prompts):,} prompts × {texts:,} texts × {length:,} symbols"
    return Cost((sum(prompts) + written) * weight, weighed(reason, weight))


def _hypotheses(option: Any) -> int:
    """Return how many hypotheses of an input are extended at each step."""
    best = option("n_best") or 1
    if option("decode") == "sample":
        return int(best)
    if option("decode") == "mbr":
        return int(max(option("samples"), best))
    groups = option("groups") or 1
    wide = max(option("beam"), -(-best // groups) * groups)
    return int(wide if best == 1 else max(wide, *widths(best)))
