"""Models that learn a vector for each word from the words around it."""
