"""A plan over time in torch operations: runs anywhere, and is what other backends capture or replace."""
