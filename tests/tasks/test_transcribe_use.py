"""A transcriber in use: texts, words and their times, lexicons, language models, files, and every mistake in a sentence."""

from __future__ import annotations

import functools
import json
import math
import wave

import numpy as np
import pytest
from tasks_tiny import is_one_sentence
from transcribe_tiny import FEATURES, PRESETS, WORDS, recordings, said, tiny

import anaphora as an
from anaphora.cli.answering import respond
from anaphora.data.audio.recordings_readers import as_item
from anaphora.errors import AnaphoraError, DataError, SettingsError
from anaphora.tasks.transcribe.inference.decoding import frame_log_probs
from anaphora.tasks.transcribe.inference.words import text_of
from sweeps import sweep


@functools.cache
def trained(preset="conv-ctc", **more):
    """A model that gets nearly all words right."""
    return tiny(preset, **{"steps": 200, "hidden": 32, "subsample": 1, "lr": 2e-2, **more}).fit(
        recordings(300), valid=recordings(10, seed=1)
    )


@functools.cache
def brief(preset):
    steps = 120 if preset == "transducer" else 30  # it learns to stay silent first
    return tiny(preset, steps=steps).fit(recordings(60), valid=recordings(4, seed=1))


@pytest.mark.parametrize("preset", PRESETS)
def test_alone_and_in_a_batch_of_64_the_answers_are_identical(preset):
    model = brief(preset)
    inputs = [x for x, _ in recordings(63, seed=5, longest=6)] + [np.zeros((1, FEATURES), np.float32)]
    together = model.transcribe(inputs, n_best=2, beam=4)
    for x, batched in list(zip(inputs, together, strict=True))[:: sweep(7, 1)]:
        (alone,) = model.transcribe([x], n_best=2, beam=4)
        assert [t.text for t in alone] == [t.text for t in batched]
        for mine, other in zip(alone, batched, strict=True):
            assert mine.score == pytest.approx(other.score, abs=1e-4)
            assert [w.word for w in mine.words] == [w.word for w in other.words]
    assert len({found[0].text for found in together}) >= 3


def test_unseen_texts_are_understood_and_the_measures_say_so():
    scores = trained().score(recordings(40, seed=2))
    assert scores["wer"] < 10
    assert scores["cer"] <= scores["wer"]
    assert scores["examples"] == 40
    assert set(scores["worst"]) <= {f"recording {i}" for i in range(1, 41)}


def test_words_have_the_times_at_which_they_were_said():
    x = said("bad cab", 1)
    ((found,),) = trained().transcribe([x])
    assert found.text == "bad cab"
    first, second = found.words
    assert (first.word, second.word) == ("bad", "cab")
    loud = {letter: np.flatnonzero(x[:, ord(letter) - ord("a")] > 1) * 0.01 for letter in "abcd"}
    assert first.start == pytest.approx(loud["b"][0], abs=0.06)
    assert first.end == pytest.approx(loud["d"][-1], abs=0.06)
    assert second.start == pytest.approx(loud["c"][0], abs=0.06)
    assert second.end == pytest.approx(loud["b"][-1], abs=0.06)
    assert 0 < min(first.confidence, second.confidence) <= 1


def test_a_lexicon_lets_its_words_come_out_and_no_others(tmp_path):
    model = brief("conv-ctc")
    inputs = [x for x, _ in recordings(20, seed=3)]
    for text in model.predict(inputs, lexicon="train"):
        assert set(text.split()) <= set(WORDS)
    (tmp_path / "two.txt").write_text("bad\nface\n")
    for text in model.predict(inputs, lexicon=str(tmp_path / "two.txt")):
        assert set(text.split()) <= {"bad", "face"}
    ((found,),) = model.transcribe(inputs[:1], lexicon="train")
    assert " ".join(word.word for word in found.words) == found.text


@pytest.mark.parametrize("form", ["arpa", "ngram run", "lstm run"])
def test_a_language_model_decides_between_words_that_sound_alike(tmp_path, form):
    """A d with a little of a c is heard; only the text before can tell."""
    model = trained()
    c, d = said("fed cab", 3), said("fed dab", 3)
    assert c.shape == d.shape
    x = 0.2 * c + 0.8 * d
    (tmp_path / "words.txt").write_text("fed\ncab\ndab\n")
    for told, other in (("cab", "dab"), ("dab", "cab")):
        lines = [f"fed {told}"] * 20 + [f"{other} fed"] * 3
        (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
        name = str(tmp_path / told)
        if form == "arpa":
            an.NGram(order=2).fit(lines).write_arpa(name)
        else:
            kind = {"model": "ngram", "order": 2} if form == "ngram run" else {"model": "lstm", "steps": 40}
            small = {} if form == "ngram run" else {"hidden": 8, "embedding": 8, "lr": 0.03, "device": "cpu"}
            lm = an.LanguageModel(tokens="word", lines=True, **kind, **small)
            lm.fit(str(tmp_path / "text.txt"), out=name)
        (text,) = model.predict([x], lexicon=str(tmp_path / "words.txt"), lm=name, lm_weight=6.0)
        assert text == f"fed {told}"


@pytest.mark.parametrize("preset", ["conv-ctc", "attention"])
def test_phones_become_the_words_of_a_pronouncing_lexicon(tmp_path, preset):
    def phones(text):
        return " ".join(text.replace(" ", "")).upper()

    rows = [(x, phones(text)) for x, text in recordings(300)]
    steps = 200 if preset == "conv-ctc" else 10
    model = tiny(preset, steps=steps, tokens="word").fit(rows, valid=rows[:4])
    (tmp_path / "spoken.tsv").write_text("".join(f"{w}\t{phones(w)}\n" for w in WORDS))
    test = recordings(20, seed=4)
    if preset == "conv-ctc":
        scores = model.score(test, lexicon=str(tmp_path / "spoken.tsv"))
        assert scores["wer"] < 15
    ((found,),) = model.transcribe([test[0][0]], lexicon=str(tmp_path / "spoken.tsv"))
    assert [word.word for word in found.words] == found.text.split()


def test_n_best_are_in_order_and_different():
    (found,) = brief("conv-ctc").transcribe([recordings(1, seed=6)[0][0]], n_best=5)
    assert len({t.text for t in found}) == 5
    assert [t.score for t in found] == sorted((t.score for t in found), reverse=True)


@pytest.mark.parametrize("preset", PRESETS)
def test_n_best_texts_never_repeat_and_are_as_many_as_asked(preset):
    """Without merging, most of these have a text twice: with a space after it, and without."""
    model = brief(preset)
    inputs = [x for x, _ in recordings(6, seed=8)]
    for options in ({"n_best": 8}, {"n_best": 4, "beam": 4}):
        for found in model.transcribe(inputs, **options):
            assert len({t.text for t in found}) == len(found) == options["n_best"]
            assert [t.score for t in found] == sorted((t.score for t in found), reverse=True)
    first = [found[0].text for found in model.transcribe(inputs, n_best=8)]
    assert first == model.predict(inputs, n_best=8)


def test_a_text_counts_all_its_spellings_and_is_ranked_by_the_best_one():
    model = brief("conv-ctc")
    x = recordings(1, seed=8)[0][0]
    whole = frame_log_probs(model.model_, [model.ear_.hear(as_item(x, 1, 0))])[0]
    plain = an.search.ctc_beam(whole[None], width=64, n_best=64)[0]
    (found,) = model.transcribe([x], n_best=3, beam=64)
    for t in found:
        same = [h for h in plain if text_of(h, model.tokenizer_) == t.text]
        assert t.score == pytest.approx(same[0].score)
        assert math.exp(t.log_prob) == pytest.approx(sum(math.exp(h.log_prob) for h in same))


@pytest.mark.parametrize("preset", ["conv-ctc", "transducer"])
def test_the_narrowest_beam_with_a_lexicon_still_writes_words(preset):
    """A beam of one beginning lost the word that was being spelled, and a recording in six had an empty text."""
    model = brief(preset) if preset == "transducer" else trained(preset)
    rows = recordings(30, seed=12)
    found = model.predict([x for x, _ in rows], beam=1, lexicon="train")
    assert all(found)
    assert sum(text == said for text, (_, said) in zip(found, rows, strict=True)) >= 24


def test_long_recordings_in_windows_read_as_the_whole():
    model = trained()
    x = np.concatenate([x for x, _ in recordings(30, seed=7)])
    (whole,) = model.predict([x], window=1000)
    (cut,) = model.predict([x], window=4, overlap=2)
    assert len(whole) > 150
    assert cut == whole
    ((found,),) = model.transcribe([x], window=4, overlap=2)
    starts = [word.start for word in found.words]
    assert starts == sorted(starts)
    assert found.words[-1].end == pytest.approx(len(x) * 0.01, abs=0.2)


@pytest.mark.parametrize("preset", ["attention", "joint"])
def test_a_decoder_reads_long_recordings_window_by_window(preset):
    model = brief(preset)
    x = np.concatenate([x for x, _ in recordings(12, seed=7)])
    ((found,),) = model.transcribe([x], window=3, overlap=1)
    assert found.words
    assert found.text == " ".join(word.word for word in found.words)
    assert max(word.end for word in found.words) <= len(x) * 0.01 + 0.05


def test_a_model_comes_back_from_its_folder(tmp_path):
    model = trained()
    model.save(tmp_path / "kept")
    again = an.load(tmp_path / "kept")
    inputs = [x for x, _ in recordings(5, seed=8)]
    assert again.predict(inputs) == model.predict(inputs)
    assert again.predict(inputs, lexicon="train") == model.predict(inputs, lexicon="train")


# ---------------------------------------------------------------------- files


def tone(path, pitch, seconds=0.4, rate=8000):
    t = np.arange(int(seconds * rate)) / rate
    samples = (12000 * np.sin(2 * np.pi * pitch * t)).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A list of recordings of two pitches, and a model that tells them apart."""
    pytest.importorskip("soundfile")
    folder = tmp_path_factory.mktemp("sounds")
    rows = []
    for i in range(24):
        low = i % 2 == 0
        tone(folder / f"{i:02}.wav", 300 + 5 * i if low else 1500 + 20 * i)
        rows.append(f"{i:02}.wav\t{'low' if low else 'high'}\n")
    (folder / "list.tsv").write_text("".join(rows))
    model = tiny("conv-ctc", steps=60, tokens="word", bins=20).fit(folder / "list.tsv", out=folder / "run")
    return folder, model


def test_sound_files_are_learnt_from_and_read(place):
    folder, model = place
    assert model.ear_.rate == 8000
    assert (folder / "run" / "learnt.json").exists()
    found = model.predict([folder / "00.wav", str(folder / "01.wav")])
    assert len(found) == 2
    assert model.predict(folder / "00.wav") == found[:1]
    assert model.predict(folder / "list.tsv")[:2] == found


def test_a_csv_list_names_recordings_of_a_model_of_sound(place, tmp_path):
    """Whatever the training data were; a model of frames reads frames from it."""
    folder, model = place
    (tmp_path / "list.csv").write_text(f"path,text\n{folder}/00.wav,low\n{folder}/01.wav,high\n")
    assert model.predict(tmp_path / "list.csv") == model.predict([folder / "00.wav", folder / "01.wav"])


def test_whole_numbers_from_python_are_heard_as_those_of_a_file(place):
    """`scipy.io.wavfile` reads int16; taken for −1 … 1 that is thousands of times too loud."""
    folder, model = place
    with wave.open(str(folder / "00.wav")) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    frames = model._hear(folder / "00.wav")
    for given in (samples, samples.astype(np.int32) << 16, samples / 32768, (samples / 32768).tolist()):
        np.testing.assert_allclose(model._hear((given, 8000)), frames, atol=1e-4)
    theirs = {"array": samples / 32768, "sampling_rate": 8000}  # as Hugging Face's datasets give it
    assert model.predict([theirs]) == model.predict([folder / "00.wav"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda x: x, r"write \[recording\]"),
        (lambda x: (x, 8000), r"write \[recording\]"),
        (lambda x: [(np.stack([x, x], 1), 8000)], r"the shape \(800, 2\); give one channel"),
        (lambda x: [(x, 8000, 1)], "3 parts"),
        (lambda x: [(np.zeros(100_000, np.float32), 1)], "too long at 8000 Hz"),
        (lambda x: [(x + np.float32(1e30), 8000)], "samples of 1e\\+30"),
    ],
)
def test_sound_from_python_that_cannot_be_heard_is_told_in_a_sentence(place, given, told):
    with pytest.raises(DataError, match=told) as error:
        place[1].predict(given(np.zeros(800, np.float32)))
    assert is_one_sentence(error.value)


def answers(model, source, **options):
    return list(respond(model, str(source), options))


def test_a_file_a_folder_and_a_list_are_answered(place, tmp_path):
    folder, model = place
    (one,) = answers(model, folder / "00.wav")
    assert one.text == one.record["output"]
    assert one.record["seconds"] == pytest.approx(0.4, abs=0.03)
    whole = answers(model, folder / "list.tsv")
    assert [r.text for r in whole] == [
        f"{folder / f'{i:02}.wav'}\t{r.record['output']}" for i, r in enumerate(whole)
    ]
    assert [r.record["file"] for r in answers(model, folder)] == [r.record["file"] for r in whole]
    (best,) = answers(model, folder / "00.wav", n_best=2)
    assert len(best.record["outputs"]) == 2
    assert json.dumps(best.record)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="folder without recordings"):
        answers(model, empty)


def test_what_cannot_be_read_stops_or_is_left_out_and_counted(place, tmp_path):
    folder, model = place
    (tmp_path / "broken.wav").write_bytes((folder / "01.wav").read_bytes()[:60])
    (tmp_path / "list.txt").write_text(f"{folder / '00.wav'}\nbroken.wav\nmissing.wav\n{folder / '01.wav'}\n")
    with pytest.raises(DataError) as told:
        answers(model, tmp_path / "list.txt")
    assert is_one_sentence(told.value)
    with pytest.warns(UserWarning, match="2 of 4"):
        found = answers(model, tmp_path / "list.txt", bad_rows="skip")
    assert [r.record["output"] is None for r in found] == [False, True, True, False]
    assert "missing.wav" in found[2].record["error"]
    (tmp_path / "test.tsv").write_text(f"{folder / '00.wav'}\tlow\nbroken.wav\tlow\n")
    scores = model.score(tmp_path / "test.tsv", bad_rows="skip")
    assert (scores["examples"], scores["skipped"]) == (1, 1)


# ---------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ([], "no usable row"),
        ([(np.zeros((3, 2)), "a"), (np.zeros((3, 4)), "b")], "numbers in a frame"),
        ([(np.full((3, 2), np.nan), "a")] * 3, "finite|NaN|nan"),
        ("nowhere.tsv", "nowhere.tsv"),
        ([(np.zeros((2, 3)), "far too long a text for two frames")] * 4, "as many frames"),
    ],
)
def test_data_that_cannot_be_used_is_told_in_a_sentence(data, told):
    with pytest.raises(AnaphoraError, match=told) as error:
        tiny(steps=1).fit(data)
    assert is_one_sentence(error.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"lexicon": "nowhere.txt"}, "nowhere.txt"),
        ({"lm": "nowhere.arpa"}, "nowhere.arpa"),
        ({"beam": 2, "n_best": 3}, "n_best = 3"),
        ({"window": 2, "overlap": 3}, "overlap = 3"),
        ({"word_bonus": 1.0}, "lexicon"),
        ({"lm_weight": 2.0, "lexicon": "train"}, "lm_weight has no effect without lm"),
        ({"hot_bonus": 3.0}, "hot_bonus has no effect without hot_words"),
        ({"bem": 3}, "Did you mean beam"),
    ],
)
def test_options_that_cannot_be_used_are_told_in_a_sentence(options, told):
    with pytest.raises(AnaphoraError, match=told) as error:
        brief("conv-ctc").predict([recordings(1)[0][0]], **options)
    assert is_one_sentence(error.value)


def test_inputs_that_do_not_fit_the_model_are_told_in_a_sentence(tmp_path):
    model = brief("conv-ctc")
    for x, told in ((np.zeros((4, 3)), "trained on 8"), (np.zeros(50), "not frames"), ({}, "numbers")):
        with pytest.raises(AnaphoraError, match=told) as error:
            model.predict([x])
        assert is_one_sentence(error.value)
    (tmp_path / "foreign.txt").write_text("bad\nzebra\n")
    with pytest.raises(DataError, match=r"foreign.txt:2.*zebra"):
        model.predict([recordings(1)[0][0]], lexicon=str(tmp_path / "foreign.txt"))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": "conv-ctc", "subsample": 3}, "subsample = 3"),
        ({"model": "conv-ctc", "kernel": 4}, "kernel = 4"),
        ({"model": "bilstm-ctc", "kernel": 3}, "no effect"),
        ({"hop": 0.03}, "hop = 0.03"),
        ({"model": "joint", "ctc_weight": 1.0}, "ctc_weight"),
        ({"model": "transformer-ctc", "hidden": 30, "heads": 4}, "heads = 4"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given, told):
    with pytest.raises(SettingsError, match=told):
        an.Transcriber(**given)


def test_a_plan_trains_nothing():
    plan = tiny().plan(recordings(30))
    assert plan["vocabulary"]["features"] == FEATURES
    assert plan["train"]["rows"] == 29
    assert plan["parameters"] > 0
