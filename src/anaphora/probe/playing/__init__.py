"""The same computation step by step: equations with the numbers of each step, as a player shows them."""
