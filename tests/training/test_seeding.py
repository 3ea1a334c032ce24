from __future__ import annotations

import hashlib
import random

import numpy as np
import torch

from anaphora.training.seeding import derive, seed_everything


def draws():
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_the_same_path_gives_the_same_numbers_in_every_generator():
    seed_everything(1, 7, 0, 0)
    first = draws()
    draws()
    seed_everything(1, 7, 0, 0)
    assert draws() == first


def test_every_element_of_the_path_counts():
    paths = [
        (1, 7, 0, 0),
        (2, 7, 0, 0),
        (1, 8, 0, 0),
        (1, 7, 1, 0),
        (1, 7, 0, 1),
        (1, 70, 0),
        (1, 7, "evaluate"),
    ]
    assert len({derive(*path) for path in paths}) == len(paths)
    for path in paths:
        seed_everything(*path)
    assert derive(1, 7) == int(hashlib.sha256(b"1/7").hexdigest()[:16], 16) // 2


def test_torch_draws_as_after_its_own_seeding():
    seed_everything(5, "model")
    ours = torch.rand(4)
    torch.manual_seed(derive(5, "model"))
    assert torch.equal(torch.rand(4), ours)
