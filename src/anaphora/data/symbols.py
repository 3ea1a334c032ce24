"""The four symbols every vocabulary begins with."""

from __future__ import annotations

from typing import Final

PAD: Final = 0
"""Fills a row up to the length of the longest; never a real symbol."""
UNK: Final = 1
"""Stands for whatever the vocabulary does not know."""
BOS: Final = 2
"""What a decoder is given before the first symbol."""
EOS: Final = 3
"""Ends every sequence."""

SPELLINGS: Final = ("<pad>", "<unk>", "<s>", "</s>")
"""How the four are written, in the order of their ids."""
