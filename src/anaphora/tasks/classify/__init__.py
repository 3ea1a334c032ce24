"""The task `classify`: a whole sequence to a class, to several, or to a number."""
