"""A picture as a memory: places in reading order, the mean as a first state, and weights from a file."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from anaphora.errors import DataError
from anaphora.models.bridge import Bridge
from anaphora.models.seeing import PictureEncoder, read_picture_weights
from anaphora.nn import LSTM, Recurrent
from anaphora.nn.residual import Patches, ResidualCNN


def encoder(**more: object) -> PictureEncoder:
    torch.manual_seed(1)
    return PictureEncoder(ResidualCNN((4,), width=8), size=(16, 12), **more)  # type: ignore[arg-type]


def test_annotations_are_places_row_by_row():
    seeing = encoder()
    images = torch.rand(2, 3, 16, 12)
    memory = seeing(images)
    assert seeing.grid == (4, 3)
    assert memory.annotations.shape == (2, 12, 8)
    assert memory.mask.all()
    cell = seeing.norm(seeing.network(images)[1, :, 2, 1])
    expected = cell + seeing.rows[2] + seeing.columns[1]
    torch.testing.assert_close(memory.annotations[1, 2 * 3 + 1], expected)


def test_a_decoder_can_begin_with_the_picture():
    seeing = encoder()
    memory = seeing(torch.rand(5, 3, 16, 12))
    (last,) = memory.last
    torch.testing.assert_close(last[0], memory.annotations.mean(1))
    states = Bridge(seeing, Recurrent(LSTM(8, 6), layers=2))(memory)
    assert [tuple(state.shape) for state in states] == [(2, 5, 6)] * 2


def test_pictures_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"made for pictures of \(16, 12\)"):
        encoder()(torch.rand(1, 3, 16, 16))


@pytest.mark.parametrize("before", ["", "encoder.network.", "pictures.network."])
def test_weights_come_from_a_file_whatever_stands_before_their_names(tmp_path, before):
    donor = ResidualCNN((4,), width=8)
    save_file(
        {before + name: value for name, value in donor.state_dict().items()}, tmp_path / "w.safetensors"
    )
    seeing = encoder()
    found = read_picture_weights(tmp_path / "w.safetensors", seeing.network, prefix="network.")
    seeing.load_state_dict({**seeing.state_dict(), **found})
    x = torch.rand(1, 3, 16, 12)
    torch.testing.assert_close(seeing.network(x), donor(x))


def test_weights_that_do_not_fit_are_told_in_one_sentence(tmp_path):
    network, path = ResidualCNN((4,), width=8), tmp_path / "w.safetensors"
    with pytest.raises(DataError, match=r"cannot be read as weights \(no such file"):
        read_picture_weights(path, network)
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="not a safetensors file"):
        read_picture_weights(path, network)
    save_file(Patches(8, 4).state_dict(), path)
    with pytest.raises(DataError, match="holds no weights for the network"):
        read_picture_weights(path, network)
    save_file(ResidualCNN((4,), width=16).state_dict(), path)
    with pytest.raises(DataError, match=r"blocks\.0\.first\.weight has the shape"):
        read_picture_weights(path, network)
