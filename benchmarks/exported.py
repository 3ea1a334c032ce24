"""A classifier's run beside its export to ONNX: size, loading, speed, and whether both give the same answers.

    python benchmarks/exported.py build/texts/tweets.tsv --models ngrams fasttext

Each preset is trained with its defaults on FILE (any data of `train classify`), exported, and exported again with int8 where that is allowed. Both
answer all inputs of FILE in processes of their own with one thread: `an.load` for the run, `anaphora.runtime` for the exports. Prints megabytes of
the folder, seconds to import and load, seconds for all inputs, milliseconds for one, the largest difference of a probability (of
a number) from the run, and the share of equal answers in percent.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anaphora as an
from anaphora.data.sources.labelled import open_labelled
from anaphora.errors import AnaphoraError

ASKED = 200
"""Inputs that are asked one by one."""
TIMES = 3
"""How often everything is timed; the least counts."""

PROCESS = """
import json, sys, time
begin = time.perf_counter()
folder, inputs, out, kind = sys.argv[1:]
if kind == "run":
    import torch
    torch.set_num_threads(1)
    import anaphora as an
    m = an.load(folder)
    number = m.targets_.kind == "number"
else:
    from anaphora.runtime import load
    m = load(folder, threads=1)
    number = m.targets.kind == "number"
loaded = time.perf_counter() - begin
import numpy as np
with np.load(inputs) as held:
    given = [held[name] if held[name].ndim else str(held[name]) for name in held.files]
ask = m.predict if number else m.predict_proba
ask(given[:2])
begin = time.perf_counter()
found = ask(given)
together = time.perf_counter() - begin
begin = time.perf_counter()
for one in given[:ASKED]:
    ask([one])
single = (time.perf_counter() - begin) / min(ASKED, len(given))
np.savez(out, found=np.asarray(found), labels=np.array([str(label) for label in m.predict(given)]))
print(json.dumps([loaded, together, single]))
""".replace("ASKED", str(ASKED))


def megabytes(folder: Path) -> float:
    """Of all files of a folder."""
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file()) / 1e6


def measured(folder: Path, inputs: Path, kind: str) -> tuple[list[float], Any, Any]:
    """Seconds to load, for all inputs and for one (the least of `TIMES` processes); what was answered, and its labels."""
    out = inputs.with_name("answers.npz")
    command = [sys.executable, "-c", PROCESS, str(folder), str(inputs), str(out), kind]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    printed = [
        subprocess.run(command, capture_output=True, text=True, check=True, env=alone) for _ in range(TIMES)
    ]
    seconds = np.min([json.loads(one.stdout) for one in printed], axis=0).tolist()
    with np.load(out) as held:
        return seconds, held["found"], held["labels"]


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("file", type=Path)
    given.add_argument("--models", nargs="+", default=["ngrams", "fasttext"])
    asked = given.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    data = open_labelled(asked.file)
    inputs = [row[0] for row in data.read(range(len(data)))]
    print(f"{len(inputs)} inputs of {asked.file.name}")
    print("| model | folder | MB | load, s | all, s | one, ms | largest difference | same answers |")
    print("|---|---|---|---|---|---|---|---|")
    for model in asked.models:
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            np.savez(place / "inputs.npz", *inputs)
            m = an.Classifier(model).fit(asked.file, out=place / "run")
            m.export(place / "onnx")
            folders = {"run": place / "run", "onnx": place / "onnx"}
            try:
                folders["int8"] = m.export(place / "int8", int8=True)
            except AnaphoraError as error:
                print(f"# {model}: {error}")
            wanted, labels = None, None
            for kind, folder in folders.items():
                (load, together, single), found, said = measured(folder, place / "inputs.npz", kind)
                if wanted is None:
                    wanted, labels = found, said
                apart, same = np.abs(found - wanted).max(), 100 * np.mean(said == labels)
                print(
                    f"| {model} | {kind} | {megabytes(folder):.1f} | {load:.2f} | {together:.2f} | {1000 * single:.2f} | {apart:.1e} | {same:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
