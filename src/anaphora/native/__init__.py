"""Compilers and drivers: C to a shared library, CUDA C++ by NVRTC, Triton modules, and the cache they share."""
