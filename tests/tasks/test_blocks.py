"""Every block is reached by a setting, in every task where it means something: cells and their variants, connections,
positions, shared keys, windows, feed-forward kinds. Each model trains, is loaded, goes on, and does not see padding."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import random
import shutil
import warnings
from typing import Any

import answer_tiny
import caption_tiny
import numpy as np
import pytest
import torch
from transcribe_tiny import recordings

import anaphora as an
from anaphora.errors import DataError, SettingsError
from anaphora.models.packed import packed
from anaphora.ops import packed as native
from anaphora.settings.network import BLOCKS, CELLS, NetworkSettings
from anaphora.tasks.parts import make_cell, make_recurrent

STEPS = {"steps": 2, "valid_every": 2, "save_every": 1, "keep": 3, "device": "cpu", "warmup": 0}
SIZES = {"hidden": 8, "embedding": 6, "heads": 2, "feedforward": 12, "layers": 2, "batch_tokens": 64}
SIZES |= {
    "character_hidden": 2,
    "character_embedding": 2,
    "window": 12,
    "horizon": 3,
    "bptt": 8,
    "context": 16,
}
SIZES |= {
    "picture_size": 16,
    "halvings": 2,
    "channels": 4,
    "max_length": 8,
    "beam": 2,
    "vocab_size": 40,
    "masks": 0,
    "length": 10,
}
WAVE = np.sin(np.arange(90) / 5)[:, None].astype(np.float32)
TEXTS = [("good film", "pos"), ("bad film", "neg"), ("not good at all", "neg"), ("very good", "pos")] * 4
PAIRS = [("a b c", "c b a"), ("b a", "a b"), ("c a b a", "a b a c"), ("a", "a")] * 4
TAGGED = [("the dog saw Ann Smith", "O O O B I"), ("Bob ran", "B O"), ("a cat sat on Bob", "O O O O B")] * 4
RECURRENT = {
    "translate": [(an.Translator, name) for name in ("lstm", "lstm-attention", "gru-attention")],
    "classify": [(an.Classifier, "bilstm")],
    "tag": [(an.Tagger, "bilstm-crf")],
    "language": [(an.LanguageModel, "lstm")],
    "forecast": [(an.Forecaster, "lstm")],
    "transcribe": [(an.Transcriber, name) for name in ("bilstm-ctc", "attention")],
    "caption": [(an.Captioner, name) for name in ("lstm", "lstm-attention")],
    "answer": [(an.Answerer, "lstm-attention")],
    "embed": [(an.Embedder, "bilstm")],
}
TRANSFORMERS = [
    (an.Translator, "transformer"),
    (an.Classifier, "transformer"),
    (an.Tagger, "transformer"),
    (an.LanguageModel, "transformer"),
    (an.LanguageModel, "masked"),
    (an.Forecaster, "transformer"),
    (an.Transcriber, "transformer-ctc"),
    (an.Captioner, "transformer"),
    (an.Answerer, "transformer"),
    (an.Embedder, "transformer"),
]
CELL_VARIANTS: list[dict[str, Any]] = [
    *({"cell": cell} for cell in CELLS if cell not in BLOCKS),  # those have tests of their own
    {"cell": "lstm", "peephole": True, "forget_bias": 2.0},
    {"cell": "lstm", "forget": False},
    {"cell": "lstm", "coupled": True, "peephole": True},
    {"cell": "lstm", "layer_norm": True},
    {"cell": "gru", "zoneout": 0.2},
    *({"connections": kind} for kind in ("residual", "highway", "dense", "shortcut")),
    {"cell": "mgu", "connections": "shortcut", "skip": 2},
]
ATTENTION_VARIANTS: list[dict[str, Any]] = [
    *({"positions": kind} for kind in ("learned", "rotary", "alibi", "none")),
    {"kv_heads": 1},
    *({"activation": kind} for kind in ("gelu", "silu", "swiglu")),
    {"attention_window": 2},
    {"positions": "rotary", "kv_heads": 1, "activation": "swiglu", "attention_window": 2},
    {"positions": "alibi", "attention_window": 1},
]
COMPILED = native.library.functions() is not None
READERS = list(itertools.chain.from_iterable(RECURRENT.values()))


def data_of(task: type) -> Any:
    found: dict[type, Any] = {
        an.Translator: PAIRS,
        an.Classifier: TEXTS,
        an.Tagger: TAGGED,
        an.LanguageModel: ["the quick brown fox jumps over the lazy dog\n" * 6],
        an.Forecaster: WAVE,
        an.Captioner: caption_tiny.pictures(4),
        an.Answerer: answer_tiny.scenes(3),
        an.Embedder: PAIRS[:4],
    }
    return found[task] if task in found else recordings(4)


def made(task: Any, preset: str, **more: Any) -> Any:
    """A tiny estimator of the preset; sizes that mean nothing to it are left out."""
    used = task.task().used(preset)
    sizes = {key: value for key, value in {**SIZES, **STEPS}.items() if key in used}
    if task is an.Translator:
        sizes["tokens"] = "word"
    return task(model=preset, **{**sizes, **more})


def trained(task: Any, preset: str, out: Any = None, **more: Any) -> Any:
    data = data_of(task)
    valid = data if task in (an.Translator, an.Captioner, an.Transcriber) else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made(task, preset, **more).fit(data, valid=valid, out=out)


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.model_.state_dict().items()}


def goes_on(task: Any, preset: str, variant: dict[str, Any], folder: Any) -> None:
    """Killed after 1 of 2 steps and resumed: the same weights as without; and loaded, the same again."""
    whole = trained(task, preset, folder / "whole", **variant)
    shutil.copytree(folder / "whole", folder / "half")
    for checkpoint in (folder / "half" / "checkpoints").iterdir():
        if checkpoint.name > "step-00000001":
            shutil.rmtree(checkpoint)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = task.resume(folder / "half")
        loaded = an.load(folder / "half", device="cpu")
    assert again.result_.steps == 2
    for name, value in weights(whole).items():
        assert torch.equal(again.model_.state_dict()[name], value), name
        assert torch.equal(loaded.model_.state_dict()[name], value), name
    for key, value in variant.items():
        assert getattr(loaded.settings_, key) == value


@pytest.mark.parametrize("number", range(len(CELL_VARIANTS)))
def test_a_cell_and_its_variants_train_load_and_go_on(number, tmp_path):
    """Each variant in one task, in turn; the slow sweep takes every pair."""
    task, preset = READERS[number % len(READERS)]
    goes_on(task, preset, CELL_VARIANTS[number], tmp_path)


@pytest.mark.parametrize("number", range(len(ATTENTION_VARIANTS)))
def test_attention_and_its_variants_train_load_and_go_on(number, tmp_path):
    task, preset = TRANSFORMERS[number % len(TRANSFORMERS)]
    goes_on(task, preset, ATTENTION_VARIANTS[number], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("variant", CELL_VARIANTS, ids=str)
@pytest.mark.parametrize(("task", "preset"), READERS, ids=lambda one: getattr(one, "__name__", one))
def test_every_cell_in_every_task(task, preset, variant, tmp_path):
    goes_on(task, preset, variant, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ATTENTION_VARIANTS, ids=str)
@pytest.mark.parametrize(("task", "preset"), TRANSFORMERS, ids=lambda one: getattr(one, "__name__", one))
def test_every_attention_in_every_task(task, preset, variant, tmp_path):
    goes_on(task, preset, variant, tmp_path)


def test_every_cell_of_the_library_has_a_name():
    cells = {
        value
        for value in vars(an.nn).values()
        if inspect.isclass(value)
        and issubclass(value, an.nn.Cell)
        and value not in (an.nn.Cell, an.nn.Shortcut)
    }
    assert {
        type(make_cell(NetworkSettings(cell=name, hidden=4), 3)) for name in CELLS if name not in BLOCKS
    } == cells


def test_settings_become_the_options_of_the_cell():
    cell = make_cell(NetworkSettings(cell="lstm", hidden=4, peephole=True, forget_bias=3.0, coupled=True), 2)
    assert cell.options == {"peephole": True, "forget_bias": 3.0, "coupled": True}
    assert make_cell(NetworkSettings(cell="lstm", hidden=4), 2).options == {}
    assert make_cell(NetworkSettings(cell="gru-before", hidden=4), 2).reset == "before"
    both = NetworkSettings(hidden=4, layers=3, connections="highway", zoneout=0.1)
    layers = make_recurrent(both, 2, bidirectional=True)
    assert (layers.connections, layers.zoneout, len(layers.carry)) == ("highway", (0.1, 0.1), 2)
    short = make_recurrent(
        NetworkSettings(cell="gru", hidden=4, connections="shortcut", skip=3), 2, bidirectional=False
    )
    assert isinstance(short.cells[0], an.nn.Shortcut)
    assert short.cells[0].by == 3


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"cell": "gru", "peephole": True},
            "peephole = true is a variant of cell = 'lstm', but cell = 'gru'",
        ),
        ({"cell": "mgu", "layer_norm": True}, "layer_norm = true is a variant of cell = 'lstm'"),
        ({"forget": False, "coupled": True}, "coupled = true needs a forget gate"),
        ({"connections": "residual"}, "connections = 'residual' lies between layers, but layers = 1"),
        ({"cell": "lstn"}, "Did you mean lstm? `anaphora explain cell` says more."),
        ({"model": "transformer", "kv_heads": 3}, "kv_heads = 3 cannot share heads = 4 equally"),
        ({"model": "transformer", "hidden": 12, "positions": "rotary"}, "needs heads of even width"),
        ({"model": "transformer", "positions": "rotery"}, "Did you mean rotary?"),
        ({"model": "transformer", "cell": "gru"}, "cell has no effect on the preset transformer"),
        ({"kv_heads": 2}, "kv_heads has no effect on the preset lstm"),
    ],
)
def test_a_variant_that_does_not_exist_is_refused(given, told):
    with pytest.raises(SettingsError) as caught:
        an.Classifier(**given)
    assert told in str(caught.value)


@functools.cache
def reader(**variant: Any) -> Any:
    """A trained classifier whose scores can be asked for."""
    return trained(an.Classifier, "transformer", **variant)


@functools.cache
def writer(**variant: Any) -> Any:
    """A trained translator, to be read alone."""
    return trained(an.Translator, "transformer", **variant).model_.eval()


@pytest.mark.parametrize("variant", [{"positions": "sinusoidal"}, *ATTENTION_VARIANTS], ids=str)
def test_padding_does_not_matter(variant):
    model = reader(**variant).model_.double()
    draw = random.Random(1)
    rows = [[draw.randrange(5, 12) for _ in range(length)] for length in (1, 3, 7)]
    alone = [model(torch.tensor([row]), torch.tensor([len(row)])) for row in rows]
    padded = torch.tensor([row + [draw.randrange(5, 12)] * (9 - len(row)) for row in rows])
    together = model(padded, torch.tensor([len(row) for row in rows]))
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "rotary", "alibi"])
def test_with_positions_order_matters_and_without_it_does_not(kind):
    rows = torch.tensor([[5, 6, 7, 8], [6, 5, 7, 8]])  # not merely reversed: alibi knows distances, not sides
    lengths = torch.tensor([4, 4])
    first, second = reader(positions=kind).model_.double()(rows, lengths)
    assert not torch.allclose(first, second, atol=1e-9)
    first, second = reader(positions="none").model_.double()(rows, lengths)
    torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("variant", ATTENTION_VARIANTS, ids=str)
def test_packed_decoding_gives_what_plain_decoding_gives(variant):
    """Whatever decoder is packed or left as it is: the same log probabilities at every step."""
    plain = writer(**variant)
    source, lengths = torch.tensor([[5, 6, 4, 3], [6, 3, 0, 0]]), torch.tensor([4, 2])
    symbols = torch.tensor([[2, 5, 6], [2, 4, 5]])
    for int8, close in ((False, 1e-5), (True, 0.2))[: 1 + COMPILED]:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            engine = packed(plain, int8=int8)
            states = [model.start(model.encode(source, lengths)) for model in (plain, engine)]
            for column in symbols.unbind(1):
                (ours, states[0]), (theirs, states[1]) = (
                    model.step(column, state) for model, state in zip((plain, engine), states, strict=True)
                )
                torch.testing.assert_close(theirs, ours, rtol=0, atol=close)


@pytest.mark.parametrize("variant", ATTENTION_VARIANTS, ids=str)
def test_one_step_at_a_time_is_the_whole_sequence(variant):
    """The caches of decoding and generating know positions, windows and shared keys."""
    language = trained(an.LanguageModel, "transformer", **variant).model_.eval()
    for model in (copy.deepcopy(writer(**variant)).double(), language.double()):
        symbols = torch.tensor([[5, 6, 4, 5, 6]])
        with torch.no_grad():
            if model is not language:
                source = torch.tensor([[5, 6, 3]]), torch.tensor([3])
                whole, state = model(*source, symbols).log_softmax(-1), model.start(model.encode(*source))
            else:
                whole, state = model(symbols).log_softmax(-1), model.start(1)
            for place, symbol in enumerate(symbols.unbind(1)):
                scores, state = model.step(symbol, state)
                torch.testing.assert_close(scores.double(), whole[:, place], rtol=0, atol=1e-5)


@pytest.mark.skipif(not COMPILED, reason="int8 needs a C compiler")
def test_int8_with_what_cannot_be_packed_warns():
    model = trained(an.Translator, "transformer", positions="alibi")
    with pytest.warns(UserWarning, match="writes with floats"):
        found = model.predict(["a b", "b a c"], int8=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [model.predict([text], int8=True)[0] for text in ("a b", "b a c")] == found


def test_learned_positions_end_where_training_did():
    model = trained(an.Tagger, "transformer", positions="learned", max_tokens=8)
    assert len(model.predict(["a b c"])[0]) == 3
    with pytest.raises(DataError, match="Learned positions end at 10"):
        model.predict(["a " * 20])
    translator = trained(an.Translator, "transformer", positions="learned", max_tokens=6)
    assert translator.model_.decoder.places == 8
    assert len(translator.predict(["a b c a b c"], max_length=50, min_length=40)[0].split()) <= 8
