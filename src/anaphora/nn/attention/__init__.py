"""Attention: a query is compared with keys, and the values are averaged with the weights that follow.

    α_ij = softmax_j score(s_i, h_j),    a_i = Σ_j α_ij v_j

`Dot`, `Bilinear` and `Additive` differ in the score; `ScaledDot` and `MultiHead` are the Transformer's; `Hard`
looks at one key only.
All are called alike, ``attention(query, keys, mask, values) -> (context, weights)``, with tensors
``(batch, time, features)`` and masks that are True where a key may be attended to; `masks` makes them.
"""

from anaphora.nn.attention import masks
from anaphora.nn.attention.hard import Draw, Hard, one_hot_draw, score_function, score_function_in_time
from anaphora.nn.attention.multihead import KeyValues, MultiHead, NormedMultiHead
from anaphora.nn.attention.scaled_dot import ScaledDot, scaled_dot
from anaphora.nn.attention.scores import Additive, Attended, Attention, Bilinear, Dot, masked_softmax

__all__ = [
    "Additive",
    "Attended",
    "Attention",
    "Bilinear",
    "Dot",
    "Draw",
    "Hard",
    "KeyValues",
    "MultiHead",
    "NormedMultiHead",
    "ScaledDot",
    "masked_softmax",
    "masks",
    "one_hot_draw",
    "scaled_dot",
    "score_function",
    "score_function_in_time",
]
