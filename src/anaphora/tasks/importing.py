"""Models of others as estimators: a folder of `transformers` becomes a trained `LanguageModel`, `Classifier` or `Embedder`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from anaphora.data.labelled_inputs import TextInputs
from anaphora.data.labelled_targets import Targets
from anaphora.data.symbols import BOS
from anaphora.data.tokenizers_own import EngineTokenizer
from anaphora.errors import RunError, SettingsError
from anaphora.foreign.architectures import ARCHITECTURES
from anaphora.foreign.mapping import Architecture, Head, UnmappedError, inward
from anaphora.foreign.reading import read_json, read_tensors
from anaphora.foreign.sizes import sizes_of
from anaphora.foreign.words import read_words
from anaphora.settings.base import suggestion
from anaphora.settings.own import trusting
from anaphora.tasks.registry import TASKS, estimator
from anaphora.training.precision import choose_device
from anaphora.training.weights import first_not_finite

_OPENED = ("language", "classify", "embed")


def open_foreign(folder: Path, *, device: str = "auto", trust: bool = False) -> Any:
    """The model in ``folder`` as a trained estimator of the task that its class is for.

    Nothing in the folder is executed. Raises a `RunError` in one sentence where the architecture, a value of its config, or
    a tensor has no counterpart here, and where a file is missing or damaged.
    """
    config = read_json(folder / "config.json")
    architecture, name = _architecture(folder, config)
    head = architecture.heads[name]
    try:
        s = architecture.settings(config) | dict(head.settings)
    except UnmappedError as error:
        raise RunError(
            f"{folder / 'config.json'}: {error} has no counterpart here; choose another model."
        ) from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{folder / 'config.json'} is not complete ({error!r}); download it again.") from None
    tokenizer = read_words(folder, architecture, config, writes=_writes(head), trust=trust or trusting())
    m = _estimator(folder, head, config, s, tokenizer)
    m.model_ = m._fresh_model()
    given = _named(architecture, name, read_tensors(folder))
    body = "body." if head.task == "language" else "encoder."
    m.model_.load_state_dict(
        inward(
            architecture.rules(name, s, body=body),
            given,
            {key: value.shape for key, value in m.model_.state_dict().items()},
            sizes_of(s, tokenizer.numbering),
            silent=architecture.silent,
            where=str(folder),
        )
    )
    if broken := first_not_finite(dict(m.model_.state_dict())):
        raise RunError(f"{folder}: the weights of {broken} are not finite numbers; download it again.")
    m.model_.to(choose_device(device)).eval()
    m._foreign = architecture.model_type
    m.trusts, m._trained_with, m._trained_on = True, m.settings_, {}
    return m


def _writes(head: Head) -> bool:
    return head.settings.get("model") == "transformer" and head.task == "language"


def _architecture(folder: Path, config: dict[str, Any]) -> tuple[Architecture, str]:
    kind = str(config.get("model_type"))
    architecture = ARCHITECTURES.get(kind)
    known = ", ".join(ARCHITECTURES)
    if architecture is None:
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


def _named(architecture: Architecture, name: str, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under the names of the table: with the prefix that files of a bare model lack, or without the one that they have
    too many; buffers of whole numbers are left out."""
    kept = {key: value for key, value in given.items() if value.is_floating_point()}
    head = architecture.heads[name]
    if head.bare and any(key.startswith(architecture.prefix) for key in kept):
        kept = {key.removeprefix(architecture.prefix): value for key, value in kept.items()}
    for old, new in architecture.renamed.items():
        if old in kept and new not in kept:
            kept[new] = kept.pop(old)
    return {
        key.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): one
        for key, one in kept.items()
    }


def _estimator(
    folder: Path, head: Head, config: dict[str, Any], s: dict[str, Any], tokenizer: EngineTokenizer
) -> Any:
    """The estimator without its model; its settings are those of the model that mean something to its task."""
    task = TASKS[head.task]
    s["tokens"] = "bpe"
    more = {"language": _of_language, "classify": _of_classifier, "embed": _of_embedder}[head.task]
    set_later = more(folder, config, s, tokenizer)
    used = task.used(str(s["model"]))
    try:
        m = estimator(head.task).again({key: value for key, value in s.items() if key in used})
    except SettingsError as error:
        raise RunError(f"{folder}: {error.problems[0]}") from None
    for key, value in set_later.items():
        setattr(m, key, value)
    return m


def _of_language(
    folder: Path, config: dict[str, Any], s: dict[str, Any], tokenizer: EngineTokenizer
) -> dict[str, Any]:
    s["lines"] = True  # a text stands between <s> and </s>
    return {"tokenizer_": tokenizer}


def _of_classifier(
    folder: Path, config: dict[str, Any], s: dict[str, Any], tokenizer: EngineTokenizer
) -> dict[str, Any]:
    names = config.get("id2label")
    count = int(config.get("num_labels") or (len(names) if names else 2))
    labels = tuple(str((names or {}).get(str(i), f"LABEL_{i}")) for i in range(count))
    kind = {"multi_label_classification": "classes", "regression": "number"}.get(
        str(config.get("problem_type")), "class"
    )
    kind = "number" if count == 1 else kind
    if kind != "number" and len(set(labels)) < count:
        raise RunError(f"{folder / 'config.json'} has the same label twice in id2label; name them apart.")
    s["target"], s["two_scores"] = kind, count == 2
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
