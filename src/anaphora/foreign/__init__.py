"""Models of other libraries: how their files, tensors, settings and vocabularies correspond to ours.

``architectures/`` has one table per architecture, read in both directions: to open a model, and to write ours in its form.
"""
