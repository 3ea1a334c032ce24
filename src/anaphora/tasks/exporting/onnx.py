"""``--to onnx``: a folder of graphs with what the runtime has to know besides them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from anaphora._version import __version__
from anaphora.data.tokenizers.own import LetterTokenizer
from anaphora.errors import AnaphoraError
from anaphora.tasks.artifacts import write_artifacts
from anaphora.tasks.exporting.eight_bits import round_weights
from anaphora.tasks.exporting.export import export_folder
from anaphora.tasks.exporting.forecasting import forecaster_export
from anaphora.tasks.exporting.graph import Export, require_packages, write_graph
from anaphora.tasks.exporting.language import language_export
from anaphora.tasks.exporting.reading import (
    answerer_export,
    classifier_export,
    embedder_export,
    tagger_export,
)
from anaphora.tasks.exporting.writing import captioner_export, transcriber_export, translator_export
from anaphora.training.run import RunFolder

FORMAT = 2


def write(m: Any, place: Path, *, int8: bool = False) -> None:
    """A folder with a graph or several, what was learned besides weights, and ``export.json``, which names them all. ``int8``:
    weights of eight bits, in graphs that were compared with the model before."""
    if m.command not in EXPORTS:
        raise AnaphoraError(
            f"a {type(m).__name__} cannot be exported to ONNX; the tasks are {', '.join(EXPORTS)}."
        )
    require_packages()
    made = EXPORTS[m.command](m)
    if int8 and made.exact:
        raise AnaphoraError(
            f"eight bits are too few for the preset {m.settings_.model}, whose answers would change; leave out int8."
        )
    with export_folder(place) as (folder, manifest):
        for key, graph in made.graphs.items():
            write_graph(graph, folder / f"{key}.onnx")
            if int8:
                round_weights(folder / f"{key}.onnx")
        write_artifacts(m.command, m.artifacts(), folder, packed=True)
        if isinstance(getattr(m, "tokenizer_", None), LetterTokenizer):
            RunFolder(folder).write("tokenizer.json", m.tokenizer_.plain().to_json())
        manifest |= {
            "format": FORMAT,
            "anaphora": __version__,
            "task": m.command,
            "preset": str(m.settings_.model),
            "graphs": {key: graph.describe() for key, graph in made.graphs.items()},
            "int8": int8,
            "facts": made.facts,
        }


EXPORTS: dict[str, Callable[[Any], Export]] = {
    "language": language_export,
    "forecast": forecaster_export,
    "translate": translator_export,
    "transcribe": transcriber_export,
    "caption": captioner_export,
    "classify": classifier_export,
    "tag": tagger_export,
    "embed": embedder_export,
    "answer": answerer_export,
}
