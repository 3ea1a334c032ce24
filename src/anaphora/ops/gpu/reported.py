"""What kernels of losses report of a row, as ``Status`` in ``rows.cu`` has it."""

WRONG = 1
"""A length or a symbol is out of range: the row's results have no meaning."""
LOST = 2
"""Nothing spells the target with a probability above 0: the loss and its gradient are zero."""
