"""Text that grows symbol by symbol: whole characters as soon as they are certain, and none that would change again."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from anaphora.data.tokenizers import Tokenizer

_PARTIAL = "\ufffd"  # what a character reads as while some of its bytes are missing


class GrowingText:
    """What symbols add to the text of ``before``, one at a time.

        text = GrowingText(tokenizer, tokenizer.encode("Once upon"))
        text.push(17) + text.push(29) + text.end()
        ' a time'

    All that is handed out, put together, is ``tokenizer.decode([*before, *symbols])`` without what ``before`` reads as.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()):
        self._tokenizer = tokenizer
        self._by_bytes = type(tokenizer).decode is Tokenizer.decode
        known = tokenizer.decode(before)
        if self._by_bytes:
            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
            # What `decode` does at the beginning of a text, and after a line break between words.
            self._begins = not any(map(tokenizer.bytes_of, before)) and tokenizer.drops_first_space
            self._breaks = known.endswith("\n")
        else:
            self._symbols, self._known = list(before), len(known)

    def push(self, symbol: int) -> str:
        """One more symbol; the characters that are certain now."""
        if not self._by_bytes:
            self._symbols.append(symbol)
            return self._tell(final=False)
        return self._spaced(self._decoder.decode(self._tokenizer.bytes_of(symbol)))

    def end(self) -> str:
        """The characters that were held back, after the last symbol."""
        if not self._by_bytes:
            return self._tell(final=True)
        return self._spaced(self._decoder.decode(b"", final=True))

    def _spaced(self, text: str) -> str:
        if not text:
            return text
        if self._begins:
            text, self._begins = text.removeprefix(" "), False
        elif self._breaks and self._tokenizer.drops_space_after_breaks:
            text = text.removeprefix(" ")
        self._breaks = text.endswith("\n") if text else self._breaks
        return text

    def _tell(self, *, final: bool) -> str:
        text = self._tokenizer.decode(self._symbols)
        if not final:
            text = text.rstrip(_PARTIAL)
        new = text[self._known :]
        self._known = max(self._known, len(text))
        return new
