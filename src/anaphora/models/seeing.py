"""A picture as an encoder's `Memory`: annotations of the places of a grid, and the whole as a first state."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from torch import Tensor, nn

from anaphora.errors import DataError
from anaphora.files import clause, read_bytes
from anaphora.files.arrays import check_header
from anaphora.models.memory import Memory
from anaphora.nn.residual import Patches, ResidualCNN
from anaphora.nn.transformer import TransformerEncoder


class PictureEncoder(nn.Module):
    """a_(r,c) = LayerNorm(network(picture)_(r,c)) + R_r + C_c for every place of a grid, row by row.

    R and C are learned vectors of rows and columns, as attention by itself does not know places. A ``stack`` of
    self-attentive layers above lets places look at each other. The memory's ``last`` is the mean annotation, so that a
    recurrent decoder can begin with the picture as a whole: for `Bridge` the encoder looks like a recurrent layer with
    a single state.
    """

    layers = 1
    bidirectional = False

    def __init__(
        self,
        network: ResidualCNN | Patches,
        *,
        size: tuple[int, int],
        stack: TransformerEncoder | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.network = network
        self.size = size
        self.grid: tuple[int, int] = (-(-size[0] // network.stride), -(-size[1] // network.stride))
        self.width = self.hidden = network.width
        self.norm = nn.LayerNorm(self.width)
        self.rows = nn.Parameter(torch.empty(self.grid[0], self.width))
        self.columns = nn.Parameter(torch.empty(self.grid[1], self.width))
        self.dropout = nn.Dropout(dropout)
        self.stack = stack
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.rows, std=0.3)
        nn.init.normal_(self.columns, std=0.3)

    def forward(self, images: Tensor, lengths: Tensor | None = None) -> Memory:
        """images ``(batch, 3, H, W)`` in [0, 1] -> annotations ``(batch, h·w, width)``, all of them real.

        ``lengths`` are there for those who call every encoder alike; pictures all have one size.
        """
        if images.shape[-2:] != self.size:
            raise ValueError(f"PictureEncoder was made for pictures of {self.size}, not {images.shape[-2:]}")
        seen = self.norm(self.network(images).flatten(2).transpose(1, 2))
        places = (self.rows[:, None] + self.columns).flatten(0, 1)
        annotations = self.dropout(seen + places)
        if self.stack is not None:
            annotations = self.stack(annotations)
        mask = torch.ones(annotations.shape[:2], dtype=torch.bool, device=annotations.device)
        return Memory(annotations, mask, (annotations.mean(1)[None],))


def read_picture_weights(path: str | Path, network: nn.Module, *, prefix: str = "") -> dict[str, Tensor]:
    """The weights of ``network`` in a safetensors file, their names with ``prefix`` before them.

    In the file they have the network's own names, alone or after a common beginning: the ``model.safetensors`` of a run
    whose model sees pictures will do.
    """
    try:
        data = read_bytes(path)
        check_header(data)
        tensors = parse_tensors(data)
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else clause(error)
        raise DataError(f"{path} cannot be read as weights ({reason}); check the path.") from None
    except (SafetensorError, ValueError, KeyError, RuntimeError):
        raise DataError(
            f"{path} cannot be read as weights (not a safetensors file); check the path."
        ) from None
    wanted = {name: value.shape for name, value in network.state_dict().items()}
    beginning = _beginning(wanted, tensors)
    if beginning is None:
        first = next(iter(wanted))
        raise DataError(
            f"{path} holds no weights for the network that sees pictures (such as {first}); "
            "give those of a network of the same kind."
        )
    found: dict[str, Tensor] = {}
    for name, shape in wanted.items():
        tensor = tensors.get(beginning + name)
        if tensor is None or tensor.shape != shape:
            has = "is missing" if tensor is None else f"has the shape {tuple(tensor.shape)}"
            raise DataError(
                f"{path}: {beginning + name} {has} where the network has {tuple(shape)}; "
                "set channels, halvings and hidden to those of the file."
            )
        if not (tensor.is_floating_point() and bool(torch.isfinite(tensor).all())):
            raise DataError(
                f"{path}: {beginning + name} holds {tensor.dtype} or a number that is not finite; "
                "give a file of floating-point weights."
            )
        found[prefix + name] = tensor.to(torch.float32)
    return found


def _beginning(wanted: Iterable[str], given: Iterable[str]) -> str | None:
    """What stands before the first wanted name wherever it is found; the shortest, if there are several."""
    first = next(iter(wanted))
    found = [name.removesuffix(first) for name in given if name == first or name.endswith("." + first)]
    return min(found, key=len, default=None)
