"""Defaults that suit the amount of data, and what to use instead of a network where there is little of it."""
