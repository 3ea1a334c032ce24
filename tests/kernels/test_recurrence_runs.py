"""One run beside others: threads, forks, buffers, and runs that keep nothing."""

from __future__ import annotations

import os
import warnings

import torch
from recurrence_results import H, I, inputs, make_engine, results, with_compiler

from anaphora import nn


@with_compiler
def test_no_gradient_keeps_nothing() -> None:
    recurrent = nn.Recurrent(nn.LSTM(I, H))
    x = torch.randn(2, 3, I)
    with torch.no_grad():
        y, _ = recurrent(x)
    assert y.grad_fn is None
    assert torch.equal(y, recurrent(x)[0])
    with torch.inference_mode():
        assert torch.equal(y, recurrent(x)[0])


@with_compiler  # torch's own products have other bits with another number of threads, or while a gradient is kept
def test_threads_and_runs_do_not_change_a_bit() -> None:
    cell = nn.LSTM(20, 48, peephole=True)
    x, initial = inputs(cell, torch.float32, 37, 12)
    lengths = torch.randint(0, 13, (37,))
    before = torch.get_num_threads()
    runs = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            runs.append(results(make_engine(cell), cell, x, initial, lengths))
    finally:
        torch.set_num_threads(before)
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


@with_compiler  # after a fork, torch operations with two threads wait for ever
def test_after_a_fork() -> None:
    recurrent = nn.Recurrent(nn.GRU(I, H))
    x = torch.randn(20, 6, I)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        y, _ = recurrent(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            good = False
            try:
                good = torch.equal(recurrent(x)[0], y)
            finally:
                os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(before)


def test_backward_twice_and_buffers_in_use_are_not_shared() -> None:
    recurrent = nn.Recurrent(nn.LSTM(16, 32))
    x, other = torch.randn(16, 64, 16), torch.randn(16, 64, 16)
    y, _ = recurrent(x)
    params = list(recurrent.parameters())
    first = torch.autograd.grad(y.sum(), params, retain_graph=True)
    z, _ = recurrent(other)  # would overwrite what y's graph still holds
    second = torch.autograd.grad(y.sum(), params)
    torch.autograd.grad(z.sum(), params)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
