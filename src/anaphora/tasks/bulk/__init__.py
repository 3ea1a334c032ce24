"""Answers for any number of inputs: windows sorted by length, every core, constant memory, and files that are continued."""
