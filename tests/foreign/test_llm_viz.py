"""The trained minGPT of llm-viz: what a look inside shows equals the activations that it publishes, value by value.

``ANAPHORA_LLM_VIZ`` names a folder with ``gpt-nano-sort-model.json`` and ``gpt-nano-sort-t0-partials.json`` (GitHub
bbycroft/llm-viz, ``public/``). Without it the same is tested with weights at random, and the activations by the equations.
"""

from __future__ import annotations

import base64
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import anaphora as an
from anaphora.errors import RunError
from anaphora.nn import inside

MODEL, PARTIALS = "gpt-nano-sort-model.json", "gpt-nano-sort-t0-partials.json"
CONFIG = {
    "model_type": "gpt-nano",
    "n_layer": 3,
    "n_head": 3,
    "n_embd": 48,
    "vocab_size": 3,
    "block_size": 11,
}


def written(path: Path, tensors: dict[str, Tensor], config: dict[str, Any]) -> None:
    """As llm-viz writes tensors."""
    found = {
        name: {
            "shape": list(one.shape),
            "dtype": str(one.dtype),
            "data": base64.b64encode(one.contiguous().numpy().tobytes()).decode(),
        }
        for name, one in tensors.items()
    }
    path.write_text(json.dumps({"config": config, **found}))


def weights() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(6)
    shapes: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (3, 48),
        "transformer.wpe.weight": (11, 48),
    }
    for i in range(3):
        for name, shape in {
            "ln_1.weight": (48,), "ln_1.bias": (48,), "attn.c_attn.weight": (144, 48), "attn.c_attn.bias": (144,),
            "attn.c_proj.weight": (48, 48), "attn.c_proj.bias": (48,), "ln_2.weight": (48,), "ln_2.bias": (48,),
            "mlp.c_fc.weight": (192, 48), "mlp.c_fc.bias": (192,), "mlp.c_proj.weight": (48, 192), "mlp.c_proj.bias": (48,),
        }.items():  # fmt: skip
            shapes[f"transformer.h.{i}.{name}"] = shape
    shapes |= {"transformer.ln_f.weight": (48,), "transformer.ln_f.bias": (48,), "lm_head.weight": (3, 48)}
    found = {name: 0.2 * torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    for i in range(3):  # a mask that they keep among the weights
        found[f"transformer.h.{i}.attn.bias"] = torch.ones(11, 11).tril()[None, None]
    return found


def by_the_equations(w: dict[str, Tensor], idx: Tensor) -> dict[str, Tensor]:
    """Every activation of minGPT, written out."""

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        spread = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return centred / spread * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def block(x: Tensor, i: int) -> dict[str, Tensor]:
        p = f"transformer.h.{i}"
        ln1 = norm(x, f"{p}.ln_1")
        q, k, v = (
            part.view(*x.shape[:2], 3, 16).transpose(1, 2)
            for part in linear(ln1, f"{p}.attn.c_attn").split(48, 2)
        )
        att = q @ k.transpose(-2, -1) / math.sqrt(16)
        att = att.masked_fill(torch.ones(11, 11).tril() == 0, -math.inf)
        weights = att.exp() / att.exp().sum(-1, keepdim=True)
        y = (weights @ v).transpose(1, 2).reshape(x.shape)
        projected = linear(y, f"{p}.attn.c_proj")
        ln2 = norm(x + projected, f"{p}.ln_2")
        fc = linear(ln2, f"{p}.mlp.c_fc")
        gelu = 0.5 * fc * (1 + torch.tanh(math.sqrt(2 / math.pi) * (fc + 0.044715 * fc**3)))
        mlp = linear(gelu, f"{p}.mlp.c_proj")
        return {
            "ln1": ln1, "q": q, "k": k, "v": v, "att": att, "attSm": weights, "y": y, "yProj": projected,
            "attnResid": x + projected, "ln2": ln2, "fc": fc, "gelu": gelu, "mlp": mlp, "mlpResid": x + projected + mlp,
        }  # fmt: skip

    found = {"idx": idx.float(), "tok_emb": w["transformer.wte.weight"][idx]}
    found["pos_emb"] = w["transformer.wpe.weight"][None]
    x = found["x"] = found["tok_emb"] + found["pos_emb"]
    found |= block(x, 0)
    for i in range(3):
        x = found[f"block{i}"] = block(x, i)["mlpResid"]
    found["ln_f"] = norm(x, "transformer.ln_f")
    found["lm_head"] = found["ln_f"] @ w["lm_head.weight"].T
    found["probs"] = torch.softmax(found["lm_head"], -1)
    return found


def looked_into(m: Any, idx: Tensor) -> dict[str, Tensor]:
    """The same activations of our model, by a look inside: notes, and what enters and leaves its parts."""
    stack = m.body.stack
    first = stack.layers[0]
    parts = {
        "tok_emb": m.body.embedding, "ln1": first.around_attention.norm, "qkv": first.attention.inward,
        "yProj": first.attention.outward, "ln2": first.around_feedforward.norm, "fc": first.feedforward.first,
        "mlp": first.feedforward.second, "ln_f": stack.norm, "first": first,
    }  # fmt: skip
    entered: dict[str, Tensor] = {}
    left: dict[str, Tensor] = {}
    hooks = []
    for name, part in parts.items():

        def hook(module: Any, given: Any, found: Any, name: str = name) -> None:
            entered[name], left[name] = given[0], found

        hooks.append(part.register_forward_hook(hook))
    with torch.no_grad(), inside.record() as notes:
        logits = m(idx)
    for one in hooks:
        one.remove()
    states = [note.value for note in notes if note.name == "states"]
    alpha = next(note.value for note in notes if note.name == "weights" and note.module is first.attention)
    q, k, v = (x.view(*idx.shape, 3, 16).transpose(1, 2) for x in left["qkv"].split(48, 2))
    att = (q @ k.transpose(-2, -1) / 4).masked_fill(alpha == 0, -math.inf)
    return {
        "idx": idx.float(), "tok_emb": left["tok_emb"], "pos_emb": m.body.positions.weight[None], "x": entered["first"],
        "ln1": left["ln1"], "q": q, "k": k, "v": v, "att": att, "attSm": alpha, "y": entered["yProj"],
        "yProj": left["yProj"], "attnResid": entered["ln2"], "ln2": left["ln2"], "fc": left["fc"], "gelu": entered["mlp"],
        "mlp": left["mlp"], "mlpResid": states[0], **{f"block{i}": one for i, one in enumerate(states)},
        "ln_f": left["ln_f"], "lm_head": logits, "probs": logits.softmax(-1),
    }  # fmt: skip


@pytest.fixture(params=["at random", "published"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "published":
        there = os.environ.get("ANAPHORA_LLM_VIZ", "")
        if not there or not (Path(there) / PARTIALS).is_file():
            pytest.skip("ANAPHORA_LLM_VIZ does not name a folder with the files of llm-viz")
        return Path(there)
    w = weights()
    written(tmp_path / MODEL, w, CONFIG)
    idx = torch.tensor([[0, 0, 2, 1, 0, 1, 0, 0, 0, 0, 0], [1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0]])
    written(tmp_path / PARTIALS, by_the_equations(w, idx), CONFIG)
    return tmp_path


def test_a_look_inside_shows_the_published_activations(folder: Path) -> None:
    m = an.load(folder / MODEL, device="cpu")
    from anaphora.foreign.weights import read_weights

    expected = read_weights(folder / PARTIALS).tensors
    found = looked_into(m, expected["idx"].long())
    assert expected.keys() <= found.keys(), sorted(expected.keys() - found.keys())
    assert len(expected) >= 24
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=0, atol=1e-5, msg=lambda said, name=name: f"{name}: {said}"
        )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: d["lm_head.weight"].update(shape=[4, 48]), "lm_head.weight has 576 bytes"),
        (lambda d: d["lm_head.weight"].update(data="?"), "cannot be read"),
        (lambda d: d.pop("transformer.ln_f.bias"), "lacks transformer.ln_f.bias"),
        (lambda d: d["config"].update(n_head=5), "its config cannot be used|divided"),
        (lambda d: d["config"].update(n_embd=1 << 40), "its wte is not"),
        (lambda d: d["config"].update(n_layer=1 << 40), "n_layer = "),
        (lambda d: d.update(more=3), "more is no tensor"),
    ],
)
def test_damaged_json_is_refused(tmp_path: Path, change: Any, sentence: str) -> None:
    written(tmp_path / MODEL, weights(), CONFIG)
    given = json.loads((tmp_path / MODEL).read_text())
    change(given)
    (tmp_path / MODEL).write_text(json.dumps(given))
    with pytest.raises(RunError, match=sentence):
        an.load(tmp_path / MODEL)
