"""The task `caption`: a picture into a sentence about it."""
