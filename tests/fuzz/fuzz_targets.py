"""What is fuzzed: each reader with the seeds whose mutations it reads.

A reader imports what needs an extra package when it is called, so that the others can be fuzzed without that package.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SEEDS = HERE / "seeds"
RUN = HERE.parent / "tasks" / "golden_runs" / "format-1"
CHECKPOINT = RUN / "checkpoints" / "step-00000004"

Reader = Callable[[Path], Any]
Target = tuple[list[Path], Reader]
SLOW = "run, "
"""How the names of targets begin that take fifty times as long as others: these get a tenth of the cases."""


def targets() -> dict[str, Target]:
    """Name → (seeds, reader)."""
    return {
        **tables(),
        **arrays(),
        **senses(),
        **runs(),
        **whole_runs(),
        **models(),
        **foreign(),
        **exports(),
    }


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
    from anaphora.data.asked import line_batches
    from anaphora.data.sources.conll import open_sentences
    from anaphora.data.sources.labelled import open_labelled
    from anaphora.data.sources.opening import open_source
    from anaphora.data.text import open_text
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
        "json": (seeds("rolls.json", "columns.json"), lambda path: parse_json(path.read_bytes())),
        "toml": (seeds("settings.toml"), read_toml),
    }


def arrays() -> dict[str, Target]:
    """Numbers."""
    from anaphora.data.series_readers import open_series
    from anaphora.data.series_scale import Columns
    from anaphora.data.sources.arrays import read_array
    from anaphora.data.sources.labelled import open_labelled
    from anaphora.errors import RunError

    def columns(path: Path) -> Any:
        try:
            return text(Columns.from_json)(path)
        except (ValueError, LookupError, TypeError) as error:
            raise RunError("what the caller says") from error

    return {
        "npy": (seeds("a.npy"), open_series),
        "npz": (seeds("series.npz"), open_series),
        "labelled npz": (seeds("labelled.npz"), open_labelled),
        "labelled ts": (seeds("labelled.ts"), open_labelled),
        "rolls": (seeds("rolls.json"), open_series),
        "series csv": (seeds("series.csv"), open_series),
        "idx": (seeds("a.idx"), read_array),
        "columns": (seeds("columns.json"), columns),
    }


def senses() -> dict[str, Target]:
    """Sounds and pictures."""
    from anaphora.data.audio.files import audio_length, read_audio
    from anaphora.data.audio.recordings import unpack
    from anaphora.data.pictures import read_picture
    from anaphora.data.pictures_readers import _unspilled, open_pictures

    def wave(path: Path) -> Any:
        audio_length(path)
        return read_audio(path, rate=16_000)

    def kept_sounds(path: Path) -> Any:
        items, texts = unpack(path)
        return [one.mark for one in items], texts

    def listed(folder: Path) -> Any:
        found = open_pictures(folder / "pictures.tsv", role="train", size=(4, 4), texts="captions")
        return [found.load(index) for index in range(len(found))]

    return {
        "wav": (seeds("a.wav"), wave),
        "flac": (seeds("a.flac"), wave),
        "png": (seeds("a.png", "a.gif"), lambda path: read_picture(path, size=(4, 4))),
        "kept sounds": (seeds("sounds.npz"), kept_sounds),
        "kept pictures": (seeds("pictures.npz"), lambda path: _unspilled(path, (4, 4))),
        "pictures": (seeds("pictures.tsv"), in_folder("pictures.tsv", listed, "a.png", "a.gif")),
    }


def runs() -> dict[str, Target]:
    """The files of a run folder."""
    from anaphora.data.tag_learnt import Learnt
    from anaphora.probe.trace import Trace
    from anaphora.studio.runs import Run
    from anaphora.tasks.recipe import Recipe
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

    def tokenizer(content: str) -> Any:
        from anaphora.data.tokenizers import Tokenizer

        return Tokenizer.from_json(content)

    def pair_tokenizer(content: str) -> Any:
        from anaphora.data.tokenizers import PairTokenizer

        return PairTokenizer.from_json(content)

    pair = HERE.parent / "tasks" / "golden" / "format-1" / "tokenizer.json"
    return {
        "config.json": ([RUN / "config.json"], in_folder("config.json", Recipe.read)),
        "studio": ([RUN / "config.json"], in_folder("config.json", facts)),
        "studio metrics": ([RUN / "metrics.jsonl"], in_folder("metrics.jsonl", facts)),
        "metrics.jsonl": ([RUN / "metrics.jsonl"], journal("metrics.jsonl")),
        "timings.jsonl": ([RUN / "timings.jsonl"], journal("timings.jsonl")),
        "manifest.json": ([CHECKPOINT / "manifest.json"], in_folder("manifest.json", _manifest)),
        "state.json": ([CHECKPOINT / "state.json"], lambda path: _state(path.read_bytes())),
        "safetensors": ([RUN / "model.safetensors", CHECKPOINT / "optimizer.safetensors"], load_weights),
        "tokenizer.json": ([RUN / "tokenizer.json"], text(tokenizer)),
        "pair tokenizer": ([pair], text(pair_tokenizer)),
        "lock": (seeds("lock"), lambda path: Holder.parse(path.read_bytes())),
        "tags learnt": (seeds("learnt.json"), text(lambda content: Learnt.from_json(content, Path("case")))),
        "trace": (seeds("trace.json"), in_folder("trace.json", Trace.load, "arrays.safetensors")),
        "signature": (seeds("signature.json"), in_folder("signature.json", signature)),
    }


def resealed(load: Callable[[Path], Any], use: Callable[[Any], Any]) -> Reader:
    """Loads a model whose checksum fits whatever its arrays and facts hold, and uses it."""
    from safetensors import SafetensorError, safe_open

    from anaphora.models.classical.arrays import save_arrays

    def read(path: Path) -> Any:
        try:
            with safe_open(path, framework="np") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                head = json.loads(file.metadata()["anaphora"])
            save_arrays(path, head["kind"], arrays, head["facts"])
        except (SafetensorError, ValueError, LookupError, TypeError, AttributeError):
            pass  # load sees it as it is
        return use(load(path))

    return read


def whole_runs() -> dict[str, Target]:
    """A run whose weights vouch for whatever one of its other files holds, or for themselves: loaded and used."""
    import torch
    from safetensors import SafetensorError, safe_open

    import anaphora as an
    from anaphora.training.run import RunFolder
    from anaphora.training.weights import pack

    torch.set_num_threads(1)
    original = HERE.parent / "tasks" / "golden" / "format-1"

    def seal(run: Path, weights: Path) -> None:
        try:
            with safe_open(weights, framework="pt") as file:
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
                facts = json.loads(file.metadata()["anaphora"])["facts"]
            packed = pack(tensors, facts={**facts, "files": RunFolder(run).fingerprints()})
        except (SafetensorError, ValueError, LookupError, TypeError, AttributeError, RuntimeError):
            return  # load sees them as they are
        (run / "model.safetensors").write_bytes(packed)

    def used(name: str) -> Reader:
        turn = itertools.count()

        def read(path: Path) -> Any:
            run = path.with_name("run")
            if not run.exists():
                shutil.copytree(original, run)
            os.replace(path, run / name)
            seal(run, (run if name == "model.safetensors" else original) / "model.safetensors")
            model = an.load(run, device="cpu")
            return model.predict(["a b"]) if next(turn) % 10 == 0 else model

        return read

    return {
        f"{SLOW}{name}": ([original / name], used(name))
        for name in ("config.json", "tokenizer.json", "model.safetensors")
    }


def models() -> dict[str, Target]:
    """Saved models that are not runs, and files of other programs."""
    from anaphora.models.classical.hmm.model import HMM
    from anaphora.models.classical.kalman import Kalman
    from anaphora.models.classical.ngram import NGram
    from anaphora.models.classical.var import VAR
    from anaphora.models.embeddings.vectors import WordVectors
    from anaphora.models.embeddings.word2vec import Word2Vec

    def table(folder: Path) -> Any:
        """An n-gram model whose checksum fits whatever its arrays hold; compiled code then walks it."""
        note = json.loads((SEEDS / "ngram.json").read_bytes())
        data = (folder / "ngram.safetensors").read_bytes()
        note["sha256"] = hashlib.sha256(data).hexdigest()
        (folder / "ngram.json").write_text(json.dumps(note))
        return grams(NGram.load(folder))

    def grams(model: NGram) -> Any:
        return model.score(["a b a"]), model.table.distributions(model.table.parent[:3])

    def chain(model: HMM) -> Any:
        symbols = model.settings.emissions == "categorical"
        width = model.parameters["means"].shape[-1] if not symbols else 0
        x = [0, 0, 0] if symbols else np.add.outer(0.5 * np.arange(3), np.arange(width))
        return model.score(x), model.predict(x), model.smooth(x), model.viterbi(x, k=2), model.sample(3)

    def space(model: Kalman) -> Any:
        y = [[float(t)] * model.outputs for t in range(3)]
        x = [[1.0] * model.inputs] * 3 if model.inputs else None
        return model.score(y, x), model.smooth(y, x), model.sample(3, x)

    def lags(model: VAR) -> Any:
        y = [[float(t % 3 + i) for i in range(len(model.covariance))] for t in range(max(9, model.order))]
        return model.forecast(y, 2), model.stable, model.standard_errors

    def words(model: WordVectors) -> Any:
        a = model.words[0]
        return model.most_similar(a), model.analogy(a, model.words[-1], a), model.similarity(a, a)

    return {
        "arpa": (seeds("a.arpa"), lambda path: grams(NGram.read_arpa(path))),
        "ngram.json": (seeds("ngram.json"), in_folder("ngram.json", NGram.load, "ngram.safetensors")),
        "ngram table": (seeds("ngram.safetensors"), in_folder("ngram.safetensors", table)),
        "hmm": (
            seeds(*(f"hmm-{kind}.safetensors" for kind in ("gaussian", "mixture", "symbols", "rare"))),
            resealed(HMM.load, chain),
        ),
        "kalman": (seeds("kalman.safetensors"), resealed(Kalman.load, space)),
        "var": (seeds("var.safetensors"), resealed(VAR.load, lags)),
        "words": (seeds("words.safetensors"), resealed(WordVectors.load, words)),
        "word2vec": (
            seeds("word2vec.safetensors"),
            resealed(Word2Vec.load, lambda m: (m.score(["a b " * 50]), words(m.vectors))),
        ),
        "vectors": (seeds("vectors.txt", "vectors.bin"), lambda path: words(WordVectors.read(path))),
    }


def foreign() -> dict[str, Target]:
    """Files of weights of other libraries; what opens is run."""
    import torch

    import anaphora as an
    from anaphora.foreign.folder import read_config_of
    from anaphora.foreign.weights import read_weights

    def opened(path: Path) -> Any:
        found = an.load(path, device="cpu")
        with torch.no_grad():
            return found(torch.zeros(1, 3, 2))

    def written(path: Path) -> Any:
        with torch.no_grad():
            return an.load(path, device="cpu")(torch.zeros(1, 3, dtype=torch.long))

    return {
        "state dict": (seeds("gru.pt"), opened),
        "gru npz": (seeds("gru.npz"), opened),
        "onnx": (seeds("gru.onnx"), opened),
        "json tensors": (seeds("tensors.json"), written),
        "published config": (seeds("published-config.json"), in_folder("config.json", read_config_of)),
        "foreign weights": ([RUN / "model.safetensors"], read_weights),
    }


def exports() -> dict[str, Target]:
    """What an export holds, sealed again whatever it says, and tokenizers that are given as files."""
    from anaphora.files.parsing import seal_of

    def folder(path: Path, changed: str) -> Any:
        from anaphora.runtime.folder import read_folder

        place = path.with_name("export")
        place.mkdir(exist_ok=True)
        for name in ("export.json", "gru.onnx"):
            shutil.copy(SEEDS / name, place)
        os.replace(path, place / changed)
        try:
            manifest = json.loads((place / "export.json").read_bytes())
            if changed == "gru.onnx":
                manifest["files"][changed] = hashlib.sha256((place / changed).read_bytes()).hexdigest()
            manifest["sha256"] = seal_of(manifest)
            (place / "export.json").write_text(json.dumps(manifest))
        except (ValueError, LookupError, TypeError, RecursionError):
            pass  # read_folder sees it as it is
        return read_folder(place)

    def library_tokenizer(given: str) -> Any:
        from anaphora.data.tokenizers.own import engine_of

        return engine_of(given, "tokenizer")

    def own_tokenizer(given: str) -> Any:
        from anaphora.data.tokenizers.own import read_own_tokenizer

        return read_own_tokenizer(given, "", trust=False)

    def several_seeds(place: Path) -> Any:
        from anaphora.tasks.seeds import read_seeds

        return read_seeds(place)

    return {
        "export.json": (seeds("export.json"), lambda path: folder(path, "export.json")),
        "export graph": (seeds("gru.onnx"), lambda path: folder(path, "gru.onnx")),
        "library tokenizer": (seeds("library-tokenizer.json"), text(library_tokenizer)),
        "own tokenizer": (seeds("own-tokenizer.json", "own-letters.json"), text(own_tokenizer)),
        "seeds.json": (seeds("seeds.json"), in_folder("seeds.json", several_seeds)),
    }
