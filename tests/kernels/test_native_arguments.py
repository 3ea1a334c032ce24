"""No argument of any shape, type or order in memory crashes a kernel in C: it works, or it is a ValueError.

The calls run in a process of their own, because a crash would end this one.
"""

from __future__ import annotations

import pytest

from anaphora.ops import packed
from warm_command import run

pytestmark = pytest.mark.skipif(packed.library.functions() is None, reason="no C compiler here")

CALLS = '''
import random, sys
import numpy as np
import torch
from anaphora.ops import crf
from anaphora.models.embeddings.sampling import alias_table
from anaphora.models.embeddings.windows import Outputs, aligned, train
from anaphora.ops import grid
from anaphora.ops import packed
from anaphora.ops import sound
from anaphora.models.embeddings.word2vec import huffman

draw = random.Random(int(sys.argv[1]))
TYPES = [torch.float32] * 6 + [torch.float64, torch.float16, torch.int64, torch.bool]

def size(right):
    return right if draw.random() < 0.9 else draw.choice([0, 1, right + 1, max(0, right - 1), 5])

def tensor(*shape, dtype=None, high=3):
    """Mostly as it should be; sometimes of another shape, type or order in memory."""
    shape = [size(n) for n in shape]
    if draw.random() < 0.04:
        shape = shape[1:] if draw.random() < 0.5 else [*shape, 2]
    dtype = dtype if dtype is not None and draw.random() < 0.93 else draw.choice(TYPES)
    x = torch.randint(-1 if draw.random() < 0.1 else 0, high, shape).to(dtype)
    if x.dtype.is_floating_point:
        x = x + torch.rand(shape).to(dtype)
        if x.numel() and draw.random() < 0.1:
            x.view(-1)[0] = draw.choice([float("nan"), float("inf"), -float("inf")])
    if x.dim() > 1 and draw.random() < 0.1:
        x = x.transpose(0, -1).contiguous().transpose(0, -1)
    if x.dim() and draw.random() < 0.1:
        x = x.repeat_interleave(2, 0)[::2]
    return x

def decode():
    n, k, rows, heads = draw.choice([1, 7, 33]), draw.choice([1, 5, 64]), draw.choice([0, 1, 4, 13]), draw.choice([0, 1, 2, 3])
    made = packed.pack(tensor(n, k), draw.choice([None, tensor(n)]), int8=draw.random() < 0.5)
    packed.linear(tensor(rows, k), made, draw.choice([None, tensor(rows, n)]))

def attend():
    rows, heads, d, places, items = (draw.choice([1, 2, 3, 5]) for _ in range(5))
    width, ints, heads = heads * d, torch.int64, size(heads)
    block = torch.randn(4, 6, 2 * width)
    if draw.random() < 0.5:
        addresses = torch.tensor([block.data_ptr()] * places)
        packed.attend_past(tensor(rows, width), heads, addresses, torch.full((size(places),), 6), tensor(rows, places, dtype=ints, high=7), draw.randrange(4))
    else:
        packed.attend_memory(tensor(rows, width), heads, tensor(items, places, 2 * width), tensor(rows, dtype=ints, high=items), tensor(items, places, dtype=torch.bool))

def choose():
    packed.best_symbols(tensor(3, draw.choice([1, 40, 300])), draw.choice([-1, 0, 1, 4]), draw.choice([None, 0, 999]))

def tag():
    batch, time, tags = draw.choice([0, 1, 3]), draw.choice([0, 1, 6]), draw.choice([1, 4, 9])
    kind = draw.choice([torch.float32, torch.float64])
    scores = [tensor(*shape, dtype=kind) for shape in ((batch, time, tags), (tags, tags), (tags,), (tags,))]
    lengths = tensor(batch, dtype=torch.int64, high=time + 2)
    draw.choice([crf.native_sums, crf.native_viterbi])(*scores, lengths)

def picture():
    batch, rows, columns, inputs, hidden = (draw.choice([1, 2, 5]) for _ in range(5))
    ways = ((False, True), (True, False))[: draw.choice([1, 2])]
    u = tensor(len(ways), 2, 5 * hidden, hidden)
    given = (tensor(batch, rows, columns, inputs), tensor(len(ways) * 5 * hidden, inputs), tensor(len(ways) * 5 * hidden), u)
    if grid.library.ready(*given):
        grid.native_waves(*given, ways)

def listen():
    filters = torch.rand(draw.choice([2, 5, 9, 12]), 3, dtype=torch.float64)
    bank = sound.Bank.of(torch.rand(draw.choice([0, 1, 8, 16, 30]), dtype=torch.float64), filters)
    rows, samples = draw.choice([0, 1, 3]), draw.choice([0, 1, 7, 50])
    lengths = draw.choice([None, tensor(rows, dtype=torch.int64, high=60)])
    sound.energies(tensor(rows, samples), tensor(rows, 1), lengths, draw.choice([0, 1, 4, 90]), 0.97, bank)

def read():
    words = 6
    counts = np.arange(words, 0, -1)
    parts = [*alias_table(counts.astype(float)), *huffman(counts)]
    if draw.random() < 0.3:
        spoil = draw.randrange(5)
        parts[spoil] = draw.choice([parts[spoil][:-1], parts[spoil].astype(np.float64), parts[spoil] - 1, parts[spoil] * 9])
    outputs = Outputs(draw.choice([0, 3, -1]), *parts)
    inputs, out = aligned(size(words), size(16)), aligned(size(words), 16)
    ids = np.array([draw.randrange(-2, words + (draw.random() < 0.1)) for _ in range(30)], draw.choice([np.int32] * 4 + [np.int64]))
    keep = np.full(size(words), 2**32, np.uint64)
    train(ids, keep, window=draw.choice([0, 1, 3]), mean=draw.random() < 0.5, inputs=inputs, outputs=out, against=outputs, rates=(0.1, 0.1), seed=1)

fine = refused = 0
for call in (decode, attend, choose, tag, picture, listen, read):
    for _ in range(int(sys.argv[2])):
        try:
            call()
            fine += 1
        except (ValueError, RuntimeError, IndexError):  # the last two are torch's own, before C is reached
            refused += 1
print(fine, refused)
'''


def fuzz(seed: int, times: int) -> None:
    done = run(["-c", CALLS, str(seed), str(times)])
    assert done.returncode == 0, f"seed {seed} ended with {done.returncode}: {done.stderr[-2000:]}"
    fine, refused = map(int, done.stdout.split())
    assert min(fine, refused) > times  # both kinds are drawn


def test_no_argument_crashes() -> None:
    fuzz(0, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 7))
def test_no_argument_crashes_in_a_long_run(seed: int) -> None:
    fuzz(seed, 600)
