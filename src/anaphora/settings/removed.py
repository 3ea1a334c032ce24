"""What earlier versions had and this one has not. Imports no torch."""

from __future__ import annotations

from typing import Any

_IMPORT = "is not read since 0.3; import it with version 0.2, whose run folders are read here."
_INTO = "is not read since 0.3; put its tensors into a module of yours: an.load(FILE, into=MODULE)."
REMOVED: dict[str, str] = {
    "products": "products was removed in 0.3 (fp8 was no faster than bf16); leave it out, or use the run with 0.2.",
    "Keras": "an HDF5 or Keras file is not read; save its weights as .npz or safetensors, or the model as ONNX (model.export).",
    "Joey NMT": f"a folder of Joey NMT {_IMPORT}",
    "sockeye": f"a folder of sockeye {_IMPORT}",
    "g2p-en": f"the model of g2p-en {_IMPORT}",
    "anarcii": f"a model of anarcii {_IMPORT}",
    "resemblyzer": f"the model of resemblyzer {_INTO}",
    "mamba": f"Mamba of `transformers` {_IMPORT}",
    "mamba2": f"Mamba-2 of `transformers` {_IMPORT}",
    "rwkv": f"RWKV-4 of `transformers` {_IMPORT}",
    "BeatNet": f"a model of BeatNet {_INTO}",
}
"""The name of a setting, or of what was read -> the sentence that says what to do instead."""
_WITHOUT_EFFECT: dict[str, Any] = {"products": "half"}
"""The value under which a setting did nothing, which every run of an earlier version has that did not use it."""


def without_removed(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the ``settings`` of an earlier version's run without those that were removed and had no effect on it."""
    return {
        key: value
        for key, value in settings.items()
        if key not in _WITHOUT_EFFECT or value != _WITHOUT_EFFECT[key]
    }
