"""wav2vec 2.0 and HuBERT of `transformers` with random weights: equal logits on samples, states, attention; and back again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign_folders import changed
from safetensors.torch import load_file, save_file

import anaphora as an
from anaphora.data.batches.padded import tensors_of
from anaphora.errors import AnaphoraError
from anaphora.nn import inside
from anaphora.nn.attention import MultiHead

transformers = pytest.importorskip("transformers")

_SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "conv_dim": (8,) * 7,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "Wav2Vec2-group": {},
    "Wav2Vec2-stable": {"do_stable_layer_norm": True, "feat_extract_norm": "layer", "conv_bias": True},
    "Wav2Vec2-odd": {
        "conv_dim": (8,) * 3, "conv_kernel": (8, 4, 3), "conv_stride": (4, 4, 2), "num_conv_pos_embeddings": 5,
        "feat_extract_norm": "layer", "mask_time_prob": 0.0, "hidden_act": "gelu_new", "num_feat_extract_layers": 3,
    },
    "Hubert": {"num_hidden_layers": 1},
}  # fmt: skip
LETTERS = ["<pad>", "<s>", "</s>", "<unk>", "|", "E", "T", "A", "O", "N", "'"]


def sounds(count: int = 2) -> list[np.ndarray]:
    draw = np.random.default_rng(2)
    return [(0.1 * draw.normal(size=2400 + 777 * i)).astype(np.float32) for i in range(count)]


def saved(folder: Path, name: str, letters: list[str] = LETTERS) -> tuple[Any, Any]:
    """A model of theirs with random weights, its vocabulary and its feature extractor, saved in ``folder``."""
    torch.manual_seed(3)
    kind = name.split("-")[0]
    values = {**_SIZES, **MODELS[name], "vocab_size": len(letters)}
    config = getattr(transformers, f"{kind}Config")(**values, pad_token_id=letters.index("<pad>"))
    model = getattr(transformers, f"{kind}ForCTC")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
        model.lm_head.weight *= 4
        model.lm_head.bias[[config.pad_token_id, letters.index("|")]] -= 8
        for one in ("<s>", "</s>", "<unk>"):
            model.lm_head.bias[letters.index(one)] -= 50  # which no text has
    model.save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps({one: i for i, one in enumerate(letters)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"word_delimiter_token": "|"}))
    masked = config.feat_extract_norm == "layer"
    extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=masked)
    extractor.save_pretrained(folder)
    return model, extractor


def close(ours: torch.Tensor, found: torch.Tensor, exact: torch.Tensor) -> None:
    assert float((ours - found).abs().max()) < 1e-4
    apart, theirs = (float((one.double() - exact).abs().max()) for one in (ours, found))
    assert apart <= max(1.5 * theirs, 1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_scores_states_attention_texts_and_weights_are_equal(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    theirs, extractor = saved(folder, name)
    m = an.load(folder, an.Transcriber, device="cpu")
    order = torch.tensor(m.tokenizer_.numbering.numbers)
    tokenizer = transformers.Wav2Vec2CTCTokenizer.from_pretrained(folder)
    theirs.set_attn_implementation("eager")
    for sound in sounds():
        asked = extractor(sound, sampling_rate=16_000, return_tensors="pt").input_values
        heard = m._hear(sound)
        torch.testing.assert_close(torch.from_numpy(heard[:, 0])[None], asked, rtol=0, atol=1e-5)
        with torch.no_grad(), inside.record() as notes:
            scores, lengths = m.model_(*tensors_of([heard], "cpu"))
        with torch.no_grad():
            found = theirs(asked, output_hidden_states=True, output_attentions=True)
            exact = theirs.double()(asked.double(), output_hidden_states=True)
            theirs.float()
        assert lengths.tolist() == [found.logits.shape[1]]
        close(scores[..., order], found.logits, exact.logits)
        weights = [n.value for n in notes if n.name == "weights" and isinstance(n.module, MultiHead)]
        states = [n.value for n in notes if n.name == "states"]
        for mine, other in zip(weights, found.attentions, strict=True):
            assert float((mine - other).abs().max()) < 1e-5
        if not m.settings_.norm_first:
            for mine, other, true in zip(
                states, found.hidden_states[1:], exact.hidden_states[1:], strict=True
            ):
                close(mine, other, true)
        text = tokenizer.decode(found.logits[0].argmax(-1))
        assert m.predict([sound], beam=1) == [" ".join(text.split())]
        assert len(set(text)) > 0  # it does say something
    m.export(tmp_path / "back", to="hf")
    before, after = (
        load_file(folder / "model.safetensors"),
        load_file(tmp_path / "back" / "model.safetensors"),
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(before[one], after[one]) for one in before)
    kind = name.split("-")[0]
    opened = getattr(transformers, f"{kind}ForCTC").from_pretrained(tmp_path / "back").eval()
    with torch.no_grad():
        torch.testing.assert_close(opened(asked).logits, found.logits, rtol=0, atol=1e-5)
    again = transformers.Wav2Vec2CTCTokenizer.from_pretrained(tmp_path / "back")
    assert again.decode(found.logits[0].argmax(-1)) == text


@pytest.mark.parametrize("name", ["Wav2Vec2-group", "Wav2Vec2-stable"])
def test_a_recording_does_not_depend_on_the_others(name: str, tmp_path: Path) -> None:
    saved(tmp_path, name)
    m = an.load(tmp_path, an.Transcriber, device="cpu")
    heard = [m._hear(sound) for sound in sounds(3)]
    with torch.no_grad():
        together, lengths = m.model_(*tensors_of(heard, "cpu"))
        for row, n, one in zip(together, lengths.tolist(), heard, strict=True):
            alone, count = m.model_(*tensors_of([one], "cpu"))
            assert count.tolist() == [n]
            torch.testing.assert_close(row[:n], alone[0], rtol=0, atol=1e-5)


def test_names_of_older_versions_are_read(tmp_path: Path) -> None:
    saved(tmp_path, "Wav2Vec2-group")
    m = an.load(tmp_path, an.Transcriber, device="cpu")
    found = load_file(tmp_path / "model.safetensors")
    begin = "wav2vec2.encoder.pos_conv_embed.conv."
    for old, new in (("weight_g", "original0"), ("weight_v", "original1")):
        found[begin + old] = found.pop(f"{begin}parametrizations.weight.{new}")
    save_file(found, tmp_path / "model.safetensors")
    again = an.load(tmp_path, an.Transcriber, device="cpu")
    assert again.predict(sounds()) == m.predict(sounds())


def test_letters_have_the_case_of_the_vocabulary_and_keep_their_numbers(tmp_path: Path) -> None:
    letters = ["a", "|", "b", "<unk>", "<pad>", "ch", "<s>", "</s>"]
    saved(tmp_path / "theirs", "Wav2Vec2-group", letters)
    m = an.load(tmp_path / "theirs", an.Transcriber, device="cpu")
    ids = m.tokenizer_.encode("A  bach!")
    assert [letters[m.tokenizer_.numbering.order[i]] for i in ids] == ["a", "|", "b", "a", "ch", "<unk>"]
    assert m.tokenizer_.decode(ids) == "a bach<unk>"
    assert m.tokenizer_.spellings[:5] == ["<pad>", "<unk>", "<s>", "</s>", "a"]
    m.save(tmp_path / "run")
    again = an.load(tmp_path / "run", an.Transcriber, device="cpu")
    assert again.tokenizer_.encode("A  bach!") == ids
    again.export(tmp_path / "back", to="hf")
    assert json.loads((tmp_path / "back" / "vocab.json").read_text()) == {
        one: i for i, one in enumerate(letters)
    }


def tensors(folder: Path) -> None:
    found = load_file(folder / "model.safetensors")
    found["lm_head.bias"] = torch.zeros(3)
    found["adapter"] = found.pop("wav2vec2.encoder.layer_norm.bias")
    save_file(found, folder / "model.safetensors")


DAMAGES: dict[str, tuple[Any, str]] = {
    "config": (
        changed("config.json", add_adapter=True, feat_extract_norm="batch", feat_extract_activation="relu"),
        "feat_extract_activation = 'relu'; add_adapter = True; feat_extract_norm = 'batch'",
    ),
    "convolutions": (
        changed("config.json", conv_dim=[8, 9], conv_kernel=[3]),
        r"conv_dim = \[8, 9\]; conv_kernel, conv_stride and conv_dim of 1, 7 and 2",
    ),
    "no vocabulary": (lambda f: (f / "vocab.json").unlink(), "has no vocab.json"),
    "vocabulary": (
        lambda f: (f / "vocab.json").write_text(json.dumps({"a": 0, "b": 0, "c": 99})),
        "1 symbols that the model does not have .*, two symbols with the same number, .*no symbol '|' for the space",
    ),
    "languages": (lambda f: (f / "vocab.json").write_text('{"eng": {"a": 0}}'), "for each of several languages"),
    "sound": (
        changed("preprocessor_config.json", sampling_rate="fast", feature_size=80),
        "sampling_rate = 'fast'; feature_size = 80",
    ),
    "no sound": (lambda f: (f / "preprocessor_config.json").unlink(), "has no preprocessor_config.json"),
    "tensors": (
        tensors,
        r"lacks wav2vec2.encoder.layer_norm.bias, has lm_head.bias \(3\) instead of \(11\), also has.* adapter",
    ),
    "class": (
        changed("config.json", architectures=["Wav2Vec2ForXVector"]),
        "Wav2Vec2ForXVector, which is not read; of wav2vec2 these are: Wav2Vec2ForCTC",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_one_sentence_with_all_problems(name: str, tmp_path: Path) -> None:
    saved(tmp_path, "Wav2Vec2-group")
    damage, sentence = DAMAGES[name]
    damage(tmp_path)
    with pytest.raises(AnaphoraError, match=sentence) as caught:
        an.load(tmp_path, device="cpu")
    assert "\n" not in str(caught.value)
