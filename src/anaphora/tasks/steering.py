"""Steer the search of a trained model by hand: force a symbol, ban a beginning, and see whether search or model is at fault."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from anaphora.data.batches.padded import images_of, tensors_of
from anaphora.data.symbols import EOS
from anaphora.data.tokenizers import Tokenizer
from anaphora.data.tokenizers.vocabularies import Around
from anaphora.errors import AnaphoraError, DataError
from anaphora.models.ctc import BLANK, CTCModel, log_probabilities
from anaphora.models.memory import Memory
from anaphora.models.packed import packed
from anaphora.models.seq2seq import Seq2Seq
from anaphora.models.transducer import TransducerModel
from anaphora.probe.seq2seq import END, search_tables
from anaphora.probe.trace import Trace
from anaphora.search import Hypothesis, NBest, ctc_loss
from anaphora.search._plan import Steering
from anaphora.search.ctc._prefixes import END as CTC_END
from anaphora.search.ctc._prefixes import ctc_prefixes
from anaphora.search.lexicon._lexicon import Spelled
from anaphora.settings import build
from anaphora.settings.search import FOUND_BY, HF_BEAM, CompleteSearch, most_symbols
from anaphora.tasks.decoding import search_memory
from anaphora.tasks.guarding import whatever_the_batch
from anaphora.tasks.looking import facts_of
from anaphora.tasks.outputs import beam_settings
from anaphora.tasks.transcribe.build import TRAIN, make_lexicon
from anaphora.tasks.transcribe.inference.decoding import PLAIN, spellable
from anaphora.tasks.transcribe.inference.unsaid import never_by, without

Symbol = str | int
"""A symbol as the beam view spells it, such as ``▁two`` or ``</s>``, or its number."""
Beginning = str | Sequence[Symbol]
"""A text, or symbol by symbol."""
Force = Beginning | Mapping[int, Symbol]
Ban = Sequence[Beginning] | Mapping[int, Symbol | Sequence[Symbol]]
WIDEST = 100


@dataclass(frozen=True)
class _Task:
    """What is searched: by a decoder in a ``memory``, or in the frames of CTC; ``spell`` names symbols."""

    tokenizer: Tokenizer
    spell: Callable[[list[int]], list[str]]
    encode: Callable[[str], list[int]]
    engine: Seq2Seq | None = None
    memory: Memory | None = None
    limit: int = 0
    settings: CompleteSearch | None = None
    around: Around | None = None
    frames: Tensor | None = None
    width: int = 5
    seconds: float = 0.0


def steer(
    model: Any,
    x: Any,
    *,
    force: Force = (),
    ban: Ban = (),
    beam: int | None = None,
    length_penalty: float | None = None,
    temperature: float = 1.0,
    reference: str | None = None,
    lexicon: bool = False,
) -> Trace:
    """Search the output of ``x`` under your rules; a `Trace` with what the beam did, as the view ``beam`` draws it.

    model: a `Translator`, a `Captioner` or a `Transcriber`. x: an input of it, as ``probe`` takes it.
    force: what the output begins with, a text or symbol by symbol (``["▁zwei", "▁hunde"]``, ``"</s>"`` is the end); or
        a symbol for each place that is decided, ``{2: "▁hunde"}``, places from 1.
    ban: beginnings that no output may have; or symbols for places, ``{1: ["▁ein", "▁eine"]}``.
    beam, length_penalty: as in ``predict``; temperature: log p are divided by it and normalised again.
    reference: the output that was wanted; the trace says how the model scores it.
    lexicon: a transcriber writes nothing but words of its training transcripts, along the tree of their spellings.

    Tables: ``beam`` and ``nbest`` as of ``probe``; of CTC ``prefix_beam``, a record for each prefix after each frame with
    log p of its paths that end in a blank and in its last symbol. Facts: ``free``, the output without any rule;
    ``reference`` with its log p and score; ``verdict``: "found" where the reference came out, "rule" where your rules
    forbid it and "setting" where a setting of the search does (``because`` says which), "search error" where the model
    scores it above what the search found, and "model error" where it does not.

    Rules take symbols away and change no probability, so that forcing all that the beam chose gives its output with
    the same score. Forcing a part of it frees the places of its rivals, so that a narrow beam may then find another one.

    Raises an `AnaphoraError` where nothing is left to search, or rules contradict each other, and where the model
    searches for nothing.

    >>> pairs = [("one", "1"), ("two", "2"), ("two one", "2 1")] * 4
    >>> m = an.Translator("lstm-attention", hidden=8, embedding=8, steps=2, tokens="char").fit(pairs, valid=pairs[:3])
    >>> trace = an.steer(m, "one two", force="2", beam=2)
    >>> trace.facts["output"].startswith("2")
    True
    """
    if not math.isfinite(temperature) or not 0.01 <= temperature <= 100:
        raise DataError(f"temperature must be from 0.01 to 100, but is {temperature:g}.")
    if beam is not None and not 1 <= beam <= WIDEST:
        raise DataError(f"beam must be from 1 to {WIDEST} here, but is {beam}.")
    return _steered(model, x, force, ban, beam, length_penalty, temperature, reference, lexicon)


@whatever_the_batch
@torch.no_grad()
def _steered(
    m: Any,
    x: Any,
    force: Force,
    ban: Ban,
    beam: int | None,
    length_penalty: float | None,
    temperature: float,
    reference: str | None,
    lexicon: bool,
) -> Trace:
    m._check_trained()
    if m.command not in ("translate", "caption", "transcribe"):
        raise DataError(
            f"a {type(m).__name__} searches for nothing that could be steered; translate, caption and transcribe do."
        )
    m.model_.eval()
    task = _task_of(m, x, beam, length_penalty)
    by_hand = _steering(task, force, ban, lexicon=_speller(m, task) if lexicon else None)
    search = _search_frames if task.frames is not None else _search_decoder
    nbest, tables = search(task, by_hand, temperature)
    plain = by_hand == Steering()
    free = nbest if plain else search(task, Steering(), temperature)[0]
    facts = facts_of(m, x if isinstance(x, str) else "") | {
        "output": _text(task, nbest[0]),
        "forced": {str(k + 1): task.spell([v])[0] for k, v in sorted(by_hand.force.items())},
        "beam": task.settings.beam if task.settings else task.width,
        "temperature": temperature,
        "free": _described(task, free[0]),
        "found": _described(task, nbest[0]),
        "steered": not plain,
    }
    if task.settings:
        facts["length_penalty"] = task.settings.length_penalty
    else:
        facts["posterior_seconds"] = task.seconds
    if reference is not None:
        facts |= _judged(task, nbest[0], reference, temperature, by_hand)
    return Trace({}, {}, facts, tables)


def _task_of(m: Any, x: Any, beam: int | None, length_penalty: float | None) -> _Task:
    device = next(m.model_.parameters()).device
    if m.command == "translate":
        s = _complete(beam_settings(m.settings_, beam), length_penalty)
        (source,) = m._encode([x])
        engine = packed(m.model_, int8=s.int8)
        memory = engine.encode(
            torch.tensor([[*source, EOS]], device=device), torch.tensor([len(source) + 1], device=device)
        )
        limit = max(most_symbols(len(source), s.max_length), s.min_length)
        t = m.tokenizer_.target
        return _Task(
            t,
            t.pieces,
            lambda text: m.tokenizer_.targets([text])[0],
            engine,
            memory,
            limit,
            s,
            m.tokenizer_.around,
        )
    if m.command == "caption":
        s = _complete(beam_settings(m.settings_, beam), length_penalty)
        engine = packed(m.model_, int8=s.int8)
        memory = engine.encoder(images_of(m._see([x]), device))
        t = m.tokenizer_
        return _Task(t, t.pieces, t.encode, engine, memory, max(s.max_length, s.min_length), s)
    return _heard(m, m._hear(x), beam, length_penalty)


def _heard(m: Any, frames: Any, beam: int | None, length_penalty: float | None) -> _Task:
    model, t = m.model_, m.tokenizer_
    x, lengths = tensors_of([frames], next(model.parameters()).device)
    if isinstance(model, CTCModel):
        scores, real = model(x, lengths)
        log_probs = log_probabilities(scores[0, : int(real[0])]).cpu()
        seconds = m.settings_.hop * m.settings_.subsample
        around = Around(never=never_by(model, m.unsaid_))
        return _Task(
            t, t.pieces, t.encode, around=around, frames=log_probs, width=beam or PLAIN, seconds=seconds
        )
    if isinstance(model, TransducerModel):
        raise DataError(
            "a transducer writes and listens in turn, which cannot be steered; take another preset."
        )
    how = HF_BEAM if model.decoder.normalised else {}
    s = _complete({"beam": beam or PLAIN, **how}, length_penalty)
    engine = packed(model)
    memory = engine.encode(x, lengths)
    limit = min(int(memory.mask.sum()) + 10, model.decoder.places or 10**9)
    return _Task(t, t.pieces, t.encode, engine, memory, limit, s, Around(never=never_by(model, m.unsaid_)))


def _complete(settings: Mapping[str, Any], length_penalty: float | None) -> CompleteSearch:
    given = {} if length_penalty is None else {"length_penalty": length_penalty}
    found: CompleteSearch = build(CompleteSearch, {**settings, **given}, owner="steer")
    if found.search != "auto":
        raise DataError(
            "the model searches by a function of your own, which cannot be steered; train or load it without search."
        )
    return found


def _speller(m: Any, task: _Task) -> Spelled:
    if m.command != "transcribe":
        raise DataError(f"a {type(m).__name__} has no lexicon; only a Transcriber keeps to words.")
    words = make_lexicon(TRAIN, m.tokenizer_, m.words_)
    return Spelled(words, CTC_END if task.frames is not None else EOS, empty=task.frames is not None)


# ---------------------------------------------------------------- the two searches
def _search_decoder(task: _Task, by_hand: Steering, heat: float) -> tuple[NBest, dict[str, Any]]:
    assert task.engine is not None
    assert task.memory is not None
    assert task.settings is not None
    steering = by_hand if by_hand != Steering() else None
    (found,) = search_memory(
        task.engine, task.memory, [task.limit], [0], task.settings,
        n_best=1, keep_tree=True, around=task.around, steering=steering, heat=heat,
    )  # fmt: skip
    tables = search_tables(found, task.spell)
    paths: dict[tuple[int, int], list[int]] = {}
    for record in tables.get("beam", []):
        before = paths.get((record["step"] - 1, record["parent"]), [])
        record["symbols"] = [*before, record["symbol"]]
        if record["fate"] == "kept":
            paths[record["step"], record["rank"]] = record["symbols"]
        _add_following(task, by_hand, record)
    return found, tables


def _add_following(task: _Task, by_hand: Steering, record: dict[str, Any]) -> None:
    """The symbols that the tree of the lexicon has below a node, where the search keeps to one."""
    if by_hand.speller is not None and record["symbols"][-1:] != [EOS]:
        below = sorted(by_hand.speller.following(tuple(record["symbols"])))
        named = [END if symbol in (EOS, CTC_END) else task.spell([symbol])[0] for symbol in below]
        record["following"] = named


def _search_frames(task: _Task, by_hand: Steering, heat: float) -> tuple[NBest, dict[str, Any]]:
    sayable = without(_heated(task, heat), task.around.never if task.around else ())
    found, frames = ctc_prefixes(sayable.numpy(), width=task.width, blank=BLANK, steering=by_hand)
    records = [
        _prefix_record(task, number, fate, rank, prefix)
        for number, frame in enumerate(frames)
        for fate, group in (("kept", frame.kept), ("pruned", frame.pruned))
        for rank, prefix in enumerate(group)
    ]
    for record in records:
        _add_following(task, by_hand, record)
    return found, {"prefix_beam": records, **search_tables(found, task.spell)}


def _prefix_record(task: _Task, frame: int, fate: str, rank: int, prefix: Any) -> dict[str, Any]:
    return {
        "frame": frame,
        "fate": fate,
        "rank": rank,
        "symbols": list(prefix.labels),
        "pieces": task.spell(list(prefix.labels)),
        "blank": _finite(prefix.blank),
        "label": _finite(prefix.label),
        "log_prob": prefix.total,
        "grown": prefix.grown,
    }


def _heated(task: _Task, heat: float) -> Tensor:
    assert task.frames is not None
    logs = task.frames.double()
    return logs if heat == 1.0 else (logs / heat).log_softmax(-1)


# ---------------------------------------------------------------- what was wanted
def _judged(task: _Task, best: Hypothesis, reference: str, heat: float, by_hand: Steering) -> dict[str, Any]:
    """The reference as the model scores it, and why it did not come out: a rule, a setting, the search or the model."""
    try:
        symbols = task.encode(reference)
        own = _score_of(task, symbols, heat)
    except AnaphoraError as error:
        return {"reference": {"text": reference, "why": str(error)}}
    facts: dict[str, Any] = {"reference": _described(task, own)}
    if symbols == best.tokens or facts["reference"]["text"] == _text(task, best):
        return facts | {"verdict": "found"}
    place = by_hand.broken_at(symbols, EOS if task.frames is None else CTC_END)
    if place is not None:
        named = repr(task.spell([symbols[place]])[0]) if place < len(symbols) else "the end"
        why = f"your rules do not allow {named} at place {place + 1} of it."
        return facts | {"verdict": "rule", "because": why}
    if why := _against_settings(task, symbols, heat):
        return facts | {"verdict": "setting", "because": why}
    found = best.score if task.frames is None else _score_of(task, best.tokens, heat).score
    return facts | {"verdict": "search error" if own.score > found else "model error"}


def _against_settings(task: _Task, symbols: list[int], heat: float) -> str:
    """Why the settings of the search rule an output out, however wide its beam; nothing where they do not."""
    if task.settings is None:
        return ""
    s, length = task.settings, len(symbols) + 1
    if length > task.limit:
        return f"it has {length} symbols with its end, and max_length allows {task.limit} here."
    if length < s.min_length:
        return f"it has {length} symbols with its end, and min_length = {s.min_length} asks for more."
    if not s.no_repeat:
        return ""
    alone = replace(task, settings=s.model_copy(update={"beam": 1, "groups": 1, "stopping": "exact"}))
    try:
        _search_decoder(alone, Steering(force=dict(enumerate([*symbols, EOS]))), heat)
    except AnaphoraError:
        return f"it repeats {s.no_repeat} symbols in a row, which no_repeat = {s.no_repeat} forbids."
    return ""


def _score_of(task: _Task, symbols: list[int], heat: float) -> Hypothesis:
    """These symbols as the search would score them: a beam of one that is forced from its start to its end."""
    if task.frames is not None:
        if not spellable(symbols, len(task.frames)):
            raise DataError(
                f"{len(task.frames)} frames are too few to spell the {len(symbols)} symbols wanted."
            )
        logs = _heated(task, heat)[None]
        score = -float(ctc_loss(logs, [symbols], reduction="sum", normalized=True))
        return Hypothesis(list(symbols), score, score, [], finished=True)
    assert task.settings is not None
    alone = {**FOUND_BY, "beam": 1, "min_length": 0}
    limit = max(task.limit, len(symbols) + 1)
    single = replace(task, settings=task.settings.model_copy(update=alone), limit=limit)
    path = Steering(force=dict(enumerate([*symbols, EOS])))
    return _search_decoder(single, path, heat)[0][0]


def _described(task: _Task, h: Hypothesis) -> dict[str, Any]:
    return {
        "text": _text(task, h),
        "pieces": task.spell(h.tokens),
        "symbols": list(h.tokens),
        "log_prob": _finite(h.log_prob),
        "score": _finite(h.score),
        "finished": h.finished,
    }


def _text(task: _Task, h: Hypothesis) -> str:
    return task.tokenizer.decode(h.tokens)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# ---------------------------------------------------------------- rules in words
def _steering(task: _Task, force: Force, ban: Ban, lexicon: Spelled | None) -> Steering:
    if isinstance(force, Mapping):
        forced = {_place(k): _number(task, v) for k, v in force.items()}
    else:
        forced = dict(enumerate(_numbers(task, force)))
    beginnings: set[tuple[int, ...]] = set()
    at: dict[int, frozenset[int]] = {}
    if isinstance(ban, Mapping):
        for key, value in ban.items():
            symbols = [value] if isinstance(value, str | int) else value
            at[_place(key)] = frozenset(_number(task, one) for one in symbols)
    elif isinstance(ban, str):
        raise DataError(f"ban must be a list of beginnings, such as [{ban!r}].")
    else:
        for one in ban:
            if not isinstance(one, str | Sequence):
                raise DataError(
                    f"ban must be a list of beginnings, each a text or a list of symbols, not {one!r}."
                )
            beginnings.add(tuple(_numbers(task, one)))
    if () in beginnings:
        raise DataError("an empty beginning is banned, so nothing would be left; take it out of ban.")
    return Steering(forced, frozenset(beginnings), at, lexicon)


def _place(place: Any) -> int:
    if not isinstance(place, int) or isinstance(place, bool) or place < 1:
        raise DataError(f"places of an output count from 1, so there is none {place!r}.")
    return place - 1


def _numbers(task: _Task, beginning: Beginning) -> list[int]:
    if isinstance(beginning, str):
        return task.encode(beginning)
    return [_number(task, one) for one in beginning]


def _number(task: _Task, symbol: Symbol) -> int:
    """The number of a symbol that is spelled as the beam view spells it."""
    if isinstance(symbol, int) and not isinstance(symbol, bool):
        if not 0 <= symbol < task.tokenizer.size:
            raise DataError(f"there is no symbol {symbol}; the model has 0 to {task.tokenizer.size - 1}.")
        return symbol
    if symbol == END and task.frames is None:
        return EOS
    names = task.spell(list(range(task.tokenizer.size)))
    found = [number for number, name in enumerate(names) if name == symbol]
    if len(found) != 1:
        why = "the model has no such symbol" if not found else f"{len(found)} symbols are spelled so"
        raise DataError(f"{symbol!r}: {why}; name one as the view beam shows it, or by its number.")
    return found[0]
