"""A trained estimator in a folder: saved, and loaded after every file was checked."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from anaphora.errors import AnaphoraError, RunError
from anaphora.kinds.result import html_table
from anaphora.nn.lora import has_adapters, merged
from anaphora.settings.own import parts_of
from anaphora.tasks.card import model_card
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.task import Parameters
from anaphora.training.film import frame_weights
from anaphora.training.precision import choose_device
from anaphora.training.run import RunFolder
from anaphora.training.saving import weights_of
from anaphora.training.weights import first_not_finite, mismatch, save_weights, snapshot

_SMALL = 1 << 24
_USUAL, _NARROW = 1 << 16, 512
"""Settings up to which a model is small whatever they mean: any whole number, and the width."""


class Stored(Parameters):
    """An estimator that is written to a folder and comes back from one."""

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the model alone (no data, no checkpoints) to a folder that ``an.load`` reads."""
        self._check_trained()
        self.write(folder, replace(self.recipe_in_use(), data={}), force=force)

    def recipe_in_use(self, *more: str) -> Recipe:
        """Return the recipe with what was learned, and with the settings of predicting and ``more``, as they are now.

        `set_params` may have changed others since, which says nothing about these weights.
        """
        names = [key for key in (*self.task().predicting.model_fields, *more) if hasattr(self.settings_, key)]
        settings = self.recipe_.settings.model_copy(
            update={key: getattr(self.settings_, key) for key in names}
        )
        return replace(self.recipe_, settings=settings, artifacts=self.artifacts())

    def write(self, folder: str | Path, recipe: Recipe, *, force: bool = False) -> None:
        """Write the model with its weights as they are now."""
        run = RunFolder.create(Path(folder), force=force)
        recipe.write(run.path)
        step = self.result_.best_step if hasattr(self, "result_") else None
        facts = {"step": step, "chosen": "saved", "files": run.fingerprints()}
        save_weights(run.model, self._weights(), facts=facts)
        run.write("README.md", self._card(recipe))

    def export(self, path: str | Path, *, to: str = "onnx", force: bool = False, **options: Any) -> Path:
        """Write the model in a format that others read, and return its path.

            m.export("exported/reviews", to="onnx")   # a folder, which `anaphora.runtime` runs without torch

        ``to`` is a format of `anaphora.tasks.exporting.formats.FORMATS`, which ``anaphora export --help`` lists; ``options``
        are that format's own. Raises an `AnaphoraError` for a model that has no such form, and where ``path`` exists and
        ``force`` is not given.
        """
        from anaphora.tasks.exporting.export import export

        return export(self, path, to, force=force, **options)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str = "auto",
        checkpoint: int | None = None,
        frame: int | None = None,
        trust: bool = False,
        **parts: Any,
    ) -> Self:
        """The trained estimator of this task in ``folder``; ``an.load`` finds the task by itself.

            m = an.Classifier.load("runs/reviews")

        ``trust`` and ``parts`` are about own parts, as in `an.load`. Raises a `RunError` where the folder holds no run,
        a damaged one, or one of another task.
        """
        path = Path(folder)
        recipe = Recipe.read(path)
        if recipe.command != cls.command:
            name = recipe.task.name
            raise RunError(f"{folder}: holds a {name}, not a {cls.__name__}; use an.load, or an.{name}.load.")
        return cls.from_folder(
            path, recipe, device=device, checkpoint=checkpoint, frame=frame, trust=trust, parts=parts
        )

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        recipe: Recipe,
        *,
        device: str = "auto",
        checkpoint: int | None = None,
        frame: int | None = None,
        trust: bool = False,
        parts: Mapping[str, Any] | None = None,
    ) -> Self:
        """The trained estimator in a run folder; ``an.load`` calls this."""
        recipe = recipe.with_parts(folder, parts or {}, trust=trust, training=False)
        run = RunFolder(folder)
        # first the weights: that verifies the files the rest is built from
        tensors = run.load_model()[0] if checkpoint is None else weights_of(run, checkpoint)
        if frame is not None:
            tensors = frame_weights(run, frame)
        with as_told(run.path / run.learnt_names()[0]):
            self = cls.from_recipe(recipe.with_artifacts(run.path))
        self._take_weights(run, tensors, choose_device(device))
        return self

    def _take_weights(self, run: RunFolder, tensors: dict[str, Tensor], device: torch.device) -> None:
        broken = first_not_finite(tensors)
        if broken is not None:
            raise RunError(f"{run.model}: the weights {broken} are not finite numbers; use another copy.")
        if has_adapters(tensors):
            tensors = merged(run.load_base(), tensors, self.settings_.lora_scale)
        self._check_sizes(run)
        try:
            self._rebuild(tensors, device)
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise RunError(
                f"{run.model}: holds the weights of another model ({reason}); restore the whole folder."
            ) from None

    def _check_sizes(self, run: RunFolder) -> None:
        """Refuse a config that asks for far more numbers than all weights of the run have, before memory is taken for them."""
        sizes = [one for one in self.settings_.model_dump().values() if type(one) is int]
        if max(sizes, default=0) <= _USUAL and getattr(self.settings_, "hidden", 0) <= _NARROW:
            return  # as nearly always: a model is built once
        if not hasattr(self, "_fresh_model") or parts_of(self.settings_):
            return
        there = sum(one.stat().st_size for one in run.path.rglob("*.safetensors"))
        try:
            check_size(self._fresh_model, run.config, there, "restore it from a copy of the run")
        except RunError:
            raise
        except (
            Exception
        ):  # a part that needs numbers at once; whatever else is wrong is reported when it is made
            return

    def _repr_html_(self) -> str:
        """A table for a notebook: the settings that were given, and what training came to."""
        facts: dict[str, Any] = {**self._given, "model": self.settings_.model}
        if hasattr(self, "model_"):
            facts |= {"parameters": self._parameters(), **self._vocabulary()}
        if hasattr(self, "result_"):
            facts |= {"steps": self.result_.steps, **{f"dev {k}": v for k, v in self.result_.metrics.items()}}
        return html_table(facts, type(self).__name__)

    def _check_trained(self) -> None:
        if not hasattr(self, "model_"):
            name = type(self).__name__
            raise AnaphoraError(f"this {name} has not been trained: call fit(…) first, or an.load(RUN).")

    def _card(self, recipe: Recipe) -> str:
        return model_card(
            recipe,
            parameters=self._parameters(),
            vocabulary=self._vocabulary(),
            result=getattr(self, "result_", None),
        )

    def _parameters(self) -> int:
        """How many numbers were learned."""
        if isinstance(self.model_, nn.Module):
            return sum(weight.numel() for weight in self.model_.parameters())
        return sum(weight.numel() for weight in self._weights().values())

    def _weights(self) -> dict[str, Tensor]:
        """What ``model.safetensors`` holds."""
        return snapshot(self.model_)

    def _rebuild(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        """Make ``model_`` again of ``_weights``; a RuntimeError where they are another model's."""
        self.model_ = self._fresh_model()
        if odd := mismatch(self.model_.state_dict(), tensors):  # torch would take int8 for floats silently
            raise RuntimeError(odd)
        self.model_.load_state_dict(tensors)
        self.model_.to(device).eval()


class _WithoutFirstWeights(TorchFunctionMode):
    """Leave out drawing first weights: where there is no memory they are nothing, and PyTorch would import its compiler for it."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init" or func is torch.Tensor.normal_:
            return (kwargs or {}).get("tensor", *args[:1])
        return func(*args, **(kwargs or {}))


def check_size(make: Callable[[], Any], config: Path, there: int, remedy: str) -> None:
    """Raise a `RunError` where the model that ``make`` makes as ``config`` says has far more numbers than ``there`` are bytes.

    It is made without memory for its numbers. A number has half a byte at least.
    """
    try:
        with torch.device("meta"), _WithoutFirstWeights():
            module = make()
        wanted = (
            sum(one.numel() for one in module.state_dict().values()) if isinstance(module, nn.Module) else 0
        )
    except (RuntimeError, OverflowError, MemoryError) as error:
        if isinstance(error, RuntimeError) and not re.search("overflow|memory|invalid", str(error)):
            raise
        raise RunError(f"{config} describes a model that no memory holds; {remedy}.") from None
    if wanted > 2 * there + _SMALL:
        raise RunError(
            f"{config} describes a model of {wanted:,} numbers, and the weights have {there:,} bytes; {remedy}."
        )


@contextlib.contextmanager
def as_told(file: Path) -> Iterator[None]:
    """While a run is made again from what ``file`` says, nonsense in it is a damaged file and no fault of ours."""
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise RunError(
            f"{file}: does not hold what a run wrote; restore it from a copy of the run."
        ) from error
