"""Pictures to grids: a block equals its equation, a picture its own result in any batch, and sizes add up."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from anaphora.nn.residual import Patches, ResidualBlock, ResidualCNN, _coordinates

torch.manual_seed(0)


def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int) -> torch.Tensor:
    """GroupNorm written out: mean and variance over the channels of a group and all places."""
    parts = x.reshape(len(x), groups, -1)
    flat = (parts - parts.mean(-1, keepdim=True)) / (
        parts.var(-1, unbiased=False, keepdim=True) + 1e-5
    ).sqrt()
    return flat.reshape(x.shape) * weight[:, None, None] + bias[:, None, None]


def test_a_block_is_its_equation():
    block = ResidualBlock(3, 16).double()
    torch.nn.init.normal_(block.second_norm.weight)
    given = torch.randn(2, 3, 7, 6, dtype=torch.float64)
    x = torch.cat((given, given[:, :, -1:]), 2)  # an odd side is made even
    first = F.conv2d(x, block.first.weight, stride=2, padding=1)
    inner = norm(first, block.first_norm.weight, block.first_norm.bias, 8).relu()
    second = F.conv2d(inner, block.second.weight, padding=1)
    outer = norm(second, block.second_norm.weight, block.second_norm.bias, 8)
    means = sum(x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)) / 4
    around = torch.einsum("oi,bihw->bohw", block.shortcut.weight[:, :, 0, 0], means)
    expected = (outer + around + block.shortcut.bias[:, None, None]).relu()
    torch.testing.assert_close(block(given), expected, rtol=0, atol=1e-10)


def test_a_cell_stands_for_the_pixels_above_it():
    """Turning the picture and the kernels around turns the grid around: no side is looked at more than the other."""
    network, picture = ResidualCNN((4, 8), width=8).double(), torch.rand(1, 3, 32, 32, dtype=torch.float64)
    expected = network(picture).flip(-1, -2)
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() == 4:
                weight.copy_(weight.flip(-1, -2))
    torch.testing.assert_close(network(picture.flip(-1, -2)), expected)


@pytest.mark.parametrize(
    ("size", "grid"), [((64, 64), (8, 8)), ((48, 64), (6, 8)), ((9, 17), (2, 3)), ((1, 1), (1, 1))]
)
@pytest.mark.parametrize("network", [ResidualCNN((4, 8), width=12, coordinates=True), Patches(12, 8)])
def test_the_grid_has_a_cell_for_every_stride_pixels(network, size, grid):
    assert network.stride == 8
    assert network(torch.rand(2, 3, *size)).shape == (2, 12, *grid)


@pytest.mark.parametrize("network", [ResidualCNN((4, 8), width=8, coordinates=True), Patches(8, 8)])
def test_a_picture_does_not_depend_on_its_batch(network):
    images = torch.rand(16, 3, 32, 32)
    together = network(images)
    for alone in range(16):
        torch.testing.assert_close(
            network(images[alone : alone + 1])[0], together[alone], atol=1e-5, rtol=1e-5
        )


def test_coordinates_run_from_minus_one_to_one():
    rows, columns = _coordinates(torch.zeros(1, 3, 3, 2))[0]
    assert rows.tolist() == [[-1, -1], [0, 0], [1, 1]]
    assert columns.tolist() == [[-1, 1]] * 3


def test_coordinates_tell_places_apart():
    """On a blank picture a network without them sees the same in all places away from the edge."""
    blank = torch.full((1, 3, 64, 64), 0.5)
    without, given = (
        ResidualCNN((8,), width=8, coordinates=told)(blank)[0, :, 4:-4, 4:-4] for told in (False, True)
    )
    assert without.std((1, 2)).max() < 1e-5 < given.std((1, 2)).max()


def test_patches_are_a_linear_map_of_each_patch():
    patches, image = Patches(5, 4), torch.rand(1, 3, 8, 8)
    piece = (2 * image[0, :, 4:8, 0:4] - 1).flatten()
    expected = patches.linear.weight.view(5, -1) @ piece + patches.linear.bias
    torch.testing.assert_close(patches(image)[0, :, 1, 0], expected)


def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match="at least one level"):
        ResidualCNN((), width=8)
