"""Sums, marginals and best paths over a linear chain of tags.

A chain of n places with K tags has the score

    s(y) = start[y_1] + Σ_t emissions[t, y_t] + Σ_t transitions[y_{t−1}, y_t] + end[y_n]

Everything here is batched: emissions ``(batch, time, K)``, lengths ``(batch,)`` of real places; a chain of length 0
has one path, the empty one, with score 0.
"""
