"""Our models in the form that an architecture of others has, where the function stays the same.

Each step takes a `Form` that differs in one setting and gives an equal one without the difference: a table of sines is a
table of learned positions; keys shared by heads may be written once for each; a scale of vectors can be multiplied in.
LayerNorm makes a vector n with Σᵢ nᵢ = 0, so that a column added to an output matrix changes nothing there, and what the
norm adds to n can carry a bias through it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from anaphora.data.tokenizers.vocabularies import NEVER, Numbering
from anaphora.foreign.hows import NO_BIAS
from anaphora.foreign.mapping import Architecture, Head
from anaphora.nn.positions import Sinusoidal

_SMALL = 2.0**-12
"""tanh(εx)/ε is x up to ε²x²/3 of it: less than what float32 rounds."""
_LINEAR = {"relu": 0.0, "gelu": 6.0, "gelu-tanh": 6.0, "silu": 18.0}
"""From where on an activation gives back what it was given, in float32."""


@dataclass(frozen=True)
class Form:
    """Settings and tensors of a model, by our names; ``body``: what the names of its body begin with; ``places``: how many
    positions it may need; ``words``: which symbols others have."""

    settings: dict[str, Any]
    tensors: dict[str, Tensor]
    body: str
    places: int
    words: Numbering

    def changed(self, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Form:
        return replace(self, settings=self.settings | settings, tensors=self.tensors | tensors)

    @property
    def last_norm(self) -> str:
        """The name of the norm whose output leaves the body."""
        if self.settings["norm_first"]:
            return f"{self.body}stack.norm."
        return f"{self.body}stack.layers.{self.settings['layers'] - 1}.around_feedforward.norm."


def folded(form: Form, architecture: Architecture, head: Head) -> Form:
    """The form with as many settings as possible as the architecture has them; what still differs has no counterpart."""
    fixed = architecture.fixed
    if head.task == "translate":
        return _both_sides(form, fixed)
    if form.settings["embedding_scale"] and not fixed.get("embedding_scale", True):
        form = _without_scale(form)
    if fixed.get("positions") == "learned":
        form = _with_table(form, int(fixed["first_position"]))
    if "kv_heads" in fixed and form.settings["kv_heads"]:
        form = _without_groups(form)
    if any(one.ours == "token_types" for one in architecture.fields) and not form.settings["token_types"]:
        width = form.settings["hidden"]
        form = form.changed({"token_types": 1}, {f"{form.body}types": torch.zeros(1, width)})
    if head.settings.get("output_transform") and not form.settings["output_transform"]:
        form = _with_transform(form)
    if any(rule.how is NO_BIAS for rule in head.rules) and form.settings["norm"] == "layer":
        form = _without_bias(form)
    if head.settings.get("pooling") == "first-tanh" and form.settings["pooling"] == "first":
        form = _with_pooler(form)
    return form


def _both_sides(form: Form, fixed: Mapping[str, Any]) -> Form:
    """An encoder-decoder: a table of positions on each side, and, where symbols are numbered as here, as many rows of them
    on one side as on the other."""
    s = form.settings
    found = form
    if fixed["positions"] == "learned":
        for side in ("encoder.", "decoder."):
            of_side = replace(found, body=side, settings=dict(s))
            found = replace(_with_table(of_side, fixed["first_position"]), body=form.body)
    if s["kv_heads"] and found.settings["positions"] == "learned":
        found = _without_groups(found)
    if s["shares"] or form.words != Numbering.ours(form.words.size):
        return found
    tables = (
        "encoder.embedding.weight",
        "decoder.embedding.weight",
        "decoder.output.weight",
        "decoder.output.bias",
    )
    tensors = dict(found.tensors)
    if s["tie"]:
        tensors[tables[2]] = tensors[tables[1]].clone()
    size = max(len(tensors[name]) for name in tables)
    return found.changed(
        {"tie": False},
        {name: _longer(tensors[name], size, NEVER if name == tables[3] else 0.0) for name in tables},
    )


def _longer(rows: Tensor, size: int, value: float) -> Tensor:
    missing = rows.new_full((size - len(rows), *rows.shape[1:]), value)
    return torch.cat((rows, missing)) if len(missing) else rows


def _output_matrix(form: Form) -> Tensor:
    return form.tensors[f"{form.body}embedding.weight" if form.settings["tie"] else "output.weight"]


def _without_scale(form: Form) -> Form:
    """√width multiplied into the vectors; an output layer that shares them gets them as they were."""
    name = f"{form.body}embedding.weight"
    vectors = form.tensors[name]
    more = {name: (vectors.double() * math.sqrt(form.settings["hidden"])).float()}
    if form.settings.get("tie") and "output.bias" in form.tensors and form.settings["shares"]:
        return form.changed(
            {"embedding_scale": False, "tie": False}, more | {"output.weight": vectors.clone()}
        )
    return form.changed({"embedding_scale": False}, more)


def _with_table(form: Form, first: int) -> Form:
    """Added sines, or nothing, as a table of positions from ``first`` on."""
    s, name = form.settings, f"{form.body}positions.weight"
    if s["positions"] == "learned":
        table = form.tensors[name][s["first_position"] :]
    elif s["positions"] == "sinusoidal":
        kind = {"halves": s.get("sine_halves", False), "spread": s.get("sine_spread", False)}
        sines = Sinusoidal(s["hidden"], first=s["first_position"], **kind)
        table = sines.table(form.places, torch.empty(0))
    elif s["positions"] == "none":
        table = torch.zeros(form.places, s["hidden"])
    else:
        return form
    if s["positions"] == "learned" and s["first_position"] == first:
        return form.changed({"max_positions": len(table)}, {})
    rows = torch.cat((torch.zeros(first, s["hidden"]), table)).contiguous()
    settings = {"positions": "learned", "max_positions": len(table), "first_position": first}
    return form.changed(settings, {name: rows})


def _without_groups(form: Form) -> Form:
    """Each head of keys and values once for every head of queries that it serves."""
    s = form.settings
    each, times = s["hidden"] // s["heads"], s["heads"] // s["kv_heads"]
    shared = each * s["kv_heads"]
    more = {}
    for name in _inward(form):
        q, k, v = torch.split(form.tensors[name], [s["hidden"], shared, shared])
        spread = [
            x.view(s["kv_heads"], each, *x.shape[1:]).repeat_interleave(times, 0).flatten(0, 1)
            for x in (k, v)
        ]
        more[name] = torch.cat((q, *spread))
    return form.changed({"kv_heads": 0}, more)


def _inward(form: Form) -> Iterator[str]:
    return (name for name in form.tensors if "attention.inward." in name)


def _without_bias(form: Form) -> Form:
    """W (γ∘n + β) + b as W' (n + 1) with W' = W diag(γ) + c 1ᵀ: since Σ n = 0, c only meets the ones."""
    if not bool(form.words.outward(form.tensors["output.bias"]).any()):
        return form
    matrix, norm = _output_matrix(form).double(), form.last_norm
    gain, shift = (form.tensors[norm + part].double() for part in ("weight", "bias"))
    width = len(gain)
    constant = (matrix @ shift + form.tensors["output.bias"].double() - matrix @ gain) / width
    more = {
        "output.weight": (matrix * gain + constant[:, None]).float(),
        "output.bias": torch.zeros_like(form.tensors["output.bias"]),
        norm + "weight": torch.ones(width),
        norm + "bias": torch.ones(width),
    }
    return form.changed({"tie": False}, more)


def _with_transform(form: Form) -> Form:
    """N(f(n + B)) is n where f is linear above B − max|n|: the norm of the last layer becomes that of the transform."""
    norm, width = form.last_norm, form.settings["hidden"]
    lift = math.sqrt(width) + _LINEAR.get(form.settings["activation"], 18.0)  # |nᵢ| < √width
    again = math.sqrt(1 + form.settings["norm_eps"])  # normalised twice, divided by √(1 + ε) once more
    more = {
        "transform.linear.weight": torch.eye(width),
        "transform.linear.bias": torch.full((width,), lift),
        "transform.norm.weight": form.tensors[norm + "weight"] * again,
        "transform.norm.bias": form.tensors[norm + "bias"].clone(),
        norm + "weight": torch.ones(width),
        norm + "bias": torch.zeros(width),
    }
    return form.changed({"output_transform": True}, more)


def _with_pooler(form: Form) -> Form:
    """W x as (W/ε) tanh(ε x)."""
    width = form.settings["hidden"]
    more = {
        "pooling.linear.weight": torch.eye(width) * _SMALL,
        "pooling.linear.bias": torch.zeros(width),
        "output.weight": form.tensors["output.weight"] / _SMALL,
    }
    return form.changed({"pooling": "first-tanh"}, more)
