"""Which library computes the gradient of a weight."""

from __future__ import annotations

import warnings

import pytest
import torch

from anaphora.kernels.gpu import undivided as module
from anaphora.kernels.gpu.products import wide_product
from anaphora.kernels.gpu.undivided import fills, undivided


def test_tiles_must_come_out_even() -> None:
    assert fills(3072, 768, 132)
    assert fills(768, 3072, 132)
    assert not fills(2304, 768, 132)  # a third of the multiprocessors would have nothing to do
    assert not fills(3072, 1536, 132)  # as many again would come after the first ones
    assert not fills(3070, 768, 132)
    assert not fills(3072, 768, 0)  # a GPU of which nothing is known


def test_the_choice_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ["cublas"]

    def choose(name: str | None = None) -> str:
        if name is not None:
            chosen.append(name)
        return chosen[-1]

    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", choose)
    monkeypatch.setattr(module, "_processors", lambda _: 132)
    gpu = torch.device("cuda")
    with undivided(16384, 3072, 768, gpu):
        assert chosen == ["cublas", "cublaslt"]
    with pytest.raises(RuntimeError), undivided(16384, 3072, 768, gpu):
        raise RuntimeError
    assert chosen == ["cublas", "cublaslt", "cublas", "cublaslt", "cublas"]
    with undivided(16384, 2304, 768, gpu), undivided(100, 3072, 768, gpu):
        assert len(chosen) == 5


def test_what_torch_says_of_the_choice_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ["cublas"]

    def choose(name: str | None = None) -> str:
        if name is not None:
            chosen.append(name)
            warnings.warn("it is experimental", stacklevel=1)
        return chosen[-1]

    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", choose)
    monkeypatch.setattr(module, "_processors", lambda _: 132)
    module._warned.cache_clear()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        module.warned(torch.device("cpu"))
        assert chosen == ["cublas"]
        for _ in range(2):
            module.warned(torch.device("cuda"))
    module._warned.cache_clear()
    assert chosen == ["cublas", "cublaslt", "cublas"]


@pytest.mark.cuda
def test_gradients_of_weights_are_as_exact_by_either_library() -> None:
    torch.manual_seed(1)
    module._warned.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.warned(torch.device("cuda"))
        for height, width in ((3072, 768), (768, 3072), (2304, 768)):
            a, b = (torch.randn(8192, n, device="cuda").bfloat16() for n in (height, width))
            before = torch.backends.cuda.preferred_blas_library()
            found = wide_product(a, b, torch.float32)
            assert torch.backends.cuda.preferred_blas_library() == before
            wanted = a.double().t() @ b.double()
            assert found.is_contiguous()
            torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-2)
