"""A lexicon as the rule of a steered search: which symbols can follow so that only its words come out."""

from __future__ import annotations

from anaphora.search.lexicon._lexicon import Lexicon


class Spelled:
    """Follows beginnings through the tree of a lexicon; several places at once where a word may have ended or may go on.

    ``end`` is the symbol that ends an output. ``empty``: whether the empty output is one, and one that ends in the
    separator, as frames of CTC may spell them.
    """

    def __init__(self, lexicon: Lexicon, end: int, *, empty: bool = False):
        self.lexicon, self.end, self.empty = lexicon, end, empty
        self._places: dict[tuple[int, ...], frozenset[int]] = {(): frozenset({0})}

    def places(self, beginning: tuple[int, ...]) -> frozenset[int]:
        """The nodes of the tree at which a beginning may be; 0 where a word has ended."""
        known = self._places.get(beginning)
        if known is None:
            tree = self.lexicon.tree
            found: set[int] = set()
            for node in self.places(beginning[:-1]):
                for child in range(int(tree.first[node]), int(tree.first[node + 1])):
                    if tree.symbol[child] == beginning[-1]:
                        if tree.first[child + 1] > tree.first[child]:
                            found.add(child)
                        if tree.word_first[child + 1] > tree.word_first[child]:
                            found.add(0)
            known = self._places[beginning] = frozenset(found)
        return known

    def following(self, beginning: tuple[int, ...]) -> frozenset[int]:
        tree, places = self.lexicon.tree, self.places(beginning)
        found = {
            int(tree.symbol[c]) for n in places for c in range(int(tree.first[n]), int(tree.first[n + 1]))
        }
        ended = 0 in places and (self.empty or (bool(beginning) and self.lexicon.separator is None))
        if ended or any(self.lexicon.closing[node] > 0 for node in places):
            found.add(self.end)
        return frozenset(found)
