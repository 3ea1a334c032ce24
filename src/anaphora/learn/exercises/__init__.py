"""The checks of the exercises, a module per lesson: ``CHECKS`` holds three functions that take an answer (`exercise.Check`)."""
