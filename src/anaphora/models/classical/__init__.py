"""The models before the networks: counts, hidden Markov chains, linear dynamics, autoregression."""
