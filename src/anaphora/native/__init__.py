"""Compiled code: compilers and drivers, the cache of what they make, and the way to what was compiled."""
