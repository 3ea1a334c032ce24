"""Translation: one sequence into another of any length."""
