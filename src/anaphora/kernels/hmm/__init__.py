"""Hidden Markov chains: forward, backward and best paths, whole or pruned."""
