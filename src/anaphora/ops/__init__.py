"""Operators at native speed, and what makes them differentiable. They know arrays, not modules, text or files."""
