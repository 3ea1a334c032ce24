"""``--to onnx``: a folder of graphs with what the runtime has to know besides them."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from anaphora._version import __version__
from anaphora.errors import AnaphoraError, RunError
from anaphora.files import read_bytes
from anaphora.tasks.exporting.graph import require_packages, write_graph
from anaphora.tasks.exporting.networks import GRAPHS
from anaphora.training.run import RunFolder

FORMAT = 1
MANIFEST = "export.json"


def write(m: Any, place: Path) -> None:
    """A folder with ``model.onnx``, what was learnt besides weights, and ``export.json``, which names them all."""
    make = GRAPHS.get(m.command)
    if make is None:
        known = ", ".join(sorted(GRAPHS))
        raise AnaphoraError(
            f"a {type(m).__name__} cannot be exported to ONNX yet; the tasks that can are {known}."
        )
    require_packages()
    graph, facts = make(m)
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=place.parent) as name:
        folder = Path(name) / "export"
        folder.mkdir()
        write_graph(graph, folder / "model.onnx")
        m._write_learnt(RunFolder(folder))
        manifest = {
            "format": FORMAT,
            "anaphora": __version__,
            "task": m.command,
            "preset": str(m.settings_.model),
            "inputs": {key: list(axes) for key, axes in graph.axes.items()},
            "outputs": list(graph.outputs),
            "facts": facts,
            "files": {
                one.name: hashlib.sha256(read_bytes(one)).hexdigest() for one in sorted(folder.iterdir())
            },
        }
        (folder / MANIFEST).write_text(
            json.dumps(manifest, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
        )
        if place.is_dir() and (any(place.iterdir()) and not (place / MANIFEST).is_file()):
            raise RunError(f"{place} holds something else than an export; choose another place.")
        if place.exists():
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        folder.rename(place)
