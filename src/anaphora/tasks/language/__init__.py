"""The language model: what symbol comes next."""
