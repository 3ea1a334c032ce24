"""N-gram language models: counting, smoothing, ARPA files."""

from anaphora.models.classical.ngram.model import NGram

__all__ = ["NGram"]
