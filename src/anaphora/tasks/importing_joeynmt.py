"""A folder that Joey NMT trained in, as a `Translator`: its config, checkpoint and vocabularies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anaphora.data.numbering import Numbering
from anaphora.data.tokenizers_own import EngineTokenizer
from anaphora.data.tokenizers_pieces import PieceTokenizer
from anaphora.errors import DataError, RunError
from anaphora.files import read_bytes
from anaphora.foreign.architectures import joeynmt
from anaphora.foreign.mapping import UnmappedError
from anaphora.foreign.weights.torch_file import read_checkpoint
from anaphora.tasks.importing_nmt import LARGEST, read_yaml, translator, words

CONFIG = "config.yaml"
_CHECKPOINTS = ("best.ckpt", "latest.ckpt")
_SPECIAL = (("pad", 1, "<pad>"), ("unk", 0, "<unk>"), ("bos", 2, "<s>"), ("eos", 3, "</s>"))


def is_joeynmt(folder: Path) -> bool:
    """Whether ``folder`` holds a config and a checkpoint as Joey NMT names them."""
    return (folder / CONFIG).is_file() and _checkpoint(folder) is not None


def _checkpoint(folder: Path) -> Path | None:
    found = (folder / name for name in _CHECKPOINTS)
    return next((one for one in found if one.is_file()), next(iter(sorted(folder.glob("*.ckpt"))), None))


def open_joeynmt(folder: Path, *, device: str = "auto") -> Any:
    """The model of the best checkpoint; a `RunError` in one sentence where something has no counterpart, is missing or damaged."""
    config = read_yaml(folder / CONFIG, "Joey NMT")
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
    path = _checkpoint(folder)
    assert path is not None
    return translator(
        folder,
        "joeynmt",
        s,
        (source, target),
        joeynmt.rules(s),
        read_checkpoint(path, "model_state").tensors,
        silent=joeynmt.SILENT,
        where=path,
        device=device,
    )


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
        return words(symbols, numbering, lowercase=lowercase)
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
    return PieceTokenizer(read_bytes(model, most=LARGEST), symbols, numbering)


def _lines(path: Path) -> list[str]:
    try:
        found = read_bytes(path, most=LARGEST).decode("utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({type(error).__name__}); copy it again.") from None
    if len(set(found)) < len(found):
        raise RunError(f"{path} has a symbol twice; copy it again.")
    return found
