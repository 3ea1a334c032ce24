"""Every kernel in C gives the same bits whatever compiler built it, and a row the same alone and in a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from anaphora.models.embeddings.sampling import alias_table
from anaphora.models.embeddings.windows import Outputs, aligned, train
from anaphora.models.embeddings.word2vec import huffman
from anaphora.native import isa
from anaphora.ops import packed, sound, transducer_sums
from anaphora.ops.crf import chain_sums
from anaphora.ops.grid import grid_states
from native_builds import BUILDS, COMPILERS, QUICK, use

pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler here")
ISAS = isa.executable()
FUSED = ("avx2", "avx512")
"""Instruction sets with fused multiply-adds: kernels whose sums have a fixed number of lanes agree under all of them."""


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def decoding() -> Iterator[Tensor]:
    x, weight, bias = draw(29, 300), draw(117, 300, seed=1), draw(117, seed=2)
    for int8 in (True, False):
        made = packed.pack(weight, bias, int8=int8)
        y = packed.linear(x, made)
        for row in (0, 5, 28):
            assert torch.equal(packed.linear(x[row : row + 1], made)[0], y[row])
        yield y
    memory, seen = draw(3, 21, 2 * 66, seed=3), draw(3, 21, seed=4) > -1
    item, query = torch.tensor([0, 2, 1, 2]), draw(4, 66, seed=5)
    found, looks = packed.attend_memory(query, 6, memory, item, seen)
    longer = torch.nn.functional.pad(memory, (0, 0, 0, 30)), torch.nn.functional.pad(seen, (0, 30))
    assert torch.equal(
        packed.attend_memory(query, 6, longer[0], item, longer[1])[0], found
    )  # padding is nothing
    yield from (found, looks, packed.best_symbols(draw(3, 1000, seed=6), 4, None)[0])


def chains() -> Iterator[Tensor]:
    lengths = torch.tensor([9, 0, 4, 13, 1])
    for tags in (3, 20, 33):
        scores = (draw(5, 13, tags), draw(tags, tags, seed=1), draw(tags, seed=2), draw(tags, seed=3))
        together = chain_sums(*scores, lengths)
        for row, length in enumerate(lengths.tolist()):
            alone = chain_sums(
                scores[0][row : row + 1, : max(length, 1)], *scores[1:], lengths[row : row + 1]
            )
            assert torch.equal(alone[0][0], together[0][row])
            assert torch.equal(alone[2][0, :length], together[2][row, :length])
            assert torch.equal(alone[3][0], together[3][row])
        yield from together


def vectors() -> Iterator[Tensor]:
    random = np.random.default_rng(0)
    counts = np.arange(60, 0, -1)
    ids = random.integers(-1, 60, 3000).astype(np.int32)
    for mean, negative in ((False, 5), (True, 5), (False, 0)):
        inputs, outputs = aligned(60, 40), aligned(60, 40)
        inputs[:, :40] = random.standard_normal((60, 40)) * 0.2
        against = Outputs(negative, *alias_table(counts**0.75), *huffman(counts))
        keep = np.full(60, 2**32, np.uint64)
        train(ids, keep, window=4, mean=mean, inputs=inputs, outputs=outputs, against=against, rates=(0.05, 0.04), seed=3)  # fmt: skip
        yield from (torch.from_numpy(inputs.copy()), torch.from_numpy(outputs.copy()))


def frames() -> Iterator[Tensor]:
    filters = torch.zeros(129, 7, dtype=torch.float64)
    for m in range(7):
        filters[10 * m : 10 * m + 25, m] = draw(25, seed=m).double().abs() + 0.1
    bank = sound.Bank.of(draw(200).double().abs() + 0.1, filters)
    waves = draw(3, 3000, seed=9)
    y = sound.energies(waves, torch.zeros(3, 1), None, 80, 0.97, bank)
    assert torch.equal(sound.energies(waves[1:2], torch.zeros(1, 1), None, 80, 0.97, bank)[0], y[1])
    yield y


def alignments() -> Iterator[Tensor]:
    logits, labels = 4 * draw(3, 9, 12, 37), torch.arange(1, 34).view(3, 11)
    frames, sizes = torch.tensor([9, 1, 6]), torch.tensor([11, 4, 0])
    job = transducer_sums.Job(logits, labels, frames, sizes, 0)
    found, weights = transducer_sums.forward(job), draw(3, seed=1)
    slope = transducer_sums.gradient(job, found, weights)
    for row in range(3):
        alone = transducer_sums.Job(*(each[row : row + 1].contiguous() for each in job[:4]), 0)
        again = transducer_sums.forward(alone)
        assert torch.equal(again.log_p[0], found.log_p[row])
        assert torch.equal(transducer_sums.gradient(alone, again, weights[row : row + 1])[0], slope[row])
    yield from (found.log_p, slope)


def pictures() -> Iterator[Tensor]:
    """Products with the input are PyTorch's, so a row alone is not compared here."""
    recurrent = (draw(2, 2, 35, 7, seed=1) * 0.3).requires_grad_()
    y = grid_states(draw(3, 5, 6, 4), draw(70, 4, seed=2) * 0.3, draw(70, seed=3), recurrent, ((False, True), (True, False)))  # fmt: skip
    y.square().sum().backward()
    assert recurrent.grad is not None
    yield from (y.detach(), recurrent.grad)


KERNELS: dict[
    str, tuple[Callable[[], Iterator[Tensor]], int]
] = {  # and how many results agree in all of FUSED
    "decoding": (decoding, 5),
    "chains": (chains, 12),
    "vectors": (vectors, 6),
    "sound": (frames, 1),
    "alignments": (alignments, 2),
    "pictures": (pictures, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_bits_do_not_depend_on_the_compiler_nor_on_the_batch(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compare(name, BUILDS, monkeypatch)


@pytest.mark.parametrize(
    ("name", "words"),
    [("decoding", ISAS), ("chains", ["avx2"]), ("vectors", ["avx2"]), ("alignments", list(FUSED))],
)
def test_bits_in_a_quick_part_of_that_sweep(
    name: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _compare(name, [build for build in QUICK if build[0] in words] or BUILDS[:1], monkeypatch)


def _compare(name: str, builds: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, list[Tensor]] = {}
    for word, tool in builds:
        use(monkeypatch, word, tool)
        results = list(KERNELS[name][0]())
        first = found.setdefault(word, results)
        for k, (a, b) in enumerate(zip(results, first, strict=True)):
            assert torch.equal(a, b), f"result {k} of {tool} for {word} differs from another compiler's"
    _agree(name, found)


def _agree(name: str, found: dict[str, list[Tensor]]) -> None:
    """Results with a fixed order of sums are the same under all instruction sets with fused multiply-adds."""
    fused = [results for word, results in found.items() if word in FUSED]
    for results in fused[1:]:
        for a, b in zip(results[: KERNELS[name][1]], fused[0], strict=False):
            assert torch.equal(a, b)


def test_eight_bits_are_exact_and_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against sums of integers: numbers at the ends of the range, where sixteen bits would saturate.

    Rows and columns hold ±127 only, so that both scales are known: y = (Σ q u) s_o s, all in single precision.
    """
    signs = torch.sign(draw(40, 517)) * 127
    signs[0], signs[1], signs[2] = 127, -127, torch.tensor([127.0, -127.0]).repeat(259)[:517]
    rows, columns = signs[:13], signs
    sums = (rows.long() @ columns.long().T).int()  # exact
    s, by = torch.tensor(0.75), torch.linspace(0.5, 2.0, 40)
    x, weight, bias = rows / 127 * (127 * s), columns / 127 * (127 * by[:, None]), draw(40)
    expected = sums.float() * ((weight.abs().amax(1)) / 127) * (x.abs().amax(1, keepdim=True) / 127) + bias
    assert int(sums.abs().max()) == 517 * 127**2
    drawn = draw(7, 300), draw(100, 300, seed=1)
    bits = []
    for word, tool in QUICK:
        use(monkeypatch, word, tool)
        assert packed.library.functions() is not None, f"{tool} does not compile for {word}"
        assert torch.equal(packed.linear(x, packed.pack(weight, bias, int8=True)), expected), (word, tool)
        bits.append(packed.linear(drawn[0], packed.pack(drawn[1], None, int8=True)))
    assert all(torch.equal(y, bits[0]) for y in bits)
