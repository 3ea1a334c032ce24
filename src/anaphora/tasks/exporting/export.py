"""``anaphora export`` and ``m.export``: a trained model in a format that others read."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from anaphora._version import __version__
from anaphora.data.symbols import SPELLINGS
from anaphora.data.tokenizers import PairTokenizer, Tokenizer
from anaphora.errors import AnaphoraError, RunError, SettingsError
from anaphora.files import read_bytes
from anaphora.models.classical.hmm.tagger import HMMTagger
from anaphora.models.classical.ngram import NGram, arpa
from anaphora.models.classical.ngram.text import Words
from anaphora.models.embeddings import formats
from anaphora.nn.embedding import Embedding
from anaphora.settings.base import suggestion
from anaphora.tasks.exporting.graph import require_packages, write_graph
from anaphora.tasks.exporting.networks import GRAPHS
from anaphora.training.durable import replace_file, writing
from anaphora.training.run import RunFolder

FORMAT = 1
MANIFEST = "export.json"


def export(m: Any, path: str | Path, to: str, *, force: bool = False) -> Path:
    """Write the trained estimator ``m`` to ``path``: a folder for ``onnx``, a file for the other formats.

    Raises a `SettingsError` for a format that is not known, an `AnaphoraError` for a model that has no such form, and a
    `RunError` where ``path`` exists and ``force`` is not given.
    """
    if to not in FORMATS:
        hint = suggestion(to, list(FORMATS), otherwise="")
        raise SettingsError([f"to = {to!r} is not a format ({', '.join(FORMATS)}).{hint}"])
    m._check_trained()
    place = Path(path)
    if place.exists() and not force:
        raise RunError(f"{place} exists; choose another place, or write over it with --force (force=True).")
    if not place.parent.is_dir():
        raise RunError(f"{place.parent} is not a folder; make it first.")
    FORMATS[to](m, place)
    return place


def _onnx(m: Any, place: Path) -> None:
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


def _arpa(m: Any, place: Path) -> None:
    """The n-grams of a language model, as KenLM and SRILM read them: words as they are, other symbols with ▁ for a space
    and ↵ for a line break."""
    if not isinstance(m.model_, NGram):
        raise AnaphoraError(
            f"the preset {m.settings_.model} has no n-grams; ARPA files are for the preset ngram."
        )
    words = Words(m.tokenizer_.size, [*SPELLINGS, *_spellings(m.tokenizer_)])
    arpa.write(place, m.model_.table, words, "word")


def _word2vec(m: Any, place: Path) -> None:
    """The vectors of the symbols that the model reads; a name that ends in .bin is written in binary."""
    tokenizer = _tokenizer(m)
    embedding = None
    if isinstance(m.model_, nn.Module) and tokenizer is not None:
        embedding = next((one for one in m.model_.modules() if isinstance(one, Embedding)), None)
    if embedding is None or tokenizer is None or len(embedding.weight) != tokenizer.size:
        raise AnaphoraError(
            f"this {type(m).__name__} ({m.settings_.model}) has no vectors of symbols to export."
        )
    vectors = embedding.weight.detach().float().cpu().numpy()
    formats.write(place, _spellings(tokenizer), vectors[len(SPELLINGS) :])


def _json(m: Any, place: Path) -> None:
    """An HMM as what it is made of: how often words had tags, ``[word, tag, inside a sentence, as its first word]``, and
    how often tags followed each other, ``[tag, …, times]``; the number after the last tag is the edge of a sentence."""
    hmm = m.model_
    if not isinstance(hmm, HMMTagger):
        raise AnaphoraError(
            f"the preset {m.settings_.model} is no HMM; json is for the preset hmm of a Tagger."
        )
    seen = np.argwhere(hmm.counts.sum(0) > 0)
    moved = np.argwhere(hmm.moves > 0)
    document = {
        "format": FORMAT,
        "anaphora": __version__,
        "task": m.command,
        "order": hmm.order,
        "tags": hmm.tags,
        "words": hmm.words,
        "counts": [[int(w), int(t), *map(int, hmm.counts[:, w, t])] for w, t in seen],
        "moves": [[*map(int, row), int(hmm.moves[tuple(row)])] for row in moved],
    }
    with writing(place):
        replace_file(place, (json.dumps(document, ensure_ascii=False) + "\n").encode())


def _tokenizer(m: Any) -> Tokenizer | None:
    """Of what the model reads: of a translator the source."""
    found = getattr(getattr(m, "inputs_", None), "tokenizer", None) or getattr(m, "tokenizer_", None)
    found = found.source if isinstance(found, PairTokenizer) else found
    return found if isinstance(found, Tokenizer) else None


def _spellings(tokenizer: Tokenizer) -> list[str]:
    """The symbols without the special ones, none of which has white space in it."""
    found = tokenizer.spellings[len(SPELLINGS) :]
    if tokenizer.kind == "word":
        found = [spelling.removeprefix(" ") for spelling in found]
    return [spelling.replace(" ", "▁").replace("\n", "↵") for spelling in found]


FORMATS: dict[str, Callable[[Any, Path], None]] = {
    "onnx": _onnx,
    "arpa": _arpa,
    "word2vec": _word2vec,
    "json": _json,
}
