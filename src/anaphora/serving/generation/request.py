"""One request for generated text: what is asked, and what has come of it so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from anaphora.data.growing import GrowingText
from anaphora.data.symbols import EOS
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import AnaphoraError
from anaphora.search._draws import Draw, Draws, Filters, Picked
from anaphora.serving.generation.stopping import Stops


@dataclass(frozen=True)
class Token:
    """A symbol with log p under the model, and the most probable ones in its place, on request."""

    symbol: int
    log_prob: float
    alternatives: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Piece:
    """What one step has added to one of the texts of a request."""

    index: int
    text: str
    tokens: tuple[Token, ...] = ()
    finish: str | None = None
    """Why the text ends here: ``stop`` (its own end, or a stop string) or ``length``; None: it goes on."""


Listener = Callable[[Sequence[Piece], BaseException | None], None]
"""Called in the engine's thread with new pieces, or with the error that the request ends with."""


@dataclass(eq=False)
class Generation:
    """``n`` texts of at most ``limit`` symbols that go on from ``prompt`` (symbols; the first is what begins every text).

    ``alternatives``: how many of the most probable symbols are reported with each drawn one. ``echo``: tell log p of the prompt's
    own symbols, too, before the first piece, as a piece of index −1.
    """

    prompt: Sequence[int]
    limit: int
    seed: int
    listener: Listener
    n: int = 1
    filters: Filters = field(default_factory=Filters)
    stops: Sequence[str] = ()
    alternatives: int = 0
    echo: bool = False
    left: bool = False
    """Set by `Engine.cancel`: no one listens any more."""


class Writing(Draws):
    """The draws of a request in a running batch, with the text that each has grown to."""

    def __init__(self, request: Generation, tokenizer: Tokenizer):
        super().__init__(
            request.prompt[-1],
            eos=EOS,
            limit=request.limit,
            seed=request.seed,
            n=request.n,
            filters=request.filters,
            alternatives=request.alternatives,
        )
        self.request = request
        self.error: AnaphoraError | None = None
        self._texts = [(GrowingText(tokenizer, request.prompt[1:]), Stops(request.stops)) for _ in self.draws]
        self._written = [0] * request.n
        self._pieces: list[Piece] = []

    def take(self, picks: Sequence[Picked]) -> list[int]:
        """As `Draws.take`; numbers that cannot be drawn from end this request alone."""
        try:
            return super().take(picks)
        except AnaphoraError as error:
            self.error, self.symbols, self.live = error, [], []
            return []

    def pieces(self) -> list[Piece]:
        """What has come since the last call."""
        found, self._pieces = self._pieces, []
        return found

    def drawn(self, draw: Draw) -> None:
        """The text grows; a stop string in it ends the draw."""
        index = self.draws.index(draw)
        growing, stops = self._texts[index]
        new, self._written[index] = draw.tokens[self._written[index] :], len(draw.tokens)
        best = tuple(draw.alternatives[-1]) if draw.alternatives else ()
        text = "".join(map(growing.push, new)) + (growing.end() if draw.done else "")
        text, finish = stops.push(text), None
        if stops.hit:
            draw.done, finish = True, "stop"
        elif draw.done:
            text += stops.end()
            finish = "length" if not draw.finished and len(draw.steps) == draw.limit else "stop"
        tokens = tuple(Token(symbol, draw.steps[-1], best) for symbol in new)
        self._pieces.append(Piece(index, text, tokens, finish))
