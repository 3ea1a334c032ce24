"""CTC beams, over symbols and over a lexicon of 10 000 words, against flashlight-text and pyctcdecode. Run: python benchmarks/ctc_beam.py [--json] [--times N]

One process, one thread, both sides in turn, the least of N times; width 50, 200 frames of 32 symbols. Over symbols the
outputs are noisy, and beside inputs per second the rows compare the exact −log p(y | x) of the best hypothesis, which
must be no higher than the peer's. Over the lexicon, sentences of made-up words are spoken into the same noise, each word
costs 2 nats on both sides, and the share of wrong characters must be no higher. The decoders are not installed with us:
``pip install flashlight-text`` and ``pip install --no-deps pyctcdecode pygtrie`` first, or their rows are left out. All
versions of pyctcdecode ask for numpy < 2, which nothing else here can be installed with; it works with numpy 2.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from anaphora.search import Lexicon, WordHypothesis, ctc_beam, ctc_loss
from ctc_peers import Search, WordSearch, flashlight, flashlight_words, pyctcdecode
from rows import against, row, show
from turns import least

BATCH, TIME, SYMBOLS, WIDTH = 32, 200, 32, 50
WORDS, WORD_BONUS = 10_000, -2.0
NAMES = ["-", "|", *"abcdefghijklmnopqrstuvwxyzäöüß"]


def noise(true: Tensor, spread: float) -> Tensor:
    """log p ``(inputs, TIME, SYMBOLS)`` of a model that is often wrong: a peak of 5 at the true symbol in noise."""
    scores = spread * torch.randn(*true.shape, SYMBOLS)
    return scores.scatter_add(2, true[:, :, None], torch.full((*true.shape, 1), 5.0)).log_softmax(-1)


def noisy_outputs(inputs: int) -> Tensor:
    """Any symbol every five frames, two frames long."""
    true = torch.zeros(inputs, TIME, dtype=torch.long)
    true[:, ::5] = torch.randint(1, SYMBOLS, (inputs, TIME // 5))
    true[:, 1::5] = true[:, ::5]
    return noise(true, 1.8)


def made_up_words(chance: random.Random) -> list[str]:
    """Words of one to four syllables."""
    consonants, vowels = "bcdfghjklmnpqrstvwxz", "aeiouyäöü"
    words: set[str] = set()
    while len(words) < WORDS:
        syllables = chance.choices((1, 2, 3, 4), (1, 4, 3, 1))[0]
        ends = ("", "", "", chance.choice(consonants), chance.choice(consonants))
        parts = [
            chance.choice(consonants) + chance.choice(vowels) + chance.choice(ends) for _ in range(syllables)
        ]
        words.add("".join(parts))
    return sorted(words)


def spoken(chance: random.Random, words: list[str], inputs: int) -> tuple[Tensor, list[str]]:
    """Sentences of up to 40 symbols over all frames, each symbol two frames long, in noise; and what was said."""
    true, said = torch.zeros(inputs, TIME, dtype=torch.long), []
    for item in true:
        sentence = ""
        while len(longer := f"{sentence}|{chance.choice(words)}".strip("|")) <= 40:
            sentence = longer
        for place, name in enumerate(sentence):
            at = place * TIME // len(sentence)
            item[at : at + 2] = NAMES.index(name)
        said.append(sentence)
    return noise(true, 1.6), said


def wrong_characters(found: list[list[str]], said: list[str]) -> float:
    """Edits per character."""
    edits = 0
    for words, right in zip(found, said, strict=True):
        last = list(range(len(right) + 1))
        for i, a in enumerate("|".join(words), 1):
            new = [i]
            for j, b in enumerate(right, 1):
                new.append(min(last[j] + 1, new[-1] + 1, last[j - 1] + (a != b)))
            last = new
        edits += last[-1]
    return edits / sum(map(len, said))


def ours_of(log_p: Tensor, threads: int = 1) -> list[list[int]]:
    return [found[0].tokens for found in ctc_beam(log_p, width=WIDTH, threads=threads)]


def our_words(log_p: Tensor, lexicon: Lexicon, threads: int = 1) -> list[list[str]]:
    best = ctc_beam(log_p, width=WIDTH, lexicon=lexicon, word_bonus=WORD_BONUS, threads=threads)
    return [h.words for found in best for h in found if isinstance(h, WordHypothesis)]


def beam_rows(peer: str, theirs: Search, inputs: int, goal: float, times: int) -> list[dict[str, Any]]:
    """Inputs per second, and the mean exact −log p of the best hypothesis."""
    log_p = noisy_outputs(inputs)
    mine, peers = (
        float(ctc_loss(log_p, side, reduction="sum", normalized=True)) / inputs
        for side in (ours_of(log_p), theirs(log_p))
    )
    fast, slow = least(lambda: ours_of(log_p), lambda: theirs(log_p), times)
    name = f"CTC prefix beam {WIDTH}, {TIME}×{SYMBOLS}"
    return [
        row(name, peer, inputs / fast, inputs / slow, "inputs/s", goal=goal, more_is_better=True),
        row("exact −log p of its best hypothesis", peer, mine, peers, "nats", goal=1.0),
    ]


def word_rows(times: int) -> list[dict[str, Any]]:
    chance = random.Random(0)
    words = made_up_words(chance)
    log_p, said = spoken(chance, words, 2 * BATCH)
    lexicon = Lexicon(words, NAMES, separator="|")
    spellings = [[NAMES.index(letter) for letter in word] for word in words]
    theirs: WordSearch = flashlight_words(WIDTH, SYMBOLS, words, spellings, 1, WORD_BONUS)
    wrong, peers_wrong = (wrong_characters(side, said) for side in (our_words(log_p, lexicon), theirs(log_p)))
    fast, slow = least(lambda: our_words(log_p, lexicon), lambda: theirs(log_p), times)
    name, rates = (
        f"CTC beam {WIDTH} on {WORDS} words, {TIME}×{SYMBOLS}",
        (len(log_p) / fast, len(log_p) / slow),
    )
    return [
        row(name, "flashlight-text", *rates, "inputs/s", goal=4.0, more_is_better=True),
        row("its share of wrong characters", "flashlight-text", wrong, peers_wrong, "", goal=1.0),
    ]


def thread_rows(times: int) -> list[dict[str, Any]]:
    """What a second thread brings to each of the two searches."""
    chance = random.Random(0)
    words = made_up_words(chance)
    lexicon = Lexicon(words, NAMES, separator="|")
    searches: tuple[tuple[str, Tensor, Callable[[Tensor, int], Any]], ...] = (
        ("CTC prefix beam", noisy_outputs(2 * BATCH), ours_of),
        (
            f"CTC beam on {WORDS} words",
            spoken(chance, words, 2 * BATCH)[0],
            lambda log_p, threads: our_words(log_p, lexicon, threads),
        ),
    )
    rows = []
    for name, log_p, search in searches:
        sides = (lambda p=log_p, s=search: s(p, 2)), (lambda p=log_p, s=search: s(p, 1))
        two, one = least(*sides, times)
        rates = (len(log_p) / two, len(log_p) / one)
        rows.append(row(f"{name}, two threads", "one", *rates, "inputs/s", goal=1.6, more_is_better=True))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: list[dict[str, Any]] = []
    few = max(options.times // 2, 1)
    peers: tuple[tuple[str, Callable[[], list[dict[str, Any]]]], ...] = (
        (
            "flashlight-text",
            lambda: (
                beam_rows("flashlight-text", flashlight(WIDTH, SYMBOLS), BATCH, 20.0, few)
                + word_rows(options.times)
            ),
        ),
        ("pyctcdecode", lambda: beam_rows("pyctcdecode", pyctcdecode(WIDTH, SYMBOLS), 8, 25.0, few)),
    )
    for name, measure in peers:
        rows += against(name, measure)
    rows += thread_rows(options.times)
    show(rows, as_json=options.json)


if __name__ == "__main__":
    main()
