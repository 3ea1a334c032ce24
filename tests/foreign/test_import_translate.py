"""Encoder-decoders of `transformers` with random weights: equal states, logits, attention and outputs; and back, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_pairs import MODELS, TEXTS, first, given, made
from safetensors.torch import load_file

import anaphora as an
from anaphora.cli import main
from anaphora.data.tokenizers.vocabularies import Numbering
from anaphora.tasks.translate.inference import search_outputs

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module", params=list(MODELS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("theirs") / request.param
    theirs = made(folder, request.param)
    return request.param, folder, theirs, an.load(folder, an.Translator, device="cpu")


def ours(ids: torch.Tensor, words: Numbering) -> torch.Tensor:
    return torch.tensor(words.numbers)[ids]


def within(found: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor) -> None:
    """As near to theirs as is asked, and no further from float64 than theirs is, up to half as much again."""
    assert float((found - theirs).abs().max()) < 1e-4
    own, other = (float((one - exact).abs().max()) for one in (found, theirs))
    assert own <= max(1.5 * other, 1e-6)


def test_states_logits_and_attention_are_equal(pair: Any) -> None:
    name, _, theirs, m = pair
    ids, mask = given(name, TEXTS)
    words = m.tokenizer_.target.numbering
    target = torch.randint(4, 44, (len(TEXTS), 9), generator=torch.Generator().manual_seed(3))
    target[:, 0] = theirs.config.decoder_start_token_id
    asked = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": target}
    with torch.no_grad():
        found = theirs(**asked)
        exact = theirs.double()(**asked)
        theirs.float()
        lengths = mask.sum(1)
        memory = m.model_.encode(ours(ids, words), lengths)
        logits = m.model_(ours(ids, words), lengths, ours(target, words))
        aligned = m.model_.alignment(ours(ids, words), lengths, ours(target, words))
    real = mask.bool()
    within(
        memory.annotations[real],
        found.encoder_last_hidden_state[real],
        exact.encoder_last_hidden_state[real],
    )
    back = words.outward(logits.permute(2, 0, 1)).permute(1, 2, 0)
    within(back, found.logits, exact.logits)
    theirs.set_attn_implementation("eager")
    with torch.no_grad():
        weights = theirs(**asked, output_attentions=True).cross_attentions[-1].mean(1)
    assert float((aligned - weights).abs().max()) < 1e-5
    assert float(aligned[~real[:, None].expand_as(aligned)].abs().max()) == 0
    with torch.no_grad():  # step by step, as in decoding
        state = m.model_.start(memory)
        for place, symbols in enumerate(ours(target, words).unbind(1)):
            step, state = m.model_.decoder.step(symbols, state)
            assert float((step - logits[:, place]).abs().max()) < 2e-5


def test_the_probe_sees_the_cross_attention_of_theirs(pair: Any) -> None:
    name, _, theirs, m = pair
    trace = m.probe(TEXTS[1], "w5 w6 w7")
    ids, _ = given(name, [TEXTS[1]])
    target = torch.tensor([[theirs.config.decoder_start_token_id, *first(name), 9, 10, 11]])
    theirs.set_attn_implementation("eager")
    with torch.no_grad():
        seen = theirs(input_ids=ids, decoder_input_ids=target, output_attentions=True).cross_attentions
    weights = torch.from_numpy(trace.arrays["cross_attention"].values)
    assert float((weights - torch.stack(seen)[:, 0]).abs().max()) < 1e-5
    assert trace.facts["max_difference"] < 1e-4


WAYS: list[dict[str, Any]] = [
    {"num_beams": 1},
    {"num_beams": 4},
    {"num_beams": 4, "early_stopping": True, "length_penalty": 0.0},
    {"num_beams": 4, "early_stopping": "never", "length_penalty": 2.0},
    {"num_beams": 3, "no_repeat_ngram_size": 2, "min_length": 6, "bad_words_ids": [[0]]},
    {"num_beams": 4, "bad_words_ids": [[0], [7], [12]], "max_length": 20},
]


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_outputs_are_the_same_symbols(pair: Any, way: int, tmp_path: Path) -> None:
    name, folder, theirs, _ = pair
    asked = {"max_length": 13, **WAYS[way]}
    copy = tmp_path / "copy"
    copy.mkdir()
    for one in folder.iterdir():
        (copy / one.name).write_bytes(one.read_bytes())
    said = json.loads((folder / "generation_config.json").read_text())
    (copy / "generation_config.json").write_text(json.dumps(said | asked))
    m = an.load(copy, an.Translator, device="cpu")
    ids, mask = given(name, TEXTS)
    written = theirs.generate(input_ids=ids, attention_mask=mask, **asked)[:, 1:].tolist()
    settings = {key: getattr(m.settings_, key) for key in ("beam", "refill", "stopping", "length_penalty")}
    settings |= {key: getattr(m.settings_, key) for key in ("max_length", "min_length", "no_repeat")}
    sources = m.tokenizer_.sources(TEXTS)
    found = search_outputs(m.model_, sources, around=m.tokenizer_.around, **settings)
    order = m.tokenizer_.target.numbering.order
    for nbest, row in zip(found, written, strict=True):
        assert trimmed([order[i] for i in nbest[0].tokens]) == trimmed(row)
    texts = m.predict(TEXTS)
    assert all("<" not in text.replace("<unk>", "") for text in texts)


def trimmed(row: list[Any]) -> list[Any]:
    """Up to the end, and without what fills a row up, which may be written as well."""
    row = row[: row.index(1)] if 1 in row else row
    while row and row[-1] == 0:
        row = row[:-1]
    return row


RENAMED = ("transformers_version", "tie_word_embeddings", "activation_function", "bos_token_id")
"""Versions, what T5 1.1 calls scaling, swish, which is silu, and a symbol that nothing uses."""


def test_the_way_back_is_bit_for_bit(pair: Any, tmp_path: Path) -> None:
    name, folder, theirs, m = pair
    m.export(tmp_path / "back", to="hf")
    first, again = (load_file(one / "model.safetensors") for one in (folder, tmp_path / "back"))
    assert again.keys() == first.keys()
    assert all(torch.equal(first[key], again[key]) for key in first)
    before, after = (json.loads((one / "config.json").read_text()) for one in (folder, tmp_path / "back"))
    same = {key for key in after if key in before and key not in RENAMED}
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    reopened = type(theirs).from_pretrained(tmp_path / "back").eval()
    ids, mask = given(name, TEXTS)
    asked = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids}
    for one in (theirs, reopened):
        one.set_attn_implementation("sdpa")
    with torch.no_grad():
        assert torch.equal(reopened(**asked).logits, theirs(**asked).logits)
    saved = an.load(tmp_path / "back", an.Translator, device="cpu")
    assert saved.tokenizer_.around == m.tokenizer_.around
    assert saved.predict(TEXTS) == m.predict(TEXTS)


def test_a_run_folder_predicts_scores_and_shows(
    pair: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, folder, _, m = pair
    run = tmp_path / "run"
    assert main.run(["import", str(folder), "-o", str(run)]) == 0
    again = an.load(run, device="cpu")
    assert again.predict(TEXTS, max_length=9) == m.predict(TEXTS, max_length=9)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    capsys.readouterr()
    assert main.run(["predict", str(run), str(tmp_path / "texts.txt"), "--max-length", "9"]) == 0
    assert capsys.readouterr().out.splitlines() == m.predict(TEXTS, max_length=9)
    if name not in ("bart", "t5"):
        return
    (tmp_path / "pairs.tsv").write_text("".join(f"{text}\tw5 w6\n" for text in TEXTS))
    assert main.run(["score", str(run), str(tmp_path / "pairs.tsv")]) == 0
    for view in ("alignment", "beam"):
        picture = tmp_path / f"{view}.svg"
        assert main.run(["inspect", str(run), "--view", view, "--text", TEXTS[0], "--svg", str(picture)]) == 0
        assert picture.stat().st_size
