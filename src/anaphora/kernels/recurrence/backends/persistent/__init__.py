"""Recurrences on a GPU as two kernels, one per pass, that stay on the chip for all steps."""
