"""Graphs with weights of eight bits: a quarter of the size, a little of the accuracy."""

from __future__ import annotations

import logging
from pathlib import Path

from anaphora.errors import AnaphoraError
from anaphora.files.writing import remove_file, rename

OPERATIONS = ["MatMul", "Gather", "Conv", "LSTM"]
"""Nodes whose weights are rounded; GRU, RNN and Scan stay in float32, as onnxruntime has no other form of them."""


def round_weights(path: Path) -> None:
    """Write the graph at ``path`` again with weights rounded to eight bits, by onnxruntime's dynamic quantisation: products
    are computed in whole numbers, their inputs rounded as they come."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(str(path))
    del graph.graph.value_info[
        :
    ]  # sizes of inner values as the exporter wrote them, which are inferred again
    rounded = path.with_suffix(".int8.onnx")
    level = logging.root.level
    logging.root.setLevel(
        logging.ERROR
    )  # it advises to preprocess, which a graph that was just optimised does not need
    try:
        quantize_dynamic(
            graph, rounded, op_types_to_quantize=OPERATIONS, per_channel=True, weight_type=QuantType.QInt8
        )
    except Exception as error:  # onnxruntime has no base class of its own for what it cannot round
        lines = str(error).splitlines() or [type(error).__name__]
        raise AnaphoraError(
            f"the weights cannot be rounded to eight bits ({lines[0][:160]}); leave out int8."
        ) from error
    finally:
        logging.root.setLevel(level)
    if rounded.stat().st_size < path.stat().st_size:  # of a tiny graph the scales outweigh the weights
        rename(rounded, path)
    else:
        remove_file(rounded)
