"""Models of others that see or hear, as estimators."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anaphora.data.audio.frames import Ear
from anaphora.data.labelled_targets import Targets
from anaphora.data.tokenizers import Tokenizer
from anaphora.data.tokenizers.vocabularies import Numbering
from anaphora.foreign.mapping import Architecture
from anaphora.foreign.pictures import read_preparation
from anaphora.foreign.recognisers import read_hearing, read_letters, read_listening, read_speaking
from anaphora.tasks.importing_parts import filled, labels_of, made, settings_of, take_weights

_NO_WORDS = Numbering.ours(4)


@dataclass(frozen=True)
class _Model:
    """A model of others: where it is, what its config says, and our settings of it, which the functions below complete."""

    folder: Path
    config: dict[str, Any]
    architecture: Architecture
    name: str
    settings: dict[str, Any]
    device: str

    def filled(self, m: Any, words: Numbering, *, body: str) -> Any:
        """``m`` with the weights of the folder."""
        of = (self.folder, self.architecture, self.name, self.settings)
        return filled(m, *of, words, body=body, device=self.device)


def open_sense(
    folder: Path, config: dict[str, Any], architecture: Architecture, name: str, *, device: str, trust: bool
) -> Any:
    """The model in ``folder``, whose inputs are pictures or sound, as a trained estimator; see `open_foreign`."""
    model = _Model(
        folder, config, architecture, name, settings_of(folder, architecture, name, config), device
    )
    if architecture.heads[name].task == "classify":
        return _classifier(model)
    return _writer(model, trust) if architecture.model_type == "whisper" else _transcriber(model)


def _classifier(model: _Model) -> Any:
    """A `Classifier` of pictures of any size."""
    s, size = model.settings, (model.settings["rows"], model.settings["columns"])
    inputs = read_preparation(model.folder, model.architecture.model_type, size, s["channels"])
    labels, s["target"] = labels_of(model.folder, model.config)
    s["two_scores"] = len(labels) == 2
    targets = Targets("number") if s["target"] == "number" else Targets(s["target"], labels)
    m = made(model.folder, "classify", s, {"inputs_": inputs, "targets_": targets})
    return model.filled(m, _NO_WORDS, body="encoder.")


def _transcriber(model: _Model) -> Any:
    """A `Transcriber` that hears samples and writes letters."""
    s = model.settings
    tokenizer = read_letters(model.folder, model.config | {"vocab_size": s["symbols"]})
    s |= read_hearing(model.folder) | {"tokens": "char"}
    return model.filled(_hearing(model, tokenizer, 1), tokenizer.numbering, body="encoder.")


def _writer(model: _Model, trust: bool) -> Any:
    """A `Transcriber` that writes pieces of words, symbol by symbol."""
    s = model.settings
    tokenizer, prompt = read_speaking(model.folder, model.config, trust=trust)
    s |= prompt | read_listening(model.folder, s["bins"], s["max_tokens"]) | {"tokens": "bpe"}
    return model.filled(_hearing(model, tokenizer, s["bins"]), tokenizer.numbering, body="")


def _hearing(model: _Model, tokenizer: Tokenizer, width: int) -> Any:
    """A `Transcriber` without a model yet, which hears ``width`` numbers at a time."""
    rate = model.settings["rate"]

    def learnt(settings: Any) -> dict[str, Any]:
        return {"tokenizer_": tokenizer, "words_": [], "ear_": Ear(settings, "audio", rate, width)}

    return made(model.folder, "transcribe", model.settings, learnt)


def open_body(folder: Path, config: dict[str, Any], architecture: Architecture, name: str) -> Any:
    """A model without its last layer, as an estimator that cannot answer yet: its encoder has the weights of ``folder``."""
    s = settings_of(folder, architecture, name, config)
    task = "classify" if architecture.heads[name].task == "see" else "transcribe"
    if task == "classify":
        s |= {"target": "class", "two_scores": True}
        size = (s["rows"], s["columns"])
        inputs = read_preparation(folder, architecture.model_type, size, s["channels"])
        m = made(folder, task, s, {"inputs_": inputs, "targets_": Targets("class", ("0", "1"))})
    else:
        s |= read_hearing(folder) | {"tokens": "char"}
        letters = Tokenizer.train(["a"], kind="char", vocab_size=8)

        def learnt(settings: Any) -> dict[str, Any]:
            return {"tokenizer_": letters, "ear_": Ear(settings, "audio", s["rate"], 1)}

        m = made(folder, task, s, learnt)
    m.model_ = m._fresh_model()
    take_weights(m.model_.encoder, folder, architecture, name, s, _NO_WORDS, body="")
    m._foreign, m.bare = architecture.model_type, True
    return m
