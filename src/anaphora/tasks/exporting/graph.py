"""A module as an ONNX graph with dynamic batch and length, checked against the module at sizes it was not traced with."""

from __future__ import annotations

import copy
import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx.experimental import _config

from anaphora.errors import AnaphoraError
from anaphora.files.bounds import human
from anaphora.nn.exporting import scanned_layers
from anaphora.nn.recurrent_nodes import prepare_nodes

OPSET = 20
TRACED = (3, 7)
"""Batch and length that a module is traced with."""
CHECKED = ((1, 1), (2, 5), (5, 23))
"""Batches and lengths at which the graph must agree with the module."""
TOLERANCE = 1e-4
_SIZES: Any = _config  # so that sizes 0 and 1 are as any other
LARGEST = (1 << 31) - (1 << 24)
"""Bytes of weights that one graph can hold: a file of ONNX has less than 2 GiB, and some of it is the graph itself."""
NEEDED = ("onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True)
class Graph:
    """What becomes a graph: ``make(batch, length)`` gives inputs by name, ``axes`` names each of their axes ("" for one
    of fixed size); ``kept`` are inputs that stay the same from step to step for as long as their item does; ``fills`` are the
    numbers that states begin with where that is not 0."""

    module: nn.Module
    make: Callable[[int, int], dict[str, Tensor]]
    axes: Mapping[str, tuple[str, ...]]
    outputs: tuple[str, ...]
    kept: tuple[str, ...] = ()
    fills: Mapping[str, float] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """For the runtime: the axes of each input, numbers where they are fixed, and the names of the outputs."""
        given = self.make(*TRACED)
        inputs = {
            name: [axis or size for axis, size in zip(self.axes[name], value.shape, strict=True)]
            for name, value in given.items()
        }
        kinds = {name: str(value.dtype).removeprefix("torch.") for name, value in given.items()}
        return {
            "inputs": inputs,
            "types": kinds,
            "outputs": list(self.outputs),
            "kept": list(self.kept),
            "fills": {name: str(value) for name, value in self.fills.items()},
        }


@dataclass(frozen=True)
class Export:
    """The graphs of a model by name, and what the runtime has to know besides them; ``exact``: its weights cannot be rounded."""

    graphs: Mapping[str, Graph]
    facts: dict[str, Any]
    exact: bool = False


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
    size = sum(one.numel() * one.element_size() for one in (*module.parameters(), *module.buffers()))
    if size > LARGEST:
        raise AnaphoraError(
            f"the weights take {human(size)}, and a file of ONNX has less than 2 GiB; train with a smaller vocab_size, or use the "
            "run folder."
        )
    given = graph.make(*TRACED)
    # Guards about traced sizes are let pass: what they would forbid is run and compared below.
    free = torch.export.Dim.AUTO
    shapes = tuple({place: free for place, axis in enumerate(graph.axes[name]) if axis} for name in given)
    called = _Called(module)
    # torch caches compiled loops, and fails on the guards of one cached for an earlier export of another model.
    torch.compiler.reset()
    with torch.no_grad(), scanned_layers(), _quiet():
        try:
            with _SIZES.patch(backed_size_oblivious=True):
                captured = torch.export.export(
                    called, tuple(given.values()), dynamic_shapes=(shapes,), strict=False
                )
            program = torch.onnx.export(
                captured,
                dynamo=True,
                input_names=list(given),
                output_names=list(graph.outputs),
                opset_version=OPSET,
                verbose=False,
            )
        except Exception as error:  # the exporter raises errors of many kinds for what it cannot translate
            raise AnaphoraError(
                f"this model cannot be exported to ONNX ({_reason(error)}); a part of it has no counterpart there."
            ) from error
        assert program is not None
        # Where each node was traced: paths of this machine, and half of the bytes of a small model.
        for node in program.model.graph.all_nodes():
            node.metadata_props.clear()
        program.save(str(path), external_data=False)
    _check(graph, module, path)


class _Called(nn.Module):
    """The module with any number of tensors, so that each has its own axes."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, *given: Tensor) -> Any:
        return self.module(*given)


def _reason(error: BaseException) -> str:
    """The first line of what went wrong first."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)[:200]


@torch.no_grad()
def _check(graph: Graph, module: nn.Module, path: Path) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # what it cannot run is raised as well
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no base class of its own for what it cannot read
        raise AnaphoraError(
            f"onnxruntime cannot read the exported graph ({_reason(error)}); nothing was kept."
        ) from error
    for batch, length in CHECKED:
        given = graph.make(batch, length)
        with torch.enable_grad():  # else stacks leave padding out, which the graph computes
            wanted = module(*given.values())
        expected = [one.detach().numpy() for one in (wanted if isinstance(wanted, tuple) else (wanted,))]
        try:
            found = session.run(list(graph.outputs), {name: value.numpy() for name, value in given.items()})
        except Exception as error:  # onnxruntime has no base class of its own for what it cannot run
            raise AnaphoraError(
                f"the exported graph does not run with batch {batch} and length {length} ({_reason(error)}); nothing was kept."
            ) from error
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
    loggers = {logging.getLogger("torch.onnx"): logging.ERROR}
    loggers[logging.getLogger("torch._subclasses.fake_tensor")] = (
        logging.CRITICAL
    )  # what fails is raised as well
    levels = {logger: logger.level for logger in loggers}
    for logger, level in loggers.items():
        logger.setLevel(level)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def on_cpu(module: Any, *, nodes: bool = True) -> nn.Module:
    """A copy in evaluation mode on the CPU in float32; the model itself stays where it is.

    ``nodes``: cells that ONNX has a node for are written as that node.
    """
    found: nn.Module = copy.deepcopy(module).cpu().float().eval()
    if nodes:
        prepare_nodes(found)
    return found
