"""Activation checkpointing: a block of a stack keeps its input alone, and is computed again in the backward pass."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from anaphora.nn.linear.stack import LinearBlock
from anaphora.nn.transformer.layers import DecoderLayer, EncoderLayer

BLOCKS = (EncoderLayer, DecoderLayer, LinearBlock)
"""What stacks are made of: computed one after the other, each by one call."""


def blocks_of(model: nn.Module) -> Iterator[nn.Module]:
    """The blocks of the stacks of a model."""
    return (module for module in model.modules() if isinstance(module, BLOCKS))


def recompute(model: nn.Module) -> None:
    """Let every block of ``model`` keep only its input while training.

    Gradients are the same bits: random numbers of dropout are those of the first pass. Warns where there is no such block.
    """
    blocks = list(blocks_of(model))
    if not blocks:
        warnings.warn(
            "checkpoint_activations has no effect: the model has no blocks of a Transformer or a linear recurrence",
            stacklevel=2,
        )
    for block in blocks:
        kind: Any = type(block)
        block.__class__ = _recomputing(kind)


@functools.cache
def _recomputing(kind: type[nn.Module]) -> type[nn.Module]:
    def forward(self: nn.Module, *given: Any, **named: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return kind.forward(self, *given, **named)
        return checkpoint(kind.forward, self, *given, use_reentrant=False, **named)

    return type(kind.__name__, (kind,), {"forward": forward, "__doc__": kind.__doc__})
