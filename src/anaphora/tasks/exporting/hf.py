"""A Transformer as a folder of Hugging Face's `transformers`: config, weights and tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from anaphora.data.symbols import BOS, EOS, PAD, SPELLINGS, UNK
from anaphora.data.tokenizers import Tokenizer
from anaphora.data.tokenizers.own import EngineTokenizer
from anaphora.data.tokenizers.vocabularies import Numbering
from anaphora.errors import AnaphoraError
from anaphora.files.writing import make_folder, write_new
from anaphora.foreign.architectures import ARCHITECTURES
from anaphora.foreign.folding import Form, folded
from anaphora.foreign.hows import sizes_of
from anaphora.foreign.mapping import Architecture, UnmappedError, outward
from anaphora.foreign.words import tokenizer_json
from anaphora.kinds.text import TextInputs
from anaphora.tasks.exporting import hf_translate
from anaphora.tasks.exporting.export import export_folder
from anaphora.tasks.exporting.language import refuse_counts
from anaphora.tasks.parts import ENDS
from anaphora.training.weights import snapshot

_MOST_PLACES = 1024
"""Positions of a translator that has no limit itself."""
TASKS = ("language", "classify", "tag", "embed", "translate", "transcribe")


def write(m: Any, place: Path, *, assumed: Mapping[str, Any] | None = None) -> None:
    """Write the folder; an `AnaphoraError` names the settings that no architecture there has.

    ``assumed``: settings to write instead of the model's own, for a caller that puts the true ones into what it makes of the
    folder.
    """
    from anaphora.tasks.exporting import hf_senses

    if getattr(m.settings_, "mixtures", 1) > 1:
        raise AnaphoraError(
            f"no architecture of `transformers` has mixtures = {m.settings_.mixtures} softmaxes: train with mixtures = 1, or export to onnx."
        )
    if m.command in TASKS and m.settings_.model in hf_senses.PRESETS:
        hf_senses.write(m, place)
        return
    refuse_counts(m)
    if m.command not in TASKS or getattr(m.settings_, "model", "") not in ("transformer", "masked"):
        raise AnaphoraError(
            f"the preset {m.settings_.model} of a {type(m).__name__} is not built of blocks that `transformers` has; "
            "export it to onnx."
        )
    architecture, head, form = _chosen(m, _form(m, assumed or {}))
    tokenizer = _tokenizer(m)
    words = target = numbering_of(tokenizer)
    sides = hf_translate.borrowed(m) if m.command == "translate" else None
    if sides is not None:
        words, target = sides
    elif m.command == "translate":
        words = target = Numbering.ours(len(form.tensors["decoder.output.bias"]))
    rules = architecture.rules(head, form.settings, body=form.body)
    tensors = outward(rules, form.tensors, sizes_of(form.settings, words, target))
    symbols = {"symbols": words.size, "target_symbols": target.size}
    config = architecture.config(form.settings | symbols, head) | more_of(m, words)
    if sides is not None:
        config |= hf_translate.config_of(m, target)
        tensors = hf_translate.stored(m, architecture.model_type, tensors)
    with export_folder(place, {"to": "hf", "task": m.command, "class": head}) as (folder, _):
        write_tensors(folder, tensors)
        write_json(folder / "config.json", config)
        if sides is not None:
            hf_translate.write_tokenizers(folder, m, architecture.model_type, form.places)
            write_json(folder / "generation_config.json", hf_translate.generation_of(m, target))
            return
        _tokens(folder, m, tokenizer, form)
        if m.command == "translate":
            write_json(folder / "generation_config.json", _translating())
        elif m.settings_.model == "transformer" and m.command == "language":
            write_json(folder / "generation_config.json", generation_of(m, words))


def numbering_of(tokenizer: Tokenizer) -> Numbering:
    """How the symbols are numbered in the folder: as they came, or as here."""
    found = getattr(tokenizer, "numbering", None)
    if isinstance(found, Numbering) and any(i is not None for i in found.special):
        return found
    return Numbering.ours(tokenizer.size)


def _form(m: Any, assumed: Mapping[str, Any]) -> Form:
    """The model as it is but for settings ``assumed``, on the CPU in float32."""
    s = m.settings_.model_dump() | dict(assumed)
    tensors = {name: value.detach().cpu().float() for name, value in snapshot(m.model_).items()}
    body = "body." if m.command == "language" else "encoder."
    if m.command == "language":
        places = s["context"] + (s["model"] == "masked")
        s["shares"] = s["tie"]
        if s["tie"]:
            tensors.pop("output.weight", None)
    elif m.command == "translate":
        places, s["shares"] = s["max_tokens"] + ENDS, s["joint"] and (s["tie"] or s["shared_vectors"])
        if (
            s["positions"] == "sinusoidal" and not s["max_positions"]
        ):  # targets may be longer than any that were trained on
            places = max(places, _MOST_PLACES)
    else:
        places, s["tie"], s["shares"] = s["max_tokens"] + ENDS, True, False
    s["output_transform"] = s.get("output_transform", False)
    if m.command == "classify":
        tensors |= _classes(m, tensors)
    return Form(s, tensors, body, s["max_positions"] or places, numbering_of(_tokenizer(m)))


def _classes(m: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The last layer as others have it: a score for each of two classes too, and numbers in their own unit."""
    weight, bias = tensors["output.weight"], tensors["output.bias"]
    if m.model_.binary:
        return {
            "output.weight": torch.cat((torch.zeros_like(weight), weight)),
            "output.bias": torch.cat((torch.zeros_like(bias), bias)),
        }
    if m.targets_.kind == "number":
        return {
            "output.weight": weight * m.targets_.scale,
            "output.bias": bias * m.targets_.scale + m.targets_.mean,
        }
    return {}


def _chosen(m: Any, form: Form) -> tuple[Architecture, str, Form]:
    """The first architecture that has this form, or an `AnaphoraError` with what is in the way of the nearest."""
    _check_inputs(m)
    nearest: list[str] | None = None
    fitting: list[tuple[Architecture, str, Form]] = []
    hint = getattr(m, "_foreign", "")
    for architecture in sorted(ARCHITECTURES.values(), key=lambda one: one.model_type != hint):
        for name, head in architecture.heads.items():
            if head.task != m.command or head.settings["model"] != m.settings_.model:
                continue
            found = folded(form, architecture, head)
            problems = [
                f"{key} = {found.settings[key]!r} (it must be {value!r})"
                for key, value in head.settings.items()
                if key in found.settings and found.settings[key] != value
            ]
            try:
                architecture.config(found.settings | {"symbols": 0}, name)
            except UnmappedError as error:
                problems += str(error).split("; ")
            if not problems:
                fitting.append((architecture, name, found))
            elif nearest is None or len(problems) < len(nearest):
                nearest = problems
    if fitting:  # one that has the very form, where there is one: what came from others goes back as it came
        return next((one for one in fitting if _unchanged(form, one[2])), fitting[0])
    raise AnaphoraError(
        f"no architecture of `transformers` has {'; '.join(nearest or [])}: train with these settings, or export to onnx."
    )


def _unchanged(before: Form, after: Form) -> bool:
    apart = {key for key, value in after.settings.items() if before.settings[key] != value}
    return apart <= {"max_positions"}


def _check_inputs(m: Any) -> None:
    s, model = m.settings_, m.model_
    odd = ""
    if m.command in ("classify", "embed") and not isinstance(m.inputs_, TextInputs):
        odd = "it reads vectors or pictures, not texts"
    elif m.command in ("classify", "embed") and m.inputs_.context:
        odd = "it reads the vectors of other language models (init_as = 'vectors')"
    elif m.command == "tag" and (m.framewise or s.characters != "none" or model.crf is not None):
        odd = (
            "it reads frames" if m.framewise else "it reads the spelling of words: train with characters=none"
        )
    elif m.command == "tag" and m.learnt_.framing and s.pieces != "first":
        odd = f"a word is the {s.pieces} of its pieces there; train with pieces=first"
    elif getattr(s, "mix", False):
        odd = "it reads a mixture of layers (mix = true)"
    elif getattr(s, "causal", False):
        odd = "causal = true, and these architectures read both sides"
    elif getattr(s, "backward", False):
        odd = "it reads lines from their end (backward = true)"
    if odd:
        raise AnaphoraError(
            f"this {type(m).__name__} has no counterpart in `transformers`: {odd}; or export it to onnx."
        )


def _tokenizer(m: Any) -> Tokenizer:
    found: Tokenizer = m.inputs_.tokenizer if m.command in ("classify", "embed") else m.tokenizer_
    return m.tokenizer_.source if m.command == "translate" else found


def more_of(m: Any, words: Numbering) -> dict[str, Any]:
    """What a config says beside the sizes: special symbols, classes, numbers without dropout."""
    special = dict(zip(("pad", "unk", "bos", "eos"), words.special, strict=True))
    ours = words == Numbering.ours(words.size)
    found: dict[str, Any] = {"dtype": "float32", "transformers_version": "5.0.0"}
    found |= {f"{name}_token_id": special[name] for name in ("bos", "eos")}
    if ours:
        found["pad_token_id"] = PAD
    if m.command == "translate":
        found |= {"decoder_start_token_id": BOS, "forced_eos_token_id": None}
    names: list[str] = []
    if m.command == "classify":
        kinds = {"class": "single_label_classification", "classes": "multi_label_classification"}
        found["problem_type"] = kinds.get(m.targets_.kind, "regression")
        names = list(m.targets_.names) or ["LABEL_0"]
    elif m.command == "tag":
        names = list(m.learnt_.tags)
    if names:
        found["id2label"] = {str(i): name for i, name in enumerate(names)}
        found["label2id"] = {name: i for i, name in enumerate(names)}
    return found


def _tokens(folder: Path, m: Any, tokenizer: Tokenizer, form: Form) -> None:
    before: int | None = None
    after: int | None = None
    if m.command == "language":
        before, after = (BOS if m.settings_.model == "masked" else m.begin), None
    elif m.command == "translate":
        after = EOS
    elif m.command in ("classify", "embed"):
        before, after = getattr(m.model_, "begin", None), EOS if getattr(m.model_, "end", True) else None
    elif m.command == "tag" and m.learnt_.framing:
        before, after = BOS, EOS if m.learnt_.framing == "both" else None
    longest = form.places if form.settings["positions"] == "learned" else 10**9
    side = "left" if m.command == "language" and m.settings_.model == "transformer" else "right"
    write_tokenizer(folder, tokenizer, before=before, after=after, longest=longest, side=side)
    if m.command == "translate" and not m.tokenizer_.joint:  # what generated symbols are decoded with
        make_folder(folder / "target")
        write_tokenizer(folder / "target", m.tokenizer_.target, after=EOS, longest=longest)


def write_tokenizer(
    folder: Path,
    tokenizer: Tokenizer,
    *,
    before: int | None = None,
    after: int | None = None,
    longest: int,
    side: str = "right",
) -> None:
    """``tokenizer.json`` and its config; ``side``: where short texts are filled up."""
    document = tokenizer_json(tokenizer, before=before, after=after)
    write_json(folder / "tokenizer.json", document)
    spelled = _special_spellings(tokenizer)
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **spelled,
            "model_max_length": longest,
            "model_input_names": ["input_ids", "attention_mask"],
            "clean_up_tokenization_spaces": False,
            "split_special_tokens": True,  # a text may be spelled like one
            "padding_side": side,
        },
    )


def _special_spellings(tokenizer: Tokenizer) -> dict[str, str]:
    if not (
        isinstance(tokenizer, EngineTokenizer) and any(i is not None for i in tokenizer.numbering.special)
    ):
        return dict(zip(("pad_token", "unk_token", "bos_token", "eos_token"), SPELLINGS, strict=True))
    ids = tokenizer.numbering.special
    known = {
        name: tokenizer.engine.id_to_token(i)
        for name, i in zip(("pad_token", "unk_token", "bos_token", "eos_token"), ids, strict=True)
        if i is not None
    }
    if (known.get("pad_token") or "").strip("[]<>").lower() == "mask":
        known["mask_token"] = known.pop("pad_token")
        known |= {"cls_token": known.get("bos_token"), "sep_token": known.get("eos_token")}
        pads = [one for one in ("[PAD]", "<pad>") if tokenizer.engine.token_to_id(one) is not None]
        known |= {"pad_token": pads[0]} if pads else {}
    return {name: spelling for name, spelling in known.items() if spelling is not None}


def generation_of(m: Any, words: Numbering) -> dict[str, Any]:
    """How text goes on as it does here: symbols that no text has are never chosen, and only lines end by themselves."""
    ours = words == Numbering.ours(words.size)
    begin, end = words.order[m.begin], words.order[EOS]
    if begin is None:
        begin = end
    never = [words.order[i] for i in ((PAD, UNK, BOS) if m.settings_.lines else (PAD, UNK, BOS, EOS))]
    found: dict[str, Any] = {"bos_token_id": begin, "do_sample": False}
    found |= {"eos_token_id": end} if m.settings_.lines else {}
    found |= {"pad_token_id": PAD if ours else end}
    known = [i for i in never if i is not None]
    return found | ({"suppress_tokens": known} if known and ours else {})


def _translating() -> dict[str, Any]:
    """Greedy search: the beams of others end otherwise than ours."""
    special = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}
    return {**special, "num_beams": 1, "do_sample": False, "max_length": 256}


def write_tensors(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write ``model.safetensors`` into a new folder."""
    packed = save({name: one.clone() for name, one in tensors.items()}, metadata={"format": "pt"})
    write_new(folder / "model.safetensors", packed)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    write_new(path, (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode())
