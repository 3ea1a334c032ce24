"""The passes of a plan captured as CUDA graphs and replayed."""
