"""``anaphora verify``: every file of a run read and compared with what it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from anaphora.errors import AnaphoraError
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.registry import estimator
from anaphora.training import signature, verify
from anaphora.training.run import RunFolder


@dataclass(frozen=True)
class Finding:
    """One file (or checkpoint) and what was found."""

    file: str
    fine: bool
    text: str
    about: Literal["content", "signature"] = "content"


def verify_run(path: str | Path, *, key: str | Path | None = None) -> list[Finding]:
    """Check the config, what was learned besides weights, the weights against both, the journals and every checkpoint.

    With the file of a ``key``, also that every file is the one that was signed with it, and that there is no other.
    """
    run = RunFolder.open(Path(path))
    return [
        *_signature(run, key),
        _tried(run.config.name, lambda: f"task {Recipe.read(run.path).task.command}"),
        *(_tried(name, lambda: _learnt(run)) for name in run.learnt_names()),
        *(Finding(v.name, v.state != "damaged", v.detail) for v in verify.verify_run(run)),
    ]


def _signature(run: RunFolder, key: str | Path | None) -> list[Finding]:
    if key is not None:
        fingerprint, wrong = signature.check(run, key)
        fits = f"every file is as it was signed with the key {fingerprint}"
        return [_signed(name, False, text) for name, text in wrong] or [_signed(signature.NAME, True, fits)]
    if signature.is_signed(run):
        return [_signed(signature.NAME, True, "not checked; give the key with --key FILE")]
    return []


def _signed(name: str, fine: bool, text: str) -> Finding:
    return Finding(name, fine, text, "signature")


def _tried(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, check())
    except AnaphoraError as error:
        return Finding(name, False, str(error))
    except (TypeError, ValueError, LookupError, AttributeError) as error:  # nonsense in a file is damage
        return Finding(
            name, False, f"does not hold what a run wrote ({str(error)[:200]}); restore it from a copy"
        )


def _learnt(run: RunFolder) -> str:
    recipe = Recipe.read(run.path)
    empty = estimator(recipe.command).from_recipe(recipe.with_artifacts(run.path))
    return ", ".join(f"{name} {count:,}" for name, count in empty._vocabulary().items())
