"""Recurrences on a Hopper GPU by one kernel for each pass, which keeps the recurrent weights on the chip for all steps.

Read in this order:

- ``columns``, ``program``, ``linear``: a plan seen by one thread, as numbers of its own columns, and the two things that
  reach across columns: products and row reductions, the *exchanges* of a step.
- ``tiling``, ``clusters``: how columns and rows are divided over the SMs, and what that should cost.
- ``body``, ``stages``, ``reductions``, ``source``, ``prelude.cu``: the kernel's text. The prelude is written by hand; what lies
  between two exchanges is generated from the plan.
- ``layout``, ``launch``, ``passes``, ``both``, ``run``: a kernel's arrays and its launch, the two passes, both directions in
  one launch, and the entry of the backend.
"""
