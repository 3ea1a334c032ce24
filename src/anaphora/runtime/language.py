"""A language model out of its graphs: how probable lines are, and new text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.asked import filled
from anaphora.data.batches.pooled import ROWS, Symbols, by_windows
from anaphora.data.symbols import BOS, EOS, PAD, UNK
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import AnaphoraError, DataError
from anaphora.inference.session import check_finite
from anaphora.kinds.kind import given_inputs
from anaphora.kinds.text import texts_of
from anaphora.runtime.folder import Array, Exported, OnnxGraph
from anaphora.runtime.searching import sample
from anaphora.runtime.states import State, Steps
from anaphora.runtime.stored import stored_tokenizer
from anaphora.search._draws import Draws, Filters
from anaphora.settings import build
from anaphora.settings.language import SampleOptions
from anaphora.settings.search import SAMPLE_ONLY

STEPS = 256
"""Lines read together, and symbols of each at once; results do not depend on them."""
Numbers = NDArray[np.float64]


class LanguageModel:
    """`predict`, `rank` and `sample` of an exported `an.LanguageModel`; `start` and `step` for streams of your own."""

    def __init__(self, exported: Exported, *, threads: int = 0):
        self.preset, facts = exported.preset, exported.facts
        try:
            self.tokenizer = stored_tokenizer(exported)
            self.begin, self.end = int(facts["begin"]), int(facts["end"])
            self._lines, self._backward = bool(facts["lines"]), bool(facts["backward"])
            self._context = None if facts["context"] is None else int(facts["context"])
            self._usual = dict(facts["sample"])
        except (LookupError, TypeError, ValueError, AttributeError, DataError) as error:
            raise exported.damaged(error) from None
        self._model = OnnxGraph(exported, threads=threads)
        self._masked = "lengths" in self._model.described.inputs
        windowed = "step" in exported.graphs
        self._steps: Steps = Steps(OnnxGraph(exported, "step", threads=threads) if windowed else self._model)
        self._windowed = windowed

    def predict(self, texts: Iterable[str]) -> list[float | None]:
        """Return log p of each text as a line, in nats; None for a text with nothing in it."""
        return filled(texts_of(given_inputs(texts, {})), self._log_probs)

    def _log_probs(self, texts: list[str]) -> list[float]:
        self._check_one_way("the probability of a line")
        back = -1 if self._backward else 1
        rows = [[*row[::back], self.end] for row in self.tokenizer.encode_batch(texts)]
        found: list[Any] = [np.zeros(0)] * len(rows)
        order = sorted(range(len(rows)), key=lambda i: (len(rows[i]), i))
        read = self._in_windows if self._windowed else self._carried_on
        for at in range(0, len(order), ROWS):
            chosen = order[at : at + ROWS]
            for i, values in zip(chosen, read([rows[i] for i in chosen]), strict=True):
                found[i] = values
        check_finite(found, "text")
        return [float(values.sum()) for values in found]

    def rank(self, alternatives: Iterable[str]) -> list[tuple[str, float]]:
        """The alternatives with log p of each, the most probable first."""
        texts = texts_of(given_inputs(alternatives, {}))
        return sorted(zip(texts, self._log_probs(texts), strict=True), key=lambda pair: -pair[1])

    def sample(
        self, prompt: str = "", *, listen: Callable[[str], None] | None = None, **options: Any
    ) -> list[str]:
        """New texts that go on from ``prompt``: ``length``, ``temperature`` (0 is greedy), ``top_k``, ``top_p``, ``min_p``,
        ``seed`` and ``n``. ``listen`` is called with each piece of the first one as it is drawn."""
        self._check_one_way("new text")
        if self._backward:
            raise AnaphoraError(
                "a backward model would write from the end; train one without backward to sample."
            )
        asked = build(
            SampleOptions, {**self._usual, "prompt": prompt, **options}, owner="sample"
        ).model_dump()
        if asked["precision"] != "full":
            raise AnaphoraError(
                "precision is chosen when a model is exported; leave it out, or sample from the run itself."
            )
        begun = [self.begin, *self.tokenizer.encode(asked["prompt"])]
        state = self.start(1)
        for symbol in begun[:-1]:
            state = self.step(np.array([symbol]), state)[1]
        speaker = _Speaker(self.tokenizer, begun[1:], listen)
        filters = Filters(**{key: asked[key] for key in SAMPLE_ONLY})
        (found,) = sample(
            _Limited(self, [PAD, BOS, UNK] if self._lines else [PAD, BOS, UNK, EOS]),
            state,
            start=[begun[-1]],
            eos=EOS,
            limits=[asked["length"]],
            seeds=[asked["seed"]],
            filters=filters,
            n=asked["n"],
            heard=speaker.heard if listen else None,
        )
        if listen:
            speaker.say(found[0].tokens, last=True)
        known = len(self.tokenizer.decode(begun[1:]))
        return [self.tokenizer.decode([*begun[1:], *h.tokens])[known:] for h in found]

    # ------------------------------------------------------------------ step by step

    def start(self, rows: int = 1) -> State:
        """What is carried before `begin`."""
        self._check_one_way("step")
        state = self._steps.start(rows)
        return state | ({"": np.zeros((rows, 0), np.int64)} if self._windowed else {})

    def step(self, symbols: Array, state: State) -> tuple[Array, State]:
        """log p of every next symbol ``(rows, symbols)`` after one more ``(rows,)``, and the new state."""
        if not self._windowed:
            log_probs, state = self._steps(np.asarray(symbols)[:, None], state)
            return log_probs[:, 0], state
        assert self._context is not None
        own = {name: value for name, value in state.items() if name}
        before = state[""]
        if before.shape[1] >= self._context:  # a full window goes on with its last half, read again
            before = before[:, -(self._context // 2) :]
            own = self._steps.start(len(before))
            for symbol in before.T:
                own = self._steps(symbol, own)[1]
        log_probs, own = self._steps(symbols, own)
        return log_probs, own | {"": np.concatenate((before, np.asarray(symbols)[:, None]), 1)}

    def select(self, state: State, rows: Sequence[int], *, moved: bool = True) -> State:
        """The state of these rows, which may repeat."""
        own = self._steps.select({name: value for name, value in state.items() if name}, rows, moved=moved)
        return own | ({"": state[""][list(rows)]} if self._windowed else {})

    # ------------------------------------------------------------------ whole lines

    def _carried_on(self, rows: Sequence[Sequence[int]]) -> list[Numbers]:
        """log p of each symbol of each row; states go on from piece to piece."""
        longest = max(map(len, rows))
        table = np.full((len(rows), longest + 1), PAD, dtype=np.int64)
        table[:, 0] = self.begin
        for place, row in enumerate(rows):
            table[place, 1 : 1 + len(row)] = row
        state, parts = self._steps.start(len(rows)), []
        for at in range(0, longest, STEPS):
            piece = table[:, at : at + STEPS + 1]
            log_probs, state = self._steps(piece[:, :-1], state)
            parts.append(_chosen(log_probs, piece[:, 1:]))
        found = np.concatenate(parts, 1)
        return [values[: len(row)] for values, row in zip(found, rows, strict=True)]

    def _in_windows(self, rows: Sequence[Sequence[int]]) -> list[Numbers]:
        """The same by windows that overlap by half."""
        assert self._context is not None

        def read(table: Symbols) -> Numbers:
            return _chosen(self._model(symbols=table[:, :-1])["log_probs"], table[:, 1:])

        return by_windows(rows, self._context, self.begin, read)

    def _check_one_way(self, what: str) -> None:
        if self._masked:
            raise AnaphoraError(
                f"{what} cannot come from the preset masked: it reads both sides, so it says what is hidden in a "
                "text, not how probable the text is; train another preset, such as transformer."
            )


class _Limited:
    """The model without symbols that are never drawn."""

    def __init__(self, model: LanguageModel, forbidden: list[int]):
        self._model, self._forbidden = model, forbidden

    def __call__(self, symbols: Array, state: State) -> tuple[Array, State]:
        log_probs, state = self._model.step(symbols, state)
        log_probs = log_probs.copy()
        log_probs[:, self._forbidden] = -math.inf
        return log_probs, state

    def select(self, state: State, rows: Sequence[int], *, moved: bool = True) -> State:
        return self._model.select(state, rows, moved=moved)


class _Speaker:
    """Tells text as it grows. What may still change (half a character) waits for the next symbol."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], listen: Callable[[str], None] | None):
        self._decode, self._listen, self._prompt = tokenizer.decode, listen, list(prompt)
        self._told = len(self._decode(self._prompt))

    def heard(self, draws: Draws) -> None:
        self.say(draws.draws[0].tokens)

    def say(self, tokens: Sequence[int], *, last: bool = False) -> None:
        text = self._decode([*self._prompt, *tokens])
        if not last:
            text = text.rstrip("\ufffd")
        if self._listen is not None and len(text) > self._told:
            self._listen(text[self._told :])
            self._told = len(text)


def _chosen(log_probs: Array, targets: Array) -> Numbers:
    """log p of each target ``(rows, time)``."""
    found: Numbers = np.take_along_axis(log_probs, targets[..., None], 2)[..., 0].astype(np.float64)
    return found
