"""From inputs to scores, probabilities and answers; what comes out for one input does not depend on the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anaphora.data.labelled_batches import tensors_of
from anaphora.data.labelled_rows import Input, in_order, together
from anaphora.data.labelled_targets import Numbers
from anaphora.data.pictures import PICTURE_ENDINGS
from anaphora.data.streams import line_batches
from anaphora.data.vectors import as_sequence
from anaphora.data.vectors_files import is_array_file, read_array
from anaphora.data.vectors_readers import read_file, read_npz
from anaphora.errors import DataError
from anaphora.files import parse_json
from anaphora.models.classical.ngram.classifier import NGramClassifier
from anaphora.models.classifier import SequenceClassifier
from anaphora.models.own import OwnScores
from anaphora.tasks.result import Result


@dataclass(frozen=True)
class Classification(Result):
    """A label (several, or a number) with the probability of every class, which is empty for a number."""

    label: Any
    probabilities: dict[Any, float]

    @property
    def probability(self) -> float:
        """Of the label; of several the least; 1 for a number or no label."""
        labels = self.label if isinstance(self.label, list) else [self.label]
        return min((self.probabilities[one] for one in labels if one in self.probabilities), default=1.0)

    def __str__(self) -> str:
        return str(self.label)


@torch.no_grad()
def score_inputs(model: SequenceClassifier | OwnScores | NGramClassifier, inputs: Sequence[Input]) -> Numbers:
    """Scores ``(n, outputs)`` of all inputs, in their order."""
    device = next(model.parameters()).device
    found = np.zeros((len(inputs), model.outputs))
    for rows in in_order(inputs, together(inputs)):
        source, lengths = tensors_of([inputs[i] for i in rows], device)
        found[rows] = model(source, lengths).double().cpu().numpy()
    return found


def sequence_batches(name: str, scan: str, field: str = "sequence") -> Iterator[list[Any]]:
    """The sequences of a file in batches: ``.npz`` with X; ``.npy`` or IDX with many sequences (of one feature or
    more); ``.csv`` or a picture with a single one; a list of such files, one per line (further columns do not matter); JSON
    lines, each a sequence or an object with it in ``field``. Standard input (``-``) has JSON lines."""
    path = Path(name)
    ending = path.suffix.lower()
    if ending == ".npz":
        yield list(read_npz(path, scan=scan, labelled=False).sequences)
    elif ending == ".csv" or ending in PICTURE_ENDINGS:
        yield [as_sequence(read_file(path), name, scan=scan)]
    elif is_array_file(path):
        yield [
            as_sequence(x, f"{name}: sequence {i}", scan=scan)
            for i, x in enumerate(read_array(path), start=1)
        ]
    elif name == "-" or ending == ".jsonl":
        count = 0
        for lines in line_batches(name):
            yield [
                _parsed(line, f"{name}:{count + i}", scan, field)
                for i, line in enumerate(lines, 1)
                if line.strip()
            ]
            count += len(lines)
    elif ending in (".tsv", ".txt"):
        for lines in line_batches(name):
            files = [path.parent / line.split("\t")[0] for line in lines if line.strip()]
            yield [as_sequence(read_file(file), str(file), scan=scan) for file in files]
    else:
        raise DataError(
            f"{name}: the ending does not tell the form; this model reads vectors: .npz, .npy, .csv, .jsonl, a "
            "picture, or a .tsv list of files."
        )


def _parsed(line: str, where: str, scan: str, field: str) -> Any:
    try:
        found = parse_json(line)
    except ValueError as error:
        raise DataError(
            f"{where}: this is not JSON ({error}); give one sequence a line, as [[0.1, 2], [0.3, 4]]."
        ) from None
    if isinstance(found, dict):
        found = found.get(field)
    return as_sequence(found, where, scan=scan)
