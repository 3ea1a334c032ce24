"""g2p-en (PyPI ``g2p-en``, ``checkpoint20.npz``; Park & Kim 2019): English spelling to phones, a GRU encoder and decoder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from anaphora.foreign.gates import cell_rules
from anaphora.foreign.hows import Sizes, Symbols
from anaphora.foreign.mapping import Rule
from anaphora.foreign.published import PublishedTranslator
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn import Cell

_WIDTH = 256
_SCALE = math.sqrt(_WIDTH)
_PHONES = (
    "AA0 AA1 AA2 AE0 AE1 AE2 AH0 AH1 AH2 AO0 AO1 AO2 AW0 AW1 AW2 AY0 AY1 AY2 B CH D DH EH0 EH1 EH2 ER0 ER1 ER2 EY0 EY1 "
    "EY2 F G HH IH0 IH1 IH2 IY0 IY1 IY2 JH K L M N NG OW0 OW1 OW2 OY0 OY1 OY2 P R S SH T TH UH0 UH1 UH2 UW UW0 UW1 UW2 V "
    "W Y Z ZH"
)


@dataclass(frozen=True)
class _Vectors:
    """Vectors of symbols in our order, divided by the √width that a recurrent model's are multiplied by (16: no bit is lost)."""

    symbols: Symbols

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        return self.symbols.inward(given, sizes) / _SCALE

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        return [one * _SCALE for one in self.symbols.outward(own, sizes)]


def _rules(m: Seq2Seq) -> tuple[Rule, ...]:
    found = [
        Rule("enc_emb", "encoder.embedding.weight", _Vectors(Symbols(embedded=True))),
        Rule("dec_emb", "decoder.embedding.weight", _Vectors(Symbols(embedded=True, target=True))),
        Rule("fc_w", "decoder.output.weight", Symbols(target=True)),
        Rule("fc_b", "decoder.output.bias", Symbols(target=True)),
    ]
    for side, theirs in (("encoder", "enc"), ("decoder", "dec")):
        cell = m.get_submodule(f"{side}.recurrent.cells.0")
        assert isinstance(cell, Cell)
        names = [f"{theirs}_{one}" for one in ("w_ih", "w_hh", "b_ih", "b_hh")]
        found += cell_rules(cell, f"{side}.recurrent.cells.0", names[0], names[1], (names[2], names[3]))
    return tuple(found)


G2P_EN = PublishedTranslator(
    "g2p-en",
    ("enc_emb", "enc_w_ih", "dec_emb", "fc_w"),
    settings={
        "model": "rnn",
        "cell": "gru-after",
        "layers": 1,
        "hidden": _WIDTH,
        "embedding": _WIDTH,
        "tie": False,
        "dropout": 0.0,
        "source_tokens": "char",
        "target_tokens": "word",
        "beam": 1,  # as g2p-en decodes
        "max_length": 20,
    },
    source=("<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"),
    target=("<pad>", "<unk>", "<s>", "</s>", *_PHONES.split()),
    rules=_rules,
)
