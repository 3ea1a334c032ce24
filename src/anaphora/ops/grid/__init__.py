"""The recurrence of a two-dimensional LSTM: every place needs its neighbours above and to the left, so places on one
anti-diagonal are computed together, a wave from one corner to the opposite one.

    i, f_↑, f_←, o = σ(a),   c̃ = tanh(a)        a_ij = p_ij + U_↑ h_{i−1,j} + U_← h_{i,j−1}
    c_ij = f_↑ ∘ c_{i−1,j} + f_← ∘ c_{i,j−1} + i ∘ c̃
    h_ij = o ∘ tanh(c_ij)

p ``(batch, rows, columns, directions, 5·hidden)`` is what the input contributes, W x + b, gates in the order i, f_↑, f_←,
o, c̃; U ``(directions, 2, 5·hidden, hidden)`` has U_↑ before U_←. Outside the picture h and c are zero. A direction is a
pair of booleans, whether it reads rows from the bottom up and columns from the right to the left.
"""
