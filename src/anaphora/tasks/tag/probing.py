"""A look into a tagger while it reads one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.errors import AnaphoraError, DataError
from anaphora.models.classical.hmm.tagger import HMMTagger
from anaphora.probe.reading import probe_reading
from anaphora.probe.trace import Array, Trace
from anaphora.tasks.looking import facts_of
from anaphora.tasks.tag.objective import reading_batches

if TYPE_CHECKING:
    from anaphora.tasks.tag.estimator import Tagger


def probe_tagger(
    m: Tagger, sentence: str | Sequence[str], target: str | Sequence[str] | None, what: Sequence[str]
) -> Trace:
    """States, gates and attention over the words, and ``probabilities`` (time, symbol) of the tags. The loss is that of
    the tags in ``target``, or of the model's own. Of an HMM its trellis instead."""
    (words,) = m._words([sentence])
    if not words:
        raise DataError("the sentence is empty; give some words.")
    tags = list(m.learnt_.tags)
    facts = facts_of(m, " ".join(words))
    model = m.model_
    if isinstance(model, HMMTagger):
        arrays = {
            "smoothed": Array(("time", "state"), model.marginals(words)),
            "viterbi": Array(("time",), np.asarray(model.decode(words))),
        }
        return Trace({"time": words, "state": tags}, arrays, facts)
    (batch,) = reading_batches(m._reader.read([words]))
    t = batch.tensors(next(model.parameters()).device)
    with torch.no_grad():
        emissions = model.eval()(t.source, t.lengths)
        own = model.decode(emissions, t.lengths)[0]
        marginals = model.marginals(emissions, t.lengths)[0]
    wanted = own if target is None else _numbers(target, tags, len(words)).to(own.device)

    def losses(scores: Tensor) -> Tensor:
        return F.cross_entropy(scores[0], wanted, reduction="none")

    trace, _ = probe_reading(
        model, lambda: model(t.source, t.lengths), places=words, facts=facts, losses=losses, what=what
    )
    shares = marginals.double().cpu().numpy()
    best = np.argsort(-shares, axis=1, kind="stable")[:, :5]
    top = [
        {
            "pieces": [tags[i] for i in row],
            "log_probs": [float(np.log(max(shares[t_, i], 1e-30))) for i in row],
        }
        for t_, row in enumerate(best.tolist())
    ]
    arrays = {**trace.arrays, "probabilities": Array(("time", "symbol"), shares)}
    return replace(
        trace, tokens={**trace.tokens, "symbol": tags}, arrays=arrays, tables={**trace.tables, "top": top}
    )


def _numbers(target: str | Sequence[str], tags: list[str], count: int) -> Tensor:
    given = target.split() if isinstance(target, str) else list(target)
    unknown = [tag for tag in given if tag not in tags]
    if unknown or len(given) != count:
        reason = f"{unknown[0]} is no tag" if unknown else f"there are {len(given)} tags for {count} words"
        raise AnaphoraError(f"the target cannot be used: {reason}.")
    return torch.tensor([tags.index(tag) for tag in given])
