"""Triton's programs on the CPU, by its interpreter: prints the largest difference to torch for every call.

Run with TRITON_INTERPRET=1; see test_invariant.py.
"""

from __future__ import annotations

import json

import torch
from test_invariant import CALLS, KEYS, QUERY, VALUES, B, W, X
from torch.nn import functional as F

from anaphora.ops.invariant import batch_invariant, operations


@torch.no_grad()
def main() -> None:
    operations.DEVICES = {"cpu"}
    cpu = torch.device("cpu")
    errors = {}
    for name, call in CALLS.items():
        wanted = call()
        with batch_invariant(cpu):
            found = call()
        both = (
            [(wanted, found)] if isinstance(wanted, torch.Tensor) else list(zip(wanted, found, strict=True))
        )
        errors[name] = max(float((a - b).abs().max()) for a, b in both)
    real = torch.arange(30) < 11
    with batch_invariant(cpu):
        assert torch.equal(F.linear(X, W, B)[1:2, 3:], F.linear(X[1:2, 3:], W, B))
        short = F.scaled_dot_product_attention(QUERY, KEYS[:, :, :11], VALUES[:, :, :11])
        padded = F.scaled_dot_product_attention(QUERY, KEYS, VALUES, attn_mask=real[None, None, None])
        assert torch.equal(short, padded)
        hidden = torch.where(real, KEYS[0, 0].t(), -torch.inf)
        assert torch.equal(hidden.softmax(-1)[:, :11], KEYS[0, 0].t()[:, :11].softmax(-1))
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
