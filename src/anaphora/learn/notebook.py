"""A lesson as a notebook (nbformat 4.5, plain JSON) and as a script of cells that editors open like a notebook."""

from __future__ import annotations

import json
from typing import Any

from anaphora.learn.page import Lesson


def notebook(lesson: Lesson) -> str:
    """The JSON of an ``.ipynb`` file. What a page shows below a block is the output of its cell."""
    cells: list[dict[str, Any]] = []
    for number, block in enumerate(lesson.blocks()):
        common = {"id": f"lesson{lesson.number}-{number}", "metadata": {}}
        if block.kind == "markdown":
            cells.append({"cell_type": "markdown", **common, "source": _lines(block.text)})
            continue
        code = block.text if block.kind == "python" else f"%%bash\n{block.text}"
        shown = [] if block.output is None else [_printed(block.output)]
        cells.append(
            {"cell_type": "code", **common, "execution_count": None, "source": _lines(code), "outputs": shown}
        )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}, "title": lesson.title},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def script(lesson: Lesson) -> str:
    """The lesson as Python: text in comments, ``# %%`` before each cell; commands of a shell are comments too."""
    parts = []
    for block in lesson.blocks():
        if block.kind == "python":
            parts.append(f"# %%\n{block.text}")
        else:
            kind = "[markdown]" if block.kind == "markdown" else "[markdown] in a shell:"
            lines = [f"# {line}".rstrip() for line in block.text.strip().split("\n")]
            parts.append("\n".join([f"# %% {kind}", *lines]) + "\n")
    return "\n".join(parts)


def _lines(text: str) -> list[str]:
    return text.strip("\n").splitlines(keepends=True)


def _printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}
