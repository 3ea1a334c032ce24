"""Models of `transformers` with random weights: equal logits, hidden states, attention, ids; and back again, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_folders import byte_pairs
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import anaphora as an
from anaphora.nn import inside
from anaphora.nn.attention import MultiHead

transformers = pytest.importorskip("transformers")

PIECES = ["the", "cat", "sat", "on", "mat", "dog", "##s", "##ing", "a", "b", "c", ".", ",", "!", "rain"]
TEXTS = ["The cats sat on the mat.", "a dog, raining!", "unheard of the [MASK]"]
DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}),
    "gpt2-untied-relu": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {"n_embd": 16, "n_layer": 1, "n_head": 4, "n_inner": 20, "activation_function": "relu", "tie_word_embeddings": False},
    ),
    "opt": (
        "OPTConfig",
        "OPTForCausalLM",
        {"hidden_size": 16, "word_embed_proj_dim": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 24},
    ),
    "gpt_neox": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24},
    ),
    "llama": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {
            "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "intermediate_size": 24, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        },
    ),
    "mistral": (
        "MistralConfig",
        "MistralForCausalLM",
        {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 24, "sliding_window": 4, "head_dim": 4},
    ),
    "qwen2": (
        "Qwen2Config",
        "Qwen2ForCausalLM",
        {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1,
         "intermediate_size": 24, "tie_word_embeddings": True},
    ),
}  # fmt: skip
_BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Bert": ("BertConfig", {**_BERT, "max_position_embeddings": 32}),
    "Roberta": (
        "RobertaConfig",
        {**_BERT, "max_position_embeddings": 34, "type_vocab_size": 1, "pad_token_id": 1},
    ),
    "DistilBert": (
        "DistilBertConfig",
        {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 32},
    ),
    "Electra": ("ElectraConfig", {**_BERT, "embedding_size": 16, "max_position_embeddings": 32}),
    "MegatronBert": ("MegatronBertConfig", {**_BERT, "max_position_embeddings": 32}),
}


def word_pieces(folder: Path, roberta: bool = False) -> int:
    """A tokenizer like BERT's in ``folder``; returns how many symbols it has."""
    special = (
        ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        if roberta
        else ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    )
    unknown = special[3] if roberta else special[1]
    begin, end = (special[0], special[2]) if roberta else (special[2], special[3])
    known = {one: i for i, one in enumerate([*special, *PIECES])}
    engine = Tokenizer(models.WordPiece(known, unk_token=unknown))
    engine.normalizer = normalizers.BertNormalizer(lowercase=True)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix="##")
    engine.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", special_tokens=[(begin, known[begin]), (end, known[end])]
    )
    engine.add_special_tokens(special)
    names = {"unk_token": unknown, "mask_token": special[4], "pad_token": special[1 if roberta else 0]}
    names |= {"bos_token" if roberta else "cls_token": begin, "eos_token" if roberta else "sep_token": end}
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, **names).save_pretrained(folder)
    return len(known)


def saved(folder: Path, config: str, kind: str, size: int, **values: Any) -> Any:
    """A model of theirs with random weights, biases too, saved in ``folder``."""
    torch.manual_seed(3)
    model = getattr(transformers, kind)(getattr(transformers, config)(vocab_size=size, **values)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    model.save_pretrained(folder)
    return model


def same(theirs: Any, ours: torch.Tensor, found: torch.Tensor, exact: torch.Tensor) -> None:
    """Equal to 1e-4, and no further from double precision than theirs, but for a last bit."""
    assert float((ours - found).abs().max()) < 1e-4
    assert float((ours - exact).abs().max()) <= 2 * float((found - exact).abs().max()) + 2e-6


def round_trip(m: Any, folder: Path, out: Path) -> None:
    m.export(out, to="hf")
    before, after = load_file(folder / "model.safetensors"), load_file(out / "model.safetensors")
    assert after.keys() <= before.keys()
    for name, value in after.items():
        assert torch.equal(value, before[name]), name
    left = before.keys() - after.keys()
    assert all(name.split(".")[-2] == "dense" and "pooler" in name for name in left), left


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_have_equal_logits_ids_and_weights(name: str, tmp_path: Path) -> None:
    config, kind, values = DECODERS[name]
    folder = tmp_path / "theirs"
    size = byte_pairs(folder)
    end = size - 1
    theirs = saved(
        folder, config, kind, size + 3, bos_token_id=end, eos_token_id=end, pad_token_id=None, **values
    )
    m = an.load(folder, an.LanguageModel, device="cpu")
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    order = m.tokenizer_.numbering
    for text in TEXTS:
        ids = m.tokenizer_.encode(text)
        assert [order.order[i] for i in ids] == tokens(text, add_special_tokens=False).input_ids
        assert m.tokenizer_.decode(ids) == text
    given = torch.randint(0, size + 3, (2, 9), generator=torch.Generator().manual_seed(1))
    ours_in = torch.tensor(order.numbers)[given]
    with torch.no_grad():
        ours = m.model_(ours_in)[..., torch.tensor(order.numbers)]
        same(theirs, ours, theirs(given).logits, theirs.double()(given).logits.float())
        assert float(m.model_(ours_in).softmax(-1)[..., :3].max()) == 0.0  # symbols that theirs do not have
    (text,) = m.sample("the cat", temperature=0, length=6)
    start = [end, *tokens("the cat", add_special_tokens=False).input_ids]
    written = theirs.float().generate(
        torch.tensor([start]), max_new_tokens=6, do_sample=False, pad_token_id=end
    )
    new = written[0, len(start) :].tolist()
    new = new[: new.index(end)] if end in new else new
    assert text == tokens.decode([*start[1:], *new])[len("the cat") :]
    round_trip(m, folder, tmp_path / "back")


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_have_equal_logits_states_attention_and_weights(name: str, tmp_path: Path) -> None:
    config, values = ENCODERS[name]
    folder = tmp_path / "theirs"
    size = word_pieces(folder, roberta=name == "Roberta")
    theirs = saved(folder, config, f"{name}ForMaskedLM", size, **values)
    m = an.load(folder, an.LanguageModel, device="cpu")
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    given = tokens(TEXTS, return_tensors="pt", padding=True)
    numbers = torch.tensor(m.tokenizer_.numbering.numbers)
    lengths = given.attention_mask.sum(1)
    real = given.attention_mask.bool()
    for text, row, n in zip(TEXTS, given.input_ids, lengths, strict=True):
        assert numbers[row[:n]].tolist() == [2, *m.tokenizer_.encode(text), 3]
    asked = {"input_ids": given.input_ids, "attention_mask": given.attention_mask}
    theirs.set_attn_implementation("eager")
    with torch.no_grad(), inside.record() as notes:
        ours = m.model_(numbers[given.input_ids], lengths)[..., numbers]
    with torch.no_grad():
        found = theirs(**asked, output_hidden_states=True, output_attentions=True)
        exact = theirs.double()(**asked).logits.float()
    same(theirs, ours[real], found.logits[real], exact[real])
    weights = [note.value for note in notes if note.name == "weights" and isinstance(note.module, MultiHead)]
    states = [note.value for note in notes if note.name == "states"]
    for mine, other in zip(weights, found.attentions, strict=True):
        assert float((mine - other)[real[:, None].expand(-1, 2, -1)].abs().max()) < 1e-5
    for mine, other in zip(states[:-1], found.hidden_states[1:-1], strict=True):
        assert float((mine - other)[real].abs().max()) < 1e-4
    round_trip(m, folder, tmp_path / "back")


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("labels", [2, 3])
def test_classifiers_have_equal_scores_and_labels(name: str, labels: int, tmp_path: Path) -> None:
    config, values = ENCODERS[name]
    folder = tmp_path / "theirs"
    size = word_pieces(folder, roberta=name == "Roberta")
    theirs = saved(folder, config, f"{name}ForSequenceClassification", size, **values, num_labels=labels)
    m = an.load(folder, an.Classifier, device="cpu")
    given = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, return_tensors="pt", padding=True)
    asked = {"input_ids": given.input_ids, "attention_mask": given.attention_mask}
    with torch.no_grad():
        found = theirs(**asked).logits
        exact = theirs.double()(**asked).logits.float()
    same(theirs, torch.tensor(m.session.outputs(m._encode(TEXTS))).float(), found, exact)
    assert m.predict(TEXTS) == [theirs.config.id2label[int(i)] for i in found.argmax(1)]
    round_trip(m, folder, tmp_path / "back")


def test_a_bare_encoder_embeds_as_sentence_transformers_does(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    size = word_pieces(folder)
    theirs = saved(folder, "BertConfig", "BertModel", size, **ENCODERS["Bert"][1])
    m = an.load(folder, an.Embedder, device="cpu")
    given = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, return_tensors="pt", padding=True)
    mask = given.attention_mask[..., None]
    with torch.no_grad():
        states = theirs(input_ids=given.input_ids, attention_mask=given.attention_mask).last_hidden_state
    pooled = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1))
    assert float((torch.from_numpy(m.embed(TEXTS)).float() - pooled).abs().max()) < 1e-5
    round_trip(m, folder, tmp_path / "back")


def test_an_imported_model_is_a_run_like_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from anaphora.cli import main

    folder = tmp_path / "theirs"
    size = word_pieces(folder)
    saved(folder, "BertConfig", "BertForSequenceClassification", size, **ENCODERS["Bert"][1], num_labels=2)
    assert main.run(["import", str(folder), "-o", str(tmp_path / "run")]) == 0
    first, again = an.load(folder, device="cpu"), an.load(tmp_path / "run", device="cpu")
    assert first.predict(TEXTS) == again.predict(TEXTS)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    assert main.run(["predict", str(tmp_path / "run"), str(tmp_path / "texts.txt")]) == 0
    assert again.probe(TEXTS[0]).arrays


@pytest.mark.parametrize("name", ["gpt2", "Bert"])
def test_an_imported_model_can_be_looked_into(name: str, tmp_path: Path) -> None:
    from anaphora.cli import main

    folder, run = tmp_path / "theirs", tmp_path / "run"
    if name == "gpt2":
        config, kind, values = DECODERS[name]
        size = byte_pairs(folder)
        values = {**values, "bos_token_id": size - 1, "eos_token_id": size - 1, "pad_token_id": None}
    else:
        (config, values), kind = ENCODERS[name], "BertForMaskedLM"
        size = word_pieces(folder)
    saved(folder, config, kind, size, **values)
    assert main.run(["import", str(folder), "-o", str(run)]) == 0
    for view in ("heads", "positions", "gradients", "sampling"):
        picture = tmp_path / f"{view}.svg"
        assert (
            main.run(["inspect", str(run), "--view", view, "--text", "the cat sat", "--svg", str(picture)])
            == 0
        )
        assert picture.stat().st_size
    assert main.run(["inspect", str(run), "--view", "embeddings", "--svg", str(tmp_path / "e.svg")]) == 0
    (tmp_path / "text.txt").write_text("the cat sat\na dog sat on the mat\n" * 10)
    assert main.run(["score", str(run), str(tmp_path / "text.txt")]) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_and_old_files_too(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    size = word_pieces(folder)
    theirs = saved(folder, "BertConfig", "BertModel", size, **ENCODERS["Bert"][1]).to(dtype)
    theirs.save_pretrained(folder)
    first = an.load(folder, an.Embedder, device="cpu").embed(TEXTS)
    (folder / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), folder / "pytorch_model.bin")
    assert (an.load(folder, an.Embedder, device="cpu").embed(TEXTS) == first).all()


def test_vocabularies_without_a_tokenizer_json_give_equal_ids(tmp_path: Path) -> None:
    """vocab.txt, and vocab.json with merges.txt, as older folders have them."""
    folder = tmp_path / "bert"
    size = word_pieces(folder)
    saved(folder, "BertConfig", "BertModel", size, **ENCODERS["Bert"][1])
    ids = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, add_special_tokens=False).input_ids
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    (folder / "tokenizer.json").unlink()
    found = an.load(folder, an.Embedder, device="cpu").inputs_.tokenizer
    assert [[found.numbering.order[i] for i in found.encode(text)] for text in TEXTS] == ids
    folder = tmp_path / "gpt2"
    size = byte_pairs(folder)
    end = {"bos_token_id": size - 1, "eos_token_id": size - 1, "pad_token_id": None}
    saved(folder, "GPT2Config", "GPT2LMHeadModel", size, **DECODERS["gpt2"][2], **end)
    ids = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS).input_ids
    engine = Tokenizer.from_file(str(folder / "tokenizer.json"))
    engine.model.save(str(folder))
    (folder / "tokenizer.json").unlink()
    words = an.load(folder, an.LanguageModel, device="cpu").tokenizer_
    assert [[words.numbering.order[i] for i in words.encode(text)] for text in TEXTS] == ids
