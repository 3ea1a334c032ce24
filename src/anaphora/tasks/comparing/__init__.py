"""Runs side by side: measures with intervals, paired tests, and the examples on which the runs disagree."""
