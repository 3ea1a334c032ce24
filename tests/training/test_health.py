from __future__ import annotations

import pytest
from training_toy import Heard, ToyObjective, finish, toy_settings

from anaphora.training.health import Health
from anaphora.training.journal import read_journal


def health(**changes):
    return Health(toy_settings(**changes), chance=2.0)


def outputs(*texts):
    return [{"source": "a", "reference": "b", "output": text} for text in texts]


def test_a_loss_above_that_of_a_uniform_guess_is_said_once_and_not_while_warming_up():
    one = health(warmup=300)
    assert one.logged(300, 2.5) == []
    (finding,) = one.logged(301, 2.5)
    assert finding.kind == "above-chance"
    assert "2.50 at step 301 is above ln V = 2.00" in finding.message
    assert one.logged(400, 2.6) == []
    assert health().logged(301, 1.9) == []


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["", " ", ""], "empty"),
        (["<unk>", "<unk> <unk>", ""], "unknown"),
        (["the the the", "the the the the"], "repeating"),
        (["the the the", "a dog"], None),
        (["yes", "no"], None),
        ([], None),
    ],
)
def test_outputs_that_betray_a_model(texts, kind):
    findings = health().evaluated(7, outputs(*texts))
    assert [finding.kind for finding in findings] == ([kind] if kind else [])


def test_what_went_away_is_said_again_when_it_returns():
    one = health()
    assert one.evaluated(1, outputs(""))
    assert not one.evaluated(2, outputs(""))
    assert not one.evaluated(3, outputs("a dog"))
    assert one.evaluated(4, outputs(""))


def test_clipping_nearly_always_is_said_with_the_numbers():
    one = health(clip=0.5, warmup=0)
    one.logged(200, 1.0)
    for step in range(200):
        one.stepped(1.0, norm=3.0, clipped=step % 50 < 41)
    (finding,) = one.logged(400, 1.0)
    assert finding.message.startswith("82% of the last 200 steps before step 400 were clipped to 0.5")
    assert "mean gradient norm 3" in finding.message
    other = health(clip=0.5)
    other.logged(200, 1.0)
    for step in range(200):
        other.stepped(1.0, norm=3.0, clipped=step % 2 == 0)
    assert other.logged(400, 1.0) == []


def test_divergence_needs_several_steps_in_a_row():
    one = health()
    one.stepped(1.5, 1.0, False)
    assert [one.stepped(201.0, 1.0, False) for _ in range(4)] == [None] * 4
    assert one.stepped(1.0, 1.0, False) is None
    said = [one.stepped(201.0, 1.0, False) for _ in range(5)]
    assert said[:4] == [None] * 4
    assert said[4] == "the loss has been above 200 for 5 steps and is now 201 (a uniform guess has 2.0)"
    free = Health(toy_settings(), chance=None)  # without a uniform guess the first loss is the measure
    assert [free.stepped(loss, 1.0, False) for loss in (1e6, *[1e9] * 6)] == [None] * 7


def test_memory_survives_a_checkpoint():
    one = health()
    one.evaluated(1, outputs(""))
    one.stepped(300.0, 1.0, True)
    other = health()
    other.restore(one.state())
    assert other == one


def test_findings_reach_the_reporter_and_the_journal(tmp_path):
    class Silent(ToyObjective):
        def samples(self, model):
            return outputs("", "")

    heard = Heard()
    finish(tmp_path / "run", objective=Silent(), reporter=heard)
    lines = [x for x in read_journal(tmp_path / "run" / "metrics.jsonl") if "health" in x]
    assert [(x["step"], x["health"]) for x in lines] == [(7, "empty")]
    assert heard.warned == [lines[0]["message"]]
