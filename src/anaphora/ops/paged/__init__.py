"""Attention to pasts that lie in pages, so that rows of any length stand side by side."""

from anaphora.ops.paged.attend import attend_pages

__all__ = ["attend_pages"]
