"""I9, C6: weights in files: the same bytes, checked, and whatever is not intact is refused."""

from __future__ import annotations

import json
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from training_toy import ToyModel

from anaphora.errors import RunError
from anaphora.training.weights import first_not_finite, load_weights, pack, save_weights, snapshot, unpack
from sweeps import sweep

TENSORS = {"b": torch.tensor([1.5, -2.0]), "a": torch.arange(6).reshape(2, 3), "s": torch.tensor(7.0)}


def test_what_was_saved_comes_back(tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(path, TENSORS, facts={"step": 3, "größe": "ü"})
    tensors, facts = load_weights(path)
    assert facts == {"step": 3, "größe": "ü"}
    assert set(tensors) == set(TENSORS)
    for name, value in TENSORS.items():
        assert torch.equal(tensors[name], value)
        assert tensors[name].dtype == value.dtype
    assert not list(tmp_path.glob(".tmp-*"))


def test_the_file_is_plain_safetensors(tmp_path):
    save_weights(tmp_path / "w.safetensors", TENSORS, facts={})
    assert torch.equal(load_file(tmp_path / "w.safetensors")["b"], TENSORS["b"])


def test_tied_weights_are_stored_once_and_come_back_twice():
    model = ToyModel()
    data = pack(snapshot(model), facts={})
    tensors, _ = unpack(data, where="x")
    assert torch.equal(tensors["out.weight"], tensors["embed.weight"])
    assert set(tensors) == set(model.state_dict())
    untied = pack({k: v.clone() for k, v in snapshot(model).items()}, facts={})
    assert len(untied) > len(data) + 11 * 8 * 4 - 200


def test_views_of_one_storage_are_stored_apart():
    whole = torch.arange(10.0)
    tensors, _ = unpack(pack({"head": whole[:4], "tail": whole[2:], "odd": whole[::2]}, facts={}), where="x")
    assert tensors["head"].tolist() == [0, 1, 2, 3]
    assert tensors["odd"].tolist() == [0, 2, 4, 6, 8]


def test_a_single_number_of_a_view_without_steps_is_stored():
    """NumPy and torch call it contiguous, whatever its strides are."""
    one = torch.as_strided(torch.tensor([3.0], dtype=torch.float64), (1, 1), (0, 0))
    found, _ = unpack(pack({"one": one}, facts={}), where="x")
    assert found["one"].tolist() == [[3.0]]


def test_same_input_same_bytes():
    backwards = dict(reversed(TENSORS.items()))
    assert pack(TENSORS, facts={"b": 1, "a": 2}) == pack(backwards, facts={"a": 2, "b": 1})


def test_every_single_flipped_bit_is_noticed():
    data = pack({"w": torch.tensor([[0.1, 0.2]]), "n": torch.tensor(3)}, facts={"lr": 1e-05, "step": 12})
    for position in range(len(data) * 8):
        broken = bytearray(data)
        broken[position // 8] ^= 1 << (position % 8)
        with pytest.raises(RunError, match=r"x: "):
            unpack(bytes(broken), where="x")


def test_every_truncation_is_noticed():
    data = pack(TENSORS, facts={"step": 1})
    for size in range(len(data)):
        with pytest.raises(RunError):
            unpack(data[:size], where="x")
    with pytest.raises(RunError):
        unpack(data + b"\0", where="x")


@settings(max_examples=sweep(100, 300))
@given(st.binary(max_size=200))
def test_garbage_is_an_error_in_one_sentence(data):
    with pytest.raises(RunError) as caught:
        unpack(data, where="x")
    assert "\n" not in str(caught.value)


def test_a_file_of_somebody_else_is_refused(tmp_path):
    save_file(TENSORS, tmp_path / "w.safetensors", metadata={"format": "pt"})
    with pytest.raises(RunError, match="not written by anaphora"):
        load_weights(tmp_path / "w.safetensors")
    with pytest.raises(RunError, match="no such file"):
        load_weights(tmp_path / "none.safetensors")


def test_a_newer_format_is_named():
    data = pack(TENSORS, facts={})
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    note = json.loads(header["__metadata__"]["anaphora"])
    header["__metadata__"]["anaphora"] = json.dumps({**note, "format": 2})
    new = json.dumps(header).encode()
    with pytest.raises(RunError, match=r"format 2.*newer anaphora"):
        unpack(len(new).to_bytes(8, "little") + new + data[8 + size :], where="x")


def test_saving_over_the_file_that_was_loaded(tmp_path):
    path = tmp_path / "w.safetensors"
    big = {"w": torch.randn(300, 300)}
    save_weights(path, big, facts={})
    mapped = load_file(path)  # mapped into memory from this very path
    save_weights(path, mapped, facts={"again": True})
    tensors, facts = load_weights(path)
    assert torch.equal(tensors["w"], big["w"])
    assert facts == {"again": True}


def test_first_not_finite():
    good = {"i": torch.tensor([1, 2]), "f": torch.tensor([1.0])}
    assert first_not_finite(good) is None
    assert first_not_finite({**good, "n": torch.tensor([0.0, float("nan")])}) == "n"
    assert first_not_finite({**good, "n": torch.tensor(float("-inf"))}) == "n"


def test_random_models_survive_the_round_trip():
    draw = random.Random(0)
    kinds = [
        torch.float32,
        torch.float64,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.uint8,
        torch.bool,
    ]
    for _ in range(50):
        tensors = {
            f"t{i}.é": torch.randint(0, 2, [draw.randint(0, 3) for _ in range(draw.randint(0, 3))]).to(
                draw.choice(kinds)
            )
            for i in range(draw.randint(1, 6))
        }
        back, _ = unpack(pack(tensors, facts={}), where="x")
        assert all(torch.equal(back[k], v) and back[k].dtype == v.dtype for k, v in tensors.items())


def test_c6_a_file_is_written_over_the_one_its_tensors_came_from(tmp_path):
    """C6: safetensors may map the file it reads; the tensors must survive that their own file is replaced."""
    path = tmp_path / "model.safetensors"
    save_weights(path, {"w": torch.arange(5000.0)}, facts={"step": 1})
    tensors, _ = load_weights(path)
    save_weights(path, tensors, facts={"step": 2})
    again, facts = load_weights(path)
    assert facts == {"step": 2}
    assert torch.equal(again["w"], torch.arange(5000.0))
    assert torch.equal(tensors["w"], torch.arange(5000.0))
