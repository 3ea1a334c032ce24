"""Cells with a matrix-valued state, put together from parts; and what calculus says of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from anaphora import nn
from anaphora.nn import contract, outer

INPUTS, HEADS, D, E = 3, 2, 3, 2
HIDDEN = HEADS * E

DECAYS = ("none", "number", "parameter", "head", "channel", "signed", "resets", "nothing left")
ELEMENTWISE = ("column", "each")  # decays for which the matrix is stored at every step
WRITES = ("one", "scaled", "two", "shared key", "by column", "none")
RULES = ("add", "delta", "delta first", "delta apart", "erase", "decay after")
BENT = ("tanh", "key reads", "query reads", "product", "two directions")
OUTPUTS = ("new", "old", "between", "both", "twice")


@dataclass(frozen=True)
class Recipe:
    """Parts of a cell. ``extra``: further states: the last input, a normaliser of keys."""

    decay: str
    write: str
    rule: str
    output: str
    extra: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What the state S is."""
        reads = self.rule in ("delta", "delta first", "delta apart", "erase")
        if self.rule in BENT or (reads and self.decay in ELEMENTWISE):
            return "loop"
        return "scan"


class Drawn(nn.Cell):
    """S' = w ∘ S + …, read by a query; see `Recipe`."""

    def setup(self, inputs: int, hidden: int, *, recipe: Recipe) -> None:
        self.recipe = recipe
        self.state = ("h", "S", *recipe.extra)
        self.shapes = {"S": (HEADS, D, E)}
        self.wide = HIDDEN
        self.project = nn.Affine(inputs, 3 * HEADS * D + 2 * HEADS * E)
        self.gates = nn.Affine(inputs, HEADS * (2 + D + E + D * E))
        self.own = nn.Affine(hidden, hidden)
        self.rate = torch.nn.Parameter(torch.linspace(0.4, 0.9, HEADS)[:, None, None])
        self.norm = torch.nn.LayerNorm(hidden)

    def step(self, x: Tensor, h: Tensor, S: Tensor, *extra: Tensor) -> tuple[Tensor, ...]:
        r = self.recipe
        past = dict(zip(r.extra, extra, strict=True))
        seen = x + 0.3 * past["last"][:, : x.shape[1]] if "last" in past else x
        parts = self.project(seen).unflatten(-1, (HEADS, -1)).split((D, D, D, E, E), -1)
        q, k, l, v, u = parts
        k, l = F.normalize(k, dim=-1), F.normalize(l, dim=-1)
        beta, head, channel, column, each = (
            self.gates(seen).unflatten(-1, (HEADS, -1)).split((1, 1, D, E, D * E), -1)
        )
        beta = torch.sigmoid(beta)
        old = S
        w: Tensor | float = {
            "none": 1.0,
            "number": 0.8,
            "parameter": self.rate,
            "head": torch.sigmoid(head)[..., None],
            "channel": torch.sigmoid(channel)[..., None],
            "signed": torch.tanh(2 * channel)[..., None],
            "resets": torch.relu(head)[..., None].clamp(max=1.0),
            "nothing left": 0.0,
            "column": torch.sigmoid(column)[..., None, :],
            "each": torch.sigmoid(each).unflatten(-1, (D, E)),
        }[r.decay]
        if r.rule != "decay after":
            S = S if r.decay == "none" else w * S
        middle = S
        S = self._ruled(S, old, q, k, l, v, beta)
        S = self._written(S, k, l, v, u, beta)
        if r.rule == "decay after":
            S = w * S
        y = {
            "new": lambda: contract(q, S),
            "old": lambda: contract(q, old) + v,
            "between": lambda: contract(q, 0.5 * middle - outer(k, v)),
            "both": lambda: torch.tanh(contract(q, S)) * contract(l, old),
            "twice": lambda: contract(q, S) - contract(k, S),
        }[r.output]()
        if "n" in past:
            n = 0.9 * past["n"] + F.pad(k.flatten(1), (0, max(0, HIDDEN - HEADS * D)))[:, :HIDDEN]
            y = y / (1 + n.sum(-1, keepdim=True).abs())[..., None]
        new = {"last": F.pad(x, (0, HIDDEN - INPUTS)), "n": n if "n" in past else x}
        return self.norm(y.flatten(1)), S, *(new[name] for name in r.extra)

    def _ruled(
        self, S: Tensor, old: Tensor, q: Tensor, k: Tensor, l: Tensor, v: Tensor, beta: Tensor
    ) -> Tensor:
        """What the update reads of the state."""
        rule = self.recipe.rule
        if rule in ("add", "decay after"):
            return S
        return {
            "delta": lambda: S + outer(k, beta * (v - contract(k, S))),
            "delta first": lambda: S + outer(beta * k, v - contract(k, old)),
            "delta apart": lambda: S - beta[..., None] * outer(k, contract(k, S)) + outer(beta * k, v),
            "erase": lambda: S - outer(beta * l, contract(l, S)),
            "tanh": lambda: torch.tanh(S),
            "key reads": lambda: S + outer(F.pad(contract(k, S), (0, D - E)), v),
            "query reads": lambda: S + outer(k, contract(F.pad(contract(k, S), (0, D - E)), S)),
            "product": lambda: S + outer(k, contract(k, S) * contract(l, S)),
            "two directions": lambda: S - outer(k, contract(k, S)) - outer(l, contract(l, S)),
        }[rule]()

    def _written(self, S: Tensor, k: Tensor, l: Tensor, v: Tensor, u: Tensor, beta: Tensor) -> Tensor:
        write = self.recipe.write
        if write == "none":
            return S
        return {
            "one": lambda: S + outer(k, v),
            "scaled": lambda: S - beta[..., None] * outer(k, v) * 0.5,
            "two": lambda: S + outer(k, v) + outer(l, u),
            "shared key": lambda: S + outer(k, v) - outer(k, u),
            "by column": lambda: S + outer(k, v) * torch.tanh(u)[..., None, :],
        }[write]()


def recipes(bent: bool) -> st.SearchStrategy[Recipe]:
    return st.builds(
        Recipe,
        st.sampled_from((*DECAYS, *ELEMENTWISE)),
        st.sampled_from(WRITES),
        st.sampled_from(BENT if bent else RULES),
        st.sampled_from(OUTPUTS),
        st.sampled_from(((), ("last",), ("n",), ("last", "n"))),
    )
