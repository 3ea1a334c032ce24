"""CTC: the loss, the best path, prefix beams with and without a lexicon."""
