"""A look into a tagger while it reads one sentence, or one sequence of frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.data.labelled_targets import Targets
from anaphora.data.sources.arrays import as_sequence
from anaphora.data.symbols import PAD
from anaphora.data.word_pieces import PieceReader
from anaphora.errors import AnaphoraError, DataError
from anaphora.kinds.vectors import typed_numbers
from anaphora.models.classical.hmm.tagger import HMMTagger
from anaphora.nn.embedding import Embedding
from anaphora.probe.attribution import (
    attribute_symbols,
    attribution_arrays,
    integrated_gradients,
    occluded,
    stretches,
)
from anaphora.probe.reading import probe_reading
from anaphora.probe.trace import Array, Trace
from anaphora.tasks.looking import facts_of
from anaphora.tasks.tag.objective import answers, entropies, outline, reading_batches, squared_errors

if TYPE_CHECKING:
    from anaphora.tasks.tag.estimator import Tagger


MOST_ATTRIBUTED = 48
"""Places up to which each label has an attribution of its own."""


def probe_tagger(m: Tagger, x: Any, target: str | Sequence[Any] | None, what: Sequence[str]) -> Trace:
    """States, gates and attention over the words or frames, and ``probabilities`` (time, symbol) of the tags. The loss is that
    of the labels in ``target``, or of the model's own (of numbers the squared output). Of an HMM its trellis instead."""
    model, targets = m.model_, m.targets_
    if isinstance(model, HMMTagger):
        return _trellis(m, model, x, what)
    encoded, places, pieces, facts = _read(m, x)
    (batch,) = reading_batches([encoded])
    t = batch.tensors(next(model.parameters()).device)
    (own,), (shares,) = answers(model.eval(), targets, [encoded], m.settings_.threshold)
    given = target.replace("\t", " ").split() if isinstance(target, str) else target
    wanted = _encoded(targets, own if given is None else list(given), len(encoded))
    truth = torch.from_numpy(wanted).to(t.source.device)

    def losses(scores: Tensor) -> Tensor:
        if targets.kind == "class":
            return F.cross_entropy(scores[0], truth, reduction="none")
        if targets.kind == "classes":
            return entropies(scores[0], truth).sum(-1)
        return squared_errors(scores[0, :, 0], torch.zeros_like(truth) if target is None else truth)

    trace, outputs = probe_reading(
        model,
        lambda: model(t.source, t.lengths),
        places=places,
        facts=facts,
        losses=losses,
        losses_of=None if len(encoded) == len(places) else facts["text"].split(" "),  # words read in pieces
        what=what,
    )
    if "attribution" in what:
        more, known = _attributed(m, t, truth, places)
        trace = replace(trace, arrays={**trace.arrays, **more}, facts={**trace.facts, **known})
    if targets.kind == "number":
        found = targets.numbers(outputs[0].double().cpu().numpy())
        return replace(trace, arrays={**trace.arrays, "outputs": Array(("time",), found)})
    if pieces is not None:
        shares = _spread(pieces, shares, len(places))
    return _of_tags(m, trace, outputs[0], own, shares, places)


def _read(m: Tagger, x: Any) -> tuple[Any, list[str], Any, dict[str, Any]]:
    """One input as numbers, the names of its places, its pieces where words are read in pieces, and the facts of the trace."""
    if m.framewise:
        x = typed_numbers(x) if isinstance(x, str) else x
        (encoded,) = m._reader.read([x])
        places = [str(number) for number in range(1, len(encoded) + 1)]
        return encoded, places, None, facts_of(m, outline(as_sequence(x, "the input")))
    words = _some_words(m, x)
    (encoded,) = m._reader.read([words])
    facts = facts_of(m, " ".join(words))
    if not isinstance(m._reader, PieceReader):
        return encoded, words, None, facts
    pieces = m._reader.apart(np.asarray(encoded, np.int32))
    return encoded, _pieces(m, pieces), pieces, facts


def _some_words(m: Tagger, x: Any) -> list[str]:
    (words,) = m._words([x])
    if not words:
        raise DataError("the sentence is empty; give some words.")
    return list(words)


def _trellis(m: Tagger, model: HMMTagger, x: Any, what: Sequence[str]) -> Trace:
    """What an HMM knows of each word: the probabilities of its states, and the best path."""
    words = _some_words(m, x)
    facts = facts_of(m, " ".join(words))
    arrays = {
        "smoothed": Array(("time", "state"), model.marginals(words)),
        "viterbi": Array(("time",), np.asarray(model.decode(words))),
    }
    if "attribution" in what:
        more, known = _unseen_one_by_one(model, words)
        arrays, facts = arrays | more, facts | known
    return Trace({"time": words, "state": list(m.targets_.names)}, arrays, facts)


def _of_tags(
    m: Tagger, trace: Trace, scores: Tensor, own: Sequence[Any], shares: Any, places: Sequence[str]
) -> Trace:
    """``trace`` with the probabilities of the tags at each place, and of a CRF with its chain."""
    targets, model = m.targets_, m.model_
    arrays = {**trace.arrays, "probabilities": Array(("time", "symbol"), shares)}
    tokens = {**trace.tokens, "symbol": list(targets.names)}
    if not isinstance(model, HMMTagger) and model.crf is not None:
        arrays |= _chain(model, scores)
        tokens |= {"state": list(targets.names), "to": list(targets.names)}
        if len(own) != len(places):  # words are read in pieces
            tokens["place"] = trace.facts["text"].split(" ")
    tagged = {**trace.facts, "top": "tag", **({"tags": own} if len(own) == len(places) else {})}
    return replace(
        trace,
        tokens=tokens,
        arrays=arrays,
        facts=tagged,
        tables={**trace.tables, "top": _top(targets, shares)},
    )


def _chain(model: Any, emissions: Tensor) -> dict[str, Array]:
    """The scores of a CRF: ``chain_emissions`` (place, state), ``chain_moves`` (state, to), ``chain_start`` and ``chain_end``
    (state), and with ``_rule`` behind the name 0 where the rules of the tags allow it, −1e30 where they forbid it."""
    crf, least = model.crf, -1e30

    def put(axes: tuple[str, ...], values: Tensor) -> Array:
        return Array(axes, values.detach().double().clamp(min=least).cpu().numpy())

    return {
        "chain_emissions": put(("place", "state"), emissions),
        "chain_moves": put(("state", "to"), crf.transitions),
        "chain_start": put(("state",), crf.start),
        "chain_end": put(("state",), crf.end),
        "chain_move_rule": put(("state", "to"), model.move_rule),
        "chain_start_rule": put(("state",), model.start_rule),
        "chain_end_rule": put(("state",), model.end_rule),
    }


UNSEEN = "\ufffc"
"""A word that no text has."""


def _unseen_one_by_one(model: HMMTagger, words: list[str]) -> tuple[dict[str, Array], dict[str, Any]]:
    """log p of each tag of the best path, with each word in turn made one that was never seen."""
    path = np.asarray(model.decode(words))
    own = range(len(words))

    def logs(read: list[str]) -> Any:
        return np.log(np.maximum(np.asarray(model.marginals(read))[own, path], 1e-300))

    whole = logs(words)
    falls = np.stack([whole - logs([*words[:k], UNSEEN, *words[k + 1 :]]) for k in own], axis=1)
    known = {"of": "log p(tag)", "without": "made a word that was never seen", "value": float(whole.sum())}
    return {"occlusion": Array(("step", "time"), falls)}, {"attribution": known}


def _pieces(m: Tagger, encoded: Any) -> list[str]:
    """The symbols that are read: <s>, the pieces of the words, and </s> where there is one."""
    spelled = m.tokenizer_.pieces(encoded[encoded != PAD].tolist())
    return ["<s>", *spelled, *["</s>"] * (m.learnt_.framing == "both")]


def _spread(encoded: Any, shares: Any, places: int) -> Any:
    """The probabilities of the tags of each word ``(words, tags)`` at each of its pieces, ``(places, tags)``; <s> and </s>
    have none."""
    found = np.zeros((places, shares.shape[1]))
    pieces = np.repeat(shares, (encoded != PAD).sum(1), axis=0)
    found[1 : 1 + len(pieces)] = pieces
    return found


def _attributed(m: Tagger, t: Any, truth: Tensor, read: list[str]) -> tuple[dict[str, Array], dict[str, Any]]:
    """log p of each place's label by itself (of numbers the output) shared out over the words or frames; of long
    sequences their sum."""
    assert not isinstance(m.model_, HMMTagger)
    model, kind, places = m.model_.eval(), m.targets_.kind, int(t.lengths[0])
    each = places <= MOST_ATTRIBUTED

    def asked(scores: Tensor) -> Tensor:
        if kind == "number":
            return scores[..., 0]
        if kind == "class":
            chosen = truth.expand(len(scores), -1)[..., None]
            return scores.log_softmax(-1).gather(2, chosen)[..., 0]
        return -entropies(scores, truth.expand_as(scores)).sum(-1)

    of = "the output" if kind == "number" else "log p(tag)"
    if m.framewise:
        x, blank = t.source, torch.zeros_like(t.source)

        def score(frames: Tensor) -> Tensor:
            return asked(model(frames, t.lengths.expand(len(frames))))

        found = integrated_gradients(score, x, blank, each=each)
        falls = occluded(score, x, blank, stretches(places, 48), like=(places,))
        falls = falls if each else falls.sum(0, keepdims=True)
        without = "set to zero"
    else:
        found, falls = attribute_symbols(
            next(module for module in model.modules() if isinstance(module, Embedding)),
            lambda n: asked(model(t.source.expand(n, *t.source.shape[1:]), t.lengths.expand(n))),
            places=len(read),
            kept=[] if len(read) == places else [k for k, one in enumerate(read) if one in ("<s>", "</s>")],
            each=each,
        )
        without = "made no word in particular (its vector the mean of others)"
    return attribution_arrays(found, falls, ("step", "time") if each else ("time",), of=of, without=without)


def _top(targets: Targets, shares: Any) -> list[dict[str, Any]]:
    """The five most probable labels of every place."""
    best = np.argsort(-shares, axis=1, kind="stable")[:, :5].tolist()
    return [
        {
            "pieces": [targets.names[i] for i in row],
            "log_probs": [float(np.log(max(here[i], 1e-30))) for i in row],
        }
        for row, here in zip(best, shares, strict=True)
    ]


def _encoded(targets: Targets, labels: list[Any], count: int) -> Any:
    """The labels as numbers, one for each place, or an `AnaphoraError` that says what is wrong with them."""
    texts = ["|".join(map(str, one)) or "-" if isinstance(one, list) else str(one) for one in labels]
    unknown = [text for text in texts if targets.kind == "class" and text not in targets.names]
    if unknown or len(texts) != count:
        reason = f"{unknown[0]} is no tag" if unknown else f"there are {len(texts)} tags for {count} words"
        raise AnaphoraError(f"the target cannot be used: {reason}.")
    return targets.encode(texts)
