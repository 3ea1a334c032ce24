"""Trained models in the formats of others: ONNX, ARPA, word2vec."""
