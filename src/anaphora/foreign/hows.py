"""How a tensor of theirs becomes one of ours, and back without a bit's loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from anaphora.data.tokenizers.vocabularies import NEVER, Numbering
from anaphora.errors import AnaphoraError


@dataclass(frozen=True)
class Sizes:
    """What a tensor may be cut by: ``hidden``, ``kv_width``, ``feedforward``, ``heads``, ``kv_heads``, ``rotated`` (features of
    a head that rotary positions turn), and the vocabulary."""

    by_name: dict[str, int]
    vocabulary: Numbering
    target: Numbering | None = None

    def __getitem__(self, name: str) -> int:
        return self.by_name[name]


class How(Protocol):
    """Some tensors of theirs to one of ours, and back."""

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor: ...

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]: ...


@dataclass(frozen=True)
class Same:
    """The same numbers; ``transposed``: with rows and columns exchanged (GPT-2 stores ``(inputs, outputs)``)."""

    transposed: bool = False

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        return given[0].t().contiguous() if self.transposed else given[0]

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        return [own.t().contiguous() if self.transposed else own]


@dataclass(frozen=True)
class Interleaved:
    """The rows of queries or keys: theirs rotate feature i with i + d/2, ours with its neighbour."""

    heads: str

    def _order(self, rows: int, sizes: Sizes) -> Tensor:
        each, rotary = rows // sizes[self.heads], sizes["rotated"]
        half = rotary // 2
        head = torch.arange(rotary).view(2, half).t().flatten()  # 0, half, 1, half + 1, …
        head = torch.cat((head, torch.arange(rotary, each)))
        return (torch.arange(sizes[self.heads])[:, None] * each + head).flatten()

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        return given[0][self._order(len(given[0]), sizes)]

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        return [own[self._order(len(own), sizes).argsort()]]


@dataclass(frozen=True)
class Joined:
    """Several of theirs, one below the other: ``parts`` are how many rows each has, and how it becomes ours."""

    parts: tuple[tuple[str, How], ...]

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        each = [how.inward([one], sizes) for (_, how), one in zip(self.parts, given, strict=True)]
        return torch.cat(each)

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        cut = torch.split(own, [sizes[name] for name, _ in self.parts])
        return [
            how.outward(one, sizes)[0].contiguous() for (_, how), one in zip(self.parts, cut, strict=True)
        ]


@dataclass(frozen=True)
class ByHead:
    """Queries, keys and values of a head beside each other, head after head (GPT-NeoX), with rotated features."""

    inner: Joined = field(
        default_factory=lambda: Joined(
            (("hidden", Interleaved("heads")), ("hidden", Interleaved("heads")), ("hidden", Same()))
        )
    )

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        heads, rest = sizes["heads"], given[0].shape[1:]
        apart = given[0].view(heads, 3, -1, *rest).transpose(0, 1).reshape(3, -1, *rest)
        return self.inner.inward(list(apart), sizes)

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        heads, rest = sizes["heads"], own.shape[1:]
        apart = torch.stack(self.inner.outward(own, sizes)).view(3, heads, -1, *rest)
        return [apart.transpose(0, 1).reshape(-1, *rest).contiguous()]


@dataclass(frozen=True)
class Symbols:
    """Rows by symbol, which are put into our order; ``embedded``: vectors that are looked up; ``target``: those of the
    other side of a translation."""

    missing: float = 0.0
    embedded: bool = False
    target: bool = False
    row: bool = False
    """Theirs is ``(1, symbols)``."""

    def _words(self, sizes: Sizes) -> Numbering:
        return sizes.target if self.target and sizes.target is not None else sizes.vocabulary

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        words, rows = self._words(sizes), given[0][0] if self.row else given[0]
        return words.embedded(rows) if self.embedded else words.inward(rows, self.missing)

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        found = self._words(sizes).outward(own)
        return [found[None] if self.row else found]


@dataclass(frozen=True)
class NoBias:
    """Theirs have no bias of the output: ours is 0, and as low as it gets for symbols that theirs do not have."""

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        words = sizes.target or sizes.vocabulary
        return words.inward(torch.zeros(words.size), NEVER)

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        if not own.is_meta and bool((sizes.target or sizes.vocabulary).outward(own).any()):
            raise AnaphoraError(
                "the output layer has a bias, for which this architecture has no place; export the run that was imported, or "
                "one with a final LayerNorm."
            )
        return []


@dataclass(frozen=True)
class Identity:
    """Theirs have no such layer: ours is a matrix that changes nothing, or a bias of 0."""

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        return torch.eye(sizes["hidden"]) if self.matrix else torch.zeros(sizes["hidden"])

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        if not own.is_meta and not torch.equal(own.cpu().float(), self.inward([], sizes)):
            raise AnaphoraError(
                "the layer after the pooling was trained, and this architecture has no place for it; export to onnx instead."
            )
        return []

    matrix: bool = True


SAME = Same()
TRANSPOSED = Same(transposed=True)
QKV = Joined((("hidden", SAME), ("kv_width", SAME), ("kv_width", SAME)))
INNER_QKV = Joined((("inner", SAME), ("kv_width", SAME), ("kv_width", SAME)))
TURNED_QKV = Joined(
    (("hidden", Interleaved("heads")), ("kv_width", Interleaved("kv_heads")), ("kv_width", SAME))
)
GATED = Joined((("feedforward", SAME), ("feedforward", SAME)))
VECTORS = Symbols(embedded=True)
SCORES = Symbols()
BIAS = Symbols(missing=NEVER)
NO_BIAS = NoBias()


# ----------------------------------------------------------------------------
# How tensors of models that see or hear become ours, and back.


@dataclass(frozen=True)
class Squares:
    """The map of squares of pixels: theirs is a convolution ``(width, channels, side, side)``, ours a matrix whose columns
    are the pixels row by row, the channels of each side by side."""

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        return given[0].permute(0, 2, 3, 1).flatten(1).contiguous()

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        side, channels = sizes["patch"], sizes["channels"]
        return [own.view(len(own), side, side, channels).permute(0, 3, 1, 2).contiguous()]


@dataclass(frozen=True)
class Bare:
    """Vectors that theirs keep with ``ones`` dimensions of size 1 before them; several of theirs are rows of ours."""

    ones: int = 1

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        found = [one[(0,) * self.ones] for one in given]
        return found[0] if len(found) == 1 else torch.stack(found)

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        rows = [own] if own.dim() + self.ones == 3 else list(own)
        return [one[(None,) * self.ones] for one in rows]


SQUARES = Squares()
BARE = Bare()
BARE_VECTORS = Bare(2)


@dataclass(frozen=True)
class Nothing:
    """Theirs have no such vector: ours is 0, and what became of it is not written."""

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        return torch.zeros(sizes["hidden"])

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        return []


NOTHING = Nothing()


@dataclass(frozen=True)
class NoKeyBias:
    """Theirs have biases of queries and values only. One of keys adds the same to all scores of a query, which changes nothing,
    so ours is 0 and not written."""

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        return torch.cat((given[0], torch.zeros_like(given[1]), given[1]))

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        queries, _, values = torch.split(own, [sizes["hidden"], sizes["kv_width"], sizes["kv_width"]])
        return [queries.contiguous(), values.contiguous()]


QV_BIAS = NoKeyBias()


# ----------------------------------------------------------------------------
# What the tensors of a model are cut by, from its settings.


def sizes_of(s: Mapping[str, Any], words: Numbering, target: Numbering | None = None) -> Sizes:
    """What the tensors of a model with these settings are cut by; ``target``: the symbols of the other side."""
    each = s.get("head_width") or s["hidden"] // s["heads"]
    shared = s.get("kv_heads") or s["heads"]
    return Sizes(
        {
            "hidden": s["hidden"],
            "inner": each * s["heads"],
            "heads": s["heads"],
            "kv_heads": shared,
            "kv_width": each * shared,
            "feedforward": s["feedforward"],
            "rotated": int(s.get("rotary_share", 1.0) * each),
            **{key: s[key] for key in ("patch", "channels") if key in s},
        },
        words,
        target,
    )
