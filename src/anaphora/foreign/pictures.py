"""How pictures are prepared for a published model: what ``preprocessor_config.json`` says, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.resampling import Filter, Fit
from anaphora.errors import RunError
from anaphora.foreign.folder import read_json
from anaphora.kinds.vectors import VectorInputs

FILE = "preprocessor_config.json"
_FILTERS: dict[int, Filter] = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""By Pillow's numbers."""
_USUAL: dict[str, Any] = {
    "vit": {
        "size": {"height": 224, "width": 224},
        "resample": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    },
    "deit": {
        "size": {"height": 256, "width": 256},
        "resample": 3,
        "do_center_crop": True,
        "crop_size": {"height": 224, "width": 224},
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    },
}
"""What the processors of `transformers` do where the file does not say."""


def read_preparation(folder: Path, model_type: str, size: tuple[int, int], channels: int) -> VectorInputs:
    """How pictures become numbers; a `RunError` lists all that has no counterpart here. Without the file nothing is known of
    it, which is an error."""
    if not (folder / FILE).is_file():
        raise RunError(
            f"{folder} has no {FILE}, which says how pictures are scaled and normalised; save it with its image processor."
        )
    said = _USUAL[model_type] | {key: one for key, one in read_json(folder / FILE).items() if one is not None}
    problems: list[str] = []
    fit = _fit(said, size, problems)
    mean, std = (_row(said, key, channels, problems) for key in ("image_mean", "image_std"))
    factor = said.get("rescale_factor", 1 / 255) if said.get("do_rescale", True) else 1.0
    if not isinstance(factor, int | float) or not 0 < factor < 1e6:
        problems.append(f"rescale_factor = {factor!r}")
    if said.get("do_normalize", True) is False:
        mean, std = [0.0] * channels, [1.0] * channels
    if min(std, default=1.0) <= 0:
        problems.append(f"image_std = {said['image_std']!r}")
    if problems:
        raise RunError(
            f"{folder / FILE}: {'; '.join(problems)} has no counterpart here; choose another model."
        )
    # (x·factor − mean) / std as (x − mean/factor) / (std/factor)
    return VectorInputs(
        np.array(mean, np.float64).astype(np.float32) / np.float32(factor),
        np.array(std, np.float64).astype(np.float32) / np.float32(factor),
        size,
        fit=fit,
    )


def _fit(said: dict[str, Any], size: tuple[int, int], problems: list[str]) -> Fit | None:
    if not said.get("do_resize", True) and not said.get("do_center_crop", False):
        return None  # pictures must have the size already
    kind = _FILTERS.get(said["resample"] if isinstance(said["resample"], int) else -1)
    if kind is None:
        problems.append(f"resample = {said['resample']!r} (known: {', '.join(map(str, _FILTERS))})")
    to, shortest = _size(said["size"])
    cropped = bool(said.get("do_center_crop", False))
    left = _size(said.get("crop_size", said["size"]))[0] if cropped else to
    if to is None or not said.get("do_resize", True):
        problems.append(f"size = {said['size']!r}" if to is None else "do_resize = False before a crop")
    elif left != size or (shortest and not cropped):
        name = "crop_size" if cropped else "size"
        problems.append(f"{name} = {said.get(name)!r} beside image_size = {list(size)} of config.json")
    return Fit(to or size, kind or "bilinear", shortest)


def _size(value: Any) -> tuple[tuple[int, int] | None, bool]:
    """Rows and columns, and whether the shorter side is meant."""
    if isinstance(value, int):
        return (value, value), False
    if isinstance(value, dict) and isinstance(value.get("shortest_edge"), int):
        return (value["shortest_edge"],) * 2, True
    if isinstance(value, dict) and all(isinstance(value.get(one), int) for one in ("height", "width")):
        return (value["height"], value["width"]), False
    return None, False


def _row(said: dict[str, Any], key: str, channels: int, problems: list[str]) -> list[float]:
    value = said[key]
    if (
        isinstance(value, list)
        and len(value) == channels
        and all(isinstance(one, int | float) for one in value)
    ):
        return [float(one) for one in value]
    problems.append(f"{key} = {value!r}")
    return [1.0] * channels


def preparation_json(inputs: VectorInputs, model_type: str) -> dict[str, Any]:
    """The file that makes `transformers` prepare pictures as ``inputs`` does."""
    fit = inputs.fit
    assert inputs.size is not None
    size = {"height": inputs.size[0], "width": inputs.size[1]}
    found: dict[str, Any] = {
        "image_processor_type": "DeiTImageProcessor" if model_type == "deit" else "ViTImageProcessor",
        "do_resize": fit is not None,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": _plain(inputs.mean),
        "image_std": _plain(inputs.scale),
        "size": size,
        "do_center_crop": False,
    }
    if fit is None:
        return found
    back = {ours: theirs for theirs, ours in _FILTERS.items()}
    found["resample"] = back[fit.kind]
    if fit.shortest or fit.to != inputs.size:
        found["size"] = (
            {"shortest_edge": fit.to[0]} if fit.shortest else {"height": fit.to[0], "width": fit.to[1]}
        )
        found |= {"do_center_crop": True, "crop_size": size}
    return found


def _plain(values: Any) -> list[float]:
    return [float(f"{float(value) / 255:.7g}") for value in values]
