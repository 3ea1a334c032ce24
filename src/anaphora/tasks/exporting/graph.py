"""A module as an ONNX graph with dynamic batch and length, checked against the module at sizes it was not traced with."""

from __future__ import annotations

import copy
import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anaphora.errors import AnaphoraError
from anaphora.nn.recurrent_scan import scanned_layers

OPSET = 20
TRACED = (3, 7)
"""Batch and length that a module is traced with."""
CHECKED = ((1, 1), (2, 5), (5, 23))
"""Batches and lengths at which the graph must agree with the module."""
TOLERANCE = 1e-4
NEEDED = ("onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True)
class Graph:
    """What becomes a graph: ``make(batch, length)`` gives inputs by name, ``axes`` names each of their axes ("" for one
    of fixed size)."""

    module: nn.Module
    make: Callable[[int, int], dict[str, Tensor]]
    axes: Mapping[str, tuple[str, ...]]
    outputs: tuple[str, ...]


def require_packages() -> None:
    """An `AnaphoraError` where a package that exporting needs is not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise AnaphoraError(
            f"an export to ONNX needs {', '.join(missing)}; install it with `pip install 'anaphora[export]'`."
        )


def write_graph(graph: Graph, path: Path) -> None:
    """Write the graph and check it; an `AnaphoraError` where it cannot be exported or does not agree with the module."""
    module = graph.module.eval()
    given = graph.make(*TRACED)
    dims = {axis: torch.export.Dim(axis) for axes in graph.axes.values() for axis in axes if axis}
    shapes = tuple(
        {place: dims[axis] for place, axis in enumerate(graph.axes[name]) if axis} for name in given
    )
    with torch.no_grad(), scanned_layers(), _quiet():
        try:
            program = torch.onnx.export(
                module,
                tuple(given.values()),
                dynamo=True,
                dynamic_shapes=shapes,
                input_names=list(given),
                output_names=list(graph.outputs),
                opset_version=OPSET,
                verbose=False,
            )
        except Exception as error:  # the exporter raises errors of many kinds for what it cannot translate
            reason = next(
                (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
            )
            raise AnaphoraError(
                f"this model cannot be exported to ONNX ({reason[:200]}); a part of it has no counterpart there."
            ) from error
        assert program is not None
        program.save(str(path), external_data=False)
    _check(graph, module, path)


@torch.no_grad()
def _check(graph: Graph, module: nn.Module, path: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for batch, length in CHECKED:
        given = graph.make(batch, length)
        wanted = module(*given.values())
        expected = [one.numpy() for one in (wanted if isinstance(wanted, tuple) else (wanted,))]
        found = session.run(list(graph.outputs), {name: value.numpy() for name, value in given.items()})
        for name, mine, theirs in zip(graph.outputs, expected, found, strict=True):
            close = mine.shape == theirs.shape and np.allclose(mine, theirs, rtol=TOLERANCE, atol=TOLERANCE)
            if not close:
                raise AnaphoraError(
                    f"the exported graph does not agree with the model ({name}, batch {batch}, length {length}); "
                    "nothing was kept."
                )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks about packages that are not installed, and warnings for its own developers."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def on_cpu(module: Any) -> nn.Module:
    """A copy in evaluation mode on the CPU in float32; the model itself stays where it is."""
    found: nn.Module = copy.deepcopy(module).cpu().float().eval()
    return found
