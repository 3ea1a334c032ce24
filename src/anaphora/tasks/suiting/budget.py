"""How long to train on an embedded corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anaphora.data.sources.report import say
from anaphora.tasks.registry import resolve
from anaphora.tasks.suiting.sizing import LENGTH, embedded

if TYPE_CHECKING:
    from anaphora.tasks.estimator import Estimator


def suit_corpus(m: Estimator, data: Any) -> None:
    """Train the ``steps`` of the preset's defaults on an embedded corpus, where the user says nothing else.

    Such a corpus is generated: as much of it could be had as one likes, so that a pass over it means nothing.
    """
    task = m.task()
    preset = task.preset_of(m.settings_)
    if not preset.budget or task.counts_corpora or {"steps", "epochs"} & m._given.keys():
        return
    if not embedded(data.describe()):
        return
    steps = preset.defaults.get("steps", task.settings.model_fields["steps"].default)
    asked = resolve(task, {**m._given, "steps": steps})
    changes = {key: getattr(asked, key) for key in LENGTH | preset.budget.keys()}
    m.settings_ = m.settings_.model_copy(update=changes)
    say(f"assumed, for an embedded corpus: steps={steps}")
