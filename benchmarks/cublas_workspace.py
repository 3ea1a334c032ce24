"""Why our CUDA graphs are not replayed beside those of ``torch.compile(mode="reduce-overhead")``: PyTorch alone, on a GPU.

    python benchmarks/cublas_workspace.py

A captured product writes to a workspace of cuBLAS that PyTorch holds. ``torch._inductor.cudagraph_trees`` frees all
workspaces around its own captures (``clear_cublas_manager``), so that the earlier graph writes to memory that belongs to
another tensor, or to none. Prints whether a tensor that the graph has never seen changes, or the error of the replay.
"""

from __future__ import annotations

import torch


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("cublas_workspace: needs an NVIDIA GPU.")
    a, b = torch.randn(64, 8192, device="cuda"), torch.randn(8192, 64, device="cuda")  # deep: summed in parts
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        a @ b  # the workspace of this stream is made here
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        product = a @ b
    graph.replay()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    with torch.cuda.stream(stream):  # memory is used again by the stream that freed it
        others = [
            torch.zeros(size, device="cuda")
            for size in (1 << 12, 1 << 16, 1 << 20, 1 << 21)
            for _ in range(32)
        ]
    torch.cuda.synchronize()
    try:
        graph.replay()
        torch.cuda.synchronize()
        changed = sum(bool(t.any()) for t in others)
        print(f"torch {torch.__version__}: the replay changed {changed} tensors that it has never seen")
        print(f"the product itself is right: {torch.allclose(product, a @ b, atol=1e-2)}")
    except RuntimeError as error:
        print(f"torch {torch.__version__}: the replay failed: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    main()
