"""A plan as generated C, compiled once per structure: the backend of the CPU."""
