"""A model made ready to decode on a CPU: the same function, its weights packed."""

from __future__ import annotations

import copy
import warnings
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from anaphora.errors import AnaphoraError
from anaphora.models.decoders.base import Decoder
from anaphora.models.decoders.packed import PackedTransformer
from anaphora.models.decoders.transformer import TransformerDecoder
from anaphora.models.language import Language
from anaphora.models.paged import paged_stack
from anaphora.models.seq2seq import Seq2Seq
from anaphora.native.derived import derived
from anaphora.native.following import following
from anaphora.nn.lora import Adapter
from anaphora.nn.packed import pack_linear
from anaphora.ops import packed as native

Model = TypeVar("Model", Seq2Seq, Language)


def packed(model: Model, *, int8: bool = False) -> Model:
    """What computes the same as ``model`` faster on this machine, without gradient; itself where nothing does.

    On a CPU the weights are packed at the first call and again when they have changed. A Transformer's decoder also
    keeps its past in place. Without ``int8`` the numbers agree up to rounding; with it linear maps and the output
    layer work on eight bits (`PackedLinear`), recurrent cells, embeddings and norms as before.
    """
    weights: list[Tensor] = list(model.parameters())
    adapted = any(isinstance(part, Adapter) for part in model.modules())  # which changes from step to step
    fits = (
        not adapted
        and not model.training
        and not torch.is_autocast_enabled("cpu")
        and following(*weights) is None
        and native.library.ready(*weights)
    )
    if not fits:
        if int8:
            raise AnaphoraError(_why_not(model))
        return model

    def make() -> Any:
        with torch.no_grad():
            return _pack_language(model, int8) if isinstance(model, Language) else _pack(model, int8)

    found: Model = derived(model, make, key=int8, reads="content", tensors=(*weights, *model.buffers()))
    return found


def _pack_language(model: Language, int8: bool) -> Language:
    if int8 or paged_stack(model.body) is None:
        return pack_linear(model, int8=int8)
    twin = copy.copy(model)  # the layers are packed as one, where they are stepped through (`PagedBody`)
    twin._modules = {
        name: part if part is None or part is model.body else pack_linear(part)
        for name, part in model._modules.items()
    }
    return twin


def _pack(model: Seq2Seq, int8: bool) -> Seq2Seq:
    encoder = pack_linear(model.encoder, int8=int8)
    decoder = model.decoder
    if PackedTransformer.fits(decoder):
        return _joined(encoder, PackedTransformer(decoder, int8=int8))  # type: ignore[arg-type]
    if isinstance(decoder, TransformerDecoder):  # whose attention would round otherwise from batch to batch
        if int8:
            warnings.warn(
                "int8 = true reads the source with eight bits but writes with floats: the decoder has positions inside its "
                "attention, a window, shared keys, or hooks",
                stacklevel=2,
            )
        return _joined(encoder, decoder)
    return _joined(encoder, pack_linear(decoder, int8=int8))


def _joined(encoder: nn.Module, decoder: Decoder) -> Seq2Seq:
    """Return a model in evaluation mode of two parts, which are left alone: they share modules with the user's."""
    made = Seq2Seq(encoder, decoder)
    made.training = False
    return made


def _why_not(model: nn.Module) -> str:
    if next(model.parameters()).device.type != "cpu":
        return "int8 = true decodes on a CPU, but the model is on a GPU: load it with device = 'cpu'."
    if native.library.functions() is None:
        return "int8 = true needs a C compiler (cc, gcc or clang) on the path; without one, leave it out."
    reason = following(*model.parameters())
    if reason is not None:
        return f"int8 = true hides its operations, but {reason}: leave int8 out there."
    return "int8 = true needs a model in single precision that is not being trained."
