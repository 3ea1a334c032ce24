"""Every place where the library leaves PyTorch's operations is in the table below: who watches is tested there, or why it is not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from watched_blocks import BLOCKS

import anaphora

ROOT = Path(str(anaphora.__file__)).parent
NUMBERS = "reads NumPy arrays, which nobody watches"
ON_GPU = "runs on an NVIDIA GPU only: tests marked cuda, and the emulations beside them"
LEAN = "torch.compile alone calls it: tests/nn/test_transformer_lean.py"
ENGINE = ("GRU", "LSTM both ways", "own cell", "GRU step by step", "own cell step by step")
SCANS = ("MinGRU",)

PATHS: dict[str, tuple[str, ...] | str] = {
    "data/byte_pairs.py njit": NUMBERS,
    "ops/crf.py library": ("CRF",),
    "ops/crf.py _scaled": ("CRF",),
    "search/ctc/_frames.py njit": NUMBERS,
    "search/ctc/_words.py njit": NUMBERS,
    "search/ctc/_words_arrays.py njit": NUMBERS,
    "ops/lattices.py njit": ("ctc loss", "transducer loss"),
    "ops/ctc_loss.py _kernel": ON_GPU,
    "ops/decode/cuda.py Writer": ON_GPU,
    "models/embeddings/glove_updates.py njit": NUMBERS,
    "models/embeddings/sampling.py njit": NUMBERS,
    "models/embeddings/windows.py library": NUMBERS,
    "models/embeddings/windows.py njit": NUMBERS,
    "ops/optimizer.py _kernel": ON_GPU,
    "ops/gpu/added_norm.py kernel": ON_GPU,
    "ops/optimizer.py _squares": ON_GPU,
    "ops/gpu/columns.py _added": ON_GPU,
    "ops/gpu/columns.py _merge": ON_GPU,
    "ops/gpu/columns.py activation_gradients": LEAN,
    "ops/gpu/columns.py activation_values": LEAN,
    "ops/gpu/columns.py merged_gradients": LEAN,
    "ops/gpu/columns.py narrowed": LEAN,
    "ops/gpu/columns.py slope_kernel": ON_GPU,
    "ops/gpu/columns.py value_kernel": ON_GPU,
    "ops/embedding.py run_kernel": ON_GPU,
    "ops/embedding.py value_kernel": ON_GPU,
    "ops/softmax_loss.py _fused_losses": ON_GPU,
    "ops/softmax_loss.py _gradients": ON_GPU,
    "ops/softmax_loss.py _losses": ON_GPU,
    "ops/gpu/logit_step.py _scaled": ON_GPU,
    "ops/gpu/logit_step.py kernel": ON_GPU,
    "ops/embedding.py _looked_up": ON_GPU,
    "ops/embedding.py _sum": ON_GPU,
    "ops/attention.py _softmax": ON_GPU,
    "ops/attention.py _gradients_of_rows": ON_GPU,
    "ops/attention.py _weights_of_rows": ON_GPU,
    "ops/gpu/narrowing.py _kernel": ON_GPU,
    "ops/gpu/normed.py kernel": ON_GPU,
    "ops/gpu/normed.py norm_gradients": LEAN,
    "ops/softmax_loss.py _OutputLoss": LEAN,
    "ops/softmax_loss.py _output_gradients": ON_GPU,
    "ops/softmax_loss.py _output_losses": ON_GPU,
    "ops/softmax_loss.py logit_gradients": LEAN,
    "ops/softmax_loss.py logit_losses": LEAN,
    "engine/ragged.py _order": ON_GPU,
    "engine/ragged.py _transpose": ON_GPU,
    "ops/gpu/tables.py _kernel": ON_GPU,
    "ops/grid.py _native_waves": ("GridLSTM",),
    "ops/grid.py library": ("GridLSTM",),
    "ops/grid.py _waves": ("GridLSTM",),
    "models/classical/hmm/passes.py njit": NUMBERS,
    "ops/invariant/mode.py _Replacing": ON_GPU,
    "ops/invariant/programs.py triton": ON_GPU,
    "ops/invariant/mode.py _ReplacingOnCPU": ("rows in blocks",),
    "models/classical/kalman/recursions.py njit": NUMBERS,
    "search/lexicon/_words.py njit": NUMBERS,
    "ops/matrix_scan/backward.py triton": ON_GPU,
    "ops/matrix_scan/by_head.py triton": ON_GPU,
    "ops/matrix_scan/forward.py triton": ON_GPU,
    "ops/matrix_scan/launch.py _scan": ON_GPU,
    "ops/matrix_scan/scan.py _scan": ("matrix scan", "GLA", "DeltaNet"),
    "ops/matrix_scan/scan.py library": ("matrix scan", "GLA", "DeltaNet"),
    "ops/matrix_scan/parts.py triton": ON_GPU,
    "ops/matrix_scan/states.py triton": ON_GPU,
    "ops/ngram.py njit": NUMBERS,
    "ops/packed.py library": (
        "encoder", "encoder norm first", "turned encoder", "packed maps", "packed heads", "packed translator",
        "paged language", "voice",
    ),
    "ops/paged/programs.py triton": ON_GPU,
    "ops/prune.py njit": NUMBERS,
    "engine/backends/c/compiled.py CompiledPlan": ENGINE,
    "engine/backends/c/compiled.py _run": ENGINE,
    "engine/backends/cuda_graph.py Captured": ON_GPU,
    "engine/backends/cuda_graph.py _Replay": ON_GPU,
    "engine/backends/persistent/run.py _both": ON_GPU,
    "engine/backends/persistent/clusters.py clusters_at_once": ON_GPU,
    "engine/backends/persistent/launch.py Pass": ON_GPU,
    "engine/backends/persistent/run.py _persistent": ON_GPU,
    "engine/backends/persistent/run.py _made": ON_GPU,
    "engine/backends/scan/run.py CompiledUnits": SCANS,
    "engine/backends/scan/cuda_pass.py Pass": ON_GPU,
    "engine/backends/scan/run.py GeneratedUnits": ON_GPU,
    "engine/backends/scan/walk.py _product": SCANS,
    "engine/backends/scan/walk.py _walk": SCANS,
    "engine/backends/torch_ops/passes.py _bptt": ENGINE,
    "engine/backends/torch_ops/fixed.py njit": ENGINE,
    "engine/backends/triton/source.py _write": ON_GPU,
    "ops/selective.py _gpu_scan": ON_GPU,
    "ops/selective.py _kernel": ON_GPU,
    "ops/selective.py _native_scan": ("selective scan", "Mamba"),
    "ops/selective.py library": ("selective scan", "Mamba"),
    "models/classical/smoothing.py njit": NUMBERS,
    "ops/sound.py library": ("log mel",),
    "ops/transducer_loss.py _kernel": ON_GPU,
    "ops/transducer_sums.py library": ("transducer loss",),
    "data/corpora/voice.py njit": NUMBERS,
    "models/language_passes.py _Loss": ON_GPU,
    "models/language_passes.py _States": ON_GPU,
    "nn/captured.py _Capture": ON_GPU,
    "nn/casting.py _cast": ON_GPU,
    "nn/recurrent_operator.py recurrence": "torch.compile alone calls it: tests/nn/test_recurrent_operator.py",
    "nn/recurrent_operator.py recurrence_backward": "torch.compile alone calls it: tests/nn/test_recurrent_operator.py",
    "nn/recurrent_stream.py CudaStream": ON_GPU,
    "nn/transformer/lean.py _Activated": LEAN,
    "nn/transformer/lean.py _AddNorm": LEAN,
    "nn/transformer/lean.py _Heads": LEAN,
    "nn/transformer/lean.py _Product": LEAN,
    "search/_device.py DeviceBeam": ON_GPU,
    "ops/ctc_loss.py _fused_losses": ON_GPU,
    "ops/ctc_loss.py _losses": ("ctc loss",),
    "ops/transducer_loss.py _fused_losses": ON_GPU,
    "ops/transducer_loss.py _losses": ("transducer loss",),
    "ops/transducer_loss.py _native_losses": ("transducer loss",),
    "tasks/stored.py _WithoutFirstWeights": "sees tensors without memory alone, on meta, whose numbers nobody reads",
    "training/replay.py _Graphs": ON_GPU,
    "training/replay.py _Replay": ON_GPU,
}  # fmt: skip
"""By the name on the top level of its file, or by the compiler for functions of numba and Triton."""


LEAVING = {
    *("CLibrary", "CDLL", "PyDLL", "CFUNCTYPE"),  # compiled C
    *("custom_op", "fused", "Kernel", "Loaded", "loaded"),
    *("capture", "capturing", "CUDAGraph"),
}
"""What is called where a fast path is made."""
NAMED = re.compile(rf"\b(?:{'|'.join(sorted(LEAVING))}|Function|TorchFunctionMode|njit|triton)\b")
"""In the text of every file that has one; the others need no parsing."""


def leaving(path: Path) -> Iterator[str]:
    """Yield what leaves PyTorch's operations in a file."""
    text = path.read_text()
    for top in ast.parse(text).body if NAMED.search(text) else ():
        named = (
            top.targets[0]
            if isinstance(top, ast.Assign)
            else top.target
            if isinstance(top, ast.AnnAssign)
            else top
        )
        name = getattr(named, "name", None) or getattr(named, "id", "")
        for node in ast.walk(top):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
                if bases & {"Function", "TorchFunctionMode"}:
                    yield name
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                called = ast.unparse(node.func)
                if called in ("njit", "numba.njit"):
                    yield "njit"
                if called.split(".")[-1] in LEAVING:
                    yield name
        if isinstance(top, ast.FunctionDef) and any(
            "triton.jit" in ast.unparse(d) for d in top.decorator_list
        ):
            yield "triton"


def test_every_fast_path_is_in_the_table() -> None:
    found = {f"{path.relative_to(ROOT)} {name}" for path in ROOT.rglob("*.py") for name in leaving(path)}
    found = {name for name in found if not name.startswith("native/")}  # what makes them
    assert found == PATHS.keys()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('library = CLibrary("new", text, no_memory="")', ["library"]),
        (
            'class Plan:\n    def __init__(self):\n        self.library = c.CLibrary("new", text, no_memory="")',
            ["Plan"],
        ),
        ("class New(torch.autograd.Function):\n    pass", ["New"]),
        ("new = fused(forward, backward, reference)", ["new"]),
        ('def new():\n    return ctypes.CDLL("libc.so.6").qsort', ["new"]),
        ("def new(work):\n    with capturing(pool) as replay:\n        work()", ["new"]),
        ("@njit(cache=True)\ndef new(x):\n    return x", ["njit"]),
        ("new: Kernel = Kernel(SOURCE, 'new')", ["new"]),
        ("def new(x):\n    return x + 1", []),
    ],
)
def test_a_new_fast_path_is_found(text: str, names: list[str], tmp_path: Path) -> None:
    path = tmp_path / "new.py"
    path.write_text(text)
    assert list(leaving(path)) == names


def test_every_block_is_there_and_used() -> None:
    named = {name for places in PATHS.values() if not isinstance(places, str) for name in places}
    operations_only = {"attention", "positions", "mixture"}  # whose fast path is PyTorch's own
    assert named == BLOCKS.keys() - operations_only
