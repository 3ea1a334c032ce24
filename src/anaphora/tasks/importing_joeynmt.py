"""A folder that Joey NMT trained in, as a `Translator`: its config, checkpoint and vocabularies."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers

from anaphora.data.numbering import Numbering
from anaphora.data.tokenizers import PairTokenizer
from anaphora.data.tokenizers_own import EngineTokenizer
from anaphora.data.tokenizers_pieces import PieceTokenizer
from anaphora.errors import DataError, RunError
from anaphora.files import read_bytes
from anaphora.foreign.architectures import joeynmt
from anaphora.foreign.mapping import UnmappedError, inward
from anaphora.foreign.sizes import sizes_of
from anaphora.foreign.weights.torch_file import read_checkpoint
from anaphora.tasks.importing_parts import made
from anaphora.training.precision import choose_device
from anaphora.training.weights import first_not_finite

CONFIG = "config.yaml"
_CHECKPOINTS = ("best.ckpt", "latest.ckpt")
_LARGEST = 1 << 24
_SPECIAL = (("pad", 1, "<pad>"), ("unk", 0, "<unk>"), ("bos", 2, "<s>"), ("eos", 3, "</s>"))


def is_joeynmt(folder: Path) -> bool:
    """Whether ``folder`` holds a config and a checkpoint as Joey NMT names them."""
    return (folder / CONFIG).is_file() and _checkpoint(folder) is not None


def _checkpoint(folder: Path) -> Path | None:
    found = (folder / name for name in _CHECKPOINTS)
    return next((one for one in found if one.is_file()), next(iter(sorted(folder.glob("*.ckpt"))), None))


def open_joeynmt(folder: Path, *, device: str = "auto") -> Any:
    """The model of the best checkpoint; a `RunError` in one sentence where something has no counterpart, is missing or damaged."""
    config = _config(folder / CONFIG)
    try:
        s = joeynmt.settings(config)
        source, target = (
            _side(folder, config["data"], name, file)
            for name, file in (("src", "src_vocab.txt"), ("trg", "trg_vocab.txt"))
        )
    except UnmappedError as error:
        raise RunError(f"{folder / CONFIG}: {error} has no counterpart here; choose another model.") from None
    except DataError as error:
        raise error if isinstance(error, RunError) else RunError(f"{folder}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{folder / CONFIG} is not complete ({error!r}); copy it again.") from None
    if s["shares"] and source.spellings != target.spellings:
        raise RunError(
            f"{folder}: tied_embeddings needs one vocabulary, but src_vocab.txt and trg_vocab.txt differ."
        )
    m = made(folder, "translate", s | {"tokens": "bpe"})
    m.tokenizer_ = PairTokenizer(source, source if s["shares"] else target, s["shares"])
    m.model_ = m._fresh_model()
    path = _checkpoint(folder)
    assert path is not None
    wanted = dict(m.model_.named_parameters())
    found = inward(
        joeynmt.rules(s),
        read_checkpoint(path, "model_state").tensors,
        {name: one.shape for name, one in wanted.items()},
        sizes_of(s, source.numbering, target.numbering),
        silent=joeynmt.SILENT,
        where=str(path),
        remedy="give the folder that the model was trained in, unchanged",
    )
    if broken := first_not_finite(found):
        raise RunError(f"{path}: the weights of {broken} are not finite numbers; copy it again.")
    with torch.no_grad():
        for name, value in found.items():
            wanted[name].copy_(value)
    m.model_.to(choose_device(device)).eval()
    m._foreign = "joeynmt"
    m.trusts, m._trained_with, m._trained_on = True, m.settings_, {}
    return m


def _config(path: Path) -> dict[str, Any]:
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise RunError(f"{path} is YAML, which PyYAML reads; install it with `pip install pyyaml`.") from None
    try:
        found = yaml.safe_load(read_bytes(path, most=_LARGEST).decode("utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise RunError(f"{path} cannot be read ({type(error).__name__}); copy it again.") from None
    if not isinstance(found, dict):
        raise RunError(f"{path} is not a config of Joey NMT; copy it again.")
    return found


def _side(folder: Path, data: Mapping[str, Any], name: str, file: str) -> EngineTokenizer | PieceTokenizer:
    """The tokenizer of one side: words between spaces, or pieces of a model of sentencepiece that lies in the folder."""
    said = data[name]
    symbols = _lines(folder / file)
    special = data.get("special_symbols") or {}
    ids = []
    for key, usual, spelling in _SPECIAL:
        i = int(special.get(f"{key}_id", usual))
        spelled = special.get(f"{key}_token", spelling)
        if not 0 <= i < len(symbols) or symbols[i] != spelled:
            raise RunError(
                f"{folder / file}: symbol {i} is not {spelled!r}, as {CONFIG} has it; copy both again."
            )
        ids.append(i)
    numbering = Numbering(len(symbols), (ids[0], ids[1], ids[2], ids[3]))
    lowercase = bool(said.get("lowercase", False))
    if said.get("level") == "word":
        engine = Engine(
            models.WordLevel({one: i for i, one in enumerate(symbols)}, unk_token=symbols[ids[1]])
        )
        engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        engine.add_special_tokens([symbols[i] for i in ids])
        return EngineTokenizer(engine, lowercase=lowercase, raw=False, numbering=numbering, quiet=True)
    kind = said.get("tokenizer_type")
    if kind != "sentencepiece" or lowercase:
        raise UnmappedError(
            f"data.{name}: level = {said.get('level')!r} with tokenizer_type = {kind!r}"
            + ", lowercase" * lowercase
        )
    model = folder / Path(str(said["tokenizer_cfg"]["model_file"])).name
    if not model.is_file():
        raise RunError(
            f"{model} is missing, the model of sentencepiece that {CONFIG} names; copy it into the folder."
        )
    return PieceTokenizer(read_bytes(model, most=_LARGEST), symbols, numbering)


def _lines(path: Path) -> list[str]:
    try:
        found = read_bytes(path, most=_LARGEST).decode("utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({type(error).__name__}); copy it again.") from None
    if len(set(found)) < len(found):
        raise RunError(f"{path} has a symbol twice; copy it again.")
    return found
