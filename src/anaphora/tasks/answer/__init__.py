"""The task `answer`: a question about a picture to its answer."""
