"""Sequences to vectors, near to each other where the sequences are alike."""
