"""Mamba, Mamba-2 and RWKV-4 of `transformers`: logits, single steps and what is written, against the original."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_folders import byte_pairs

import anaphora as an
from anaphora.errors import RunError

transformers = pytest.importorskip("transformers")

SIZES: dict[str, dict[str, Any]] = {
    "Mamba": {"hidden_size": 32, "num_hidden_layers": 2},
    "Mamba2": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 16, "n_groups": 1, "state_size": 24,
        "chunk_size": 4,
    },
    "Rwkv": {"hidden_size": 24, "num_hidden_layers": 3, "rescale_every": 0},
}  # fmt: skip


def saved(folder: Path, kind: str, **values: Any) -> Any:
    torch.manual_seed(3)
    size = byte_pairs(folder)
    config = getattr(transformers, f"{kind}Config")(vocab_size=size, **{**SIZES[kind], **values})
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    model.save_pretrained(folder)
    return model


def ours_and_theirs(m: Any, text: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Our symbols of a text, and theirs."""
    ids = m.tokenizer_.encode(text)
    order = m.tokenizer_.numbering.order
    return torch.tensor([ids]), torch.tensor([[order[i] for i in ids]])


@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("kind", SIZES)
def test_logits_of_whole_texts_and_of_single_steps_equal_theirs(kind: str, tie: bool, tmp_path: Path) -> None:
    theirs = saved(tmp_path, kind, tie_word_embeddings=tie)
    m = an.load(tmp_path, an.LanguageModel, device="cpu")
    symbols, ids = ours_and_theirs(m, "that the cat sat there, at that time")
    words = m.tokenizer_.numbering
    with torch.no_grad():
        expected = theirs(ids).logits[0]
        exact = theirs.double()(ids).logits[0]
        whole = words.outward(m.model_(symbols)[0].T).T
        state, steps = m.model_.start(1), []
        for symbol in symbols[0]:
            scores, state = m.model_.step(symbol[None], state)
            steps.append(words.outward(scores.T).T[0])
    assert float((whole - expected).abs().max()) < 1e-4
    assert float((whole - exact).abs().max()) <= 2 * float((expected - exact).abs().max()) + 2e-6
    torch.testing.assert_close(torch.stack(steps), whole.log_softmax(-1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", SIZES)
def test_greedy_continuations_equal_theirs(kind: str, tmp_path: Path) -> None:
    theirs = saved(tmp_path, kind)
    m = an.load(tmp_path, an.LanguageModel, device="cpu")
    _, ids = ours_and_theirs(m, "that")
    end = theirs.config.vocab_size - 1
    begun = torch.cat((torch.tensor([[end]]), ids), 1)  # a text begins with what ends one
    written = begun
    with torch.no_grad():
        for _ in range(8):
            scores = theirs(written).logits[0, -1]
            written = torch.cat((written, scores.argmax()[None, None]), 1)
    (found,) = m.sample("that", length=8, temperature=0.0)
    expected = written[0, begun.shape[1] :].tolist()
    expected = expected[: expected.index(end)] if end in expected else expected
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert str(found) == tokenizer.decode(expected, clean_up_tokenization_spaces=False)


def test_rwkv_states_that_are_halved_for_16_bits_are_the_same(tmp_path: Path) -> None:
    """Only the ε of a norm weighs more where its input is halved."""
    theirs = saved(tmp_path, "Rwkv", rescale_every=2, num_hidden_layers=5)
    m = an.load(tmp_path, device="cpu")
    symbols, ids = ours_and_theirs(m, "that the cat sat there")
    with torch.no_grad():
        found = m.tokenizer_.numbering.outward(m.model_(symbols)[0].T).T
        assert float((found - theirs(ids).logits[0]).abs().max()) < 1e-3
        theirs.config.rescale_every = 0
        theirs.load_state_dict(transformers.AutoModelForCausalLM.from_pretrained(tmp_path).state_dict())
        assert float((found - theirs(ids).logits[0]).abs().max()) < 1e-5


@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("kind", SIZES)
def test_it_goes_back_bit_for_bit(kind: str, tie: bool, tmp_path: Path) -> None:
    theirs = saved(tmp_path / "theirs", kind, tie_word_embeddings=tie)
    m = an.load(tmp_path / "theirs", device="cpu")
    m.save(tmp_path / "run")
    an.load(tmp_path / "run").export(tmp_path / "back", to="hf")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back").eval()
    expected = theirs.state_dict()
    assert again.state_dict().keys() == expected.keys()
    for name, one in again.state_dict().items():
        assert torch.equal(one, expected[name]), name
    tokenizers = [transformers.AutoTokenizer.from_pretrained(tmp_path / one) for one in ("theirs", "back")]
    assert len({tuple(one("that at", add_special_tokens=False).input_ids) for one in tokenizers}) == 1


@pytest.mark.parametrize("cell", ["mamba", "mamba2", "rwkv4"])
def test_one_trained_here_opens_there(cell: str, tmp_path: Path) -> None:
    lines = ["the cat sat", "at that time", "a dog ran"] * 3
    m = an.LanguageModel(
        "mamba", cell=cell, hidden=16, embedding=16, layers=2, steps=1, lines=True, tokens="char"
    )
    m.fit(lines, verbose=False)
    with torch.no_grad():
        m.model_.output.bias.zero_()
    m.export(tmp_path / "out", to="hf")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    ids = torch.tensor([[2, *m.tokenizer_.encode("the dog")]])
    with torch.no_grad():
        torch.testing.assert_close(m.model_(ids), theirs(ids).logits, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", ["Mamba", "Rwkv"])
def test_it_becomes_a_run(kind: str, tmp_path: Path) -> None:
    saved(tmp_path / "theirs", kind)
    m = an.load(tmp_path / "theirs", device="cpu")
    m.save(tmp_path / "run")
    again = an.load(tmp_path / "run", an.LanguageModel, device="cpu")
    texts = ["that cat", "at the sea"]
    assert again.score(texts) == m.score(texts)


@pytest.mark.parametrize(
    ("kind", "values", "sentence"),
    [
        ("Mamba", {"expand": 3}, "expand = 3"),
        ("Mamba", {"use_bias": True}, "use_bias = True"),
        ("Mamba", {"time_step_rank": 5}, "time_step_rank = 5"),
        ("Mamba2", {"n_groups": 2}, "n_groups = 2"),
        ("Rwkv", {"attention_hidden_size": 32}, "attention_hidden_size = 32"),
        ("Rwkv", {"intermediate_size": 7}, "intermediate_size = 7"),
        ("Rwkv", {"layer_norm_epsilon": 1e-3}, "layer_norm_epsilon = 0.001"),
    ],
)
def test_what_has_no_counterpart_is_named(
    kind: str, values: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    saved(tmp_path, kind, **values)
    with pytest.raises(RunError, match=sentence):
        an.load(tmp_path)
