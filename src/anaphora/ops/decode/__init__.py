"""A whole step of a Transformer language model as one call: all layers, the output layer and the choice of the next symbol."""
