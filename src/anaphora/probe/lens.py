"""The layer lens: what a language model would answer if each layer were its last (nostalgebraist 2020, "the logit lens")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anaphora.models.language import Language, RecurrentBody
from anaphora.models.language_masked import MaskedLanguage
from anaphora.nn.recurrent import Recurrent
from anaphora.nn.transformer import TransformerEncoder as Stack
from anaphora.probe.noted import as_numpy
from anaphora.probe.trace import MAX_DIFFERENCE, Array

TOP = 5


def finish_of(model: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """What the model does after its last layer: from states ``(time, unit)`` to logits ``(time, symbol)``; None where its layers
    are of another kind than the output reads."""
    body = getattr(model, "body", None)
    stack = getattr(body, "stack", None)
    norm: nn.Module | None = None
    if isinstance(stack, Stack) and getattr(body, "mix", None) is None:
        norm = stack.norm
    elif not (
        isinstance(body, RecurrentBody)
        and isinstance(body.recurrent, Recurrent)
        and body.recurrent.connections == "plain"
        and not body.recurrent.bidirectional
    ):
        return None

    def finish(states: Tensor) -> Tensor:
        y = (states if norm is None else norm(states))[None]
        if isinstance(model, MaskedLanguage):
            y = model.transform(y)
        elif isinstance(model, Language) and model.project is not None:
            y = model.project(y)
        found: Tensor = model.output(y)[0]  # type: ignore[operator]
        return found

    return finish if isinstance(model, Language | MaskedLanguage) else None


@torch.no_grad()
def lens_arrays(
    model: nn.Module, states: Array, logits: Tensor, spell: Callable[[list[int]], list[str]]
) -> tuple[dict[str, Array], list[dict[str, Any]]]:
    """``lens_log_probs`` and ``lens_ranks`` (layer, time): log p and rank (from 1) that each layer gives to the model's own
    answer at each place; and the table ``lens``, a record with the best ``pieces`` for each layer and place.

    ``states`` (layer, time, unit) are what the layers put out, ``logits`` (time, symbol) the model's. Nothing where the last
    layer does not give the model's own answer: its layers are then read in another way.
    """
    finish = finish_of(model)
    if finish is None:
        return {}, []
    was_training = model.training
    model.eval()
    try:
        device = next(model.parameters()).device
        own = logits.float().log_softmax(-1)
        best = own.argmax(-1, keepdim=True)
        logs, ranks, rows = [], [], []
        for layer, values in enumerate(torch.from_numpy(states.values).to(device), start=1):
            found = finish(values).float().log_softmax(-1)  # (time, symbol)
            mine = found.gather(1, best)
            logs.append(as_numpy(mine[:, 0]))
            ranks.append((found > mine).sum(1).cpu().numpy() + 1)
            top = found.topk(min(TOP, found.shape[1]))
            rows += [
                {"layer": layer, "place": place, "pieces": spell(ids), "log_probs": values}
                for place, (ids, values) in enumerate(
                    zip(top.indices.tolist(), top.values.tolist(), strict=True), start=1
                )
            ]
        gap = float((found - own).abs().max())
    except (RuntimeError, ValueError):  # the output does not read what these layers put out
        return {}, []
    finally:
        model.train(was_training)
    if gap > MAX_DIFFERENCE:
        return {}, []
    axes = ("layer", "time")
    return {
        "lens_log_probs": Array(axes, np.stack(logs)),
        "lens_ranks": Array(axes, np.stack(ranks)),
    }, rows
