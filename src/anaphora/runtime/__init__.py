"""Exported models put to work without torch: numpy, onnxruntime and tokenizers.

    from anaphora.runtime import load

    m = load("exported/reviews")          # a folder that `anaphora export RUN --to onnx` wrote
    m.predict(["a good script"])

``predict`` gives what the trained estimator gives. Nothing in the folder is executed; every file is compared with the
hash that ``export.json`` names.
"""

from anaphora.runtime.loading import load

__all__ = ["load"]
