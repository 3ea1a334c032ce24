"""Corpora, readers, tokenizers, batches. They do not know models."""
