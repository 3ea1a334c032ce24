"""The linear-chain CRF against pytorch-crf. Run: python benchmarks/crf.py [--json] [--times N]

One process, one thread, both sides in turn, the least of N times; 32 sequences of up to 100 places, 20 tags, float32.
Both sides must give the same numbers before they are timed. The peer is not installed with us:
``pip install pytorch-crf`` first.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from anaphora.nn import CRF
from rows import against, row, show
from turns import milliseconds

BATCH, TIME, TAGS = 32, 100, 20


def measure(times: int) -> list[dict[str, Any]]:
    from torchcrf import CRF as Peer  # noqa: N811

    torch.manual_seed(0)
    lengths = torch.randint(TIME // 2, TIME + 1, (BATCH,))
    lengths[0] = TIME
    mask = torch.arange(TIME) < lengths[:, None]
    emissions = torch.randn(BATCH, TIME, TAGS, requires_grad=True)
    tags = torch.randint(TAGS, (BATCH, TIME))
    crf, peer = CRF(TAGS), Peer(TAGS, batch_first=True)
    for theirs, own in (
        (peer.transitions, crf.transitions),
        (peer.start_transitions, crf.start),
        (peer.end_transitions, crf.end),
    ):
        theirs.data.copy_(own.data)

    def our_loss() -> torch.Tensor:
        loss = -crf(emissions, tags, lengths).sum()
        emissions.grad = None
        loss.backward()
        return loss

    def their_loss() -> torch.Tensor:
        loss = -peer(emissions, tags, mask)
        emissions.grad = None
        loss.backward()
        return loss

    ours, our_gradient = our_loss(), emissions.grad
    theirs, their_gradient = their_loss(), emissions.grad
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-2)
    torch.testing.assert_close(our_gradient, their_gradient, rtol=0, atol=1e-4)
    paths = [
        path[:n]
        for path, n in zip(crf.viterbi(emissions, lengths)[0].tolist(), lengths.tolist(), strict=True)
    ]
    if paths != peer.decode(emissions, mask):
        raise SystemExit("the two sides find different best paths")

    rows = []
    for name, goal, ours_run, theirs_run in (
        ("loss with gradient", 10.0, our_loss, their_loss),
        ("Viterbi", 5.0, lambda: crf.viterbi(emissions, lengths), lambda: peer.decode(emissions, mask)),
    ):
        mine, peers = milliseconds(ours_run, theirs_run, times)
        rows.append(row(f"CRF {name}, {BATCH}×{TIME}×{TAGS}", "pytorch-crf", mine, peers, "ms", goal=goal))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    show(against("pytorch-crf", lambda: measure(options.times)), as_json=options.json)


if __name__ == "__main__":
    main()
