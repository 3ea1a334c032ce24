"""Learning word vectors: windows with sampled or tree-shaped outputs, and weighted least squares on counts.

Vectors are rows of float32 matrices whose width is a multiple of 16; the columns beyond the wanted width are zero and
stay so. Ids count from 0; −1 ends a sentence, and what is below it stands for a word that is left out.
"""
