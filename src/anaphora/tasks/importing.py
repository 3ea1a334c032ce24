"""Models of others as estimators: a folder of `transformers` becomes a trained `LanguageModel`, `Classifier`, `Embedder`,
`Transcriber` or `Translator`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anaphora.data.labelled_targets import Targets
from anaphora.data.symbols import BOS
from anaphora.data.tokenizers.own import EngineTokenizer
from anaphora.errors import RunError
from anaphora.foreign.architectures import ARCHITECTURES, SENSES
from anaphora.foreign.folder import read_config_of, read_json
from anaphora.foreign.mapping import Architecture, Head
from anaphora.foreign.words import read_words
from anaphora.kinds.text import TextInputs
from anaphora.settings.base import suggestion
from anaphora.settings.own import trusting
from anaphora.settings.removed import REMOVED
from anaphora.tasks.importing_parts import filled, labels_of, made, settings_of
from anaphora.tasks.importing_senses import open_sense
from anaphora.tasks.importing_tags import of_tagger
from anaphora.tasks.importing_translate import open_translator

_OPENED = ("language", "classify", "tag", "embed", "transcribe", "translate")


def open_foreign(folder: Path, *, device: str = "auto", trust: bool = False) -> Any:
    """The model in ``folder`` as a trained estimator of the task that its class is for.

    Nothing in the folder is executed. Raises a `RunError` in one sentence where the architecture, a value of its config, or
    a tensor has no counterpart here, and where a file is missing or damaged.
    """
    config = read_config_of(folder)
    architecture, name = _architecture(folder, config)
    if architecture.model_type in SENSES:
        return open_sense(folder, config, architecture, name, device=device, trust=trust or trusting())
    head = architecture.heads[name]
    if head.task == "translate":
        return open_translator(folder, architecture, name, config, device=device, trust=trust or trusting())
    s = settings_of(folder, architecture, name, config)
    tokenizer = read_words(folder, architecture, config, writes=_writes(head), trust=trust or trusting())
    m = _estimator(folder, head, config, s, tokenizer)
    body = "body." if head.task == "language" else "encoder."
    return filled(m, folder, architecture, name, s, tokenizer.numbering, body=body, device=device)


def _writes(head: Head) -> bool:
    return head.settings.get("model") != "masked" and head.task == "language"


def _architecture(folder: Path, config: dict[str, Any]) -> tuple[Architecture, str]:
    kind = str(config.get("model_type"))
    architecture = ARCHITECTURES.get(kind)
    known = ", ".join(ARCHITECTURES)
    if architecture is None:
        if kind in REMOVED:
            raise RunError(f"{folder}: {REMOVED[kind]}")
        hint = suggestion(kind, list(ARCHITECTURES), otherwise="")
        raise RunError(
            f"{folder} holds a model of the type {kind!r}, which is not read (known: {known}).{hint}"
        )
    classes = config.get("architectures") or [""]
    name = str(classes[0])
    if name not in architecture.heads:
        name = {"BertForPreTraining": "BertForMaskedLM"}.get(name, name)
    found = architecture.heads.get(name)
    if found is None or found.task not in _OPENED:
        opened = ", ".join(one for one, head in architecture.heads.items() if head.task in _OPENED)
        raise RunError(
            f"{folder} holds a {name or 'model without a class'}, which is not read; of {kind} these are: {opened}."
        )
    return architecture, name


def _estimator(
    folder: Path, head: Head, config: dict[str, Any], s: dict[str, Any], tokenizer: EngineTokenizer
) -> Any:
    """The estimator without its model; its settings are those of the model that mean something to its task."""
    s["tokens"] = "bpe"
    more = {"language": _of_language, "classify": _of_classifier, "tag": of_tagger, "embed": _of_embedder}[
        head.task
    ]
    learnt = more(folder, config, s, tokenizer)
    return made(folder, head.task, s, learnt)


def _of_language(
    folder: Path, config: dict[str, Any], s: dict[str, Any], tokenizer: EngineTokenizer
) -> dict[str, Any]:
    s["lines"] = True  # a text stands between <s> and </s>
    return {"tokenizer_": tokenizer}


def _of_classifier(
    folder: Path, config: dict[str, Any], s: dict[str, Any], tokenizer: EngineTokenizer
) -> dict[str, Any]:
    labels, kind = labels_of(folder, config)
    s["target"], s["two_scores"] = kind, len(labels) == 2
    targets = Targets(kind) if kind == "number" else Targets(kind, labels)
    return {"inputs_": TextInputs(tokenizer, begin=BOS), "targets_": targets}


def _of_embedder(
    folder: Path, config: dict[str, Any], s: dict[str, Any], tokenizer: EngineTokenizer
) -> dict[str, Any]:
    """With the pooling and the greatest length that sentence-transformers keeps beside a model."""
    said = read_json(folder / "1_Pooling" / "config.json")
    modes = {
        "mean": "pooling_mode_mean_tokens",
        "first": "pooling_mode_cls_token",
        "max": "pooling_mode_max_tokens",
    }
    asked = [ours for ours, theirs in modes.items() if said.get(theirs)]
    if len(asked) > 1:
        raise RunError(f"{folder}: it pools in several ways at once ({', '.join(asked)}), which is not read.")
    longest = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    s["pooling"], s["vector_size"] = (asked or ["mean"])[0], s["hidden"]
    if isinstance(longest, int):
        s["max_tokens"] = min(s["max_tokens"], longest - 2)
    return {"inputs_": TextInputs(tokenizer, begin=BOS)}
