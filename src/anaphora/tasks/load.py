"""``an.load``: the right estimator comes back from a run folder or a saved model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

from torch import nn

from anaphora.errors import RunError
from anaphora.foreign.folder import is_foreign
from anaphora.foreign.mapping import Rule
from anaphora.probe.trace import Trace
from anaphora.settings.removed import REMOVED
from anaphora.tasks.estimator import Estimator
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.registry import estimator

E = TypeVar("E", bound=Estimator)
M = TypeVar("M", bound=nn.Module)


class Trained(Protocol):
    """What every trained estimator has, whatever its task; the rest depends on the task and is not checked.

    To have all of it checked, name the class: ``an.load(RUN, an.Translator)``.
    """

    command: str
    settings_: Any
    model_: Any

    def predict(self, inputs: Any, /, **options: Any) -> Any:
        """The answer to each input; see `predict` of the task."""

    def score(self, data: Any, /, **options: Any) -> Mapping[str, Any]:
        """The measures of the task by name."""

    def probe(
        self, x: Any, /, target: Any = None, *, what: Sequence[str] = (), beam: int | None = None
    ) -> Trace:
        """What happens inside on one input."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings."""

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the model alone to a folder."""

    def __getattr__(self, name: str) -> Any:
        """What the task has in addition, such as ``sample`` or ``predict_proba``."""


@overload
def load(
    folder: str | Path,
    *,
    into: M,
    names: Mapping[str, str] | None = None,
    rules: Sequence[Rule] = (),
    part: str = "",
) -> M: ...


@overload
def load(
    folder: str | Path,
    *,
    device: str = "auto",
    checkpoint: int | None = None,
    frame: int | None = None,
    trust: bool = False,
    **parts: Any,
) -> Trained: ...


@overload
def load(
    folder: str | Path,
    kind: type[E],
    *,
    device: str = "auto",
    checkpoint: int | None = None,
    frame: int | None = None,
    trust: bool = False,
    **parts: Any,
) -> E: ...


def load(
    folder: str | Path,
    kind: type[Estimator] | None = None,
    *,
    device: str = "auto",
    checkpoint: int | None = None,
    frame: int | None = None,
    trust: bool = False,
    into: nn.Module | None = None,
    names: Mapping[str, str] | None = None,
    rules: Sequence[Rule] = (),
    part: str = "",
    **parts: Any,
) -> Any:
    """The trained estimator in ``folder``. Every file is checked against its hash; nothing in it is executed.

        m = an.load("runs/reviews")                  # whatever task it is
        m = an.load("runs/reviews", an.Classifier)   # a Classifier, to a type checker too
        m = an.load("runs/reviews", cell=MGU)        # a model with a cell of your own
        m = an.load("all-MiniLM-L6-v2")              # a folder of `transformers`: an Embedder
        m = an.load("silero_vad_16k.safetensors")    # a file of weights: a module
        m = an.load("weights.pt", into=module, names={"rnn": "encoder.lstm"})

    Args:
        folder: a run folder, a saved model, a folder of `transformers`, or a file of weights.
        kind: the class of the estimator, so that a type checker knows it and another class is an error.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        checkpoint: the weights of that step instead of the best.
        frame: the weights of that frame of the training's film; 0: before the first step.
        trust: import own parts that the folder names from installed packages and the current directory.
        into: a module of yours that takes the weights of a file.
        names: what the modules of the file are called in ``into``.
        rules: what is more than another name, see `anaphora.foreign.rules`.
        part: which state dict of a checkpoint is meant.
        parts: own parts by the names of their settings (``cell=MGU``), for a model that was trained with them.

    A folder of `transformers` (BERT, RoBERTa, DistilBERT, ELECTRA, GPT-2, OPT, GPT-NeoX, Llama, Mistral, Qwen 2, T5, BART, Marian,
    mBART, M2M-100, Pegasus, ViT, DeiT, wav2vec 2.0, HuBERT, Whisper) opens as the task that its class is for; ``anaphora import`` makes a
    run folder of it. A file of weights is safetensors, a state dict of torch, npz or ONNX. A published model
    (docs/guides/public-models.md) gives its module, an ``nn.LSTM`` or ``nn.GRU`` alone a `Recurrent`; any other file needs ``into``.

    Raises a `RunError` where the folder holds no run, a damaged one, one of another ``kind``, or no such checkpoint.

    >>> m = an.Classifier("ngrams").fit([("good film", "yes"), ("bad film", "no")] * 6, out="runs/reviews")
    >>> an.load("runs/reviews").predict(["a good one"])
    ['yes']
    """
    path, run_only = Path(folder), bool(parts) or checkpoint is not None or frame is not None
    if is_foreign(path):
        return _of_kind(kind, path, _of_transformers(path, run_only, device=device, trust=trust))
    refuse_toolkits(path)
    if into is not None or path.is_file():
        found = _of_file(path, run_only, device=device, into=into, names=names, rules=rules, part=part)
        return _of_kind(kind, path, found)
    if kind is not None:
        return kind.load(folder, device=device, checkpoint=checkpoint, frame=frame, trust=trust, **parts)
    recipe = Recipe.read(path)
    return estimator(recipe.task.command).from_folder(
        path, recipe, device=device, checkpoint=checkpoint, frame=frame, trust=trust, parts=parts
    )


def _of_kind(kind: type | None, path: Path, found: Any) -> Any:
    """What was found in ``path``; a `RunError` where it is not of the class that the caller named."""
    if kind is not None and not isinstance(found, kind):
        raise RunError(f"{path}: holds a {type(found).__name__}, not a {kind.__name__}; use an.load.")
    return found


def _of_transformers(path: Path, run_only: bool, **options: Any) -> Any:
    """``run_only``: whether the caller named a checkpoint, a frame or own parts, which only runs have."""
    from anaphora.tasks.importing import open_foreign

    if run_only:
        raise RunError(
            f"{path} is a model of `transformers`, which has no checkpoints or own parts; leave them out."
        )
    return open_foreign(path, **options)


def refuse_toolkits(path: Path) -> None:
    """Raise a `RunError` for a folder that Joey NMT or sockeye trained in, which earlier versions read."""
    if any((path / name).is_file() for name in ("vocab.src.0.json", "params.best")):
        raise RunError(f"{path}: {REMOVED['sockeye']}")
    if (path / "config.yaml").is_file() and not (path / "config.json").is_file():
        raise RunError(f"{path}: {REMOVED['Joey NMT']}")


def _of_file(path: Path, run_only: bool, **options: Any) -> Any:
    """``run_only``: whether the caller named a checkpoint, a frame or own parts, which only runs have."""
    from anaphora.tasks.importing_files import open_file

    if run_only:
        raise RunError(f"{path} is a file, which has no checkpoints or own parts; leave them out.")
    return open_file(path, **options)
