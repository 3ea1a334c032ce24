"""Training state to files and back: what a checkpoint and the exported weights hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

from anaphora.errors import RunError, TrainingError
from anaphora.files import read_bytes
from anaphora.files.writing import remove, replace_file, writing
from anaphora.native.cuda import check_kernels
from anaphora.training.averaging import with_average
from anaphora.training.checkpoint import (
    Checkpoint,
    CheckpointFolder,
    Skipped,
    Unusable,
    read,
    write_listed,
)
from anaphora.training.distributed import Group
from anaphora.training.run import RunFolder
from anaphora.training.sharding import parts
from anaphora.training.state import TrainingState
from anaphora.training.weights import first_not_finite, mismatch, pack, unpack

FORMAT = 1
_NOTED = tuple(field.name for field in fields(TrainingState) if field.name not in ("tensors", "exported"))


def save(
    run: RunFolder, state: TrainingState, *, keep: int, abandoned: Callable[[], bool] = lambda: False
) -> Path:
    """Write ``state`` as a checkpoint, and remove all but the ``keep`` newest and those with the best dev metrics.

    ``abandoned`` is called before each file; once it is true, a ``KeyboardInterrupt`` ends the save.
    """

    def files() -> Iterator[tuple[str, bytes]]:
        for file in _files(run, state):
            if abandoned():
                raise KeyboardInterrupt
            yield file

    best = {int(one["step"]) for one in state.standing["ranked"]}
    return CheckpointFolder(run.checkpoints).save(state.step, files(), keep=keep, also=best)


def save_parts(run: RunFolder, state: TrainingState, group: Group, *, keep: int) -> Path:
    """`save` where tensors are divided: process r of R writes ``model-r-of-R.safetensors`` and so on; the first one the rest,
    and the manifest last. All processes must call this; an error of one is raised in all."""
    folder = CheckpointFolder(run.checkpoints)
    aside = group.on_main(folder.begin)
    listed: dict[str, Any] = {}
    error: Exception | None = None
    try:
        with writing(run.checkpoints, kept=folder.kept()):
            for file in _part_files(run, state, group):
                listed |= write_listed(aside, *file)
    except Exception as problem:
        error = problem
    found = group.gather((listed, None if error is None else (group.rank, str(error))))
    failed = next((one for _, one in found if one), None)

    def complete() -> Path:
        everything = {name: facts for files, _ in found for name, facts in files.items()}
        best = {int(one["step"]) for one in state.standing["ranked"]}
        return folder.complete(aside, state.step, _other_files(state), everything, keep=keep, also=best)

    if failed:
        group.on_main(lambda: remove(aside))
        raise error or RunError(f"rank {failed[0]}: {failed[1]}")
    return group.on_main(complete)


def export(run: RunFolder, weights: Mapping[str, Tensor], facts: Mapping[str, Any]) -> bytes:
    """Write ``weights`` as the run's ``model.safetensors``; returns its bytes, which every checkpoint repeats."""
    files = {"files": run.fingerprints()}
    packed = pack(_finite(run, weights, "model", facts["step"]), facts={**facts, **files})
    _write_model(run, packed)
    return packed


def newest(
    run: RunFolder, now: TrainingState, restore: Callable[[TrainingState], None]
) -> tuple[Path | None, TrainingState | None, list[Skipped]]:
    """The newest checkpoint that verifies, is of the same model as ``now`` and could be restored, and those passed over.

    A checksum does not prove that values make sense together; so only a checkpoint that ``restore`` took is good.
    """

    found, skipped = CheckpointFolder(run.checkpoints).newest(lambda one: _accept(one, now, restore))
    return (found.path, _state_of(found), skipped) if found else (None, None, skipped)


def named(
    run: RunFolder, step: int, now: TrainingState, restore: Callable[[TrainingState], None]
) -> TrainingState:
    """The state in the checkpoint of ``step``, as `newest` would take it; ``Unusable`` says why it cannot be used."""
    checkpoint = read(checkpoint_path(run, step))
    _accept(checkpoint, now, restore)
    return _state_of(checkpoint)


def _accept(checkpoint: Checkpoint, now: TrainingState, restore: Callable[[TrainingState], None]) -> None:
    state = _state_of(checkpoint)
    _check_same_model(state, now)
    try:
        restore(state)
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise Unusable(f"it cannot be restored ({reason[:200]})") from error


def load(path: Path) -> TrainingState:
    """The state in one checkpoint."""
    return _state_of(read(path))


def weights_of(run: RunFolder, step: int) -> dict[str, Tensor]:
    """The weights that were evaluated at the checkpoint of ``step``: the average, where there is one.

    ``RunError`` where there is no such checkpoint, it is damaged, or the run's files are not those it was made with.
    """
    path = checkpoint_path(run, step)
    try:
        state = load(path)
    except Unusable as reason:
        raise RunError(f"{path}: cannot be used, {reason}; name another checkpoint.") from None
    if state.exported is None:
        raise RunError(f"{path}: does not say which files it belongs to; name another checkpoint.")
    _, facts = unpack(state.exported, where="best.safetensors")
    run.check_files(facts)
    return with_average(state.tensors["model"], state.tensors.get("ema", {}))


def checkpoint_path(run: RunFolder, step: int) -> Path:
    """The folder of a checkpoint that is there; else a sentence with those that are."""
    there = sorted(number for number, _ in CheckpointFolder(run.checkpoints).steps())
    if step not in there:
        has = f"it has {', '.join(map(str, there))}" if there else "it has none"
        raise RunError(f"{run.path}: has no checkpoint of step {step}; {has}.")
    return CheckpointFolder(run.checkpoints).path_of(step)


def check_files(run: RunFolder, state: TrainingState) -> None:
    """Refuse a folder whose artifacts are not those the state was trained with; settings may have changed."""
    if state.exported is not None:
        _, facts = unpack(state.exported, where="best.safetensors")
        run.check_files(facts, changed=frozenset({"config.json"}))


def put_model_back(run: RunFolder, exported: bytes) -> bytes:
    """Make the run's ``model.safetensors`` again the one that belongs to a checkpoint; returns its bytes."""
    tensors, facts = unpack(exported, where=str(run.model))
    files = run.fingerprints()
    if facts["files"] != files:  # config.json was changed on purpose, so let the weights name the new one
        exported = pack(tensors, facts={**facts, "files": files})
    if not _holds(run.model, exported):
        _write_model(run, exported)
    return exported


def _holds(path: Path, content: bytes) -> bool:
    try:
        return read_bytes(path, follow=False) == content
    except OSError:
        return False


def last_good(run: RunFolder) -> str:
    """A clause that names the checkpoint a run can be resumed from."""
    steps = [step for step, _ in CheckpointFolder(run.checkpoints).steps()]
    return f" (the checkpoint of step {max(steps)} is good)" if steps else ""


def _part_files(run: RunFolder, state: TrainingState, group: Group) -> Iterator[tuple[str, bytes]]:
    for part, tensors in state.tensors.items():
        mine, shapes = parts(tensors, group.main)
        if shapes:
            finite = _finite(run, mine, part, state.step)
            facts = {"step": state.step, "shapes": shapes}
            yield f"{part}-{group.rank}-of-{group.world}.safetensors", pack(finite, facts=facts)
        elif group.main and (tensors or part in ("model", "optimizer")):
            yield (
                f"{part}.safetensors",
                pack(_finite(run, mine, part, state.step), facts={"step": state.step}),
            )


def _files(run: RunFolder, state: TrainingState) -> Iterator[tuple[str, bytes]]:
    for part, tensors in state.tensors.items():
        if tensors or part in ("model", "optimizer"):
            finite = _finite(run, tensors, part, state.step)
            yield f"{part}.safetensors", pack(finite, facts={"step": state.step})
    yield from _other_files(state)


def _other_files(state: TrainingState) -> Iterator[tuple[str, bytes]]:
    """The best weights so far, and all that is no tensor."""
    if state.exported is not None:
        yield "best.safetensors", state.exported
    # not sorted: the order in which a task names its metrics is kept
    noted = {"format": FORMAT, **{name: getattr(state, name) for name in _NOTED}}
    yield "state.json", json.dumps(noted, ensure_ascii=False, allow_nan=False).encode()


def _state_of(checkpoint: Checkpoint) -> TrainingState:
    noted = checkpoint.state
    if noted.get("format") != FORMAT:
        raise Unusable(f"state.json has format {noted.get('format')}, this version reads {FORMAT}")
    parts = {name: noted.get(name, {}) for name in _NOTED}  # `checkpoint.read` has checked what must be there
    return TrainingState(**parts, tensors=checkpoint.tensors, exported=checkpoint.best)


def _check_same_model(found: TrainingState, now: TrainingState) -> None:
    edited = found.edited(now)
    why = f"; by config.json {', '.join(edited)}" if edited else ""
    model = now.tensors["model"]
    if odd := mismatch(model, found.tensors["model"]):
        raise Unusable(f"it is of another model ({odd}{why})")
    if bool(now.tensors.get("ema")) != ("ema" in found.tensors):
        raise Unusable("it was made with another setting of ema, swa or average_after")
    if odd := mismatch(now.tensors.get("ema", {}), found.tensors.get("ema", {})):
        raise Unusable(f"ema.safetensors is of another model ({odd})")
    any_shape = ":" in str(now.settings.get("optimizer"))  # what an own optimizer keeps is its own business
    for key, value in found.tensors["optimizer"].items():
        name = key.rpartition("/")[0]
        usual = name in model and value.shape in (model[name].shape, ()) and value.is_floating_point()
        if name not in model or not (usual or any_shape):
            raise Unusable(
                f"optimizer.safetensors is of another model ({key} is {tuple(value.shape)} {value.dtype})"
            )


def _finite(run: RunFolder, tensors: Mapping[str, Tensor], part: str, step: int) -> Mapping[str, Tensor]:
    check_kernels()
    bad = first_not_finite(tensors)
    if bad is not None:
        what = "weights" if part in ("model", "ema") else f"{part}'s values"
        raise TrainingError(
            f"step {step}: the {what} {bad} are not finite, so nothing was saved; "
            f"lower lr or lengthen warmup, and start again{last_good(run)}."
        )
    return tensors


def _write_model(run: RunFolder, packed: bytes) -> None:
    with writing(run.model, kept=CheckpointFolder(run.checkpoints).kept()):
        replace_file(run.model, packed)
