"""``shard=full``: two processes that divide the weights follow the curve of one; their checkpoints resume on any number."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from test_distributed import dev, end, losses, start
from torch import nn
from training_toy import ToyModel, finish, toy_trainer

from anaphora.errors import SettingsError
from anaphora.nn.attention.multihead import MultiHead
from anaphora.nn.linear.matrix_states import GLA
from anaphora.nn.linear.stack import LinearStack
from anaphora.nn.transformer.layers import DecoderLayer, EncoderLayer, FeedForward
from anaphora.training import checkpoint
from anaphora.training.checkpoint import Unusable
from anaphora.training.distributed import Group
from anaphora.training.recomputing import recompute
from anaphora.training.sharding import joined, refuse_shared_gpu
from anaphora.training.weights import load_weights, pack
from warm_command import end_after_death

WORDS = ("log_every=1", "schedule=constant", "ema=0.9")
SHARD = "shard=full"


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The run of one process."""
    folder = tmp_path_factory.mktemp("one") / "run"
    finish(folder, dropout=0.0, log_every=1, schedule="constant", ema=0.9, steps=20)
    return folder


def same(one, two):
    assert losses(two) == pytest.approx(losses(one), abs=1e-5)
    assert dev(two)[-1] == pytest.approx(dev(one)[-1], abs=1e-5)
    wanted, _ = load_weights(one / "model.safetensors")
    found, _ = load_weights(two / "model.safetensors")
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, atol=1e-4, rtol=1e-4)


def go(folder, world, *words):
    codes, output = end(start(folder, *WORDS, *words, world=world))
    assert codes == [0] * world, output
    return output


def test_two_processes_with_half_the_weights_each_resume_as_one(tmp_path, one):
    """C8: two processes with parts, then one without, then two again."""
    go(tmp_path / "run", 2, SHARD, "steps=10", "accumulate=2")
    files = {file.name for file in (tmp_path / "run" / "checkpoints" / "step-00000010").iterdir()}
    assert {
        f"{part}-{rank}-of-2.safetensors" for part in ("model", "optimizer", "ema") for rank in (0, 1)
    } <= files
    half, _ = load_weights(tmp_path / "run" / "checkpoints" / "step-00000010" / "model-1-of-2.safetensors")
    assert len(half["embed.weight"]) == 5  # of 11
    go(tmp_path / "run", 1, "steps=15")
    go(tmp_path / "run", 2, SHARD, "steps=20")
    same(one, tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    damage(checkpoints / "step-00000020")


def damage(folder):
    """C4: a part that is missing or changed makes a checkpoint unusable."""
    name = folder / "model-1-of-2.safetensors"
    content = name.read_bytes()
    name.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(Unusable, match=r"model-1-of-2.safetensors is damaged"):
        checkpoint.read(folder)
    name.write_bytes(content)
    files = checkpoint.verify(folder)
    del files["model-1-of-2.safetensors"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "verify", lambda path: dict(files))
        with pytest.raises(Unusable, match="files of model are missing: there are 1 of 2"):
            checkpoint.read(folder)
        torn = {"embed.weight": torch.zeros(1, 8)}
        files["model-1-of-2.safetensors"] = pack(torn, facts={"step": 20, "shapes": {}})
        with pytest.raises(Unusable, match="the files of model do not fit together"):
            checkpoint.read(folder)


def test_a_process_killed_inside_a_save_leaves_the_checkpoint_before(tmp_path, one):
    """C1: the first process dies while both write their files of step 10; both are started again."""
    words = (*WORDS, SHARD, "steps=20")
    processes = start(tmp_path / "run", *words, ANAPHORA_FAULT="checkpoint.file:7")
    codes, _ = end_after_death(processes)
    assert -9 in codes
    steps = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert steps == ["step-00000005"]
    go(tmp_path / "run", 2, SHARD, "steps=20")
    same(one, tmp_path / "run")


def test_one_process_may_hold_its_only_part(tmp_path, one):
    go(tmp_path / "run", 1, SHARD, "steps=20")
    same(one, tmp_path / "run")


def test_muon_gathers_the_matrices_it_orthogonalises(tmp_path):
    more = ("optimizer=muon", "steps=6", "valid_every=3")
    finish(
        tmp_path / "one",
        dropout=0.0,
        log_every=1,
        schedule="constant",
        ema=0.9,
        optimizer="muon",
        steps=6,
        valid_every=3,
    )
    go(tmp_path / "two", 2, SHARD, *more)
    same(tmp_path / "one", tmp_path / "two")


def test_what_cannot_be_combined_is_an_error(tmp_path):
    with pytest.raises(SettingsError, match="save_in_background cannot be combined with shard = full"):
        toy_trainer(tmp_path, shard="full", save_in_background=True)


def test_parts_are_joined_by_rows_and_tied_ones_stay_tied():
    first = torch.arange(6.0).reshape(3, 2)
    one, two = {"a": first, "b": first, "n": torch.tensor(3.0)}, {"a": first[:2], "b": first[:2].clone()}
    found = joined([one, two], {"a": [5, 2], "b": [5, 2]})
    assert found["a"].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]
    assert found["a"] is found["b"]
    assert found["n"] == 3
    with pytest.raises(ValueError, match="a has 5 rows"):
        joined([one, two], {"a": [6, 2], "b": [5, 2]})


# ---------------------------------------------------------------------- activation checkpointing
class Blocks(nn.Module):
    """One of each kind of block, with dropout."""

    def __init__(self):
        super().__init__()
        forward = FeedForward(8, 16)
        self.encoder = EncoderLayer(MultiHead(8, heads=2), forward, dropout=0.3)
        self.decoder = DecoderLayer(
            MultiHead(8, heads=2), MultiHead(8, heads=2), FeedForward(8, 16), dropout=0.3
        )
        self.stack = LinearStack(8, GLA(8, heads=2), layers=2, feedforward=16, dropout=0.3)

    def forward(self, x):
        memory = self.encoder(x, causal=True)
        return self.stack(self.decoder(x, memory))[0]


def gradients(model, x):
    torch.manual_seed(4)
    model(x).square().sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def test_blocks_computed_again_give_the_same_bits_and_keep_less():
    torch.manual_seed(1)
    model, x = Blocks(), torch.randn(2, 5, 8)
    kept: list[int] = []

    def count(tensor):
        kept[-1] += tensor.numel()
        return tensor

    found = []
    for again in (False, True):
        model.zero_grad()
        if again:
            recompute(model)
        kept.append(0)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            found.append(gradients(model, x))
    for name, value in found[0].items():
        assert torch.equal(found[1][name], value), name
    assert kept[1] < kept[0]
    assert isinstance(model.encoder, EncoderLayer)
    with pytest.warns(UserWarning, match="checkpoint_activations has no effect"):
        recompute(ToyModel())


def test_processes_that_share_a_gpu_are_refused(monkeypatch):
    """There gloo serves CUDA, and crashes in FSDP2."""
    group = Group(0, 2, torch.device("cuda", 0))
    for config, refused in (("cpu:gloo,cuda:gloo", True), ("cpu:gloo,cuda:nccl", False)):
        monkeypatch.setattr(torch.distributed, "get_backend_config", lambda config=config: config)
        with pytest.raises(SettingsError, match="share one") if refused else nullcontext():
            refuse_shared_gpu(group)
