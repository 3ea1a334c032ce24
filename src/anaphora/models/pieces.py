"""A vector for every word from an encoder that reads pieces of words."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from anaphora.data.symbols import BOS, EOS, PAD
from anaphora.data.tag_vocabulary import LONGEST_SPELLING
from anaphora.models.encoders import TransformerEncoder
from anaphora.models.memory import Memory
from anaphora.models.tagger import ConvolvedSpelling, RecurrentSpelling, read_spellings
from anaphora.nn.attention import masks
from anaphora.nn.positions import Learned


class PieceEncoder(TransformerEncoder):
    """<s>, the pieces of all words and (with ``end``) </s> are read together; a word is the state of its first piece, of its
    last one, or the mean of all.

    Where positions are learned there are only so many. A longer sentence is read in windows of as many pieces as fit, each
    half over the one before; a piece has the state of the window in whose middle half it lies.

    With ``spelling`` the characters of a word are read beside its pieces, which may not show its capitals.
    """

    def __init__(
        self,
        *parts: Any,
        end: bool = True,
        word: Literal["first", "last", "mean"] = "first",
        spelling: RecurrentSpelling | ConvolvedSpelling | None = None,
        **more: Any,
    ):
        super().__init__(*parts, **more)
        self.end, self.word, self.inner = end, word, self.width
        self.spelling = spelling
        self.width = self.inner + (spelling.width if spelling else 0)

    @property
    def room(self) -> int | None:
        """Most pieces that are read together."""
        return self.positions.places - 1 - self.end if isinstance(self.positions, Learned) else None

    def forward(self, source: Tensor, lengths: Tensor) -> Memory:
        """source ``(batch, words, pieces)``, PAD past the last piece of each word, or ``(batch, words)`` of one piece each;
        with a spelling ``(batch, words, letters + pieces)``. lengths ``(batch,)`` count words."""
        source = source.unsqueeze(-1) if source.dim() == 2 else source
        mask = masks.padding(lengths, source.shape[1])
        if self.spelling is None:
            return Memory(self._words(source, mask), mask)
        letters, pieces = source[..., :LONGEST_SPELLING], source[..., LONGEST_SPELLING:]
        return Memory(
            torch.cat((self._words(pieces, mask), read_spellings(self.spelling, letters)), -1), mask
        )

    def _words(self, source: Tensor, mask: Tensor) -> Tensor:
        """The states ``(batch, words, inner)`` of words in pieces ``(batch, words, pieces)``."""
        real = (source != PAD) & mask.unsqueeze(-1)
        batch, words, most = source.shape
        place = real.flatten(1).cumsum(1) - 1  # (batch, words · most): where each piece stands in its row
        count = real.flatten(1).sum(1)
        row = source.new_full((batch, int(count.max()) + 1), PAD)
        row.scatter_(1, place.masked_fill(~real.flatten(1), row.shape[1] - 1), source.flatten(1))
        states = self._read(row[:, :-1], count)  # (batch, pieces of the row, inner)
        # past the end of a row there are no pieces; what is gathered there is masked
        at = place.clamp(min=0, max=states.shape[1] - 1).view(batch, words, most)
        if self.word != "mean":
            last = real.sum(-1, keepdim=True).clamp(min=1) - 1
            chosen = at[..., 0] if self.word == "first" else at.gather(2, last)[..., 0]
            found = states.gather(1, chosen.unsqueeze(-1).expand(-1, -1, self.inner))
            return found * mask.unsqueeze(-1)
        every = at.flatten(1).unsqueeze(-1).expand(-1, -1, self.inner)
        each = states.gather(1, every) * real.flatten(1).unsqueeze(-1)
        return each.view(batch, words, most, -1).sum(2) / real.sum(-1).clamp(min=1).unsqueeze(-1)

    def _read(self, row: Tensor, count: Tensor) -> Tensor:
        """The states ``(batch, pieces, width)`` of rows of pieces ``(batch, pieces)``, of which ``count`` are real."""
        room = self.room
        if room is None or row.shape[1] <= room:
            return self._framed(row, count)
        half = room // 2
        windows = -(-row.shape[1] // half) - 1
        wide = torch.nn.functional.pad(row, (0, (windows + 1) * half - row.shape[1]), value=PAD)
        cut = wide.unfold(1, 2 * half, half)  # (batch, windows, 2 · half)
        starts = torch.arange(windows, device=row.device) * half
        sizes = (count[:, None] - starts).clamp(min=0, max=2 * half)
        # a row that fits is read whole, whatever stands beside it
        whole = count <= room
        states = self._framed(cut.flatten(0, 1), sizes.flatten().clamp(min=1)).view(*cut.shape, self.inner)
        places = torch.arange(row.shape[1], device=row.device)
        last = ((count - 1) // half - 1).clamp(min=0)  # the last window that a row needs
        window = torch.minimum(((places - half // 2) // half).clamp(min=0), last[:, None])  # (batch, pieces)
        inside = (places - window * half).clamp(min=0, max=2 * half - 1)
        flat = (window * 2 * half + inside).unsqueeze(-1).expand(-1, -1, self.inner)
        found = states.flatten(1, 2).gather(1, flat)
        if bool(whole.any()):
            short = self._framed(row[whole, :room], count[whole])
            found = found.clone()
            found[whole, :room] = short.to(found.dtype)
        return found

    def _framed(self, row: Tensor, count: Tensor) -> Tensor:
        """The states of the pieces themselves, read between <s> and </s>."""
        ends = row.new_full((len(row), 1), BOS), row.new_full((len(row), 1), PAD)
        framed = torch.cat((ends[0], row, ends[1]), 1) if self.end else torch.cat((ends[0], row), 1)
        if self.end:
            framed = framed.scatter(1, count.unsqueeze(1) + 1, EOS)
        states = super().forward(framed, count + 1 + self.end).annotations
        return states[:, 1 : 1 + row.shape[1]]
