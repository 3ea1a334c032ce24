"""The Huffman tree of hierarchical softmax: frequent words lie near the root, so that their paths are short."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def huffman(counts: Array) -> tuple[Array, Array, Array]:
    """Paths from the root to each word, for counts ``(V,)``.

    Returns ``start (V + 1,)`` int64, ``node`` int32 and ``label`` float32, both ``(Σ lengths,)``: the path of word w
    visits the inner nodes ``node[start[w]:start[w + 1]]`` (0 … V − 2) and goes left where the label is 1. The sum of
    count · length is the least that any binary tree can have.
    """
    words = len(counts)
    heap = [(int(count), place) for place, count in enumerate(counts)]
    heapq.heapify(heap)
    parent = np.zeros(2 * words - 1, np.int64)
    label = np.zeros(2 * words - 1, np.float32)
    for inner in range(words, 2 * words - 1):
        (low, left), (high, right) = heapq.heappop(heap), heapq.heappop(heap)
        parent[left] = parent[right] = inner
        label[left] = 1.0
        heapq.heappush(heap, (low + high, inner))
    root = 2 * words - 2
    nodes: list[int] = []
    labels: list[float] = []
    start = [0]
    for word in range(words):
        path, place = [], word
        while place != root:
            path.append((int(parent[place]) - words, float(label[place])))
            place = int(parent[place])
        for node, went in reversed(path):
            nodes.append(node)
            labels.append(went)
        start.append(len(nodes))
    return np.array(start, np.int64), np.array(nodes, np.int32), np.array(labels, np.float32)
