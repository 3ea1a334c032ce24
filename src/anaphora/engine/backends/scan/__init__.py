"""Cells whose columns never mix from step to step: one fused pass over all steps, products done for all steps at once."""
