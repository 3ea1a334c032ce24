"""Small networks over windows of words: what they read, their gradients in closed form, and AdaGrad."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.symbols import BOS, EOS

Array = np.ndarray[Any, Any]
Weights = dict[str, Tensor]

SMALL = 1e-8


def windows_of(ids: Array, place: slice, left: int, right: int) -> Array:
    """The windows ``(n, left + 1 + right)`` around the tokens at ``place`` of ``ids``, int64.

    A window does not look into other sentences: <s> stands before its own, and </s> after it.
    """
    here = np.arange(place.start, place.stop)
    middle = np.asarray(ids[here])

    def side(step: int, stop: int, count: int) -> list[Array]:
        found, last = [], middle
        inside = np.ones(len(here), dtype=np.bool_)
        for k in range(1, count + 1):
            inside = inside & (last != stop)
            last = np.where(inside, ids[np.clip(here + step * k, 0, len(ids) - 1)], stop)
            found.append(last)
        return found

    columns = [*reversed(side(-1, BOS, left)), middle, *side(1, EOS, right)]
    return np.stack(columns, axis=1).astype(np.int64)


def language_gradients(weights: Weights, contexts: Tensor, targets: Tensor) -> tuple[float, Weights]:
    """Bengio's network (2003): the summed loss of a batch and its gradients.

        x = [e_1 … e_n]     h = tanh(x H + d)     y = h U + b (+ x W)     loss = −Σ log softmax(y)[target]

    contexts ``(batch, n)``, targets ``(batch,)``. Weights: table ``(S, e)``, hidden ``(n e, h)``, hidden_bias
    ``(h,)``, output ``(h, S)``, output_bias ``(S,)`` and, with direct connections, direct ``(n e, S)``. The gradient
    "table" is that of x, ``(batch, n, e)``.
    """
    x = weights["table"][contexts].flatten(1)
    h = torch.addmm(weights["hidden_bias"], x, weights["hidden"]).tanh_()
    y = torch.addmm(weights["output_bias"], h, weights["output"])
    if "direct" in weights:
        y.addmm_(x, weights["direct"])
    y = y.log_softmax(1)
    rows = torch.arange(len(targets))
    loss = -float(y[rows, targets].sum(dtype=torch.float64))
    y.exp_()
    y[rows, targets] -= 1.0
    before = (y @ weights["output"].T).mul_(1 - h * h)
    across = before @ weights["hidden"].T
    found = {"output": h.T @ y, "output_bias": y.sum(0)}
    if "direct" in weights:
        across.addmm_(y, weights["direct"].T)
        found["direct"] = x.T @ y
    found |= {"hidden": x.T @ before, "hidden_bias": before.sum(0)}
    return loss, {**found, "table": across.view(*contexts.shape, -1)}


def ranking_gradients(weights: Weights, windows: Tensor, wrong: Tensor) -> tuple[float, Weights]:
    """Collobert and Weston's network (2008): the summed loss of a batch and its gradients.

        s(x) = tanh([e_1 … e_n] H + d) · o          loss = Σ max(0, 1 − s(x) + s(x̃))

    windows ``(batch, n)``, wrong ``(batch,)``: what stands in the middle of x̃. Weights: table ``(S, e)``, hidden
    ``(n e, h)``, hidden_bias ``(h,)``, output ``(h,)``. The gradient "table" is that of both x and x̃,
    ``(2 batch, n, e)``.
    """
    both = pair_up(windows, wrong)
    x = weights["table"][both].flatten(1)
    h = torch.addmm(weights["hidden_bias"], x, weights["hidden"]).tanh_()
    right, worse = (h @ weights["output"]).chunk(2)
    missed = 1 - right + worse
    loss = float(missed.clamp(min=0).sum(dtype=torch.float64))
    slope = (missed > 0).to(x.dtype)
    slopes = torch.cat((-slope, slope))
    before = (slopes[:, None] * weights["output"]).mul_(1 - h * h)
    return loss, {
        "output": slopes @ h,
        "hidden": x.T @ before,
        "hidden_bias": before.sum(0),
        "table": (before @ weights["hidden"].T).view(*both.shape, -1),
    }


def pair_up(windows: Tensor, wrong: Tensor) -> Tensor:
    """x and x̃ ``(2 batch, n)``: the windows, and the same with ``wrong`` in the middle."""
    spoilt = windows.clone()
    spoilt[:, windows.shape[1] // 2] = wrong
    return torch.cat((windows, spoilt))


def adagrad(weights: Weights, seen: Weights, found: Weights, ids: Tensor, lr: float) -> None:
    """θ −= lr g / √Σg² for all weights; of the table, only the rows of ``ids`` (as the gradient "table" has them)."""
    for name, gradient in found.items():
        if name != "table":
            seen[name].addcmul_(gradient, gradient)
            weights[name].addcdiv_(gradient, seen[name].sqrt().add_(SMALL), value=-lr)
    rows, which = torch.unique(ids.reshape(-1), return_inverse=True)
    gradient = found["table"].flatten(0, -2)
    total = gradient.new_zeros(len(rows), gradient.shape[1]).index_add_(0, which, gradient)
    squares = seen["table"][rows].addcmul_(total, total)
    seen["table"][rows] = squares
    weights["table"][rows] -= lr * total / squares.sqrt().add_(SMALL)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """torch with so many threads, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)
