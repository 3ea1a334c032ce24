"""Batches: which examples are read together, and how they become arrays."""
