"""Language models as users meet them: learn, judge, write, go on after a kill."""

from __future__ import annotations

import itertools
import json
import math
import random
import warnings

import numpy as np
import pytest
import torch
from tasks_command import end_state, finish, kill, lines, setting_words, start, wait_for
from tasks_tiny import is_one_sentence

import anaphora as an
from anaphora.data.batches.stream import StreamBatch
from anaphora.data.symbols import EOS
from anaphora.errors import AnaphoraError, DataError, SettingsError
from anaphora.tasks.language.log_probs import stream_log_probs, symbol_log_probs
from anaphora.tasks.language.objective import LanguageObjective
from anaphora.tasks.recipe import Recipe

TINY = {
    "hidden": 16,
    "steps": 40,
    "batch_tokens": 128,
    "lr": 1e-2,
    "device": "cpu",
    "warmup": 0,
    "length": 12,
}
PRESETS = {
    "ngram": {"order": 3},
    "nplm": {**TINY, "embedding": 8, "order": 4, "bptt": 16},
    "rnn": {**TINY, "embedding": 8, "bptt": 16},
    "lstm": {**TINY, "embedding": 8, "bptt": 16},
    "gru": {**TINY, "embedding": 8, "bptt": 16},
    "transformer": {**TINY, "heads": 2, "layers": 2, "feedforward": 32, "context": 16},
}
SENTENCES = [
    f"{who} {does} {what}"
    for who in ("the teacher", "a student", "my friend")
    for does in ("gives", "reads", "wants")
    for what in ("an example", "a sample", "an egg", "the book")
]


def model(preset: str, **more: object) -> an.LanguageModel:
    return an.LanguageModel(model=preset, **{**PRESETS[preset], **more})


@pytest.fixture(scope="module")
def hello() -> an.LanguageModel:
    return model("lstm", steps=80).fit(["hello"] * 60)


@pytest.fixture(scope="module")
def trained():
    """Each preset, trained on lines or on running text when it is first asked for."""
    made: dict[tuple[str, bool], an.LanguageModel] = {}

    def get(preset: str, by_line: bool = False) -> an.LanguageModel:
        if (preset, by_line) not in made:
            made[preset, by_line] = model(preset, lines=by_line).fit(SENTENCES * 4, valid=SENTENCES)
        return made[preset, by_line]

    return get


def test_hello_is_learnt_and_written(hello):
    assert hello.tokenizer_.pieces(range(4, 9)) == ["\n", "l", "e", "h", "o"]
    assert hello.result_.metrics["loss"] < 0.1
    assert hello.sample(length=12, temperature=0.0) == ["hello\nhello\n"]
    assert hello.sample("he", length=3, temperature=0.0) == ["llo"]
    assert hello.sample(length=12, seed=5) == hello.sample(length=12, seed=5)
    heard: list[str] = []
    assert hello.sample("h", length=9, listen=heard.append) == ["".join(heard)]
    assert len(heard) == 9


def test_an_example_is_more_probable_than_an_egg_sample(trained):
    for preset in ("ngram", "lstm"):
        best, worst = trained(preset).rank(["my friend gives an egg-sample", "my friend gives an example"])
        assert best.text == "my friend gives an example"
        assert best.log_prob > worst.log_prob + 3
        assert best.perplexity == pytest.approx(math.exp(-best.log_prob / best.symbols))


@pytest.mark.parametrize("by_line", [False, True])
@pytest.mark.parametrize("preset", PRESETS)
def test_one_line_is_judged_alike_alone_and_among_others(trained, preset, by_line):
    judge = trained(preset, by_line)
    draw = random.Random(1)
    texts = ["".join(draw.choices("abcdehst ", k=draw.randrange(1, 60))) for _ in range(63)] + ["a book"]
    together = judge.predict(texts)
    for text, value in list(zip(texts, together, strict=True))[::9]:
        assert judge.predict([text]) == [pytest.approx(value, abs=1e-4)]
        assert judge.predict([text])[0] < 0


@pytest.mark.parametrize("by_line", [False, True])
@pytest.mark.parametrize("preset", PRESETS)
def test_steps_give_the_probability_of_the_line_and_sum_to_one(trained, preset, by_line):
    judge = trained(preset, by_line)
    symbols = [judge.begin, *judge.tokenizer_.encode("a student reads"), judge.end]
    state, total = judge.start(1), 0.0
    with torch.no_grad():
        for before, after in itertools.pairwise(symbols):
            log_probs, state = judge.step(torch.tensor([before]), state)
            assert log_probs.double().exp().sum() == pytest.approx(1.0, abs=1e-5)
            total += float(log_probs[0, after])
    assert judge.predict(["a student reads"]) == [pytest.approx(total, abs=1e-3)]


@pytest.mark.parametrize("preset", PRESETS)
def test_saved_and_loaded_it_judges_and_writes_the_same(trained, preset, tmp_path):
    first = trained(preset, True)
    first.save(tmp_path / "kept")
    again = an.load(tmp_path / "kept")
    assert again.predict(SENTENCES[:3]) == first.predict(SENTENCES[:3])
    assert again.sample(n=3, seed=2) == first.sample(n=3, seed=2)
    assert again.score(SENTENCES) == first.score(SENTENCES)


def test_searches_and_fusion_take_any_language_model(trained):
    big, small = trained("lstm", True), trained("ngram", True)
    fused, state = an.search.fuse((big.step, big.start(1)), (small.step, small.start(1)), 0.5)
    (best,) = an.search.beam(fused, state, start=torch.tensor([big.begin]), eos=EOS, width=4, max_length=40)
    text = big.tokenizer_.decode(best[0].tokens)
    expected = big.predict([text])[0] + 0.5 * small.predict([text])[0]
    assert best[0].log_prob == pytest.approx(expected, abs=1e-3)


def test_measures_agree_with_each_other(trained):
    judge = trained("lstm")
    told = judge.score(SENTENCES)
    text = "".join(f"{line}\n" for line in SENTENCES)
    assert told["symbols"] == told["characters"] == len(text)
    assert told["perplexity"] == pytest.approx(math.exp(told["loss"]))
    assert told["bits_per_character"] == pytest.approx(told["loss"] / math.log(2))


def test_a_transformer_reads_long_text_in_windows_that_overlap(trained):
    judge = trained("transformer")
    ids = np.array([judge.begin, *judge.tokenizer_.encode("a student reads the book " * 3)])
    (values,) = symbol_log_probs(judge.model_, [ids[1:]], judge.begin)
    assert len(values) == len(ids) - 1
    assert stream_log_probs(judge.model_, ids).tolist() == values.tolist()
    with torch.no_grad():
        for t in (3, 15, 16, 23, 24, 40):  # the window that counts for t begins at 0, 8, 16 …
            first = 0 if t < 16 else 8 * (t // 8) - 8
            logits = judge.model_(torch.from_numpy(ids[None, first : t + 1]))[0, -1]
            assert values[t] == pytest.approx(float(logits.log_softmax(-1)[ids[t + 1]]), abs=1e-4)


def objective(trained, **more):
    settings = model("lstm", **more).settings_
    return LanguageObjective(settings, 20, measure=lambda _: {}, show=lambda _: [])


def chunks(ids, size):
    """Two streams in pieces of ``size``."""
    inputs, targets = ids[:, :-1], ids[:, 1:]
    return [
        StreamBatch(inputs[:, a : a + size], targets[:, a : a + size], [0, 1], a == 0)
        for a in range(0, inputs.shape[1], size)
    ]


def gradient(network, goal, batches):
    network.zero_grad()
    total = sum(goal.loss(network, batch).total for batch in batches)
    total.backward()
    return float(total.detach()), torch.cat(
        [p.grad.flatten() for p in network.parameters() if p.grad is not None]
    )


def test_truncated_at_the_whole_length_nothing_is_truncated(trained):
    """The same loss in any pieces, the full gradient in one piece, another gradient in several."""
    network = trained("lstm").model_.train()
    ids = np.random.RandomState(0).randint(4, 12, (2, 25))
    whole = gradient(network, objective(trained), chunks(ids, 24))
    longer = gradient(network, objective(trained), chunks(ids, 100))
    pieces = gradient(network, objective(trained), chunks(ids, 6))
    logits = network(torch.from_numpy(ids[:, :-1]))
    network.zero_grad()
    full = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.from_numpy(ids[:, 1:]).flatten(), reduction="sum"
    )
    full.backward()
    by_hand = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
    network.eval()
    torch.testing.assert_close(whole[1], by_hand, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(longer[1], by_hand, atol=1e-4, rtol=1e-4)
    assert pieces[0] == pytest.approx(float(full.detach()), abs=1e-3)
    assert not torch.allclose(pieces[1], by_hand, atol=1e-3)


def test_worked_through_in_parts_every_stream_keeps_its_own_state():
    ends = [
        model("lstm", accumulate=parts, steps=12, lr=1e-3).fit(SENTENCES * 4, valid=SENTENCES).result_.metrics
        for parts in (1, 3)
    ]
    assert ends[0]["loss"] == pytest.approx(ends[1]["loss"], abs=1e-4)


def test_penalties_are_those_of_the_equations(trained):
    network = trained("lstm").model_
    ids = np.random.RandomState(0).randint(4, 12, (2, 9))
    (batch,) = chunks(ids, 8)
    with torch.no_grad():
        plain = objective(trained).loss(network, batch).total
        hidden, reading = network.read(torch.from_numpy(ids[:, :-1]))
        y = reading.states
        ar = objective(trained, activation_penalty=2.0).loss(network, batch).total
        tar = objective(trained, temporal_penalty=3.0).loss(network, batch).total
    assert float(ar - plain) == pytest.approx(16 * 2.0 * float((hidden**2).mean()), rel=1e-4)
    assert float(tar - plain) == pytest.approx(
        16 * 3.0 * float(((y[:, 1:] - y[:, :-1]) ** 2).mean()), rel=1e-4
    )


def test_a_masked_model_guesses_and_says_what_it_cannot_do():
    given = {**PRESETS["transformer"], "hidden": 32, "steps": 600, "context": 24, "lr": 4e-3, "warmup": 60}
    given["batch_tokens"] = 512
    given.pop("length")
    model = an.LanguageModel(model="masked", **given)
    model.fit(SENTENCES * 4, valid=SENTENCES)
    told = model.score(SENTENCES)
    assert told["accuracy"] > 40
    assert told == model.score(SENTENCES)
    for ask in (lambda: model.sample(), lambda: model.predict(["a"]), lambda: model.start(1)):
        with pytest.raises(AnaphoraError, match="masked") as error:
            ask()
        assert is_one_sentence(error.value)


@pytest.mark.parametrize("preset", ["rnn", "lstm", "gru", "transformer", "nplm", "ngram"])
def test_a_model_of_the_next_symbol_cannot_read_backwards(preset):
    with pytest.raises(SettingsError, match="it would see the very symbols it has to predict"):
        an.LanguageModel(model=preset, bidirectional=True)


def test_bad_text_is_one_sentence(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "broken.txt").write_bytes(b"fine\n\xff\xfe broken\n")
    for data in (tmp_path / "empty.txt", tmp_path / "broken.txt", tmp_path / "none.txt", [], [3], 7, ["a"]):
        with pytest.raises(DataError) as error:
            model("lstm").fit(data)
        assert is_one_sentence(error.value)


def order(run: str, preset: str = "lstm") -> list[str]:
    words = ["train", "language", "text.txt", "-o", run, "--model", preset]
    given = {**PRESETS[preset], "steps": 100, "save_every": 7, "valid_every": 20, "log_every": 1}
    if preset == "lstm":
        given |= {
            "weight_dropout": 0.2,
            "variational": True,
            "optimizer": "sgd",
            "average_after": 1,
            "lr": 1.0,
        }
    if preset == "ngram":
        given = PRESETS["ngram"]
    return words + setting_words(given)


def test_killed_it_ends_with_the_same_bytes_state_and_average_carried(tmp_path):
    (tmp_path / "text.txt").write_text("".join(f"{line}\n" for line in SENTENCES * 4))
    finish(tmp_path, *order("whole"))
    for enough in (12, 70):
        words = ["resume", "killed"] if (tmp_path / "killed" / "config.json").exists() else order("killed")
        process = start(tmp_path, *words)
        wait_for(process, lambda enough=enough: lines(tmp_path / "killed") >= enough)
        assert kill(process)
    finish(tmp_path, "resume", "killed")
    assert end_state(tmp_path / "killed") == end_state(tmp_path / "whole")
    kept = [json.loads(line) for line in (tmp_path / "whole" / "samples.jsonl").read_text().splitlines()]
    assert [row["step"] for row in kept] == [20, 40, 60, 80, 100]


def test_the_command_trains_judges_writes_and_scores(tmp_path):
    (tmp_path / "text.txt").write_text("".join(f"{line}\n" for line in SENTENCES * 4))
    finish(tmp_path, *order("run", "ngram"))
    finish(tmp_path, "resume", "run")
    (tmp_path / "ask.txt").write_text("a student reads\n\nxq\n")
    told = finish(tmp_path, "predict", "run", "ask.txt").splitlines()
    assert told[3:] == ["1 of 3 inputs are empty and have no answer."]
    assert told[0].endswith("a student reads")
    assert told[1] == ""
    said = finish(tmp_path, "score", "run", "text.txt", "--json")
    told, end = json.JSONDecoder().raw_decode(said)
    assert "the model was trained on these data" in said[end:]
    assert told["perplexity"] < 10
    drawn = json.loads(finish(tmp_path, "sample", "run", "--prompt", "a stu", "--length", "9", "--json"))
    assert drawn["prompt"] == "a stu"
    assert len(drawn["output"]) == 9
    assert "neither a file" in finish(tmp_path, "train", "language", "txet.txt", code=2)


def test_learned_positions_of_a_masked_model_hold_a_whole_window_and_its_beginning() -> None:
    m = an.LanguageModel(
        "masked", positions="learned", context=8, hidden=8, heads=2, layers=1, steps=1, batch_tokens=16
    )
    assert m.fit(["abcabcabdabc"] * 20).result_.steps == 1


def test_a_prompt_of_unknown_symbols_is_noted():
    model = an.LanguageModel("ngram", tokens="char").fit(["hello there"] * 20)
    with pytest.warns(UserWarning, match="2 of the 4 symbols of the prompt are not in the vocabulary"):
        model.sample("Ωheβ", length=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.sample("he", length=3)


NUMBERED = [f"{line} number {number}" for number, line in enumerate(SENTENCES * 2)]
"""Sentences with a word each that no other has."""


@pytest.mark.parametrize("lines", [False, True])
def test_unknown_words_are_expected_where_rare_words_were_read_as_such(lines):
    found = {}
    for share in (0.0, 0.5):
        m = model("ngram", tokens="word", lines=lines, unknown_share=share).fit(NUMBERED)
        found[share] = m.read(["a student reads a sample number 1000"])[0].log_prob
    assert found[0.5] > found[0.0] + 1


@pytest.mark.parametrize("lines", [False, True])
def test_a_network_reads_rare_words_as_unknown_ones(lines):
    def unknown(share):
        m = model("lstm", tokens="word", lines=lines, unknown_share=share, holdout=4)
        train, _ = m._open(NUMBERED, None, spill=None)
        m._learn(train)
        batches = m._batches(train)
        some = [next(batches) for _ in range(batches.per_epoch())]
        shown = [batch.rows if lines else batch.targets.tolist() for batch in some]
        return sum(row.count(1) for rows in shown for row in rows)

    assert unknown(0.0) == 0
    assert 20 <= unknown(0.5) <= 36  # of at most 72 numbers, some of them dev data


def test_counts_of_long_rows_that_occur_once_are_left_out():
    m = model("ngram", tokens="word", lines=True, order=4, prune=2, holdout=1).fit(NUMBERED)
    whole = model("ngram", tokens="word", lines=True, order=4, holdout=1).fit(NUMBERED)
    sizes = [np.diff(each.model_.table.bounds).tolist() for each in (m, whole)]
    assert sizes[0][:3] == sizes[1][:3]  # of up to two words
    assert sizes[0][3] < sizes[1][3]
    assert sizes[0][4] < sizes[1][4]


def test_prune_and_unknown_share_must_fit_the_other_settings():
    with pytest.raises(
        SettingsError, match="prune = 4 is about n-grams of more than 4 symbols, but order = 4"
    ):
        an.LanguageModel("ngram", order=4, prune=4)
    with pytest.raises(SettingsError, match="unknown_share is about words"):
        an.LanguageModel("lstm", unknown_share=0.5)
    with pytest.raises(SettingsError, match="prune has no effect on the preset lstm"):
        an.LanguageModel("lstm", prune=1)


def test_runs_of_before_have_the_counts_and_words_that_they_had(tmp_path):
    model("ngram", tokens="word").fit(NUMBERED, out=tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    for key in ("unknown_share", "prune"):
        del config["settings"][key]
    path.write_text(json.dumps(config))
    before = Recipe.read(tmp_path / "run").settings
    assert (before.order, before.prune, before.unknown_share) == (3, 0, 0)
