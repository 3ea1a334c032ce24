"""The graphs of each task, and what the runtime has to know besides them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anaphora.data.labelled_inputs import NGramInputs, TextInputs
from anaphora.data.tag_vocabulary import LONGEST_SPELLING
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import AnaphoraError
from anaphora.models.classical.hmm.tagger import HMMTagger
from anaphora.tasks.exporting.graph import Graph, on_cpu


def classifier_graph(m: Any) -> tuple[Graph, dict[str, Any]]:
    """Symbols ``(batch, time)`` or vectors ``(batch, time, features)`` and lengths -> scores ``(batch, outputs)``."""
    if isinstance(m.inputs_, NGramInputs):
        raise AnaphoraError(
            "the preset ngrams is a table of weights, not a network; its run folder holds it already."
        )
    texts = isinstance(m.inputs_, TextInputs)
    _check_reading(m.inputs_.tokenizer if texts else None, getattr(m.inputs_, "features", None))
    sizes = m.inputs_.sizes
    if "channels" in sizes:
        raise AnaphoraError(
            f"the preset {m.settings_.model} looks at pictures, which cannot be exported yet."
        )

    def make(batch: int, length: int) -> dict[str, Tensor]:
        lengths = torch.arange(length, length - batch, -1).clamp(min=1)  # rows of different lengths
        if texts:
            return {"symbols": _symbols(sizes["symbols"], (batch, length)), "lengths": lengths}
        return {"vectors": _numbers((batch, length, sizes["features"])), "lengths": lengths}

    name = "symbols" if texts else "vectors"
    axes = {name: ("batch", "time") if texts else ("batch", "time", ""), "lengths": ("batch",)}
    s = m.settings_
    facts = {
        "max_tokens": s.max_tokens,
        "threshold": s.threshold,
        "scan": s.scan,
        "outputs": m.model_.outputs,
    }
    return Graph(on_cpu(m.model_), make, axes, ("scores",)), facts


def tagger_graph(m: Any) -> tuple[Graph, dict[str, Any]]:
    """Words ``(batch, time)`` or words with their letters ``(batch, time, 1 + letters)``, and lengths -> emissions
    ``(batch, time, tags)``. The chain over the tags is found by the runtime."""
    if isinstance(m.model_, HMMTagger):
        raise AnaphoraError("an HMM is a table of counts, not a network; export it --to json.")
    if m.framewise:
        raise AnaphoraError("a Tagger of frames cannot be exported to ONNX yet; one of words can.")
    _check_reading(m.tokenizer_)
    letters = m._reader.letters

    def make(batch: int, length: int) -> dict[str, Tensor]:
        lengths = torch.arange(length, length - batch, -1).clamp(min=1)
        words = _symbols(m.tokenizer_.size, (batch, length))
        if letters is None:
            return {"words": words, "lengths": lengths}
        spelled = _symbols(letters.size, (batch, length, LONGEST_SPELLING))
        return {"words": torch.cat([words.unsqueeze(2), spelled], 2), "lengths": lengths}

    axes = {"words": ("batch", "time") if letters is None else ("batch", "time", ""), "lengths": ("batch",)}
    crf = m.model_.crf
    chain = None
    if crf is not None:
        parts = {"start": crf.start, "moves": crf.transitions, "end": crf.end}
        chain = {name: value.detach().cpu().tolist() for name, value in parts.items()}
    return Graph(on_cpu(m.model_), make, axes, ("emissions",)), {"chain": chain}


def _check_reading(tokenizer: Tokenizer | None, features: Any = None) -> None:
    """An `AnaphoraError` where the inputs are read by code of the user's own, which an export does not hold."""
    if features is not None or (tokenizer is not None and type(tokenizer) is not Tokenizer):
        what = "the features are" if features is not None else "the tokenizer is"
        raise AnaphoraError(f"{what} of your own making, which an export to ONNX cannot hold.")


GRAPHS = {"classify": classifier_graph, "tag": tagger_graph}


def _symbols(size: int, shape: tuple[int, ...]) -> Tensor:
    return torch.randint(0, size, shape, generator=torch.Generator().manual_seed(sum(shape)))


def _numbers(shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
