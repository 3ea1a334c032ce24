"""Files of weights, by their first bytes: safetensors, torch's state dicts, npz, ONNX and JSON.

Nothing in a file is executed, and no more memory is taken than `anaphora.files.limits` allows.
"""

from anaphora.foreign.weights.found import Weights
from anaphora.foreign.weights.kinds import kind_of, read_weights

__all__ = ["Weights", "kind_of", "read_weights"]
