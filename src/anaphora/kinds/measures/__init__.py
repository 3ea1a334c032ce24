"""How good answers are: the dev measures of training, ``score`` and ``compare`` count by the same functions."""
