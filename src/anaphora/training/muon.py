"""Muon (Jordan et al. 2024): momentum whose matrices are made orthogonal before they move the weights.

    M ← μ·M + G,    U = G + μ·M  (Nesterov),    W ← W − lr·(0.2·√max(m, n)·orthogonal(U) + λ·W),    W (m × n)

orthogonal(U) ≈ U·(UᵀU)^−½: all singular values near 1, so that no direction of a matrix waits for the few with the
largest gradients. The factor 0.2·√max(m, n) gives the update the root mean square of AdamW's (Liu et al. 2025), so that lr
and weight_decay mean the same in both. All that is no hidden matrix is moved by AdamW: embeddings, the output layer, biases,
gains of norms, kernels of convolutions.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.nn.attention import MultiHead
from anaphora.nn.cell import Affine
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.transformer import SwiGLU
from anaphora.training.sharding import divided, like

MOMENTUM = 0.95
STEPS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic p(x) = a·x + b·x³ + c·x⁵, whose fifth iterate lies in about 0.7 … 1.2 for x from 0.001 to 1."""
_SCALE = 0.2  # the usual root mean square of an update of AdamW
_NO_MATRIX = (nn.Embedding, nn.EmbeddingBag, Embedding, Output)


def hidden_matrices(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """The matrices ``(rows, columns)`` that Muon moves, by name: the rows of each block that is a map of its own.

    The gates of a cell, the queries, keys and values of attention and the halves of a gated layer are stored as one matrix
    each and orthogonalised one by one. Embeddings and output layers are none of them; where no module is an `Output`, the last
    linear map of the model is taken for one.
    """
    blocks = _blocks(model)
    found: dict[str, tuple[int, ...]] = {}
    owners: list[nn.Module] = []
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            name = names[id(parameter)]
            if isinstance(module, _NO_MATRIX) or parameter.ndim != 2 or 1 in parameter.shape:
                continue
            found.setdefault(name, blocks.get(id(parameter), (parameter.shape[0],)))
            owners.append(module)
    if owners and isinstance(owners[-1], nn.Linear) and not _has_output(model):
        found.pop(names[id(owners[-1].weight)], None)
    tied = {id(p) for m in model.modules() if isinstance(m, _NO_MATRIX) for p in m.parameters(recurse=False)}
    return {name: rows for name, rows in found.items() if id(model.get_parameter(name)) not in tied}


def _has_output(model: nn.Module) -> bool:
    return any(isinstance(module, Output) for module in model.modules())


def _blocks(model: nn.Module) -> dict[int, tuple[int, ...]]:
    """By the id of a parameter: the rows of the maps that are stacked in it."""
    found: dict[int, tuple[int, ...]] = {}
    for module in model.modules():
        if isinstance(module, Affine):
            rows = (module.outputs // module.blocks,) * module.blocks
            found |= {id(weight): rows for weight in module.weights}
        elif isinstance(module, MultiHead):
            found[id(module.inward.weight)] = (module.inner, module.kv_width, module.kv_width)
        elif isinstance(module, SwiGLU):
            half = module.gated.weight.shape[0] // 2
            found[id(module.gated.weight)] = (half, half)
    return found


@torch.no_grad()
def orthogonal(matrices: Tensor, steps: int = STEPS) -> Tensor:
    """``matrices`` ``(…, m, n)`` with all singular values near 1, by a Newton–Schulz iteration.

    X ← a·X + b·(XXᵀ)X + c·(XXᵀ)²X with X = U/‖U‖ to begin with: products of matrices only. On a GPU in bfloat16, which is
    exact enough, as singular values need only be near 1.

        >>> both = orthogonal(torch.diag(torch.tensor([3.0, 0.1]))).diag()
        >>> bool((both > 0.6).all() and (both < 1.3).all())
        True
    """
    a, b, c = COEFFICIENTS
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    wide = x.shape[-2] > x.shape[-1]
    x = x.mT if wide else x  # (…, m, n) with m <= n: the smaller product
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        square = x @ x.mT  # (…, m, m)
        x = a * x + (b * square + c * (square @ square)) @ x
    found: Tensor = x.mT if wide else x
    return found.to(matrices.dtype)


class Muon(torch.optim.AdamW):
    """AdamW whose groups with ``blocks`` are matrices moved by Muon.

    ``blocks`` lists for each matrix of the group the rows of its blocks, as `hidden_matrices` gives them.
    """

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move all weights once."""
        if closure is not None:
            raise ValueError("Muon moves the weights along gradients that are there; leave closure out.")
        every = self.param_groups
        for group in every:
            if "blocks" in group:
                self._move(group)
        self.param_groups = [group for group in every if "blocks" not in group]
        try:
            if "torch._dynamo" in sys.modules:
                super().step()
            else:  # marked as not for torch's compiler, the method would load it, which takes more than a second
                with torch.no_grad():
                    inspect.unwrap(torch.optim.AdamW.step)(self)
        finally:
            self.param_groups = every

    @torch.no_grad()
    def _move(self, group: dict[str, Any]) -> None:
        lr, decay = float(group["lr"]), float(group["weight_decay"])
        moved: list[tuple[Tensor, tuple[int, ...]]] = []
        updates: list[Tensor] = []
        for parameter, rows in zip(group["params"], group["blocks"], strict=True):
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
                state["step"] = torch.zeros(())  # AdamW looks for it when a state is loaded
            momentum = state["momentum_buffer"]
            momentum.mul_(MOMENTUM).add_(parameter.grad)
            ahead: Any = parameter.grad.add(momentum, alpha=MOMENTUM)
            moved.append((parameter, rows))
            # where rows are divided among processes, each needs the whole matrix
            updates.append(ahead.full_tensor() if divided(ahead) else ahead)
        for (parameter, _), update in zip(
            moved, orthogonalised(updates, [rows for _, rows in moved]), strict=True
        ):
            if decay:
                parameter.mul_(1 - lr * decay)
            parameter.add_(like(parameter, update), alpha=-lr)


def orthogonalised(updates: Sequence[Tensor], blocks: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Each update ``(rows, columns)`` with its blocks orthogonal, times 0.2·√max(m, n); blocks of one shape in one product."""
    pieces = [list(torch.split(update, list(rows))) for update, rows in zip(updates, blocks, strict=True)]
    places: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for number, parts in enumerate(pieces):
        for part, piece in enumerate(parts):
            places.setdefault((tuple(piece.shape), piece.dtype, piece.device), []).append((number, part))
    for (shape, *_), where in places.items():
        together = orthogonal(torch.stack([pieces[number][part] for number, part in where]))
        together *= _SCALE * math.sqrt(max(shape))
        for (number, part), piece in zip(where, together.unbind(0), strict=True):
            pieces[number][part] = piece
    return [torch.cat(parts) for parts in pieces]
