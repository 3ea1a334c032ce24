"""From what a user names (a list of files, an embedded corpus, arrays in Python) to `Recordings`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.audio.files import AUDIO_ENDINGS, FASTEST, as_wave
from anaphora.data.audio.recordings import (
    FeatureFile,
    Hearing,
    HeldFeatures,
    HeldSound,
    Item,
    Recordings,
    SoundFile,
    pack,
    unpack,
)
from anaphora.data.corpora import CORPORA, find
from anaphora.data.corpora.corpus import CORPUS_SEED
from anaphora.data.corpora.sound_corpus import SoundCorpus
from anaphora.data.files import Verdict, beside
from anaphora.data.opening import Reader
from anaphora.data.sources.arrays import ENDINGS, as_sequence
from anaphora.data.sources.opening import SPLITS, open_source
from anaphora.data.sources.roles import SPOKEN, choose_columns
from anaphora.data.sources.sheet import is_xy, table_of, together
from anaphora.data.table import Table
from anaphora.errors import DataError

Features = Hearing | Callable[[int], Hearing] | None
"""What sound is turned into: a module, or a function that makes one given the first recording's rate in Hz."""
USUAL_RATE = 16_000
"""Hz of samples that come from Python without a rate, where the features follow the recordings."""
ROOMS = ("wavs", "clips", "audio")
"""Folders beside a list that may hold its recordings."""
_UNUSABLE = "a recording that cannot be used"


def open_recordings(
    data: Any,
    *,
    role: str = "train",
    features: Features = None,
    bad_rows: str = "strict",
    rate: int | None = None,
    spill: Path | None = None,
    source_field: str | None = None,
    target_field: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Recordings:
    """The recordings that ``data`` names.

    data: a list of files and transcripts, TSV ``path⇥transcript`` (also any table with such columns, or
        ``metadata.csv`` of a speech corpus with bars), paths counting from the list's folder or from ``wavs`` in it; an embedded corpus of sound, of which ``role`` picks the split; or from Python
        pairs (input, transcript), or inputs alone, an input being a path, samples (n,), a pair of samples and their
        rate, or frames (T, F). Files are sound (``.wav``, ``.flac``, ``.ogg``) or frames (``.npy``, ``.csv``).
    features: what sound is turned into; frames stay as they are.
    bad_rows: "strict" raises a `DataError` for the first input that cannot be used; "skip" leaves such out and counts
        them in `Recordings.describe`.
    rate: Hz of samples given without one (None: that of the features).
    spill: folder into which inputs from Python are written, so that they can be opened again.
    """
    if isinstance(data, str | Path):
        name, _, variant = str(data).partition(":")
        corpus = CORPORA.get(name) if isinstance(data, str) else None
        if isinstance(corpus, SoundCorpus):
            drawn = (facts["size"], facts["seed"]) if facts else ()
            return _generated(corpus, find(name, variant or None)[1], SPLITS[role], features, *drawn)
        _check_list(Path(data))
        if Path(data).suffix == ".npz":
            items, transcripts = unpack(Path(data))
            facts = {"kind": "recordings", "form": "arrays", "path": os.path.abspath(data)}
            return Recordings(items, transcripts, facts, features=_made(features, items[0]))
        pairs = open_source(
            data,
            roles=SPOKEN,
            role=role,
            bad_rows=bad_rows,
            spill=spill,
            source_field=source_field,
            target_field=target_field,
        )
        return _listed(Path(data), pairs, bad_rows, features)
    if (table := table_of(data, f"the {role} table")) is not None:
        fields = {"source_field": source_field, "target_field": target_field}
        names = choose_columns(table.name, table.names, SPOKEN, fields)
        data = (
            tuple(_sound(table.cell(record.values, name)) for name in names) for record in table.records()
        )
    elif is_xy(data):
        data = together(*data)
    if not isinstance(data, Iterable):
        raise DataError(
            f"A {type(data).__name__} cannot be read as recordings; give a list of files, or pairs of sound and text."
        )
    verdict = Verdict(f"{role} recordings", bad_rows)
    found = _gathered(data, verdict, {"kind": "recordings", "form": "memory"}, features, rate or 0)
    return found if spill is None else _spilled(found, role, features, spill)


def _check_list(path: Path) -> None:
    """A `DataError` for a folder or a recording, where a list of recordings with their transcripts belongs."""
    what = "a folder" if path.is_dir() else "a recording"
    if path.is_dir() or path.suffix.lower() in AUDIO_ENDINGS:
        raise DataError(
            f"{path} is {what}; give a list, a table (.tsv, .csv, .jsonl) with a recording and what is said in it in each row."
        )


def _listed(path: Path, pairs: Table, bad_rows: str, features: Features) -> Recordings:
    """The recordings of a list: rows of a file of sound, beside the list, and its transcript."""
    described, verdict = pairs.describe(), Verdict(str(path), bad_rows, pairs.place)
    verdict.skipped.update(described["skipped"])
    inputs = ((beside(path.parent, source, ROOMS, AUDIO_ENDINGS), target) for source, target in pairs)
    facts = {"kind": "recordings", "form": "list", "path": described["path"], "bad_rows": bad_rows}
    columns = ("source_field", "target_field", "delimiter")
    facts |= {key: described[key] for key in columns if key in described}
    return _gathered(inputs, verdict, facts, features, 0)


def _sound(value: Any) -> Any:
    """What Hugging Face calls an audio: samples with their rate; anything else as it is."""
    if isinstance(value, Mapping) and "array" in value and "sampling_rate" in value:
        return np.asarray(value["array"]), value["sampling_rate"]
    return value


def _gathered(
    inputs: Iterable[Any], verdict: Verdict, facts: dict[str, Any], features: Features, rate: int
) -> Recordings:
    items: list[Item] = []
    transcripts: list[str] = []
    for number, example in enumerate(inputs, start=1):
        try:
            source, text = _pair(example)
            items.append(as_item(source, f"recording {number}", rate))
            transcripts.append(text)
        except DataError as error:
            verdict.reject(number, _UNUSABLE, str(error).partition(";")[0].rstrip("."))
    verdict.require(len(items))
    if len({one.kind for one in items}) > 1:
        raise DataError(f"{verdict.name} holds both sound and frames; give one or the other.")
    facts = {**facts, "skipped": dict(verdict.skipped)}
    return Recordings(items, transcripts, facts, features=_made(features, items[0]))


def _made(features: Features, first: Item) -> Hearing | None:
    made = features if isinstance(features, Hearing) else None
    if first.kind == "features" or features is None or isinstance(features, Hearing):
        return made
    return features(getattr(first, "rate", 0) or USUAL_RATE)


def _pair(example: Any) -> tuple[Any, str]:
    """Input and transcript; an input alone has an empty transcript. ``(samples, rate)`` is an input."""
    if isinstance(example, tuple | list) and len(example) == 2 and isinstance(example[1], str):
        return example[0], example[1]
    if isinstance(example, str | Path | np.ndarray) or (isinstance(example, tuple) and len(example) == 2):
        return example, ""
    raise DataError(f"it is no pair of an input and its transcript but of the type {type(example).__name__}.")


def as_item(source: Any, name: str, rate: int) -> Item:
    """One input (a path, samples, samples with their rate also as Hugging Face writes them, or frames); what has no name is called
    ``name``."""
    source = _sound(source)
    if isinstance(source, str | Path):
        path = Path(source)
        ending = path.suffix.lower()
        if ending in ENDINGS:
            return FeatureFile.of(path.name, path)
        if ending and ending not in AUDIO_ENDINGS and path.exists():
            known = ", ".join((*AUDIO_ENDINGS, *ENDINGS))
            raise DataError(f"{path} has the ending {ending}, and only {known} are read; convert it.")
        return SoundFile.of(path.name, path)
    if rated := isinstance(source, tuple):
        if len(source) != 2:
            raise DataError(f"{name} has {len(source)} parts; give samples (n,) and their rate.")
        source, rate = source
        if not isinstance(rate, int | np.integer) or not 1 <= rate <= FASTEST:
            raise DataError(f"{name} has a rate of {rate!r}; give samples a second, a positive whole number.")
    x = as_sequence(source, name)
    if rated or np.ndim(source) == 1:
        return HeldSound(name, as_wave(source, name), int(rate))
    return HeldFeatures(name, x)


def _generated(
    corpus: SoundCorpus,
    variant: str,
    split: str,
    features: Features,
    size: int | None = None,
    seed: int = CORPUS_SEED,
) -> Recordings:
    count = corpus.sizes[split] if size is None else size
    waves, transcripts = zip(*corpus.generate(variant, split, count, seed), strict=True)
    items = [HeldSound(f"{corpus.name} {split} {i}", x, corpus.rate) for i, x in enumerate(waves, start=1)]
    names = {"name": corpus.name, "variant": variant, "split": split, "size": count, "seed": seed}
    facts = {"kind": "recordings", "form": "corpus", **names}
    return Recordings(items, transcripts, facts, features=_made(features, items[0]))


def _spilled(held: Recordings, role: str, features: Features, folder: Path) -> Recordings:
    """Inputs from Python as a file in ``folder``, read from there: a list of files, or the numbers themselves."""
    paths = [one.path for one in held.items if isinstance(one, SoundFile | FeatureFile)]
    if not paths:
        path = folder / f"{role}.npz"
        pack(path, held.items, held.transcripts)
    elif len(paths) == len(held):
        absolute = ((os.path.abspath(one), text) for one, text in zip(paths, held.transcripts, strict=True))
        path = folder / f"{role}.jsonl"
        open_source(absolute, role=role, spill=folder)
    else:
        raise DataError(f"the {role} recordings are files and arrays mixed; give one or the other.")
    opened = open_recordings(path, features=held.features or features)
    opened.facts["skipped"] = held.facts["skipped"]
    return opened


RECORDING_READER = Reader(
    open_recordings,
    what=lambda facts: "recordings",
    like=lambda train: {
        "features": train.features
    },  # dev recordings are heard as the training recordings are
)
