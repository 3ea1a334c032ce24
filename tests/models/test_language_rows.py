"""Rows of a language model that join and leave a running batch: the same bits as alone, for every preset."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn

from anaphora.errors import AnaphoraError
from anaphora.models.classical.ngram import NGram
from anaphora.models.own import own_language
from anaphora.models.paged import PAGE, PagedBody
from anaphora.models.rows import LanguageRows, language_rows, read_prompt
from anaphora.search import join_rows, select_rows
from anaphora.tasks.language.build import build_language
from anaphora.tasks.language.info import LANGUAGE

SYMBOLS, STEPS = 37, 30
SIZES = {"hidden": 36, "embedding": 20, "layers": 2}  # no multiple of a vector's width
NEURAL = [name for name in LANGUAGE.presets if name not in ("ngram", "masked", "transformer")]
CASES: dict[str, dict[str, Any]] = {name: {"model": name} for name in NEURAL}
CASES |= {
    f"transformer {more}": {"model": "transformer", "context": 24, "feedforward": 50, "heads": 2, **more}
    for more in (
        {},
        {"positions": "rotary"},
        {"positions": "alibi"},
        {"positions": "learned"},
        {"kv_heads": 1},
        {"attention_window": 5},
        {"activation": "gelu", "norm_first": False},
    )
}
CASES["lstm highway"] = {"model": "lstm", "connections": "highway", "embedding": 36}


def made(case: str) -> Any:
    torch.manual_seed(0)
    given = CASES[case]
    sizes = {
        key: value for key, value in SIZES.items() if given["model"] != "transformer" or key != "embedding"
    }
    settings = LANGUAGE.settings(**{**LANGUAGE.presets[given["model"]].defaults, **sizes, **given})
    return build_language(settings, SYMBOLS).eval()


def texts(rows: int) -> torch.Tensor:
    return torch.randint(0, SYMBOLS, (rows, STEPS), generator=torch.Generator().manual_seed(3))


def alone(rows: LanguageRows, symbols: torch.Tensor) -> list[torch.Tensor]:
    state, found = rows.start(1), []
    for symbol in symbols:
        log_probs, state = rows.step(symbol[None], state)
        found.append(log_probs[0])
    return found


@pytest.mark.parametrize("case", CASES)
def test_rows_that_join_and_leave_at_any_step_have_the_bits_of_rows_alone(case):
    model = made(case)
    rows, given = LanguageRows(model), texts(6)
    wanted = [alone(rows, each) for each in given]
    plain, state = [], model.start(1)
    with torch.no_grad():
        for symbol in given[0]:
            log_probs, state = model.step(symbol[None], state)
            plain.append(log_probs[0])
    torch.testing.assert_close(torch.stack(plain), torch.stack(wanted[0]), atol=2e-5, rtol=0)
    pool, draw = rows.pool(2000), random.Random(5)
    waiting, live, state = list(range(6)), [], None
    while waiting or live:
        if waiting and (not live or draw.random() < 0.3):
            live.append([waiting.pop(0), 0])
            fresh = rows.start(1, pool)
            state = fresh if state is None else join_rows([state, fresh])
        symbols = torch.tensor([int(given[row, place]) for row, place in live])
        log_probs, state = rows.step(symbols, state)
        for each, found in zip(live, log_probs, strict=True):
            assert torch.equal(found, wanted[each[0]][each[1]])
            each[1] += 1
        kept = [i for i, (_, place) in enumerate(live) if place < STEPS and draw.random() > 0.02]
        state = select_rows(state, torch.tensor(kept, dtype=torch.long)) if kept else None
        live = [live[i] for i in kept]
    if pool is not None:
        assert pool.used == 0  # what has left holds no page


@pytest.mark.parametrize("case", CASES)
def test_a_prompt_read_at_once_leaves_the_state_of_single_steps(case):
    rows, (given,) = LanguageRows(made(case)), texts(1)
    wanted = alone(rows, given)
    (found,), _ = rows.extend([given.tolist()], rows.start(1), outputs=True)
    torch.testing.assert_close(found, torch.stack(wanted), atol=1e-5, rtol=0)
    log_probs, _ = rows.step(given[-1:], read_prompt(rows, given[:-1].tolist()))
    torch.testing.assert_close(log_probs[0], wanted[-1], atol=1e-5, rtol=0)
    if case.startswith("transformer"):  # whose places are computed one by one in any case
        assert torch.equal(found, torch.stack(wanted))
        assert torch.equal(log_probs[0], wanted[-1])


def test_rows_that_began_together_share_pages_and_then_part():
    rows = LanguageRows(made("transformer {}"))
    body = rows.body
    assert isinstance(body, PagedBody)
    pool = rows.pool(1000)
    begun = list(range(PAGE + 3))
    state = rows.extend([begun], rows.start(1, pool))[1]
    assert pool.used == 2
    both = select_rows(state, torch.tensor([0, 0, 0]))
    for symbols in ([5, 6, 7], [8, 8, 8]):
        log_probs, both = rows.step(torch.tensor(symbols), both)
    assert pool.used == 4  # the first page is shared, the second is each one's own
    for row, symbols in enumerate(([5, 8], [6, 8], [7, 8])):
        assert torch.equal(log_probs[row], alone(rows, torch.tensor([*begun, *symbols]))[-1])
    with pytest.raises(AnaphoraError, match="places of the past are in use"):
        rows.extend([list(range(PAGE + 1))], rows.start(1, rows.pool(PAGE)))


@pytest.mark.parametrize("context", [2, 3, 8, 9])
def test_of_a_long_prompt_only_the_last_window_is_read(context):
    CASES["short"] = {"model": "transformer", "context": context, "heads": 4}
    rows = LanguageRows(made("short"))
    del CASES["short"]
    for length in range(1, 4 * context):
        symbols = texts(1)[0, :length].tolist()
        needed = rows.needed(symbols)
        _, state = rows.extend([symbols], rows.start(1))
        assert state.rows[0].symbols == tuple(needed)


def test_models_of_ones_own_and_counts_go_row_by_row():
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(SYMBOLS, SYMBOLS)

        def forward(self, symbols: torch.Tensor) -> torch.Tensor:
            count = torch.arange(1, symbols.shape[1] + 1)[:, None]
            return self.table(symbols).cumsum(1) / count

    torch.manual_seed(0)
    ngram = NGram(3, vocab_size=SYMBOLS).fit([[5, 6, 7, 8, 9] * 4, [7, 5, 6, 9]])
    for model in (own_language(Mean(), SYMBOLS, 6).eval(), ngram):
        rows, given = language_rows(model), [[5, 6, 7], [8], [9, 9, 9, 5, 6, 7, 7, 8]]
        states = [read_prompt(rows, each) for each in given]
        wanted = [rows.step(torch.tensor([6]), state)[0][0] for state in states]
        found, _ = rows.step(torch.tensor([6, 6, 6]), join_rows(states))
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_without_a_compiler_rows_are_still_alone(monkeypatch):
    monkeypatch.setattr("anaphora.ops.packed.library.ready", lambda *_: False)
    for case in ("transformer {}", "nplm"):
        rows, given = LanguageRows(made(case)), texts(3)
        assert rows.model.body is not None
        wanted = [alone(rows, each[:9])[-1] for each in given]
        pool = rows.pool(500)
        states = [rows.extend([each[:8].tolist()], rows.start(1, pool))[1] for each in given]
        found, _ = rows.step(given[:, 8], join_rows(states))
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
