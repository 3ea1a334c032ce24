"""What every model of others goes through: its settings, its tensors under our names, the weights into a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from anaphora.data.tokenizers.vocabularies import Numbering
from anaphora.errors import RunError, SettingsError
from anaphora.foreign.folder import read_tensors
from anaphora.foreign.hows import sizes_of
from anaphora.foreign.mapping import Architecture, UnmappedError, inward
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.registry import TASKS, estimator, resolve
from anaphora.tasks.stored import check_size
from anaphora.training.precision import choose_device
from anaphora.training.weights import first_not_finite


def settings_of(
    folder: Path, architecture: Architecture, name: str, config: dict[str, Any]
) -> dict[str, Any]:
    """Our settings of the model of the class ``name``; a `RunError` names every value that has no counterpart."""
    try:
        return architecture.settings(config) | dict(architecture.heads[name].settings)
    except UnmappedError as error:
        raise RunError(
            f"{folder / 'config.json'}: {error} has no counterpart here; choose another model."
        ) from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{folder / 'config.json'} is not complete ({error!r}); download it again.") from None


def filled(
    m: Any,
    folder: Path,
    architecture: Architecture,
    name: str,
    s: dict[str, Any],
    words: Numbering,
    *,
    body: str,
    device: str,
) -> Any:
    """``m`` with its model, which has the weights of ``folder``; ``body``: what the names of a body begin with here."""
    _check_size(m, folder)
    m.model_ = m._fresh_model()
    take_weights(m.model_, folder, architecture, name, s, words, body=body)
    m.model_.to(choose_device(device)).eval()
    m._foreign = architecture.model_type
    return m


def _check_size(m: Any, folder: Path) -> None:
    """A `RunError` for a config that asks for far more numbers than the weights have, before memory is taken for them."""
    there = sum(one.stat().st_size for one in folder.iterdir() if one.suffix in (".safetensors", ".bin"))
    check_size(m._fresh_model, folder / "config.json", there, "download it again")


def take_weights(
    model: nn.Module,
    folder: Path,
    architecture: Architecture,
    name: str,
    s: dict[str, Any],
    words: Numbering,
    *,
    body: str,
) -> None:
    """The weights of ``folder`` into ``model``, all of them finite."""
    found = inward(
        architecture.rules(name, s, body=body),
        named(architecture, name, read_tensors(folder)),
        {key: value.shape for key, value in model.state_dict().items()},
        sizes_of(s, words),
        silent=architecture.silent,
        where=str(folder),
    )
    model.load_state_dict(found)
    if broken := first_not_finite(dict(model.state_dict())):
        raise RunError(f"{folder}: the weights of {broken} are not finite numbers; download it again.")


def named(architecture: Architecture, name: str, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under the names of the table: with the prefix that files of a bare model lack, or without the one that they have
    too many; buffers of whole numbers are left out."""
    kept = {key: value for key, value in given.items() if value.is_floating_point()}
    head = architecture.heads[name]
    if head.bare and any(key.startswith(architecture.prefix) for key in kept):
        kept = {key.removeprefix(architecture.prefix): value for key, value in kept.items()}
    for old, new in architecture.renamed.items():
        if old in kept and new not in kept:
            kept[new] = kept.pop(old)
    return {
        key.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): one
        for key, one in kept.items()
    }


def labels_of(folder: Path, config: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    """The labels of a classifier's config, and what kind of answer they are."""
    names = config.get("id2label")
    count = int(config.get("num_labels") or (len(names) if names else 2))
    labels = tuple(str((names or {}).get(str(i), f"LABEL_{i}")) for i in range(count))
    kind = {"multi_label_classification": "classes", "regression": "number"}.get(
        str(config.get("problem_type")), "class"
    )
    kind = "number" if count == 1 else kind
    if kind != "number" and len(set(labels)) < count:
        raise RunError(f"{folder / 'config.json'} has the same label twice in id2label; name them apart.")
    return labels, kind


def made(
    folder: Path, task: str, s: dict[str, Any], learnt: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]
) -> Any:
    """Return the estimator without its model; its settings are those of ``s`` that mean something to it. ``learnt``: what it
    knows besides weights, or what makes that of the complete settings."""
    used = TASKS[task].used(str(s["model"]))
    given = {key: value for key, value in s.items() if key in used}
    try:
        settings = resolve(TASKS[task], given)
    except SettingsError as error:
        raise RunError(f"{folder}: {'; '.join(error.problems)}") from None
    known = learnt(settings) if callable(learnt) else learnt
    return estimator(task).from_recipe(Recipe(task, settings, artifacts=known, trusts=True), given)
