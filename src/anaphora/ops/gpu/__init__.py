"""Kernels for single operations on a GPU that torch takes many small ones for."""
