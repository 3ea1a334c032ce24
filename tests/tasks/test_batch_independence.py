"""X11: The output for one input never depends on the batch it is in, and padding is never attended to."""

from __future__ import annotations

import random

import pytest
import torch
from tasks_tiny import ATTENTIVE, LETTERS, PRESETS

from anaphora.data.symbols import BOS, EOS, PAD
from anaphora.nn import inside
from anaphora.tasks.decoding import ROWS
from anaphora.tasks.translate.inference import search_outputs
from sweeps import sweep

SEARCH = {"beam": 5, "n_best": 3, "length_penalty": 1.0, "max_length": 14}


def mixed(count: int) -> list[str]:
    """Words of very different lengths: most are short, a few have up to 60 letters, one is empty."""
    draw = random.Random("mixed")
    lengths = [draw.choice([1, 2, 3, 5, 8, 13, 30, 60]) for _ in range(count - 1)]
    return ["", *("".join(draw.choices(LETTERS, k=length)) for length in lengths)]


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    table = torch.full((len(rows), int(lengths.max())), PAD)
    for place, row in zip(table, rows, strict=True):
        place[: len(row)] = torch.tensor(row)
    return table, lengths


@pytest.mark.parametrize("preset", PRESETS)
def test_hypotheses_alone_and_in_a_batch_of_64_are_identical(of_preset, preset):
    model = of_preset(preset)
    sources = model._encode(mixed(64))
    assert len(sources) == ROWS  # one search for all
    together = search_outputs(model.model_, sources, **SEARCH)
    for source, batched in list(zip(sources, together, strict=True))[:: sweep(7, 1)]:
        (alone,) = search_outputs(model.model_, [source], **SEARCH)
        assert [h.tokens for h in alone] == [h.tokens for h in batched]
        assert [h.finished for h in alone] == [h.finished for h in batched]
        for mine, other in zip(alone, batched, strict=True):
            assert mine.score == pytest.approx(other.score, abs=1e-5)
            assert mine.steps == pytest.approx(other.steps, abs=1e-5)
    assert len({tuple(nbest[0].tokens) for nbest in together}) >= 3  # the model does look at its input


@pytest.mark.parametrize("preset", PRESETS)
def test_neighbours_in_the_batch_do_not_matter(of_preset, preset):
    """The same input between short and between long neighbours, in several places of the batch."""
    model = of_preset(preset)
    source, short, long = model._encode(["cafe", "a", "fade" * 15])
    (alone,) = search_outputs(model.model_, [source], **SEARCH)
    for batch in ([short, source, short], [source, long, long, long], [long] * 5 + [source]):
        found = search_outputs(model.model_, batch, **SEARCH)[batch.index(source)]
        assert [h.tokens for h in found] == [h.tokens for h in alone]
        assert [h.score for h in found] == pytest.approx([h.score for h in alone], abs=1e-5)


@pytest.mark.parametrize("preset", ATTENTIVE)
def test_padding_gets_no_attention_and_rows_sum_to_one(of_preset, preset):
    model = of_preset(preset).model_.eval()
    draw = random.Random(1)
    rows = [[draw.randrange(4, 10) for _ in range(length)] + [EOS] for length in (1, 12, 4, 7, 12)]
    source, lengths = padded(rows)
    target, _ = padded([[BOS, *draw.choices(range(4, 10), k=length)] for length in (3, 9, 5, 1, 9)])
    real = torch.arange(source.shape[1]) < lengths[:, None]
    with torch.no_grad(), inside.record() as notes:
        model(source, lengths, target)
    names = {id(module): name for name, module in model.named_modules()}
    over_source = {id(module) for module in model.decoder.attentions}
    over_source |= {
        i for i, name in names.items() if name.startswith("encoder")
    }  # a Transformer reads itself
    weights = [n.value for n in notes if n.name == "weights" and id(n.module) in over_source]
    assert weights
    for weight in weights:  # (batch, [head,] query, key)
        hidden = ~real.view(len(rows), *[1] * (weight.dim() - 2), -1)
        assert (weight[hidden.expand_as(weight)] == 0).all()
        torch.testing.assert_close(weight.sum(-1), torch.ones(weight.shape[:-1]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("preset", ATTENTIVE)
def test_padding_gets_no_attention_while_searching_either(of_preset, preset):
    model = of_preset(preset).model_.eval()
    source, lengths = padded([[5, EOS], [4, 5, 6, 7, 8, 9, 4, EOS], [9, 8, 7, EOS]])
    hidden = torch.arange(source.shape[1]) >= lengths[:, None]
    with torch.no_grad(), inside.record() as notes:
        state = model.start(model.encode(source, lengths))
        notes.clear()
        symbols = torch.full((3,), BOS)
        for _ in range(4):
            log_probs, state = model.step(symbols, state)
            symbols = log_probs.argmax(-1)
    attended = {id(module) for module in model.decoder.attentions}
    weights = [note.value for note in notes if note.name == "weights" and id(note.module) in attended]
    assert len(weights) == 4 * len(attended)
    for weight in weights:
        places = hidden.view(3, *[1] * (weight.dim() - 2), -1).expand_as(weight)
        assert (weight[places] == 0).all()
        torch.testing.assert_close(weight.sum(-1), torch.ones(weight.shape[:-1]), atol=1e-6, rtol=0)
