"""Pairs written by trained translators: for sequence-level distillation, self-training and back-translation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from anaphora.data.files import lines_of
from anaphora.errors import DataError, RunError
from anaphora.models.ensemble import Ensemble
from anaphora.settings.own import trusting
from anaphora.tasks.load import load
from anaphora.tasks.recipe import single_runs
from anaphora.tasks.teaching import same_learnt


def ensemble(runs: Sequence[str | Path] | str | Path) -> Any:
    """A `Translator` that predicts with the mean of several runs' next-symbol probabilities; of one run, that run.

    Args:
        runs: folders of translators that share one vocabulary; a folder that ``fit(…, seeds=3)`` wrote stands for its runs.

    Raises a `RunError` for a run that is no translator, and for one whose symbols differ from the first one's.

    >>> pairs = [("one", "1"), ("two", "2"), ("two one", "2 1")] * 4
    >>> small = dict(model="lstm-attention", hidden=8, embedding=8, steps=2, tokens="char")
    >>> for seed in (1, 2):
    ...     m = an.Translator(**small, seed=seed).fit(pairs, valid=pairs[:3], out=f"runs/{seed}")
    >>> len(an.ensemble(["runs/1", "runs/2"]).predict(["one two"]))
    1
    """
    runs = single_runs([runs] if isinstance(runs, str | Path) else runs)
    if not runs:
        raise RunError("an ensemble needs at least one run; give their folders.")
    found: list[Any] = [load(Path(run), trust=trusting()) for run in runs]
    for run, one in zip(runs, found, strict=True):
        if one.command != "translate":
            raise RunError(f"{run} is a {type(one).__name__}; only translators write together.")
    same_learnt(runs)
    first = found[0]
    if len(found) > 1:
        first.model_ = Ensemble([one.model_ for one in found])
    return first


def texts_of(path: str | Path, translator: Any) -> list[str]:
    """The lines of a file of texts for a ``translator`` that are not empty.

    Raises a `DataError` for a file without any, and for one with tabs, whose columns would be read as one text; a translator of
    words with tags has them before its tags.
    """
    tagged = translator.settings_.source_tokens == "char+tags"
    found = []
    for place, line in lines_of(path):
        if "\t" in line.strip() and not tagged:
            raise DataError(
                f"{path}:{place}: has a tab, so this is a table; give a file with one text on each line (cut -f 1)."
            )
        if line.strip():
            found.append(line)
    if not found:
        raise DataError(f"{path} holds empty lines only; give a text on each line.")
    return found


def written_pairs(
    translator: Any, texts: Iterable[str], *, back: bool = False, **search: Any
) -> tuple[list[tuple[str, str]], int]:
    """Each text with the output of a trained ``translator``, and how many were left out since their output is empty.

    ``back``: the text is the target and the output the source (back-translation, Sennrich et al. 2016). ``search``: the
    options of ``predict``.
    """
    asked = [text for text in texts if text.strip()]
    # An output drawn at random may hold bytes that no line of a file may: NUL and line breaks.
    outputs = [" ".join(text.replace("\0", " ").split()) for text in translator.predict(asked, **search)]
    pairs = [
        (output, text) if back else (text, output)
        for text, output in zip(asked, outputs, strict=True)
        if output.strip()
    ]
    return pairs, len(asked) - len(pairs)
