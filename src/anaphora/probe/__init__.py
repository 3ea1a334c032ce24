"""Trace: what happened inside one run of a model, with named axes."""
