"""An archive of torch.export, opened again, computes what the model does at other batches and lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import anaphora as an
from anaphora.errors import AnaphoraError

LINES = ["the cat sat", "a dog ran far away", "two birds"] * 4
TINY: dict[str, Any] = {"hidden": 16, "layers": 1, "steps": 1, "valid_every": 10, "save_every": 10, "seed": 1}


def made(task: str, model: str) -> Any:
    size = dict(TINY) | ({"heads": 2, "feedforward": 24} if model in ("transformer", "masked") else {})
    if task == "language":
        return an.LanguageModel(model, **size, lines=True).fit(LINES, verbose=False)
    if task == "classify":
        return an.Classifier(model, **size).fit(
            [(x, "ab"[i % 2]) for i, x in enumerate(LINES)], verbose=False
        )
    return an.Translator(model, **size).fit([(x, x.upper()) for x in LINES], verbose=False)


@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("language", "transformer"),
        ("language", "masked"),
        ("language", "lstm"),
        ("classify", "transformer"),
        pytest.param("classify", "bilstm", marks=pytest.mark.slow),
        ("translate", "transformer"),
    ],
)
def test_an_archive_computes_what_the_model_does(task: str, model: str, tmp_path: Path) -> None:
    m = made(task, model)
    m.export(tmp_path / "model.pt2", to="torch")
    program = torch.export.load(tmp_path / "model.pt2").module()
    symbols, lengths = torch.randint(4, 8, (4, 13)), torch.tensor([13, 9, 2, 1])
    given = {"language": (symbols,), "classify": (symbols, lengths)}.get(
        task, (symbols, lengths, symbols[:, :6])
    )
    given = (symbols, lengths) if model == "masked" else given
    with torch.no_grad():
        found, expected = program(*given), m.model_.eval()(*given)
    if model == "masked":  # what stands at padding means nothing
        real = torch.arange(13) < lengths[:, None]
        found, expected = found[real], expected[real]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_what_is_no_network_is_refused(tmp_path: Path) -> None:
    m = an.LanguageModel("ngram").fit(LINES, verbose=False)
    for form in ("torch", "hf"):
        with pytest.raises(
            AnaphoraError, match=r"a table of counts, not a network; export it --to arpa, or train"
        ):
            m.export(tmp_path / "model.pt2", to=form)
    assert not list(tmp_path.iterdir())
