"""Tagging: one tag for every word."""
