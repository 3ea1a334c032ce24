"""What is fuzzed: each reader with the seeds whose mutations it reads."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEEDS = HERE / "seeds"
RUN = HERE.parent / "tasks" / "golden_runs" / "format-1"
CHECKPOINT = RUN / "checkpoints" / "step-00000004"

Reader = Callable[[Path], Any]
Target = tuple[list[Path], Reader]


def targets() -> dict[str, Target]:
    """Name → (seeds, reader)."""
    return {**tables(), **arrays(), **senses(), **runs(), **models()}


def seeds(*names: str) -> list[Path]:
    return [SEEDS / name for name in names]


def in_folder(name: str, reader: Reader, *beside: str) -> Reader:
    """Reads a folder in which the case stands under ``name``, and seeds ``beside`` it."""

    def read(path: Path) -> Any:
        os.replace(path, path.with_name(name))
        for other in beside:
            if not path.with_name(other).exists():
                shutil.copy(SEEDS / other, path.parent)
        return reader(path.parent)

    return read


def text(reader: Callable[[str], Any]) -> Reader:
    return lambda path: reader(path.read_bytes().decode("utf-8", errors="replace"))


def tables() -> dict[str, Target]:
    """Texts in lines, rows and columns."""
    from anaphora.data.conll_sentences import open_sentences
    from anaphora.data.labelled import open_labelled
    from anaphora.data.sources.opening import open_source
    from anaphora.data.streams import line_batches
    from anaphora.data.text_readers import open_text
    from anaphora.files import parse_json
    from anaphora.settings.files import read_toml

    def pairs(path: Path) -> Any:
        found = open_source(path)
        return found.read(range(len(found)))

    return {
        "tsv": (seeds("pairs.tsv"), pairs),
        "gz": (seeds("pairs.tsv.gz"), pairs),
        "zst": (seeds("pairs.tsv.zst"), pairs),
        "zip": (seeds("pairs.tsv.zip"), pairs),
        "csv": (seeds("pairs.csv"), pairs),
        "jsonl": (seeds("pairs.jsonl"), pairs),
        "json array": (seeds("pairs.json"), pairs),
        "parquet": (seeds("pairs.parquet"), pairs),
        "arrow": (seeds("pairs.arrow"), pairs),
        "sequences": (seeds("sequences.jsonl"), open_labelled),
        "text": (seeds("text.txt"), open_text),
        "conllu": (seeds("a.conllu"), open_sentences),
        "lines": (seeds("text.txt", "pairs.tsv"), lambda path: list(line_batches(str(path)))),
        "json": (seeds("rolls.json", "pairs.jsonl"), lambda path: parse_json(path.read_bytes())),
        "toml": (seeds("settings.toml"), read_toml),
    }


def arrays() -> dict[str, Target]:
    """Numbers."""
    from anaphora.data.labelled import open_labelled
    from anaphora.data.series_readers import open_series

    return {
        "npy": (seeds("a.npy"), open_series),
        "npz": (seeds("series.npz"), open_series),
        "labelled npz": (seeds("labelled.npz"), open_labelled),
        "rolls": (seeds("rolls.json"), open_series),
        "series csv": (seeds("series.csv"), open_series),
    }


def senses() -> dict[str, Target]:
    """Sounds and pictures."""
    from anaphora.data.audio.files import audio_length, read_audio
    from anaphora.data.pictures import read_picture
    from anaphora.data.pictures_readers import open_pictures

    def wave(path: Path) -> Any:
        audio_length(path)
        return read_audio(path, rate=16_000)

    def listed(folder: Path) -> Any:
        found = open_pictures(folder / "pictures.tsv", role="train", size=(4, 4), texts="captions")
        return [found.load(index) for index in range(len(found))]

    return {
        "wav": (seeds("a.wav"), wave),
        "flac": (seeds("a.flac"), wave),
        "png": (seeds("a.png", "a.gif"), lambda path: read_picture(path, size=(4, 4))),
        "pictures": (seeds("pictures.tsv"), in_folder("pictures.tsv", listed, "a.png", "a.gif")),
    }


def runs() -> dict[str, Target]:
    """The files of a run folder."""
    from anaphora.data.tokenizers import PairTokenizer, Tokenizer
    from anaphora.studio.runs import Run
    from anaphora.tasks.config import read_config
    from anaphora.training.checkpoint import _manifest, _state
    from anaphora.training.journal import read_journal
    from anaphora.training.lock import Holder
    from anaphora.training.run import RunFolder
    from anaphora.training.signature import check
    from anaphora.training.weights import load_weights

    def facts(folder: Path) -> Any:
        return Run("x", "x", folder).facts()

    def signature(folder: Path) -> Any:
        (folder / "key").write_text("0123456789abcdef")
        return check(RunFolder(folder), folder / "key")

    def journal(name: str) -> Reader:
        return in_folder(name, lambda folder: list(read_journal(folder / name)))

    pair = HERE.parent / "tasks" / "golden" / "format-1" / "tokenizer.json"
    return {
        "config.json": ([RUN / "config.json"], in_folder("config.json", read_config)),
        "studio": ([RUN / "config.json"], in_folder("config.json", facts)),
        "studio metrics": ([RUN / "metrics.jsonl"], in_folder("metrics.jsonl", facts)),
        "metrics.jsonl": ([RUN / "metrics.jsonl"], journal("metrics.jsonl")),
        "timings.jsonl": ([RUN / "timings.jsonl"], journal("timings.jsonl")),
        "manifest.json": ([CHECKPOINT / "manifest.json"], in_folder("manifest.json", _manifest)),
        "state.json": ([CHECKPOINT / "state.json"], lambda path: _state(path.read_bytes())),
        "safetensors": ([RUN / "model.safetensors", CHECKPOINT / "optimizer.safetensors"], load_weights),
        "tokenizer.json": ([RUN / "tokenizer.json"], text(Tokenizer.from_json)),
        "pair tokenizer": ([pair], text(PairTokenizer.from_json)),
        "lock": (seeds("lock"), lambda path: Holder.parse(path.read_bytes())),
        "signature": (seeds("signature.json"), in_folder("signature.json", signature)),
    }


def models() -> dict[str, Target]:
    """Saved models that are not runs, and files of other programs."""
    from anaphora.models.classical.kalman import Kalman
    from anaphora.models.classical.ngram import NGram
    from anaphora.models.classical.var import VAR
    from anaphora.models.embeddings.vectors import WordVectors

    def table(folder: Path) -> Any:
        """An n-gram model whose checksum fits whatever its arrays hold; compiled code then walks it."""
        note = json.loads((SEEDS / "ngram.json").read_bytes())
        data = (folder / "ngram.safetensors").read_bytes()
        note["sha256"] = hashlib.sha256(data).hexdigest()
        (folder / "ngram.json").write_text(json.dumps(note))
        model = NGram.load(folder)
        return model.score(["a b a"]), model.table.distributions(model.table.parent[:3])

    return {
        "arpa": (seeds("a.arpa"), NGram.read_arpa),
        "ngram.json": (seeds("ngram.json"), in_folder("ngram.json", NGram.load, "ngram.safetensors")),
        "ngram table": (seeds("ngram.safetensors"), in_folder("ngram.safetensors", table)),
        "kalman": (seeds("kalman.safetensors"), Kalman.load),
        "var": (seeds("var.safetensors"), VAR.load),
        "words": (seeds("words.safetensors"), WordVectors.load),
        "vectors": (seeds("vectors.txt", "vectors.bin"), WordVectors.read),
    }
