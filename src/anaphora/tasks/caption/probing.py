"""A look into a captioner while it writes about one picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from anaphora.data.pictures import Pixels
from anaphora.data.pictures_batches import images_of
from anaphora.data.symbols import BOS, EOS
from anaphora.nn import inside
from anaphora.probe.noted import as_numpy, weights_hash
from anaphora.probe.seq2seq import END, search_tables
from anaphora.probe.trace import Array, Trace
from anaphora.tasks.caption.build import picture_encoder_of
from anaphora.tasks.caption.inference import describe_pictures, where_it_looked
from anaphora.tasks.looking import facts_of
from anaphora.tasks.outputs import beam_settings

if TYPE_CHECKING:
    from anaphora.tasks.caption.estimator import Captioner


@torch.no_grad()
def probe_captioner(m: Captioner, pixels: Pixels, name: str, target: str | None, beam: int | None) -> Trace:
    """The picture, where the model looked for each word, and how the search found the words.

    picture (row, column, channel)      the pixels as the model sees them
    attention (output, place)           weights over the grid of ``facts["grid"]``, row by row; with attention only
    log_probs (output,)                 log p of each word
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
    plain = model.decoder(fed, model.encoder(images))
    with inside.record():
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
    if model.decoder.attentions:
        (weights,) = where_it_looked(model, [pixels], [symbols])
        arrays["attention"] = Array(("output", "place"), weights)
    words = m.tokenizer_.pieces(symbols)
    tokens = {
        "output": [*(word.removeprefix("▁") if m.tokenizer_.kind == "word" else word for word in words), END]
    }
    tables = {} if nbest is None else search_tables(nbest, m.tokenizer_.pieces)
    return Trace(tokens, arrays, facts, tables)
