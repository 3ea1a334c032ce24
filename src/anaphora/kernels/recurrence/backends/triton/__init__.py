"""A plan's steps as Triton kernels printed from its equations: products and everything between them, fused."""
