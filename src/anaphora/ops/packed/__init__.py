"""What a decoder does at every step on a CPU: products with packed weights, attention to a past that is never moved,
and the best symbols of many.

Each of them computes a row on its own, in the same order whatever the rows beside it and the number of threads: the
result for one input does not depend on its batch, to the last bit.
"""
