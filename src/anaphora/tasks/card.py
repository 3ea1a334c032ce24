"""The model card: ``README.md`` of a run folder, for a reader who finds it later."""

from __future__ import annotations

import json
import platform

import numpy
import torch

from anaphora._version import __version__
from anaphora.tasks.recipe import Recipe
from anaphora.training.loop import TrainingResult


def model_card(
    recipe: Recipe, *, parameters: int, vocabulary: dict[str, int], result: TrainingResult | None
) -> str:
    """Markdown with a YAML head: task, data, numbers, seed, versions. No clock in it: equal runs, equal cards."""
    task, settings = recipe.task, recipe.values
    preset = task.preset_of(recipe.settings)
    metrics = dict(result.metrics) if result else {}
    trained = f"; {result.steps} steps" if result else ""
    head = {
        "library": "anaphora",
        "task": task.command,
        "model": preset.name,
        "parameters": parameters,
        "seed": settings.get("seed"),
        "metrics": metrics,
        "versions": {
            "anaphora": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
        },
    }
    lines = [
        "---",
        *(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()),
        "---",
        "",
    ]
    lines += [f"# {task.name}: {preset.name}", "", preset.summary, ""]
    lines += [f"{parameters:,} parameters; vocabulary {_words(vocabulary)}{trained}.", ""]
    lines += ["## Dev results", "", "| measure | value |", "|---|---|"]
    lines += [f"| {key} | {value:.4g} |" for key, value in metrics.items()] or ["| none | |"]
    lines += ["", "## Data", ""]
    for role, facts in recipe.data.items():
        lines.append(f"- **{role}**: `{json.dumps(facts, ensure_ascii=False, sort_keys=True)}`")
    lines += ["", "## Settings", "", "```json", json.dumps(settings, indent=2, ensure_ascii=False), "```", ""]
    lines += ["## Use", "", "```python", "import anaphora as an", "", 'm = an.load("THIS FOLDER")']
    lines += ['m.predict(["…"])', "```", ""]
    return "\n".join(lines)


def _words(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
