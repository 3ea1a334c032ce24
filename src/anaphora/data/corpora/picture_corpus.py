"""Embedded corpora of pictures: arrays (rows, columns) of numbers from 0 to 1, shown in characters."""

from __future__ import annotations

from dataclasses import dataclass

from anaphora.data.corpora.algorithms import VectorCorpus

_SHADES = " .:-=+*#%@"


@dataclass(frozen=True)
class PictureCorpus(VectorCorpus):
    """Pictures with an answer each; written like sequences, a picture being a list of its rows."""

    def show(self, variant: str, split: str, size: int) -> list[str]:
        lines = []
        for picture, answer in self.generate(variant, split, size):
            shades = (picture * (len(_SHADES) - 1)).round().astype(int)
            lines += ["".join(2 * _SHADES[shade] for shade in row).rstrip() for row in shades]
            lines.append(f"  → {answer}")
        return lines
