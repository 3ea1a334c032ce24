"""Studies: small experiments of the lectures, run on the spot."""
