"""Models of others that see or hear, as estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anaphora.data.audio.frames import Ear
from anaphora.data.labelled_targets import Targets
from anaphora.data.numbering import Numbering
from anaphora.data.tokenizers import Tokenizer
from anaphora.foreign.letters import read_hearing, read_letters
from anaphora.foreign.mapping import Architecture
from anaphora.foreign.pictures import read_preparation
from anaphora.foreign.speaking import read_listening, read_speaking
from anaphora.tasks.importing_parts import filled, labels_of, made, settings_of, take_weights

_NO_WORDS = Numbering.ours(4)


def open_sense(
    folder: Path, config: dict[str, Any], architecture: Architecture, name: str, *, device: str, trust: bool
) -> Any:
    """The model in ``folder``, whose inputs are pictures or sound, as a trained estimator; see `open_foreign`."""
    s = settings_of(folder, architecture, name, config)
    if architecture.heads[name].task == "classify":
        return _classifier(folder, config, architecture, name, s, device)
    if architecture.model_type == "whisper":
        return _writer(folder, config, architecture, name, s, device, trust)
    return _transcriber(folder, config, architecture, name, s, device)


def _classifier(
    folder: Path,
    config: dict[str, Any],
    architecture: Architecture,
    name: str,
    s: dict[str, Any],
    device: str,
) -> Any:
    """A `Classifier` of pictures of any size."""
    inputs = read_preparation(folder, architecture.model_type, (s["rows"], s["columns"]), s["channels"])
    labels, s["target"] = labels_of(folder, config)
    s["two_scores"] = len(labels) == 2
    m = made(folder, "classify", s)
    m.inputs_ = inputs
    m.targets_ = Targets("number") if s["target"] == "number" else Targets(s["target"], labels)
    return filled(m, folder, architecture, name, s, _NO_WORDS, body="encoder.", device=device)


def _transcriber(
    folder: Path,
    config: dict[str, Any],
    architecture: Architecture,
    name: str,
    s: dict[str, Any],
    device: str,
) -> Any:
    """A `Transcriber` that hears samples and writes letters."""
    tokenizer = read_letters(folder, config | {"vocab_size": s["symbols"]})
    s |= read_hearing(folder) | {"tokens": "char"}
    m = made(folder, "transcribe", s)
    m.tokenizer_, m.words_ = tokenizer, []
    m.ear_ = Ear(m.settings_, "audio", s["rate"], 1)
    return filled(m, folder, architecture, name, s, tokenizer.numbering, body="encoder.", device=device)


def _writer(
    folder: Path,
    config: dict[str, Any],
    architecture: Architecture,
    name: str,
    s: dict[str, Any],
    device: str,
    trust: bool,
) -> Any:
    """A `Transcriber` that writes pieces of words, symbol by symbol."""
    tokenizer, prompt = read_speaking(folder, config, trust=trust)
    s |= prompt | read_listening(folder, s["bins"], s["max_tokens"]) | {"tokens": "bpe"}
    m = made(folder, "transcribe", s)
    m.tokenizer_, m.words_ = tokenizer, []
    m.ear_ = Ear(m.settings_, "audio", s["rate"], s["bins"])
    return filled(m, folder, architecture, name, s, tokenizer.numbering, body="", device=device)


def open_body(folder: Path, config: dict[str, Any], architecture: Architecture, name: str) -> Any:
    """A model without its last layer, as an estimator that cannot answer yet: its encoder has the weights of ``folder``."""
    s = settings_of(folder, architecture, name, config)
    task = "classify" if architecture.heads[name].task == "see" else "transcribe"
    if task == "classify":
        s |= {"target": "class", "two_scores": True}
        m = made(folder, task, s)
        size = (s["rows"], s["columns"])
        m.inputs_ = read_preparation(folder, architecture.model_type, size, s["channels"])
        m.targets_ = Targets("class", ("0", "1"))
    else:
        s |= read_hearing(folder) | {"tokens": "char"}
        m = made(folder, task, s)
        m.ear_ = Ear(m.settings_, "audio", s["rate"], 1)
        m.tokenizer_ = Tokenizer.train(["a"], kind="char", vocab_size=8)
    m.model_ = m._fresh_model()
    take_weights(m.model_.encoder, folder, architecture, name, s, _NO_WORDS, body="")
    m._foreign, m.bare = architecture.model_type, True
    return m
