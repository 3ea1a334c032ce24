"""``--to ctranslate2``: language models and translators for the CTranslate2 engine, by way of a `transformers` folder."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from anaphora.data.symbols import BOS, EOS, SPELLINGS, UNK
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import AnaphoraError
from anaphora.files import read_bytes
from anaphora.files.writing import make_folder, scratch_folder, write_new
from anaphora.tasks.exporting import hf, hf_translate
from anaphora.tasks.exporting.export import export_folder

NEEDED = ("ctranslate2", "transformers")
_ROTARY_BASE = 10000.0


def write(m: Any, place: Path) -> None:
    """Write a folder that ``ctranslate2.Generator`` or ``ctranslate2.Translator`` opens, with the tokenizers beside it.

    It takes and gives the symbols as they are spelled: ``tokenizer.json`` of the `tokenizers` library makes them.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise AnaphoraError(
            f"an export to CTranslate2 needs {', '.join(missing)}; install it with `pip install 'anaphora[foreign]'`."
        )
    if m.command not in ("language", "translate") or m.settings_.model == "masked":
        raise AnaphoraError(
            f"CTranslate2 writes texts, but a {type(m).__name__} ({m.settings_.model}) does not; export it to hf or onnx."
        )
    if m.command == "translate" and hf_translate.borrowed(m) is not None:
        raise AnaphoraError(
            "this translator has symbols and rules of others, which CTranslate2's own converter reads: export it to hf and run "
            "`ct2-transformers-converter` on the folder."
        )
    with scratch_folder() as name:
        folder = Path(name) / "hf"
        s = m.settings_
        rotary = m.command == "translate" and s.positions == "rotary"
        hf.write(m, folder, assumed={"positions": "sinusoidal"} if rotary else None)
        spec = _specification(m, folder)
        if rotary:
            features = int(s.rotary_share * (s.hidden // s.heads))
            _rotate(spec, base=s.rotary_base, features=features)
        with export_folder(place, {"to": "ctranslate2", "task": m.command}) as (out, _):
            spec.validate()
            spec.optimize(quantization=None)
            spec.save(str(out))
            for one in ("tokenizer.json", "target/tokenizer.json"):
                if (folder / one).is_file():
                    make_folder((out / one).parent)
                    write_new(out / one, read_bytes(folder / one))


def _specification(m: Any, folder: Path) -> Any:
    """The model as CTranslate2 describes it. Its own loaders assume the vocabularies of the models they were written for, so
    only their weights are taken."""
    import ctranslate2.converters.transformers as theirs
    import transformers

    kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    if m.command == "language":
        loader = theirs._MODEL_LOADERS.get(type(model.config).__name__)
        if loader is None:
            raise AnaphoraError(f"CTranslate2 does not know {kind}; export to onnx instead.")
        if m.settings_.positions == "rotary" and m.settings_.rotary_base != _ROTARY_BASE:
            raise AnaphoraError(
                f"CTranslate2 reads this model with rotary_base = {_ROTARY_BASE:.0f} only, but it was trained with "
                f"{m.settings_.rotary_base}; export to hf or onnx."
            )
        if kind == "GPTNeoXForCausalLM":  # where it looks for them; transformers 5 has them elsewhere
            model.config.rotary_pct, model.embed_out = m.settings_.rotary_share, model.get_output_embeddings()
        spec = loader.get_model_spec(model)
        spec.register_vocabulary(_spelled(m.tokenizer_))
        special = SPELLINGS if hf.numbering_of(m.tokenizer_).special == (0, 1, 2, 3) else None
        names = special or _names(m.tokenizer_)
        spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = (
            names[BOS],
            names[EOS],
            names[UNK],
        )
        spec.config.layer_norm_epsilon = m.settings_.norm_eps
        return spec
    if "T5" in kind:
        raise AnaphoraError(
            "CTranslate2 is given translators without distance_buckets only; export to hf or onnx."
        )
    model.config.normalize_before = m.settings_.norm_first
    model.config.normalize_embedding = m.settings_.embedding_norm
    spec = theirs.BartLoader().get_model_spec(model)
    size = model.config.vocab_size
    spec.register_source_vocabulary(_filled(_spelled(m.tokenizer_.source), size))
    spec.register_target_vocabulary(_filled(_spelled(m.tokenizer_.target), size))
    spec.config.bos_token = spec.config.decoder_start_token = SPELLINGS[BOS]
    spec.config.eos_token, spec.config.unk_token = SPELLINGS[EOS], SPELLINGS[UNK]
    spec.config.layer_norm_epsilon = m.settings_.norm_eps
    spec.config.add_source_eos = False  # the caller gives it, as `tokenizer.json` does
    return spec


def _rotate(spec: Any, *, base: float, features: int) -> None:
    """Rotary positions instead of added ones: no encoder-decoder of `transformers` has them, but CTranslate2's may.

    ``features``: how many of a head are rotated, its first ones.
    """
    import numpy as np

    rotary = {
        "rotary_dim": np.int32(features),
        "rotary_interleave": True,  # features 2i and 2i + 1 are a pair, as here
        "rotary_base": np.float32(base),
    }
    for side in (spec.encoder, spec.decoder):
        del side.position_encodings
        for layer in side.layer:
            vars(layer.self_attention).update(rotary)  # a layer that was made without refuses to set them


def _spelled(tokenizer: Tokenizer) -> list[str]:
    """The symbols by their ids in the folder, each spelled otherwise than all others."""
    numbering = hf.numbering_of(tokenizer)
    own = tokenizer.spellings
    engine = getattr(tokenizer, "engine", None)
    theirs = [
        own[i] if engine is None else (engine.id_to_token(n) or "") for n, i in enumerate(numbering.numbers)
    ]
    return [one if one else f"<unused {i}>" for i, one in enumerate(theirs)]


def _names(tokenizer: Any) -> list[str]:
    """How the special symbols of a tokenizer of others are spelled; what it lacks, as its </s>."""
    found = [None if i is None else tokenizer.engine.id_to_token(i) for i in tokenizer.numbering.special]
    return [one or found[EOS] or "" for one in found]


def _filled(symbols: list[str], size: int) -> list[str]:
    return [*symbols, *(f"<unused {i}>" for i in range(len(symbols), size))]
