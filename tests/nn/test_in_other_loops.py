"""``an.nn`` unchanged in the loops of Lightning and of Hugging Face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anaphora as an

X = torch.linspace(-1, 1, 8 * 5 * 3).reshape(8, 5, 3)
Y = (X.sum((1, 2)) > 0).long()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read = an.nn.Recurrent(an.nn.LSTM(3, 4), bidirectional=True)
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        states, _ = self.read(x)
        logits = self.out(states.mean(1))
        if labels is None:
            return logits
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def test_some_weight_moves_in_a_loop_of_torch() -> None:
    net = Net()
    before = [weight.clone() for weight in net.parameters()]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(X, Y)["loss"].backward()
    optimizer.step()
    assert all(not torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True))


@pytest.mark.slow  # importing Lightning takes longer than all of it
def test_lightning_trains_and_restores_it(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, _: int) -> Any:
            return self.net(*batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.05)

    module = Module()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=4)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", default_root_dir=tmp_path, **quiet)
    trainer.fit(module, loader)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = Module.load_from_checkpoint(tmp_path / "last.ckpt")
    torch.testing.assert_close(again.net.eval()(X), module.net.eval()(X))
    assert trainer.global_step == 4


@pytest.mark.slow
def test_hugging_face_trains_it(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    rows = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    asked = transformers.TrainingArguments(
        str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=4,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    net = Net()
    before = net.out.weight.clone()
    transformers.Trainer(net, asked, train_dataset=rows).train()
    assert not torch.equal(before, net.out.weight)
