"""Results on a GPU that do not depend on the batch: neither on the other rows, nor on how far they are padded.

Libraries choose their kernels by the shape of a batch, and another kernel adds up in another order, so that the last digits
of a row change with its neighbours. In the mode `batch_invariant` every function that sums runs as a program of our own with
one fixed order (`products`, `rows`, `attention`; in Triton: `programs`), and recurrences run in groups of one size (`groups`). The idea is that of the
batch-invariant kernels of servers for language models (He et al. 2025, "Defeating nondeterminism in LLM inference").
"""

from anaphora.ops.invariant.mode import active, batch_invariant, in_groups, paused

__all__ = ["active", "batch_invariant", "in_groups", "paused"]
