"""Whisper of `transformers` with random weights: equal features, logits, states, attention, and texts of both searches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign_folders import changed
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import anaphora as an
from anaphora.data.audio.preprocessing import WhisperMel
from anaphora.data.batches.padded import tensors_of
from anaphora.data.symbols import BOS
from anaphora.errors import AnaphoraError
from anaphora.nn import inside
from anaphora.views.registry import picture

transformers = pytest.importorskip("transformers")

SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|transcribe|>", "<|notimestamps|>"]
_SIZES = {
    "num_mel_bins": 20, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_source_positions": 150,
    "max_target_positions": 16,
}  # fmt: skip
PROMPTS: dict[str, dict[str, Any]] = {
    "forced": {"forced_decoder_ids": [[1, "<|en|>"], [2, "<|transcribe|>"]]},
    "detected": {"forced_decoder_ids": [[1, None], [2, "<|transcribe|>"]], "lang_to_id": ["<|en|>", "<|de|>"]},
    "language": {"language": "de", "lang_to_id": ["<|en|>", "<|de|>"], "task_to_id": {"transcribe": "<|transcribe|>"}},
    "bare": {},
}  # fmt: skip


def sounds(count: int = 2) -> list[np.ndarray]:
    draw = np.random.default_rng(2)
    lengths = (8000, 23_456, 40_000)
    return [
        (0.1 * draw.normal(size=lengths[i % 3]) * np.linspace(0, 1, lengths[i % 3])).astype(np.float32)
        for i in range(count)
    ]


def saved(folder: Path, prompt: str = "forced", **values: Any) -> tuple[Any, Any, Any]:
    """A model of theirs with random weights, its tokenizer and its feature extractor, saved in ``folder``."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[:40]
    known = {one: i for i, one in enumerate([*alphabet, *SPECIAL])}
    engine = Tokenizer(models.BPE(known, []))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens(SPECIAL)
    end = {"bos_token": SPECIAL[0], "eos_token": SPECIAL[0], "unk_token": SPECIAL[0]}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **end)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(5)
    ids = {
        "bos_token_id": known[SPECIAL[0]],
        "eos_token_id": known[SPECIAL[0]],
        "pad_token_id": known[SPECIAL[0]],
    }
    config = transformers.WhisperConfig(
        **{**_SIZES, **values}, **ids, vocab_size=len(known) + 2, decoder_start_token_id=known[SPECIAL[1]],
        begin_suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "encoder.embed_positions" not in name:
                weight += 0.2 * torch.randn_like(weight)
    given = json.loads(json.dumps(PROMPTS[prompt]))
    if "forced_decoder_ids" in given:
        given["forced_decoder_ids"] = [[i, known.get(one)] for i, one in given["forced_decoder_ids"]]
    if "lang_to_id" in given:
        given["lang_to_id"] = {one: known[one] for one in given["lang_to_id"]}
        given["is_multilingual"] = True
    if "task_to_id" in given:
        given["task_to_id"] = {"transcribe": known["<|transcribe|>"]}
    given |= {} if prompt == "bare" else {"no_timestamps_token_id": known["<|notimestamps|>"]}
    given |= {"suppress_tokens": [1, 7, known["<|en|>"]], "begin_suppress_tokens": [2, known[SPECIAL[0]]]}
    for key, one in {**given, "max_length": 16, "return_timestamps": False}.items():
        setattr(model.generation_config, key, one)
    model.save_pretrained(folder)
    extractor = transformers.WhisperFeatureExtractor(feature_size=config.num_mel_bins, chunk_length=3)
    extractor.save_pretrained(folder)
    return model, tokenizer, extractor


def close(ours: torch.Tensor, found: torch.Tensor, exact: torch.Tensor) -> None:
    assert float((ours - found).abs().max()) < 1e-4
    apart, theirs = (float((one.double() - exact).abs().max()) for one in (ours, found))
    assert apart <= max(1.5 * theirs, 1e-6)


@pytest.mark.parametrize(("bins", "seconds"), [(80, 0.01), (80, 1.23), (128, 29.99), (80, 30.0), (80, 31.0)])
def test_features_are_those_of_its_extractor(bins: int, seconds: float) -> None:
    draw = np.random.default_rng(1)
    wave = 0.3 * np.sin(np.arange(round(16_000 * seconds)) * 0.05) + 0.01 * draw.normal(
        size=round(16_000 * seconds)
    )
    extractor = transformers.WhisperFeatureExtractor(feature_size=bins)
    found = extractor(
        wave.astype(np.float32), sampling_rate=16_000, truncation=False, padding="max_length", max_length=480_000
    ).input_features[0].T  # fmt: skip
    mel = WhisperMel(16_000, bins)
    ours = mel.of(wave.astype(np.float32))
    assert len(ours) == mel.frames(len(wave))
    np.testing.assert_allclose(ours, found[: len(ours)], atol=2e-4)
    rest = found[len(ours) :]  # silence
    assert rest.size == 0 or np.ptp(rest) == 0
    assert rest.size == 0 or rest[0, 0] == pytest.approx(max(-1.5, float(ours.max()) - 2), abs=1e-4)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_logits_states_attention_texts_and_weights_are_equal(prompt: str, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    theirs, tokenizer, extractor = saved(folder, prompt)
    m = an.load(folder, an.Transcriber, device="cpu")
    numbers = torch.tensor(m.tokenizer_.numbering.numbers)
    asked = extractor(sounds(), sampling_rate=16_000, return_tensors="pt").input_features
    heard = [m._hear(sound) for sound in sounds()]
    x, lengths = tensors_of(heard, "cpu")
    fed = torch.tensor([[theirs.config.decoder_start_token_id, 3, 9, 30]]).expand(2, -1)
    theirs.set_attn_implementation("eager")
    with torch.no_grad():
        front = m.model_.encoder.front(x, lengths)[0]
        with inside.record() as notes:
            memory = m.model_.encode(x, lengths)
            logits = super(type(m.model_.decoder), m.model_.decoder).forced(numbers[fed], memory)[
                ..., numbers
            ]
        found = theirs(asked, decoder_input_ids=fed, output_hidden_states=True, output_attentions=True)
        exact = theirs.double()(asked.double(), decoder_input_ids=fed, output_hidden_states=True)
        theirs.float()
    assert front.shape[1] == 150
    close(memory.annotations, found.encoder_last_hidden_state, exact.encoder_last_hidden_state)
    close(logits, found.logits, exact.logits)
    weights = [n.value for n in notes if n.name == "weights" and n.module in m.model_.decoder.attentions]
    for mine, other in zip(weights, found.cross_attentions, strict=True):
        assert float((mine - other).abs().max()) < 1e-5
    begin = len(m.model_.decoder.prompt)
    assert begin == {"forced": 3, "detected": 3, "language": 3, "bare": 0}[prompt]
    for width in (1, 3):
        written = theirs.generate(asked, num_beams=width, max_new_tokens=16 - begin - 1)
        ours = m.transcribe(sounds(), beam=width)
        for row, mine in zip(written, ours, strict=True):
            assert mine[0].text == tokenizer.decode(row, skip_special_tokens=True).strip(), width
    m.export(tmp_path / "back", to="hf")
    before, after = (
        load_file(folder / "model.safetensors"),
        load_file(tmp_path / "back" / "model.safetensors"),
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(before[one], after[one]) for one in before)
    opened = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "back").eval()
    again = opened.generate(asked, num_beams=3, max_new_tokens=16 - begin - 1)
    assert again.tolist() == written.tolist()


def test_what_is_heard_does_not_depend_on_the_others(tmp_path: Path) -> None:
    saved(tmp_path, "detected")
    m = an.load(tmp_path, an.Transcriber, device="cpu")
    assert m.predict(sounds(3)) == [m.predict([sound])[0] for sound in sounds(3)]
    heard = m._hear(sounds()[0])
    with torch.no_grad():
        both = m.model_(*tensors_of([heard, m._hear(sounds(3)[2])], "cpu"), torch.full((2, 1), BOS))
        alone = m.model_(*tensors_of([heard], "cpu"), torch.full((1, 1), BOS))
    torch.testing.assert_close(both[:1], alone, rtol=0, atol=1e-5)


def test_longer_recordings_are_heard_in_windows_and_views_work(tmp_path: Path) -> None:
    saved(tmp_path, max_target_positions=8)
    m = an.load(tmp_path, an.Transcriber, device="cpu")
    (text,) = m.predict([np.tile(sounds()[0], 10)], beam=1, window=3, overlap=1)
    assert isinstance(text, str)
    with pytest.raises(AnaphoraError, match="300 frames at a time"):
        m.predict([np.tile(sounds()[0], 10)], beam=1)
    trace = m.probe(sounds()[0])
    assert trace.arrays["alignment"].values.shape[1] == 150
    assert trace.facts["max_difference"] < 1e-4


@pytest.mark.parametrize("prompt", ["bare", "detected"])
def test_the_probe_sees_the_heads_and_positions_of_theirs(prompt: str, tmp_path: Path) -> None:
    theirs, _, extractor = saved(tmp_path, prompt)
    m = an.load(tmp_path, an.Transcriber, device="cpu")
    said = m.tokenizer_.decode([11, 17, 25])
    trace = m.probe(sounds()[0], said)
    order = m.tokenizer_.numbering.order
    (begun,) = m.model_.decoder.begun(m.model_.encode(*tensors_of([m._hear(sounds()[0])], "cpu"))).tolist()
    fed = torch.tensor([[order[i] for i in (*begun, *m.tokenizer_.encode(said))]])
    asked = extractor(sounds()[:1], sampling_rate=16_000, return_tensors="pt").input_features
    theirs.set_attn_implementation("eager")
    with torch.no_grad():
        seen = theirs(asked, decoder_input_ids=fed, output_attentions=True, output_hidden_states=True)
    rows = fed.shape[1] - len(begun) + 1
    expected = {
        "cross_attention": torch.stack(seen.cross_attentions)[:, 0, :, -rows:],
        "self_attention": torch.stack(seen.decoder_attentions)[:, 0, :, -rows:, -rows:],
        "encoder_attention": torch.stack(seen.encoder_attentions)[:, 0],
        "positions": theirs.model.encoder.embed_positions.weight.detach(),
        "encoder_states": torch.stack(seen.encoder_hidden_states[1:-1])[:, 0],
        "decoder_states": torch.stack(seen.decoder_hidden_states[1:-1])[:, 0, -rows:],
    }
    for name, value in expected.items():
        found = torch.from_numpy(trace.arrays[name].values)
        found = found[: len(value)] if name.endswith("states") else found  # theirs normalises the last layer
        torch.testing.assert_close(found, value, rtol=0, atol=2e-5, msg=name)
    for view in ("heads", "positions", "states"):
        assert picture(trace, view).svg().startswith("<svg")


def tensors(folder: Path) -> None:
    found = load_file(folder / "model.safetensors")
    found["model.encoder.conv1.bias"] = torch.zeros(3)
    found["adapter"] = found.pop("model.decoder.layer_norm.bias")
    save_file(found, folder / "model.safetensors")


DAMAGES: dict[str, tuple[Any, str]] = {
    "config": (
        changed("config.json", scale_embedding=True, activation_function="sine"),
        "scale_embedding = True; activation_function = 'sine'",
    ),
    "sides": (
        changed("config.json", decoder_ffn_dim=7, max_source_positions=9999),
        "decoder_ffn_dim = 7 beside encoder_ffn_dim = 24; max_source_positions = 9999",
    ),
    "prompt": (
        changed("generation_config.json", forced_decoder_ids=[[2, 3]], suppress_tokens=[999]),
        r"forced_decoder_ids = \[\[2, 3\]\]; suppress_tokens = \[999\]",
    ),
    "beginning": (changed("generation_config.json", decoder_start_token_id=None), "are not two symbols"),
    "sound": (
        changed("preprocessor_config.json", hop_length=80, feature_size=80),
        "hop_length = 80; feature_size = 80",
    ),
    "no sound": (lambda f: (f / "preprocessor_config.json").unlink(), "has no preprocessor_config.json"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer.json"),
    "tensors": (
        tensors,
        r"lacks model.decoder.layer_norm.bias, has model.encoder.conv1.bias \(3\) instead of \(16\), also has.* adapter",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_one_sentence_with_all_problems(name: str, tmp_path: Path) -> None:
    saved(tmp_path)
    damage, sentence = DAMAGES[name]
    damage(tmp_path)
    with pytest.raises(AnaphoraError, match=sentence) as caught:
        an.load(tmp_path, device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "prompt", ["detected", *(pytest.param(one, marks=pytest.mark.slow) for one in ("bare", "forced"))]
)
def test_the_runtime_writes_the_same(prompt: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    from anaphora import runtime

    saved(tmp_path / "theirs", prompt)
    m = an.load(tmp_path / "theirs", an.Transcriber, device="cpu")
    m.export(tmp_path / "onnx", to="onnx")
    found = runtime.load(tmp_path / "onnx", threads=1)
    for width in (1, 3):
        ours = m.transcribe(sounds(3), beam=width)
        theirs = found.search(sounds(3), beam=width)
        for mine, other in zip(ours, theirs, strict=True):
            assert mine[0].text == other[0].text
            assert mine[0].score == pytest.approx(other[0].score, abs=1e-4)
    with pytest.raises(AnaphoraError, match="longer than window"):
        found.predict([np.tile(sounds()[0], 10)], window=3, overlap=1)
