"""The kept runs of released versions: how they are made, and what they say.

``PYTHON tests/contract/kept.py VERSION`` writes ``kept/VERSION`` with the Anaphora of that PYTHON, which must be that
version. A kept run is never written again: later versions must read it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))

from cases import CASES, Case
from command import done

KEPT = Path(__file__).with_name("kept")
PLACE = Path("/tmp/anaphora-kept")
"""Where the data lay when a run was trained: series from files are looked for nowhere else."""
INPUTS = 4


def plain(value: Any) -> Any:
    """Numbers, texts, lists and dictionaries whose names are texts: what JSON holds."""
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def answers(case: Case, model: Any, inputs: list[Any]) -> Any:
    """What ``predict`` says to inputs in their JSON form, with every number that belongs to it."""
    if "predict" in case.lacks:
        return None
    given = [case.python(x) for x in inputs]
    if case.task == "forecast":
        return [plain(model.predict(x, interval=0.9)) for x in given]
    return plain(model.predict(given, details=True, **case.options))


def scores(case: Case, model: Any, folder: Path) -> Any:
    """What ``score`` measures on the dev data, or on the training data where dev data are their end."""
    name = next(name for stem in ("dev", "train") for name in (*folder.glob(f"{stem}.*"), *folder.glob(stem)))
    found = model.score(name, **({} if case.task in ("forecast", "language", "embed") else case.options))
    return {key: value for key, value in plain(found).items() if isinstance(value, int | float)}


def compared(run: Path, other: Path) -> dict[str, float]:
    """What `compare` without data measures on the dev data of the first run, which it opens again."""
    found = json.loads(done("compare", run, other, "--samples", 100, "--json").out)
    assert found["data"] == "the dev data of the runs"
    return {one["name"]: one["estimates"][0]["value"] for one in found["measures"]}


def make(version: str) -> None:
    """Train every case where it has no kept run yet."""
    import anaphora

    assert anaphora.__version__ == version, f"this is {anaphora.__version__}"
    for name, case in CASES.items():
        kept, made = KEPT / version / name, PLACE / version / name
        if not kept.exists():
            print(name, flush=True)
            _make(case, kept, made)


def _make(case: Case, kept: Path, made: Path) -> None:
    import anaphora

    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    train, dev = case.write_data(made)
    model = case.estimator(case.model, **case.settings)
    model.fit(made / train, valid=None if dev is None else made / dev, out=made / "run", **case.fields)
    loaded, inputs = anaphora.load(made / "run", device="cpu"), case.inputs(INPUTS)
    expected = {
        "inputs": inputs,
        "answers": answers(case, loaded, inputs),
        "metrics": plain(model.result_.metrics),
        "scores": scores(case, loaded, made),
    }
    shutil.copytree(made / "run", kept)
    for path in made.iterdir():  # a run's data are also looked for beside it
        if path.name != "run":
            place = kept / "data" / path.name
            place.parent.mkdir(exist_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, place)
    expected["compared"] = None if "predict" in case.lacks else compared(kept, made / "run")
    kept.with_suffix(".json").write_text(json.dumps(expected, ensure_ascii=False) + "\n", encoding="utf-8")
    shutil.rmtree(made)


def runs() -> Iterator[Path]:
    """Every kept run of every version."""
    for version in sorted(path for path in KEPT.iterdir() if path.is_dir()):
        yield from sorted(path for path in version.iterdir() if path.is_dir())


if __name__ == "__main__":
    make(sys.argv[1])
