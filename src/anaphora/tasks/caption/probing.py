"""A look into a captioner while it writes about one picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from anaphora.data.batches.padded import images_of
from anaphora.data.pictures import Pixels
from anaphora.data.symbols import BOS, EOS
from anaphora.nn import inside
from anaphora.probe.attribution import attribution_arrays, integrated_gradients, occluded, squares
from anaphora.probe.noted import as_numpy, joined, weights_hash
from anaphora.probe.seq2seq import END, START, search_tables, sided_arrays
from anaphora.probe.trace import Array, Trace
from anaphora.tasks.caption.build import picture_encoder_of
from anaphora.tasks.caption.inference import describe_pictures, where_it_looked
from anaphora.tasks.looking import facts_of
from anaphora.tasks.outputs import beam_settings

if TYPE_CHECKING:
    from anaphora.tasks.caption.estimator import Captioner


def probe_captioner(
    m: Captioner, pixels: Pixels, name: str, target: str | None, beam: int | None, what: Sequence[str] = ()
) -> Trace:
    """The picture, where the model looked for each word, and how the search found the words.

    picture (row, column, channel)      the pixels as the model sees them
    attention (output, place)           weights over the grid of ``facts["grid"]``, row by row; with attention only
    log_probs (output,)                 log p of each word
    alignment (target, source)          the same attention, places named by row and column; with it decoder_states,
                                        decoder_gate_forget … as in `probe_seq2seq`
    """
    model = m.model_.eval()
    nbest = None
    if target is None:
        (nbest,) = describe_pictures(model, [pixels], keep_tree=True, **beam_settings(m.settings_, beam))
        symbols = nbest[0].tokens
    else:
        symbols = m.tokenizer_.encode(target)
    device = next(model.parameters()).device
    fed = torch.tensor([[BOS, *symbols]], device=device)
    images = images_of([pixels], device)
    with torch.no_grad():
        plain = model.decoder(fed, model.encoder(images))
        with inside.record() as notes:
            seen = model.decoder(fed, model.encoder(images))
    written = torch.tensor([*symbols, EOS], device=device)
    log_probs = seen[0].float().log_softmax(-1).gather(1, written[:, None])[:, 0]
    arrays = {
        "picture": Array(("row", "column", "channel"), pixels),
        "log_probs": Array(("output",), as_numpy(log_probs)),
    }
    facts: dict[str, Any] = {
        **facts_of(m, name),
        "model": weights_hash(model),
        "max_difference": float((seen.float() - plain.float()).abs().max()),
        "grid": list(picture_encoder_of(model).grid),
    }
    words = m.tokenizer_.pieces(symbols)
    spelled = [word.removeprefix("▁") if m.tokenizer_.kind == "word" else word for word in words]
    tokens = {"output": [*spelled, END], "target": [*spelled, END], "fed": [START, *spelled]}
    rows, columns = facts["grid"]
    inner, known = sided_arrays(model, joined(model, notes), len(symbols) + 1, rows * columns)
    arrays |= {key: value for key, value in inner.items() if key.startswith("decoder_")}
    facts |= {name: value for name, value in known.items() if name == "layers"}
    if model.decoder.attentions:
        (weights,) = where_it_looked(model, [pixels], [symbols])
        arrays["attention"] = Array(("output", "place"), weights)
        arrays["alignment"] = Array(("target", "source"), weights)
        tokens["source"] = [f"{r + 1},{c + 1}" for r in range(rows) for c in range(columns)]
        facts["alignment"] = "attention over the places of the picture (row, column)"
    facts["output"] = m.tokenizer_.decode(symbols)
    if "attribution" in what:
        more, known = _attributed(model, images, fed, written)
        arrays |= more
        facts |= known
    tables = {} if nbest is None else search_tables(nbest, m.tokenizer_.pieces)
    return Trace(tokens, arrays, facts, tables)


def _attributed(
    model: Any, images: Tensor, fed: Tensor, written: Tensor
) -> tuple[dict[str, Array], dict[str, Any]]:
    """log p of the caption shared out over the pixels ``(row, column)``; occlusion makes squares grey."""

    def score(pixels: Tensor) -> Tensor:  # (n, row, column, channel)
        n = len(pixels)
        logits = model.decoder(fed.expand(n, -1), model.encoder(pixels.permute(0, 3, 1, 2)))
        log_probs = logits.float().log_softmax(-1)
        found: Tensor = log_probs.gather(2, written.expand(n, -1)[..., None])[..., 0].sum(1, keepdim=True)
        return found

    x = images.permute(0, 2, 3, 1).contiguous()
    grey = x.mean((1, 2), keepdim=True).expand_as(x).contiguous()
    found = integrated_gradients(score, x, grey)
    size = (x.shape[1], x.shape[2])
    falls = occluded(score, x, grey, squares(*size, 8), like=size)
    return attribution_arrays(
        found, falls, ("row", "column"), of="log p(caption)", without="made the picture's mean colour"
    )
