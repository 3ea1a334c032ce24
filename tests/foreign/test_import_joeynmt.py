"""Folders of Joey NMT: equal logits to its Transformer, written out below by the names of its checkpoints; what has no counterpart
is one sentence."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError

yaml = pytest.importorskip("yaml")

WIDTH, HEADS, INNER = 16, 2, 24
SOURCE = ["<unk>", "<pad>", "<s>", "</s>", *(f"a{i}" for i in range(20))]
TARGET = ["<unk>", "<pad>", "<s>", "</s>", *(f"b{i}" for i in range(17))]
TEXTS = ["a1 a2 a3", "a4 a5 a6 a7 a8 a9 a10", "a3", "a2 unheard a2"]


def config(**model: Any) -> dict[str, Any]:
    side = {
        "type": "transformer", "num_layers": 2, "num_heads": HEADS, "hidden_size": WIDTH, "ff_size": INNER, "dropout": 0.1,
        "layer_norm": "pre", "activation": "relu", "embeddings": {"embedding_dim": WIDTH, "scale": True, "dropout": 0.0},
    }  # fmt: skip
    words = {"level": "word", "lowercase": False}
    return {
        "name": "tiny",
        "data": {"src": {"lang": "a", **words}, "trg": {"lang": "b", **words}},
        "testing": {"beam_size": 1, "beam_alpha": 1.0},
        "model": {"encoder": side, "decoder": copy.deepcopy(side) | {"num_layers": 1}, **model},
    }


def drawn(said: dict[str, Any], symbols: tuple[int, int]) -> dict[str, Tensor]:
    """Random tensors by the names of a checkpoint."""
    draw = torch.Generator().manual_seed(3)
    shapes: dict[str, tuple[int, ...]] = {
        "src_embed.lut.weight": (symbols[0], WIDTH),
        "trg_embed.lut.weight": (symbols[1], WIDTH),
        "decoder.output_layer.weight": (symbols[1], WIDTH),
    }
    for side, own in (("encoder", ["src_src_att"]), ("decoder", ["trg_trg_att", "src_trg_att"])):
        norms = [
            "feed_forward.layer_norm",
            *(["layer_norm"] if side == "encoder" else ["x_layer_norm", "dec_layer_norm"]),
        ]
        if said["model"][side]["layer_norm"] == "pre":
            shapes |= {f"{side}.layer_norm.{part}": (WIDTH,) for part in ("weight", "bias")}
        for i in range(said["model"][side]["num_layers"]):
            maps = {
                f"{one}.{name}_layer": (WIDTH, WIDTH) for one in own for name in ("q", "k", "v", "output")
            }
            maps |= {"feed_forward.pwff_layer.0": (INNER, WIDTH), "feed_forward.pwff_layer.3": (WIDTH, INNER)}
            for name, shape in maps.items():
                shapes |= {
                    f"{side}.layers.{i}.{name}.weight": shape,
                    f"{side}.layers.{i}.{name}.bias": shape[:1],
                }
            for name in norms:
                shapes |= {f"{side}.layers.{i}.{name}.{part}": (WIDTH,) for part in ("weight", "bias")}
    found = {name: 0.4 * torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    found |= {f"{side}.pe.pe": torch.zeros(1, 5000, WIDTH) for side in ("encoder", "decoder")}
    if said["model"].get("tied_embeddings"):
        found["trg_embed.lut.weight"] = found["src_embed.lut.weight"]
    if said["model"].get("tied_softmax"):
        found["decoder.output_layer.weight"] = found["trg_embed.lut.weight"]
    return found


def saved(folder: Path, said: dict[str, Any], target: list[str] = TARGET) -> dict[str, Tensor]:
    folder.mkdir(parents=True, exist_ok=True)
    state = drawn(said, (len(SOURCE), len(target)))
    kept = {
        "model_state": state,
        "optimizer_state": {"state": {}, "param_groups": []},
        "stats_state": {"steps": 3},
    }
    torch.save(kept, folder / "best.ckpt")
    (folder / "config.yaml").write_text(yaml.safe_dump(said))
    (folder / "src_vocab.txt").write_text("\n".join(SOURCE) + "\n")
    (folder / "trg_vocab.txt").write_text("\n".join(target) + "\n")
    return state


def theirs(state: dict[str, Tensor], said: dict[str, Any], source: Tensor, fed: Tensor) -> Tensor:
    """Logits of their Transformer for one sentence, (T, symbols)."""
    w = {name: one.double() for name, one in state.items()}
    pre = said["model"]["encoder"]["layer_norm"] == "pre"
    act = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}[said["model"]["encoder"]["activation"]]
    scale = math.sqrt(WIDTH) if said["model"]["encoder"]["embeddings"]["scale"] else 1.0

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, (WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-6)

    def attend(name: str, x: Tensor, memory: Tensor, causal: bool) -> Tensor:
        q, k, v = (linear(f"{name}.{one}_layer", y) for one, y in (("q", x), ("k", memory), ("v", memory)))
        heads = []
        for h in range(HEADS):
            cut = slice(h * WIDTH // HEADS, (h + 1) * WIDTH // HEADS)
            scores = q[:, cut] @ k[:, cut].T / math.sqrt(WIDTH // HEADS)
            if causal:
                scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
            heads.append(scores.softmax(-1) @ v[:, cut])
        return linear(f"{name}.output_layer", torch.cat(heads, -1))

    def around(name: str, x: Tensor, inner: Callable[[Tensor], Tensor]) -> Tensor:
        return x + inner(norm(name, x)) if pre else norm(name, x + inner(x))

    def enter(name: str, symbols: Tensor) -> Tensor:
        place = torch.arange(len(symbols)).double()[:, None]
        angles = place * torch.exp(torch.arange(0, WIDTH, 2).double() * -(math.log(10000.0) / WIDTH))
        return w[name][symbols] * scale + torch.stack((angles.sin(), angles.cos()), -1).flatten(1)

    def feed(at: str, x: Tensor) -> Tensor:
        inner = lambda y: linear(f"{at}.pwff_layer.3", act(linear(f"{at}.pwff_layer.0", y)))  # noqa: E731
        return around(f"{at}.layer_norm", x, inner)

    x = enter("src_embed.lut.weight", source)
    for i in range(said["model"]["encoder"]["num_layers"]):
        at = f"encoder.layers.{i}"
        x = around(f"{at}.layer_norm", x, lambda y, at=at: attend(f"{at}.src_src_att", y, y, False))  # type: ignore[misc]
        x = feed(f"{at}.feed_forward", x)
    memory = norm("encoder.layer_norm", x) if pre else x
    x = enter("trg_embed.lut.weight", fed)
    for i in range(said["model"]["decoder"]["num_layers"]):
        at = f"decoder.layers.{i}"
        x = around(f"{at}.x_layer_norm", x, lambda y, at=at: attend(f"{at}.trg_trg_att", y, y, True))  # type: ignore[misc]
        x = around(f"{at}.dec_layer_norm", x, lambda y, at=at: attend(f"{at}.src_trg_att", y, memory, False))  # type: ignore[misc]
        x = feed(f"{at}.feed_forward", x)
    return (norm("decoder.layer_norm", x) if pre else x) @ w["decoder.output_layer.weight"].T


def changed(**both: Any) -> dict[str, Any]:
    said = config()
    for side in ("encoder", "decoder"):
        said["model"][side] |= both
    return said


CASES = {
    "pre": (config(), TARGET),
    "post": (changed(layer_norm="post", activation="gelu"), TARGET),
    "tied": (config(tied_softmax=True), TARGET),
    "shared": (config(tied_embeddings=True, tied_softmax=True), SOURCE),
    "shared vectors": (config(tied_embeddings=True), SOURCE),
}


@pytest.mark.parametrize("case", CASES)
def test_logits_and_greedy_outputs_are_those_of_its_equations(case: str, tmp_path: Path) -> None:
    said, target = CASES[case]
    state = saved(tmp_path, said, target)
    m = an.load(tmp_path, an.Translator, device="cpu")
    for text in TEXTS:
        source = torch.tensor([*(SOURCE.index(word) if word in SOURCE else 0 for word in text.split()), 3])
        written = [2]
        for _ in range(8):
            logits = theirs(state, said, source, torch.tensor(written))
            written.append(int(logits[-1].argmax()))
        numbers = torch.tensor(m.tokenizer_.target.numbering.numbers)
        read = torch.tensor(m.tokenizer_.source.numbering.numbers)[source][None]
        fed = numbers[torch.tensor(written[:-1])][None]
        with torch.no_grad():
            found = m.model_(read, torch.tensor([len(source)]), fed)[0][:, numbers]
        assert float((found.double() - logits).abs().max()) < 2e-5
        expected = written[1:]
        expected = expected[: expected.index(3)] if 3 in expected else expected
        spelled = " ".join(target[i] for i in expected if i > 3 or i == 0)
        assert m.predict([text], max_length=8) == [spelled]


def test_it_becomes_a_run(tmp_path: Path) -> None:
    saved(tmp_path / "joey", config())
    m = an.load(tmp_path / "joey", device="cpu")
    assert main.run(["import", str(tmp_path / "joey"), "-o", str(tmp_path / "run")]) == 0
    assert an.load(tmp_path / "run", device="cpu").predict(TEXTS, max_length=5) == m.predict(
        TEXTS, max_length=5
    )


def damage(file: str, content: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_text(content) and None


def of_config(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        said = config()
        change(said)
        (folder / "config.yaml").write_text(yaml.safe_dump(said))

    return write


def lacking(folder: Path) -> None:
    state = torch.load(folder / "best.ckpt", weights_only=True)
    del state["model_state"]["decoder.layers.0.src_trg_att.q_layer.bias"]
    state["model_state"]["adapter"] = torch.zeros(2)
    torch.save(state, folder / "best.ckpt")


class Hostile:
    def __reduce__(self) -> Any:
        return (print, ("executed",))


DAMAGED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "recurrent": (of_config(lambda s: s["model"]["encoder"].update(type="recurrent")), "encoder: type = 'recurrent'"),
    "norms": (of_config(lambda s: [s["model"][side].pop("layer_norm") for side in ("encoder", "decoder")]), "layer_norm = None"),
    "alpha": (of_config(lambda s: s["model"]["decoder"].update(alpha=0.8)), "alpha = 0.8"),
    "heads": (of_config(lambda s: s["model"]["decoder"].update(num_heads=4)), "num_heads = 4 of the decoder"),
    "subwords": (of_config(lambda s: s["data"]["src"].update(level="bpe", tokenizer_type="subword-nmt")), "subword-nmt"),
    "no model": (of_config(lambda s: s.pop("model")), "is not complete"),
    "no vocabulary": (lambda folder: (folder / "src_vocab.txt").unlink(), "src_vocab.txt cannot be read"),
    "other symbols": (damage("trg_vocab.txt", "<pad>\n<unk>\n"), "symbol 1 is not '<pad>'"),
    "yaml": (damage("config.yaml", "a: [1"), "cannot be read"),
    "objects": (damage("config.yaml", "!!python/object/apply:os.system ['true']"), "cannot be read"),
    "tensors": (lacking, "lacks decoder.layers.0.src_trg_att.q_layer.bias, also has, with no counterpart here, adapter"),
    "pickle": (lambda folder: torch.save({"model_state": Hostile()}, folder / "best.ckpt"), "would be executed"),
    "no checkpoint": (lambda folder: (folder / "best.ckpt").unlink(), "no checkpoint"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_folder_is_one_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path, config())
    spoil, sentence = DAMAGED[name]
    spoil(tmp_path)
    with pytest.raises(AnaphoraError) as caught:
        an.load(tmp_path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "executed" not in capsys.readouterr().out
