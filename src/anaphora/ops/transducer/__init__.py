"""Kernels of the transducer loss."""
