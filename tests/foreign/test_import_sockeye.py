"""Folders of sockeye 3: equal logits to its Transformer, written out below by the names of its parameters; what has no counterpart is
one sentence."""

from __future__ import annotations

import json
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

pytest.importorskip("yaml")

WIDTH, HEADS, INNER = 16, 4, 24
EACH = WIDTH // HEADS
SOURCE = ["<pad>", "<unk>", "<s>", "</s>", *(f"a{i}" for i in range(20))]
TARGET = ["<pad>", "<unk>", "<s>", "</s>", *(f"b{i}" for i in range(17))]
TEXTS = ["a1 a2 a3", "a4 a5 a6 a7 a8 a9 a10", "a3", "a2 unheard a2"]
LAYERS = {"encoder": 2, "decoder": 1}


def side(name: str, said: dict[str, Any]) -> str:
    own = {
        "act_type": "relu", "attention_heads": HEADS, "block_prepended_cross_attention": "false", "decoder_type": "transformer",
        "depth_key_value": WIDTH, "dropout_prepost": 0.1, "feed_forward_num_hidden": INNER, "max_seq_len_source": 50,
        "model_size": WIDTH, "num_layers": LAYERS[name], "positional_embedding_type": "fixed", "postprocess_sequence": "dr",
        "preprocess_sequence": "'n'", "use_glu": "false", "use_lhuc": "false",
    } | said  # fmt: skip
    return f"config_{name}: !TransformerConfig\n" + "".join(f"  {key}: {one}\n" for key, one in own.items())


def config(
    target: list[str] = TARGET,
    *,
    tying: str = "none",
    both: dict[str, Any] | None = None,
    decoder: dict[str, Any] | None = None,
    more: str = "",
) -> str:
    """A config as sockeye writes it, with its tags."""
    vectors = "".join(
        f"config_embed_{name}: !EmbeddingConfig\n  dropout: 0.1\n  factor_configs: null\n  num_embed: {WIDTH}\n  vocab_size: {size}\n"
        for name, size in (("source", len(SOURCE)), ("target", len(target)))
    )
    return (
        "!ModelConfig\nconfig_data: !DataConfig\n  data_statistics: !DataStatistics\n    buckets:\n    - !!python/tuple\n      - 5\n"
        f"      - 5\n  num_source_factors: 1\n{vectors}{side('encoder', both or {})}{side('decoder', (both or {}) | (decoder or {}))}"
        f"dtype: float32\nlhuc: false\nvocab_source_size: {len(SOURCE)}\nvocab_target_size: {len(target)}\n"
        f"weight_tying_type: {tying}\n{more}"
    )


def drawn(pre: bool, tying: str, target: list[str]) -> dict[str, Tensor]:
    """Random tensors by the names of a file of parameters."""
    draw = torch.Generator().manual_seed(3)
    shapes: dict[str, tuple[int, ...]] = {
        "embedding_source.embedding.weight": (len(SOURCE), WIDTH),
        "embedding_target.embedding.weight": (len(target), WIDTH),
        "output_layer.weight": (len(target), WIDTH),
        "output_layer.bias": (len(target),),
    }
    place = "pre" if pre else "post"
    for name, layers in LAYERS.items():
        own = "self_attention" if name == "encoder" else "autoregr_layer"
        norms = [f"{name}.final_process"] if pre else []
        for i in range(layers):
            at = f"{name}.layers.{i}"
            shapes |= {
                f"{at}.{own}.ff_in.weight": (3 * WIDTH, WIDTH),
                f"{at}.{own}.ff_out.weight": (WIDTH, WIDTH),
            }
            shapes |= {f"{at}.ff.ff1.weight": (INNER, WIDTH), f"{at}.ff.ff1.bias": (INNER,)}
            shapes |= {f"{at}.ff.ff2.weight": (WIDTH, INNER), f"{at}.ff.ff2.bias": (WIDTH,)}
            norms += [f"{at}.{place}_{own}", f"{at}.{place}_ff"]
            if name == "decoder":
                shapes |= {f"{at}.enc_attention.ff_kv.weight": (2 * WIDTH, WIDTH)}
                shapes |= {f"{at}.enc_attention.{one}.weight": (WIDTH, WIDTH) for one in ("ff_q", "ff_out")}
                norms.append(f"{at}.{place}_enc_attention")
        shapes |= {f"{one}.layer_norm.{part}": (WIDTH,) for one in norms for part in ("weight", "bias")}
    found = {name: 0.4 * torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    found |= {f"{name}.pos_embedding.weight": torch.zeros(50, WIDTH) for name in LAYERS}
    if tying.startswith("src_trg"):
        found["embedding_target.embedding.weight"] = found["embedding_source.embedding.weight"]
    if tying.endswith("softmax"):
        found["output_layer.weight"] = found["embedding_target.embedding.weight"]
    return found


def saved(
    folder: Path, *, pre: bool = True, act: str = "relu", tying: str = "none", target: list[str] = TARGET
) -> dict[str, Tensor]:
    folder.mkdir(parents=True, exist_ok=True)
    state = drawn(pre, tying, target)
    torch.save(state, folder / "params.00001")
    (folder / "params.best").symlink_to("params.00001")
    place = {} if pre else {"preprocess_sequence": "''", "postprocess_sequence": "drn"}
    (folder / "config").write_text(config(target, tying=tying, both={"act_type": act, **place}))
    for name, symbols in (("src", SOURCE), ("trg", target)):
        numbers = {symbol: i for i, symbol in enumerate(symbols)}
        (folder / f"vocab.{name}.0.json").write_text(json.dumps(numbers))
    return state


def theirs(state: dict[str, Tensor], pre: bool, act: str, source: Tensor, fed: Tensor) -> Tensor:
    """Logits of their Transformer for one sentence, (T, symbols)."""
    w = {name: one.double() for name, one in state.items()}
    function = {"relu": F.relu, "gelu": F.gelu, "swish1": F.silu}[act]
    place = "pre" if pre else "post"

    def norm(name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, (WIDTH,), w[f"{name}.layer_norm.weight"], w[f"{name}.layer_norm.bias"], 1e-6)

    def attend(q: Tensor, both: Tensor, out: Tensor, causal: bool) -> Tensor:
        """``both``: keys and values of a head beside each other, head after head, (S, 2 · WIDTH)."""
        heads = []
        for h in range(HEADS):
            k = both[:, 2 * h * EACH : (2 * h + 1) * EACH]
            v = both[:, (2 * h + 1) * EACH : (2 * h + 2) * EACH]
            scores = q[:, h * EACH : (h + 1) * EACH] @ k.T / math.sqrt(EACH)
            if causal:
                scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
            heads.append(scores.softmax(-1) @ v)
        return torch.cat(heads, -1) @ out.T

    def around(name: str, x: Tensor, inner: Callable[[Tensor], Tensor]) -> Tensor:
        return x + inner(norm(name, x)) if pre else norm(name, x + inner(x))

    def itself(at: str, own: str, x: Tensor, causal: bool) -> Tensor:
        def inner(y: Tensor) -> Tensor:
            every = y @ w[f"{at}.{own}.ff_in.weight"].T
            return attend(every[:, :WIDTH], every[:, WIDTH:], w[f"{at}.{own}.ff_out.weight"], causal)

        return around(f"{at}.{place}_{own}", x, inner)

    def feed(at: str, x: Tensor) -> Tensor:
        def inner(y: Tensor) -> Tensor:
            between = function(y @ w[f"{at}.ff.ff1.weight"].T + w[f"{at}.ff.ff1.bias"])
            return between @ w[f"{at}.ff.ff2.weight"].T + w[f"{at}.ff.ff2.bias"]

        return around(f"{at}.{place}_ff", x, inner)

    def enter(name: str, symbols: Tensor) -> Tensor:
        rates = 10000.0 ** (2 * torch.arange(WIDTH // 2).double() / WIDTH)
        angles = torch.arange(len(symbols)).double()[:, None] / rates
        return w[f"embedding_{name}.embedding.weight"][symbols] * math.sqrt(WIDTH) + torch.cat(
            (angles.sin(), angles.cos()), -1
        )

    x = enter("source", source)
    for i in range(LAYERS["encoder"]):
        at = f"encoder.layers.{i}"
        x = feed(at, itself(at, "self_attention", x, False))
    memory = norm("encoder.final_process", x) if pre else x
    x = enter("target", fed)
    for i in range(LAYERS["decoder"]):
        at = f"decoder.layers.{i}"
        x = itself(at, "autoregr_layer", x, True)

        def across(y: Tensor, at: str = f"{at}.enc_attention") -> Tensor:
            q, both = y @ w[f"{at}.ff_q.weight"].T, memory @ w[f"{at}.ff_kv.weight"].T
            return attend(q, both, w[f"{at}.ff_out.weight"], False)

        x = feed(at, around(f"{at}.{place}_enc_attention", x, across))
    x = norm("decoder.final_process", x) if pre else x
    return x @ w["output_layer.weight"].T + w["output_layer.bias"]


CASES: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"pre": False, "act": "gelu"},
    "swish": {"act": "swish1", "tying": "trg_softmax"},
    "shared": {"tying": "src_trg_softmax", "target": SOURCE},
    "shared vectors": {"pre": False, "tying": "src_trg", "target": SOURCE},
}


@pytest.mark.parametrize("case", CASES)
def test_logits_and_greedy_outputs_are_those_of_its_equations(case: str, tmp_path: Path) -> None:
    said = {"pre": True, "act": "relu", "tying": "none", "target": TARGET} | CASES[case]
    state = saved(tmp_path, **said)
    m = an.load(tmp_path, an.Translator, device="cpu")
    assert (m.settings_.beam, m.settings_.length_penalty, m.settings_.normalisation) == (5, 1.0, "power")
    for text in TEXTS:
        source = torch.tensor([*(SOURCE.index(word) if word in SOURCE else 1 for word in text.split()), 3])
        written = [2]
        for _ in range(8):
            logits = theirs(state, said["pre"], said["act"], source, torch.tensor(written))
            written.append(int(logits[-1].argmax()))
        with torch.no_grad():
            found = m.model_(source[None], torch.tensor([len(source)]), torch.tensor([written[:-1]]))[0]
        assert float((found.double() - logits).abs().max()) < 2e-5
        expected = written[1:]
        expected = expected[: expected.index(3)] if 3 in expected else expected
        spelled = " ".join(said["target"][i] for i in expected if i > 3 or i == 1)
        assert m.predict([text], max_length=8, beam=1) == [spelled]


def test_it_becomes_a_run(tmp_path: Path) -> None:
    saved(tmp_path / "sockeye")
    m = an.load(tmp_path / "sockeye", device="cpu")
    assert main.run(["import", str(tmp_path / "sockeye"), "-o", str(tmp_path / "run")]) == 0
    again = an.load(tmp_path / "run", device="cpu")
    assert again.predict(TEXTS, max_length=5) == m.predict(TEXTS, max_length=5)


class Hostile:
    def __reduce__(self) -> Any:
        return (print, ("executed",))


def of_config(**said: Any) -> Callable[[Path], Any]:
    return lambda folder: (folder / "config").write_text(config(**said))


def vocabulary(symbols: Any) -> Callable[[Path], Any]:
    return lambda folder: (folder / "vocab.trg.0.json").write_text(json.dumps(symbols))


def of_tensors(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    def write(folder: Path) -> None:
        state = torch.load(folder / "params.best", weights_only=True)
        change(state)
        torch.save(state, folder / "params.00001")

    return write


def lacking(state: dict[str, Any]) -> None:
    del state["decoder.layers.0.enc_attention.ff_kv.weight"]
    state["length_ratio.layers.0.weight"] = torch.zeros(2)


KEYS = "encoder.layers.1.self_attention.ff_in.weight"
DAMAGED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "several": (
        of_config(both={"use_lhuc": "true", "positional_embedding_type": "learned"}, more="neural_vocab_selection: eos\n"),
        "neural_vocab_selection = 'eos'; encoder: positional_embedding_type = 'learned'; encoder: use_lhuc = True",
    ),
    "int8": (of_config(more="dtype: int8\n"), "dtype = 'int8' has no counterpart"),
    "ssru": (of_config(decoder={"decoder_type": "ssru_transformer"}), "decoder: decoder_type = 'ssru_transformer'"),
    "gates": (of_config(both={"use_glu": "true"}), "encoder: use_glu = True"),
    "heads": (of_config(decoder={"attention_heads": 2}), "attention_heads = 2 of the decoder"),
    "norms": (of_config(both={"postprocess_sequence": "drn"}), "'n', 'drn'"),
    "one side's norms": (of_config(decoder={"preprocess_sequence": "''", "postprocess_sequence": "drn"}), "and '', 'drn'"),
    "far too large": (of_config(both={"feed_forward_num_hidden": 1 << 40, "num_layers": 1}), "describes a model of"),
    "tying": (of_config(tying="src_trg"), "needs one vocabulary"),
    "no decoder": (lambda folder: (folder / "config").write_text("!ModelConfig\ndtype: float32\n"), "is not complete"),
    "scalar": (lambda folder: (folder / "config").write_text("config_encoder: !TransformerConfig 3\n"), "cannot be read"),
    "objects": (lambda folder: (folder / "config").write_text("!!python/object/apply:print ['executed']"), "cannot be read"),
    "no config": (lambda folder: (folder / "config").unlink(), "config is missing"),
    "no parameters": (lambda folder: (folder / "params.best").unlink(), "params.best is missing"),
    "no vocabulary": (lambda folder: (folder / "vocab.trg.0.json").unlink(), "vocab.trg.0.json is missing"),
    "no source vocabulary": (lambda folder: (folder / "vocab.src.0.json").unlink(), "vocab.src.0.json is missing"),
    "short vocabulary": (vocabulary({"<pad>": 0}), "does not number 21 symbols"),
    "list": (vocabulary(TARGET), "does not number 21 symbols"),
    "truth": (vocabulary({one: bool(i) if i < 2 else i for i, one in enumerate(TARGET)}), "does not number 21 symbols"),
    "other symbols": (vocabulary({one: i for i, one in enumerate(reversed(TARGET))}), "first symbols are not <pad>, <unk>"),
    "tensors": (of_tensors(lacking), "lacks decoder.layers.0.enc_attention.ff_kv.weight, also has, with no counterpart here, length_ratio"),
    "shape": (of_tensors(lambda state: state.update({KEYS: torch.zeros(3, 16)})), f"{KEYS} (3, 16) instead of (48, 16)"),
    "not finite": (of_tensors(lambda state: state[KEYS].fill_(math.nan)), "are not finite"),
    "pickle": (lambda folder: torch.save({"output_layer.bias": Hostile()}, folder / "params.00001"), "would be executed"),
    "mxnet": (lambda folder: (folder / "params.00001").write_bytes(b"\x12\x01" + bytes(60)), "params.best"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_folder_is_one_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path)
    spoil, sentence = DAMAGED[name]
    spoil(tmp_path)
    with pytest.raises(AnaphoraError) as caught:
        an.load(tmp_path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "executed" not in capsys.readouterr().out
