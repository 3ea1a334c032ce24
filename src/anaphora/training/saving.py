"""Between a Trainer and its files: what goes into a checkpoint and the export, and how it comes back."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from anaphora._version import __version__
from anaphora.errors import RunError, TrainingError
from anaphora.kernels.toolchain.compiler import compiler
from anaphora.settings import TrainingSettings
from anaphora.training.checkpoint import Checkpoint, CheckpointFolder, Skipped, Unusable, read
from anaphora.training.durable import replace_file, writing
from anaphora.training.objective import carried_state
from anaphora.training.optimizers import optimizer_tensors, restore_optimizer
from anaphora.training.schedules import Progress
from anaphora.training.weights import first_not_finite, pack, snapshot, unpack

if TYPE_CHECKING:
    from anaphora.training.loop import Trainer

FORMAT = 1


class Keeper:
    """Saves and restores one Trainer.

    The exported weights (``model.safetensors`` of the run) are also held in memory and copied into every
    checkpoint: whichever checkpoint a run goes on from, the export that belongs to it can be put back.
    """

    def __init__(self, trainer: Trainer):
        self.trainer = trainer
        self.checkpoints = CheckpointFolder(trainer.folder.checkpoints)
        self.exported: bytes | None = None
        self.marks: dict[str, Any] = {}
        self.asked_to_resume = False

    def export(self, chosen: Literal["best", "last"]) -> None:
        """Write the present (averaged, where there is an average) weights as the run's ``model.safetensors``."""
        trainer = self.trainer
        best = trainer.standing.best if chosen == "best" else None
        facts = {
            "step": trainer.standing.step,
            "chosen": chosen,
            "averaged": trainer.average is not None and trainer.average.active,
            "metric": trainer.objective.metric if best else None,
            "value": best["value"] if best else None,
            "files": trainer.folder.fingerprints(),
        }
        if trainer.average:
            with trainer.average.in_place_of(trainer.model):
                tensors = self._finite(snapshot(trainer.model))
                self.exported = pack(tensors, facts=facts)
        else:
            self.exported = pack(self._finite(snapshot(trainer.model)), facts=facts)
        with writing(trainer.folder.model, kept=self.checkpoints.kept()):
            replace_file(trainer.folder.model, self.exported)

    def save(self) -> Path:
        """Write a checkpoint, from rank 0; first the weights of this step as the export if there is no best one."""
        carried = self.trainer.group.gather(
            {k: v.cpu() for k, v in carried_state(self.trainer.objective).items()}
        )
        return self.trainer.group.on_main(lambda: self._save(carried))

    def _save(self, carried: list[dict[str, Tensor]]) -> Path:
        trainer = self.trainer
        for journal in trainer.journals.values():
            journal.sync()
        if trainer.standing.best is None:
            self.export("last")
        return self.checkpoints.save(trainer.standing.step, self._files(carried), keep=trainer.settings.keep)

    def _files(self, carried: list[dict[str, Tensor]]) -> Iterator[tuple[str, bytes]]:
        trainer = self.trainer
        facts = {"step": trainer.standing.step}
        parts = {
            "model": snapshot(trainer.model),
            "optimizer": optimizer_tensors(trainer.model, trainer.stepper.optimizer),
            "ema": trainer.average.tensors if trainer.average else {},
            "objective": {f"{rank}/{k}": v for rank, mine in enumerate(carried) for k, v in mine.items()},
        }
        for part, tensors in parts.items():
            if tensors or part in ("model", "optimizer"):
                yield f"{part}.safetensors", pack(self._finite(tensors, part), facts=facts)
        if self.exported is not None:
            yield "best.safetensors", self.exported
        # not sorted: the order in which a task names its metrics is kept
        yield "state.json", json.dumps(self._state(), ensure_ascii=False, allow_nan=False).encode()

    def _state(self) -> dict[str, Any]:
        trainer = self.trainer
        return {
            "format": FORMAT,
            "standing": dict(vars(trainer.standing)),
            "progress": trainer.progress.state(),
            "health": trainer.health.state(),
            "scale": trainer.stepper.scale.state(),
            "batches": trainer.batches.state(),
            "journals": {name: journal.mark() for name, journal in trainer.journals.items()},
            "made_with": self.made_with(),
            "settings": self._settings(),
        }

    def restore(self) -> int:
        """Load the newest checkpoint that verifies, and say what was passed over."""
        trainer = self.trainer
        self.asked_to_resume = True
        found: list[Checkpoint] = []

        def find() -> tuple[Path | None, list[Skipped]]:
            checkpoint, skipped = self.checkpoints.newest(self._accept)
            found.extend([checkpoint] if checkpoint else [])
            return checkpoint.path if checkpoint else None, skipped

        path, skipped = trainer.group.on_main(find)
        for one in skipped:
            trainer.reporter.warn(f"{one.path}: skipped, {one.reason}.")
        if path is None:
            if skipped:
                raise RunError(
                    f"{trainer.folder.path}: none of its {len(skipped)} checkpoints can be used "
                    f"({skipped[0].path.name}: {skipped[0].reason}); put back what was changed, restore one from a "
                    "backup, or train anew."
                )
            trainer.reporter.say(
                f"{trainer.folder.path}: has no checkpoint yet, so training starts from the beginning."
            )
            return 0
        self._take(found[0] if found else read(path))
        if not trainer.over():
            trainer.reporter.say(
                f"{trainer.folder.path}: goes on from the checkpoint of step {trainer.standing.step}."
            )
        return trainer.standing.step

    def _accept(self, checkpoint: Checkpoint) -> None:
        """Whether a checkpoint is one of this model."""
        if checkpoint.state.get("format") != FORMAT:
            raise Unusable(
                f"state.json has format {checkpoint.state.get('format')}, this version reads {FORMAT}"
            )
        mine, theirs = self.trainer.model.state_dict(), checkpoint.tensors["model"]
        edited = self._edited(checkpoint.state)
        why = f"; by config.json {', '.join(edited)}" if edited else ""
        if set(mine) != set(theirs):
            odd = sorted(set(mine) ^ set(theirs))[0]
            raise Unusable(f"it is of another model ({odd} is in one of them only{why})")
        for name, value in mine.items():
            other = theirs[name]
            if (value.shape, value.dtype) != (other.shape, other.dtype):
                raise Unusable(
                    f"it is of another model ({name} is {tuple(other.shape)} {other.dtype} there "
                    f"and {tuple(value.shape)} {value.dtype} here{why})"
                )
        if (self.trainer.average is not None) != ("ema" in checkpoint.tensors):
            raise Unusable("it was made with another setting of ema or average_after")

    def _take(self, checkpoint: Checkpoint) -> None:
        trainer, state = self.trainer, checkpoint.state
        if checkpoint.best is not None:  # settings may be changed between two runs; what was learnt may not
            _, facts = unpack(checkpoint.best, where="best.safetensors")
            trainer.folder.check_files(facts, changed=frozenset({"config.json"}))
        self._warn_of_changes(state)
        trainer.model.load_state_dict(checkpoint.tensors["model"])
        restore_optimizer(trainer.model, trainer.stepper.optimizer, checkpoint.tensors["optimizer"])
        if trainer.average:
            trainer.average.restore(checkpoint.tensors["ema"])
        prefix = f"{trainer.group.rank}/"
        mine = {
            name.removeprefix(prefix): value.to(trainer.device)
            for name, value in checkpoint.tensors.get("objective", {}).items()
            if name.startswith(prefix)
        }
        if mine and state["made_with"]["world"] == trainer.group.world and self._same_batches(state):
            trainer.objective.load_state_dict(mine)  # type: ignore[attr-defined]
        for name, value in state["standing"].items():
            setattr(trainer.standing, name, value)
        trainer.progress = Progress(**state["progress"])
        trainer.health.restore(state["health"])
        trainer.stepper.scale.restore(state["scale"])
        try:
            trainer.batches.restore(state["batches"])
        except (LookupError, TypeError, ValueError):
            if self._same_batches(state):
                raise
            raise RunError(
                f"{trainer.folder.path}: the place in the data cannot be found again, as by config.json "
                f"{', '.join(self._edited(state))}; put back what was changed, or train anew."
            ) from None
        self.marks = state["journals"]
        self.exported = checkpoint.best

    def put_model_back(self) -> None:
        """After ``restore``: the run's ``model.safetensors`` is again the one of the checkpoint."""
        model, files = self.trainer.folder.model, self.trainer.folder.fingerprints()
        if self.exported is None:
            return
        tensors, facts = unpack(self.exported, where=str(model))
        if facts["files"] != files:  # config.json was changed on purpose, so let the weights name the new one
            self.exported = pack(tensors, facts={**facts, "files": files})
        if not model.is_file() or model.read_bytes() != self.exported:
            with writing(model, kept=self.checkpoints.kept()):
                replace_file(model, self.exported)

    def made_with(self) -> dict[str, Any]:
        """What the exact numbers depend on besides seed and settings."""
        device = self.trainer.device
        return {
            "anaphora": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
            "cpu": torch.backends.cpu.get_cpu_capability(),
            "compiler": Path(
                compiler() or "none"
            ).name,  # of the recurrence kernels; without one torch loops run
            "threads": torch.get_num_threads(),
            "world": self.trainer.group.world,
            "precision": self.trainer.precision,
        }

    def last_good(self) -> str:
        """A clause that names the checkpoint a run can be resumed from."""
        steps = [step for step, _ in self.checkpoints.steps()]
        return f" (the checkpoint of step {max(steps)} is good)" if steps else ""

    def _settings(self) -> dict[str, Any]:
        return dict(json.loads(self.trainer.settings.model_dump_json()))

    def _edited(self, state: Mapping[str, Any]) -> list[str]:
        """Clauses that name the settings that were others when ``state`` was written."""
        return self._changed(state.get("settings", {}), self._settings())

    def _same_batches(self, state: Mapping[str, Any]) -> bool:
        """Whether batches are cut as they were: no setting of the task was changed, and not their size."""
        cutting = self._settings().keys() - TrainingSettings.model_fields.keys() | {"batch_tokens"}
        before, now = state.get("settings", {}), self._settings()
        return not any(name in before and before[name] != now[name] for name in cutting)

    def _warn_of_changes(self, state: Mapping[str, Any]) -> None:
        now = self.made_with()
        changed = self._changed({**dict.fromkeys(now), **state["made_with"]}, now)
        edited = self._edited(state)
        if edited:
            self.trainer.reporter.say(
                f"{self.trainer.folder.path}: {', '.join(edited)} since the checkpoint was written; the run goes on "
                "with that."
            )
        if changed:
            self.trainer.reporter.warn(
                f"{', '.join(changed)}: the run goes on, but not bit for bit as it would have without the change."
            )

    @staticmethod
    def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
        """Clauses that name what is not as it was; what ``before`` does not know cannot be told."""
        now = json.loads(json.dumps(now))

        def word(value: Any) -> str:
            return str(value).lower() if isinstance(value, bool) else str(value)

        return [
            f"{name} was {word(before[name])} and is {word(value)}"
            for name, value in now.items()
            if name in before and before[name] != value
        ]

    def _finite(self, tensors: dict[str, Tensor], part: str = "model") -> dict[str, Tensor]:
        bad = first_not_finite(tensors)
        if bad is not None:
            what = "weights" if part in ("model", "ema") else f"{part}'s values"
            raise TrainingError(
                f"step {self.trainer.standing.step}: the {what} {bad} are not finite, so nothing was saved; "
                f"lower lr or lengthen warmup, and start again{self.last_good()}."
            )
        return tensors
