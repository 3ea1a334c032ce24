"""Sequences of numbers by what thousands of fixed convolutions answer, under a linear model."""
