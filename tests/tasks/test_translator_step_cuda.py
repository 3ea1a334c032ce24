"""A training step on a GPU: one kernel for the loss, the softmax and the table's gradient, all weights cast together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from anaphora.data.batches.pairs import PairBatch
from anaphora.ops import attention, embedding, softmax_loss
from anaphora.tasks.registry import TASKS, resolve
from anaphora.tasks.translate.build import build_seq2seq
from anaphora.tasks.translate.objective import TranslationObjective
from anaphora.training.distributed import join
from anaphora.training.seeding import seed_everything
from anaphora.training.step import Stepper

SYMBOLS = 300


def losses(plain: bool, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Loss and gradient norm of some steps; ``plain``: by torch's operations and autocast alone."""
    given = {"model": "lstm-attention", "hidden": 64, "embedding": 48, "label_smoothing": 0.1, "dropout": 0.3}
    settings = resolve(TASKS["translate"], given)
    seed_everything(1, "model")
    model = build_seq2seq(settings, SYMBOLS, SYMBOLS).cuda()
    sizes: Any = SimpleNamespace(target=SimpleNamespace(size=SYMBOLS))
    stepper = Stepper(model, TranslationObjective(settings, sizes, []), settings, join("cuda"), "bf16")
    assert stepper._cast is not None
    with monkeypatch.context() as patch:
        if plain:
            stepper._cast = None
            for module in (softmax_loss, embedding, attention):
                patch.setattr(module, "serves", lambda *_: False)
        random = torch.Generator().manual_seed(0)
        found = []
        for number in range(1, 6):
            rows = [
                torch.randint(4, SYMBOLS, (int(n),), generator=random).tolist()
                for n in torch.randint(5, 12, (800,), generator=random)
            ]
            outcome, factor = stepper.gradient(
                PairBatch(rows[:400], rows[400:], list(range(400))), number, lr=1e-3
            )
            stepper.apply(factor, 1e-3)
            found.append((outcome.loss, outcome.norm))
    return found


@pytest.mark.cuda
def test_a_step_finds_what_torch_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, again = losses(False, monkeypatch), losses(False, monkeypatch)
    assert ours == again  # to the last bit
    for (loss, norm), (wanted, length) in zip(ours, losses(True, monkeypatch), strict=True):
        assert loss == pytest.approx(wanted, rel=2e-4)
        assert norm == pytest.approx(length, rel=2e-2)
