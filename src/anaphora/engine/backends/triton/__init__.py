"""A plan's steps as Triton kernels generated from its equations: products and everything between them, fused."""
