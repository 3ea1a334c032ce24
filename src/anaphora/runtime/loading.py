"""``load``: the right class for an export folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anaphora.errors import RunError
from anaphora.runtime.answerer import Answerer
from anaphora.runtime.captioner import Captioner
from anaphora.runtime.folder import read_folder
from anaphora.runtime.forecaster import Forecaster
from anaphora.runtime.language import LanguageModel
from anaphora.runtime.reader import Classifier, Embedder
from anaphora.runtime.tagger import Tagger
from anaphora.runtime.transcriber import Transcriber
from anaphora.runtime.translator import Translator

TASKS: dict[str, Any] = {
    "answer": Answerer,
    "caption": Captioner,
    "classify": Classifier,
    "embed": Embedder,
    "forecast": Forecaster,
    "language": LanguageModel,
    "tag": Tagger,
    "transcribe": Transcriber,
    "translate": Translator,
}


def load(folder: str | Path, *, threads: int = 0, trust: bool = False) -> Any:
    """The model that ``anaphora export RUN --to onnx`` wrote to ``folder``; it predicts as the trained one does, without torch.

        m = anaphora.runtime.load("exported")
        m.predict(["a good film"])                   # inputs and options are those of ``predict`` of the task

    Args:
        folder: what was exported.
        threads: of each prediction; 0: one for each core.
        trust: allow patterns of a tokenizer that are not known; they are run on every text.

    Raises a `RunError` where the folder holds no export, a damaged one, or one of a task that this version cannot run.

    >>> import anaphora.runtime
    >>> try:
    ...     anaphora.runtime.load("no-such-folder")
    ... except an.AnaphoraError as error:
    ...     print(type(error).__name__)
    RunError
    """
    exported = read_folder(folder, trust=trust)
    if exported.task not in TASKS:
        raise RunError(
            f"{folder} holds the task {exported.task!r}, which this version cannot run; upgrade Anaphora."
        )
    return TASKS[exported.task](exported, threads=threads)
