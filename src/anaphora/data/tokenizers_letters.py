"""The symbols of a published recogniser of letters: a list of them, one of which stands between words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tokenizers import models

from anaphora.data.numbering import Numbering
from anaphora.data.symbols import SPELLINGS, UNK
from anaphora.data.tokenizers import Tokenizer, sound_text
from anaphora.data.vocabularies import assemble, single_spaced
from anaphora.files.schemas import checked


class LetterTokenizer(Tokenizer):
    """``letters``: their spellings by their numbers, of which ``space`` stands between words and ``numbering`` says which have
    the place of our special symbols.

    Where all letters are large, or all small, texts are spelled so.
    """

    def __init__(self, letters: Mapping[str, int], numbering: Numbering, space: str):
        self.letters, self.numbering, self.space = dict(letters), numbering, space
        by_number = {number: one for one, number in letters.items()}
        rest = [by_number.get(i, "") for i in numbering.order[len(SPELLINGS) :] if i is not None]
        spelled = [" " if one == space else one for one in rest]
        self.case = _case("".join(one for one in spelled if len(one) == 1))
        self._spell([*SPELLINGS, *spelled], "char", self.case == "lower", raw=False)
        self._table = {one: i for i, one in enumerate(self._spellings) if i >= len(SPELLINGS) and one}
        self._longest = max(map(len, self._table), default=1)

    def normalized(self, text: str) -> str:
        text = single_spaced(text)
        return text.upper() if self.case == "upper" else text.lower() if self.case == "lower" else text

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._spelled(self.normalized(sound_text(text))) for text in texts]

    def _spelled(self, text: str) -> list[int]:
        """The longest symbol at each place; a character that none begins with is <unk>."""
        found, place = [], 0
        while place < len(text):
            ends = range(min(place + self._longest, len(text)), place, -1)
            end = next((end for end in ends if text[place:end] in self._table), place + 1)
            found.append(self._table.get(text[place:end], UNK))
            place = end
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``; special symbols are left out, UNK reads ``<unk>``."""
        kept = (self._spellings[i] for i in ids if i == UNK or i >= len(SPELLINGS))
        return "".join(kept).strip()

    def plain(self) -> Tokenizer:
        """The same symbols as a tokenizer of characters, in our order; it does not know theirs."""
        named = {one or f"<{i}>": i for i, one in enumerate(self._spellings)}
        model = models.WordLevel(named, unk_token=SPELLINGS[UNK])
        return Tokenizer(assemble(model, "char", self.lowercase), "char", self.lowercase)

    def to_json(self) -> str:
        facts = {"own": "letters", "lowercase": self.lowercase, "raw": False, "space": self.space}
        order = {"size": self.numbering.size, "special": list(self.numbering.special)}
        return json.dumps({**facts, **order, "letters": self.letters}, ensure_ascii=False)

    @classmethod
    def from_facts(cls, found: Mapping[str, object]) -> LetterTokenizer:
        """What `to_json` wrote, parsed."""
        letters = checked(dict[str, int], found["letters"])
        ids = checked(tuple[int | None, int | None, int | None, int | None], found["special"])
        numbering = Numbering(checked(int, found["size"]), ids)
        if sorted(letters.values()) != sorted(set(letters.values())) or not all(
            0 <= number < numbering.size for number in letters.values()
        ):
            raise ValueError("letters: each must have a number of its own below size")
        return cls(letters, numbering, checked(str, found["space"]))


def _case(letters: str) -> str:
    """Whether all letters that have a case have the same one."""
    upper, lower = letters.upper(), letters.lower()
    if upper == lower:
        return ""
    return "upper" if letters == upper else "lower" if letters == lower else ""
