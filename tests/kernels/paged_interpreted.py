"""The Triton program of paged attention on the CPU, by its interpreter: run with TRITON_INTERPRET=1; see test_paged.py."""

from __future__ import annotations

import torch
from test_paged import LENGTHS, pasts

from anaphora.ops.paged import attend, programs


def main() -> None:
    for heads, kept, d in ((4, 4, 6), (4, 2, 5), (6, 1, 16)):
        for slopes, reach in ((None, None), (torch.linspace(0.1, 0.5, heads), 3)):
            query, pages, table = pasts(heads, kept, d)
            found = programs.attend_pages(query, pages, table, heads, slopes, reach)
            for row, length in enumerate(LENGTHS):
                wanted = attend._row(query[row], pages, table[row, 1:], length, heads, slopes, reach)
                torch.testing.assert_close(found[row], wanted, atol=1e-5, rtol=1e-5)
                one = slice(row, row + 1)
                alone = programs.attend_pages(
                    query[one], pages, table[one].contiguous(), heads, slopes, reach
                )
                assert torch.equal(alone[0], found[row])


if __name__ == "__main__":
    main()
