"""Interventions do exactly what they say, are where the views show them, and leave nothing behind."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import test_probing as reading
import torch

import anaphora as an
from anaphora.nn import inside
from anaphora.probe.changing import heads_of
from anaphora.probe.noted import weights_hash

PAIRS = [("a b c", "c b a"), ("b c", "c b"), ("a a b", "b a a"), ("c", "c")] * 4
X = "a b c"


@functools.cache
def translator(preset, **more):
    fields = an.Translator.task().used(preset)
    sizes = {**reading.TINY, "hidden": 8, "embedding": 6, "heads": 2, "feedforward": 8, "layers": 2}
    given = {key: value for key, value in {**sizes, **more}.items() if key in fields}
    return an.Translator(model=preset, tokens="word", max_length=4, **{"length_penalty": 1.0, **given}).fit(
        PAIRS, verbose=False
    )


@functools.cache
def reader(task, preset):
    return reading.trained(task, preset), reading.looked_at(task, preset)


def same(a, b):
    assert a.arrays.keys() == b.arrays.keys()
    for name in a.arrays:
        np.testing.assert_array_equal(a.array(name), b.array(name), err_msg=name)


@pytest.mark.parametrize("where", ["cross", "decoder", "encoder"])
def test_silencing_a_head_is_zeroing_its_columns_of_the_output_projection(where):
    m = translator("transformer")
    layer = heads_of(m.model_)[where][1]
    with m.intervene(an.Silence(layer=2, head=2, where=where)):
        found = m.probe(X, "c b a")
    kept = layer.outward.weight.detach().clone()
    with torch.no_grad():
        layer.outward.weight[:, layer.each :] = 0
    by_hand = m.probe(X, "c b a")
    with torch.no_grad():
        layer.outward.weight.copy_(kept)
    same(found, by_hand)
    assert np.abs(found.array("log_probs") - m.probe(X, "c b a").array("log_probs")).max() > 0


@pytest.mark.parametrize(
    ("preset", "where"),
    [
        ("lstm", "encoder"),
        ("lstm", "decoder"),
        ("lstm-attention", "decoder"),
        ("lstm-attention", "encoder"),
        ("transformer", "encoder"),
        ("transformer", "decoder"),
    ],
)
def test_a_clamped_unit_has_its_value_where_the_trace_shows_it_and_the_answer_follows(preset, where):
    m = translator(preset)
    plain = m.probe(X, "c b a")
    name = f"{where}_states"
    for index, (layer, direction) in enumerate(plain.layers(name)):
        with m.intervene(an.Clamp(layer, where, unit=3, value=1.5, at=2, direction=direction)):
            found = m.probe(X, "c b a")
        states, usual = found.array(name)[index], plain.array(name)[index]
        assert states[1, 2] == 1.5
        assert np.abs(found.array("log_probs") - plain.array("log_probs")).max() > 0
        if where == "decoder":  # what came before the place is as it was
            np.testing.assert_array_equal(states[0], usual[0])
            assert found.array("log_probs")[0] == plain.array("log_probs")[0]


def test_places_of_a_reversed_source_are_those_of_the_source():
    m = translator("lstm", reverse_source=True)
    assert m.model_.encoder.reverse
    plain = m.probe(X, "c b a").array("encoder_states")
    with m.intervene(an.Clamp(unit=1, value=9.0, at=1, where="encoder")):
        found = m.probe(X, "c b a").array("encoder_states")
    assert found[0, 0, 0] == 9.0
    assert (found[0, 1:] == plain[0, 1:]).all()  # they are read before it


@pytest.mark.parametrize(
    ("task", "preset"),
    [
        ("LanguageModel", "lstm"),
        ("LanguageModel", "transformer"),
        ("Tagger", "bilstm-crf"),
        ("Classifier", "mamba"),
        ("Classifier", "mingru"),
    ],
)
def test_layers_are_numbered_as_in_the_trace(task, preset):
    m, x = reader(task, preset)
    plain = m.probe(x)
    states = plain.array("states", "layer", "time", "unit")
    for index, (layer, direction) in enumerate(plain.layers("states")):
        with m.intervene(an.Clamp(layer, unit=2, value=0.75, direction=direction)):
            found = m.probe(x).array("states")
        assert (found[index, :, 1] == 0.75).all()
        other = [k for k, one in enumerate(plain.layers("states")) if one.number == layer and k != index]
        assert (found[other] == states[other]).all()
        below = [k for k, one in enumerate(plain.layers("states")) if one.number < layer]
        assert (found[below] == states[below]).all()
    same(plain, m.probe(x))


@pytest.mark.parametrize("preset", ["bilstm", "mamba", "mingru"])
def test_D2_a_place_of_a_backward_direction_is_that_of_the_text(preset):
    m, x = reader("Classifier", preset)
    plain = m.probe(x)
    layers = plain.layers("states")
    assert {one.direction for one in layers} == {"forward", "backward"}
    index = layers.index((1, "backward"))
    with m.intervene(an.Clamp(unit=2, value=0.75, at=2, direction="backward")):
        found = m.probe(x).array("states")
    assert found[index, 1, 1] == 0.75
    assert (found[index, 2:] == plain.array("states")[index, 2:]).all()  # they are read before it
    with m.intervene(an.Patch(at=2, source=x)):  # both directions, by their own values
        same(plain, m.probe(x))
    with pytest.raises(an.AnaphoraError, match="layer 1 reads both ways"), m.intervene(an.Clamp(unit=2)):
        m.probe(x)
    with pytest.raises(an.AnaphoraError, match="forward and backward"), m.intervene(an.Clamp(layer=9)):
        m.probe(x)


@pytest.mark.parametrize("preset", ["lstm", "lstm-attention", "gru-attention", "transformer"])
@pytest.mark.parametrize("where", ["encoder", "decoder"])
def test_a_state_patched_by_its_own_value_changes_nothing(preset, where):
    m = translator(preset)
    at = 1 if where == "decoder" else 2  # the model's own output may be short
    plain = m.probe(X)
    with m.intervene(an.Patch(at=at, source=X, where=where)):
        found = m.probe(X)
    same(plain, found)
    with m.intervene(an.Patch(at=at, source="c c a", where=where)):
        other = m.probe(X, "c b a")
    assert np.abs(other.array("log_probs") - m.probe(X, "c b a").array("log_probs")).max() > 0


def test_a_patched_recurrent_state_goes_on_as_the_other_text_would():
    m, _ = reader("LanguageModel", "lstm")
    other = m.probe("bab").array("states")
    with m.intervene(an.Patch(at=3, source="bab")):
        found = m.probe("aab").array("states")
    # after place 3 both have the same state (h and c) and read the same symbol
    np.testing.assert_allclose(found[:, 2:], other[:, 2:], atol=1e-6)


@pytest.mark.parametrize("preset", ["lstm-attention", "transformer"])
def test_an_attention_cell_that_is_set_has_its_weight_and_the_others_share_the_rest(preset):
    m = translator(preset)
    plain = m.probe(X, "c b a")
    with m.intervene(an.Attend(layer=1 if preset != "transformer" else 2, at=2, to=3, weight=0.9)):
        found = m.probe(X, "c b a")
    row, usual = found.array("alignment")[1], plain.array("alignment")[1]
    assert row[2] == pytest.approx(0.9, abs=1e-6)
    assert row.sum() == pytest.approx(1.0, abs=1e-6)
    if preset == "lstm-attention":
        np.testing.assert_allclose(row[:2] / row[0], usual[:2] / usual[0], rtol=1e-4)
    np.testing.assert_array_equal(found.array("alignment")[0], plain.array("alignment")[0])
    assert found.array("log_probs")[1] != plain.array("log_probs")[1]


def test_a_head_that_may_not_see_a_place_is_not_made_to():
    m, _ = reader("LanguageModel", "transformer")
    with (
        pytest.raises(an.AnaphoraError, match="cannot be seen"),
        m.intervene(an.Attend(at=1, to=3, weight=0.5)),
    ):
        m.probe("aab")


def test_noise_is_the_same_in_every_run_and_follows_its_seed():
    m, x = reader("LanguageModel", "lstm")

    def noisy(**given):
        with m.intervene(an.Noise(std=0.3, **given)):
            return m.probe(x).array("states")

    assert (noisy() == noisy()).all()
    assert (noisy(seed=2) != noisy()).any()
    one = noisy(unit=2, at=1) - m.probe(x).array("states")
    assert set(np.argwhere(one[0, 0] != 0).ravel()) == {1}


def test_an_effect_has_the_loss_of_the_answer_before():
    m = translator("transformer")
    found = m.effect(X, [an.Silence(layer=1, head=1), an.Silence(layer=1, head=2)])
    assert found.wanted == found.before.facts["output_text"]
    usual = -m.probe(X, found.wanted).array("log_probs").mean()
    with m.intervene(an.Silence(layer=1, head=1), an.Silence(layer=1, head=2)):
        changed = -m.probe(X, found.wanted).array("log_probs").mean()
    assert found.delta == pytest.approx(changed - usual, abs=1e-7)
    assert "Δ loss" in repr(found)
    classifier, x = reader("Classifier", "lstm")
    effect = classifier.effect(x, [an.Clamp(unit=1, value=3.0)])
    p = dict(zip(effect.after.tokens["symbol"], effect.after.array("probabilities"), strict=True))
    assert effect.loss_after == pytest.approx(-np.log(p[effect.wanted]), rel=1e-4)


def test_predict_follows_and_everything_is_as_before_afterwards():
    m = translator("lstm-attention")
    hashed, usual = weights_hash(m.model_), m.predict([X, "b c"])
    hooks = sum(len(module._forward_pre_hooks) for module in m.model_.modules())
    with m.intervene(an.Clamp(unit=1, value=50.0), an.Clamp(unit=2, value=-50.0), an.Noise(std=20.0)):
        other = m.predict([X, "b c"])
    with pytest.raises(ZeroDivisionError), translator("transformer").intervene(an.Silence(head=2)):
        _ = 1 / 0
    assert m.predict([X, "b c"]) == usual != other
    assert weights_hash(m.model_) == hashed
    assert hooks == sum(len(module._forward_pre_hooks) for module in m.model_.modules())
    assert not inside.recording()


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: an.Silence(head=9), "heads 1 to 2"),
        (lambda: an.Silence(layer=7), "layers 1 to 2"),
        (lambda: an.Clamp(layer=9, unit=1), "no such place"),
        (lambda: an.Clamp(unit=99), "units 1 to 8"),
        (lambda: an.Clamp(unit=1, at=40), "no such place"),
        (lambda: an.Clamp(unit=0), "counts from 1"),
        (lambda: an.Attend(at=1, to=1, weight=2.0), "0 to 1"),
        (lambda: an.Attend(at=1, to=40), "cannot be seen"),
        (lambda: an.Patch(at=1), "name the other input"),
        (lambda: an.Patch(at=30, source=X), "places 1 to"),
        (lambda: an.Clamp(where="middle"), "encoder, decoder, cross"),
    ],
)
def test_what_is_not_there_is_one_sentence(made, reason):
    m = translator("transformer")
    with pytest.raises(an.AnaphoraError, match=reason), m.intervene(made()):
        m.probe(X, "c b a")


def test_models_without_an_inside_say_so():
    m = an.Tagger(model="hmm").fit([("a b c", "X Y X"), ("b a", "Y X")] * 6, verbose=False)
    with pytest.raises(an.AnaphoraError, match="no network"):
        m.effect("a b", [an.Clamp()])
    bag, x = reader("Classifier", "bow")
    with pytest.raises(an.AnaphoraError, match="none of its layers"), bag.intervene(an.Clamp()):
        bag.predict([x])
    attentive = translator("lstm-attention")
    with pytest.raises(an.AnaphoraError, match="no attention with heads"), attentive.intervene(an.Silence()):
        attentive.probe(X)


def test_each_is_a_line_of_python():
    one = an.Attend(layer=2, at=3, to=1, weight=0.5)
    assert one.code() == "an.Attend(layer=2, at=3, to=1, weight=0.5)"
    assert eval(one.code(), {"an": an}) == one
