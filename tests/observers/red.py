"""What is not right yet, by watcher: the fault, and the blocks. Every entry is a strict expected failure."""

from __future__ import annotations

RED: dict[str, tuple[str, list[str]]] = {
    "fake tensors": ("tables of positions", ["rows in blocks"]),
    "writes behind PyTorch's back": ("rows_in_blocks", ["rows in blocks"]),
    "fused optimizers": ("rows_in_blocks", ["rows in blocks"]),
}
