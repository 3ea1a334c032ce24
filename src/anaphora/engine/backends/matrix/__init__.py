"""Cells with matrix-valued states: all steps at once, the states between chunks of steps one after the other."""
