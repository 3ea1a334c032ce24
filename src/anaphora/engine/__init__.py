"""Recurrences at native speed: one step is traced, planned, and run for all steps at once."""
