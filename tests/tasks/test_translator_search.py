"""Every way to decode through the translator: what each option does, what contradicts what, eight-bit weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tasks_tiny import is_one_sentence, pairs, tiny, words

import anaphora as an
from anaphora.cli import main
from anaphora.data.sources.opening import open_source
from anaphora.data.symbols import BOS, EOS
from anaphora.errors import AnaphoraError, SettingsError
from anaphora.native.derived import forget
from anaphora.ops import packed
from anaphora.search import ngram_f
from anaphora.tasks.translate.inference import search_outputs
from native_builds import QUICK, use
from sweeps import sweep

TRANSFORMER = "transformer norm first"
compiled = pytest.mark.skipif(packed.library.functions() is None, reason="no C compiler here")


def numbers(role: str) -> list[tuple[str, str]]:
    """The numbers of at most three words, "eight hundred forty-two" and "achthundertzweiundvierzig"."""
    return sorted({pair for pair in open_source("numbers", role=role) if len(pair[0].split()) <= 3})


@pytest.fixture(scope="module")
def unseen() -> list[tuple[str, str]]:
    known = set(numbers("train"))
    return [pair for pair in numbers("test") if pair not in known]


@pytest.fixture(scope="module")
def writer(unseen: list[tuple[str, str]]) -> an.Translator:
    """A Transformer that has begun to learn small numbers."""
    return writing(unseen, 40)


def writing(unseen: list[tuple[str, str]], steps: int) -> an.Translator:
    size = {"hidden": 64, "heads": 4, "feedforward": 128, "layers": 2, "tokens": "bpe", "vocab_size": 120}
    course = {"steps": steps, "batch_tokens": 1500, "lr": 4e-3, "warmup": 60, "dropout": 0.0, "ema": 0}
    model = an.Translator(model="transformer", device="cpu", valid_every=1000, **size, **course)
    return model.fit(numbers("train"), valid=unseen[:10])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temperature": 0.7}, r'^temperature = 0\.7 belongs to decode = "sample", but decode = "beam"'),
        ({"top_k": 5}, r'^top_k = 5 belongs to decode = "sample"'),
        ({"decode": "sample", "groups": 5}, r'^groups = 5 belongs to decode = "beam"'),
        ({"decode": "sample", "coverage": 0.1}, r'^coverage = 0\.1 belongs to decode = "beam"'),
        ({"decode": "sample", "stopping": "first"}, r"^stopping = 'first' belongs to decode"),
        ({"beam": 5, "groups": 2}, r"^groups = 2 cannot share beam = 5 equally: make beam a multiple"),
        ({"min_length": 9, "max_length": 4}, r"^min_length = 9 is above max_length = 4"),
        ({"decode": "beem"}, r"^decode = 'beem' cannot be used: .* Did you mean beam\?"),
        ({"top_p": 0.0, "decode": "sample"}, r"^top_p = 0\.0 cannot be used: it must be greater than 0"),
        ({"temprature": 0.5}, r"^temprature is not a setting of predict\. Did you mean temperature\?"),
        ({"no_repeat": -1}, r"^no_repeat = -1 cannot be used: it must be at least 0"),
    ],
)
def test_contradictions_and_slips_are_one_sentence(of_preset, options: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says) as caught:
        of_preset(TRANSFORMER).predict(["abc"], **options)
    assert len(caught.value.problems) == 1
    assert is_one_sentence(caught.value) or "anaphora explain" in str(caught.value)


def test_contradictions_are_found_before_training() -> None:
    with pytest.raises(SettingsError, match=r"groups = 3 cannot share beam = 5"):
        tiny(TRANSFORMER, groups=3)
    with pytest.raises(SettingsError, match="coverage"):
        tiny("rnn", coverage=0.2)


def test_a_model_without_attention_has_no_coverage(of_preset) -> None:
    with pytest.raises(SettingsError, match=r"^coverage = 0\.2 needs a model with attention"):
        of_preset("rnn").predict(["abc"], coverage=0.2)


@pytest.mark.parametrize("preset", ["lstm-attention bilinear", "gru-attention", TRANSFORMER])
@pytest.mark.parametrize("quick", [True, False])
def test_coverage_is_added_to_the_score(
    of_preset, preset: str, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """β Σⱼ log min(Σₜ αₜⱼ, 1), with α as `alignment` shows it for the output as a whole."""
    model = of_preset(preset)
    sources = model._encode(words(5, seed=3))
    if not quick:
        monkeypatch.setattr(packed.library, "functions", lambda *_: None)
    lost = []
    for source, nbest in zip(
        sources,
        search_outputs(model.model_, sources, n_best=5, beam=5, coverage=0.5, max_length=9),
        strict=True,
    ):
        for h in nbest:
            read = torch.tensor([[*source, EOS]])
            fed = torch.tensor([[BOS, *h.tokens][: len(h.steps)]])
            looks = model.model_.alignment(read, torch.tensor([read.shape[1]]), fed)[0].sum(0)
            covered = float(looks.clamp(1e-6, 1.0).log().sum())
            assert h.score == pytest.approx(h.log_prob / len(h.steps) + 0.5 * covered, abs=1e-4)
            lost.append(covered)
        scores = [h.score for h in nbest if h.finished]
        assert scores == sorted(scores, reverse=True)
    assert min(lost) < -0.1


def test_samples_depend_on_text_and_seed_alone(of_preset) -> None:
    model = of_preset(TRANSFORMER)
    texts = words(20, seed=4)
    draw: dict[str, Any] = {"decode": "sample", "temperature": 2.0, "n_best": 3}
    together = model.search(texts, seed=7, **draw)
    for text, drawn in list(zip(texts, together, strict=True))[::6]:
        assert [o.text for o in model.search([text], seed=7, **draw)[0]] == [o.text for o in drawn]
    assert [[o.text for o in drawn] for drawn in model.search(texts, seed=8, **draw)] != [
        [o.text for o in drawn] for drawn in together
    ]
    assert len({o.text for drawn in together for o in drawn}) > 30  # each text has its own chance
    first = model.predict(texts, decode="sample", temperature=2.0, seed=7)
    assert first == [drawn[0].text for drawn in together]


def test_sampling_without_chance_is_greedy(of_preset) -> None:
    model = of_preset(TRANSFORMER)
    texts = words(10, seed=5)
    greedy = model.predict(texts, beam=1)
    for only in ({"temperature": 0.0}, {"top_k": 1}, {"min_p": 1.0}):
        assert model.predict(texts, decode="sample", **only) == greedy


def test_least_risk_is_the_draw_that_agrees_with_the_draws(of_preset) -> None:
    model = of_preset(TRANSFORMER)
    texts = words(8, seed=5)
    draw: dict[str, Any] = {"temperature": 2.0, "seed": 3}
    sources = model._encode(texts)
    drawn = search_outputs(model.model_, sources, decode="sample", n_best=12, **draw)
    chosen = search_outputs(model.model_, sources, decode="mbr", samples=12, n_best=2, **draw)
    for samples, best in zip(drawn, chosen, strict=True):
        outputs = [h.tokens for h in samples]
        worth = {tuple(y): sum(ngram_f(y, other) for other in outputs) / 12 for y in outputs}
        assert best[0].score == pytest.approx(max(worth.values()))
        assert best[0].score == pytest.approx(worth[tuple(best[0].tokens)])
        assert len(best) == min(2, len(worth))
        assert best[0].score >= best[-1].score
    texts_of = [model.tokenizer_.target.decode(best[0].tokens) for best in chosen]
    assert model.predict(texts[:1], decode="mbr", samples=12, **draw) == texts_of[:1]
    with pytest.raises(SettingsError, match="samples = 12 belongs to decode"):
        model.predict(texts, samples=12)
    with pytest.raises(SettingsError, match="no_repeat = 2 belongs to decode"):
        model.predict(texts, decode="mbr", no_repeat=2)


def test_options_of_the_beam_reach_it(of_preset) -> None:
    model = of_preset(TRANSFORMER)
    texts = words(6, seed=6)
    for outputs in model.predict(texts, no_repeat=1), model.predict(texts, no_repeat=1, groups=5):
        assert all(len(set(text)) == len(text) for text in outputs)
    lengths = [len(output.text) for outputs in model.search(texts, min_length=8) for output in outputs]
    assert min(lengths) >= 7  # the eighth is the end
    (by_mean,), (by_reward,) = (
        model.search(texts[:1], normalisation=name, stopping="first") for name in ("power", "reward")
    )
    length = round(by_reward[0].score - by_reward[0].log_prob)
    assert by_reward[0].score == pytest.approx(by_reward[0].log_prob + length, abs=1e-9)
    assert by_mean[0].score != by_reward[0].score
    diverse = model.search(texts, beam=6, groups=3, diversity=100.0, n_best=3)
    assert all(len({output.text[:1] for output in outputs}) >= 2 for outputs in diverse)
    assert [len(outputs) for outputs in model.search(texts, beam=4, groups=2, n_best=5)] == [5] * len(texts)


@compiled
@pytest.mark.parametrize("preset", ["lstm-attention bilinear", TRANSFORMER])
def test_coverage_goes_with_eight_bits(of_preset, preset: str) -> None:
    model, texts = of_preset(preset), words(5, seed=3)
    plain, covered = (model.search(texts, int8=True, coverage=beta) for beta in (0.0, 1.0))
    assert any(one[0].score > other[0].score + 0.01 for one, other in zip(plain, covered, strict=True))


@compiled
@pytest.mark.slow
def test_eight_bits_lose_little(unseen: list[tuple[str, str]]) -> None:
    """At most 2 of 100 numbers more are wrong than in single precision, after a few seconds of training."""
    writer = writing(unseen, 160)
    exact, rounded = (writer.score(unseen, int8=int8)["exact_match"] for int8 in (False, True))
    assert exact > 80
    assert rounded >= exact - 2
    texts = [text for text, _ in unseen]
    both = zip(*(writer.search(texts, int8=int8) for int8 in (False, True)), strict=True)
    scores = [(one[0].score, other[0].score) for one, other in both]
    assert all(one != other for one, other in scores)  # they are rounded indeed
    assert sum(abs(one - other) for one, other in scores) / len(scores) < 0.02


@compiled
@pytest.mark.parametrize("preset", ["lstm-attention bilinear", TRANSFORMER])
def test_with_eight_bits_an_output_does_not_depend_on_its_batch(
    of_preset, writer: an.Translator, unseen: list[tuple[str, str]], preset: str
) -> None:
    model, texts = of_preset(preset), words(30, longest=14, seed=8)
    if preset == TRANSFORMER:
        model, texts = writer, [text for text, _ in unseen[::3]]
    together = model.search(texts, int8=True, n_best=3)
    for text, batched in list(zip(texts, together, strict=True))[:: sweep(5, 1)]:
        (alone,) = model.search([text], int8=True, n_best=3)
        assert [(o.text, o.score) for o in alone] == [(o.text, o.score) for o in batched]


@compiled
@pytest.mark.parametrize(("word", "tool"), QUICK)
def test_under_every_instruction_set_a_score_does_not_depend_on_the_batch(
    writer: an.Translator,
    unseen: list[tuple[str, str]],
    word: str,
    tool: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To the last bit: with eight bits, a last bit of the source would decide which way a number is rounded."""
    use(monkeypatch, word, tool)
    forget(writer.model_)  # weights that are packed for another width
    texts = [text for text, _ in unseen[: 40 : sweep(13, 5)]]
    for int8 in (True, False):
        together = writer.search(texts, int8=int8, n_best=2)
        for text, batched in zip(texts, together, strict=True):
            (alone,) = writer.search([text], int8=int8, n_best=2)
            assert [(o.text, o.score) for o in alone] == [(o.text, o.score) for o in batched]
    forget(writer.model_)


def test_without_a_compiler_eight_bits_are_refused(of_preset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = of_preset(TRANSFORMER)
    expected = model.predict(["abcd", "fade"])
    monkeypatch.setattr(packed.library, "functions", lambda *_: None)
    assert model.predict(["abcd", "fade"]) == expected
    with pytest.raises(AnaphoraError, match=r"^int8 = true needs a C compiler") as caught:
        model.predict(["abcd"], int8=True)
    assert is_one_sentence(caught.value)


def test_a_search_with_its_tree_finds_the_same(of_preset) -> None:
    model = of_preset(TRANSFORMER)
    sources = model._encode(words(5, seed=9))
    plain = search_outputs(model.model_, sources, beam=3)
    kept = search_outputs(model.model_, sources, beam=3, keep_tree=True)
    assert [[h.tokens for h in nbest] for nbest in kept] == [[h.tokens for h in nbest] for nbest in plain]
    assert all(nbest.tree and math.isfinite(nbest[0].score) for nbest in kept)


def test_probing_shows_a_beam_where_outputs_are_drawn() -> None:
    drawing = tiny(TRANSFORMER, decode="sample", temperature=0.5).fit(pairs(50), valid=pairs(4, seed=1))
    assert len(drawing.predict(["abc"])) == 1
    assert drawing.probe("abc")


OPTIONS = (
    ["--set", "decode=sample", "--set", "temperature=0.5"],
    ["--set", "decode=mbr", "--set", "samples=8"],
    ["--set", "coverage=0.2"],
    pytest.param(["--set", "int8=true"], marks=compiled),
)


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    run = tmp_path_factory.mktemp("small") / "run"
    tiny(TRANSFORMER).fit(pairs(50), valid=pairs(4, seed=1), out=run)
    return run


@pytest.mark.parametrize("way", OPTIONS, ids=lambda way: way[1])
def test_the_command_takes_every_option(small_run, tmp_path, capsys, way) -> None:
    (tmp_path / "in.txt").write_text("abc\nfade\n")
    assert main.run(["predict", str(small_run), str(tmp_path / "in.txt"), *way]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_an_option_of_another_search_is_refused(small_run, tmp_path, capsys) -> None:
    run, lines = small_run, tmp_path / "in.txt"
    lines.write_text("abc\nfade\n")
    assert main.run(["predict", str(run), str(lines), "--set", "temperature=0.5"]) == 2
    told = capsys.readouterr().err
    assert 'temperature = 0.5 belongs to decode = "sample"' in told
    assert "Traceback" not in told


def spelling() -> an.Translator:
    """Hardly trained, with pieces that spell a text in several ways: ab + a, aba."""
    words = ["ab" * (i % 4 + 1) + "abc"[i % 3] for i in range(60)]
    rows = [(word, word[::-1]) for word in words]
    few = {"hidden": 8, "embedding": 8, "steps": 2, "batch_tokens": 200, "warmup": 0, "device": "cpu"}
    return an.Translator("lstm", tokens="bpe", vocab_size=20, **few).fit(rows, valid=rows[:4])


def test_texts_that_pieces_spell_in_several_ways_are_one_output(tmp_path):
    model = spelling()
    decode, (source,) = model.tokenizer_.target.decode, model._encode(["abab"])
    (all_of_them,) = search_outputs(
        model.model_, [source], n_best=500, max_length=2
    )  # 20 · 20 symbols at most
    masses: dict[str, float] = {}
    for h in all_of_them:
        masses[decode(h.tokens)] = masses.get(decode(h.tokens), 0.0) + math.exp(h.log_prob)
    assert len(masses) < len(all_of_them)
    (found,) = model.search(["abab"], n_best=20, max_length=2)
    assert len({output.text for output in found}) == len(found) == 20
    ranked = [(output.finished, output.score) for output in found]
    assert ranked == sorted(ranked, reverse=True)
    assert all(math.exp(output.log_prob) <= masses[output.text] + 1e-6 for output in found)
    (most,) = model.search(["abab"], n_best=500, max_length=2)  # there are not as many
    assert {o.text: math.exp(o.log_prob) for o in most} == pytest.approx(masses, abs=1e-6)
    (drawn,) = model.search(["abab"], n_best=200, max_length=2, decode="sample")
    assert len(drawn) == 200
    assert len({output.text for output in drawn}) < 200  # as often as they are probable


def test_exported_n_best_texts_are_different_too(tmp_path, onnx):
    from anaphora import runtime

    model = spelling()
    model.export(tmp_path / "onnx", to="onnx")
    mine = model.search(["abab", "c"], n_best=20, max_length=2)
    theirs = runtime.load(tmp_path / "onnx").search(["abab", "c"], n_best=20, max_length=2)
    assert [[o.text for o in found] for found in theirs] == [[o.text for o in found] for found in mine]
    assert [o.log_prob for o in theirs[0]] == pytest.approx([o.log_prob for o in mine[0]], abs=1e-4)
