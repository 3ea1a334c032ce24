"""Loading and launching a kernel through the CUDA driver, on PyTorch's current stream.

All blocks of a kernel wait for one another, so they must all be on the GPU at once: the launch is cooperative, which
the driver refuses when they do not fit. A kernel that waits in vain for about two seconds sets a word in the host's
memory and leaves; whoever runs one next raises it as an error, without having to wait for the GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref
from functools import cache

import torch
from torch import Tensor

from anaphora.errors import AnaphoraError

_MOST_SHARED_MEMORY = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


class Loaded:
    """One kernel on one GPU."""

    def __init__(self, code: bytes, name: str, shared_memory: int, threads: int):
        self.threads, self.shared_memory = threads, shared_memory
        self._code = code  # the driver may read it as long as the module lives
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        driver = _driver()
        self._check(driver.cuModuleLoadData(byref(self._module), code))
        self._check(driver.cuModuleGetFunction(byref(self._function), self._module, name.encode()))
        self._check(driver.cuFuncSetAttribute(self._function, _MOST_SHARED_MEMORY, shared_memory))

    def launch(self, blocks: int, pointers: Sequence[Tensor | None], numbers: Sequence[int]) -> None:
        """Run it on the current stream; ``pointers`` and ``numbers`` are its arguments, in order."""
        values: list[ctypes.c_void_p | ctypes.c_int] = [
            ctypes.c_void_p(None if t is None else t.data_ptr()) for t in pointers
        ]
        values += [ctypes.c_int(n) for n in numbers]
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        size, memory = self.threads, self.shared_memory
        self._check(
            _driver().cuLaunchCooperativeKernel(
                self._function, blocks, 1, 1, size, 1, 1, memory, stream, places
            )
        )

    @staticmethod
    def _check(status: int) -> None:
        if status:
            text = ctypes.c_char_p()
            _driver().cuGetErrorString(status, byref(text))
            said = text.value.decode() if text.value else f"error {status}"
            raise RuntimeError(f"a recurrence could not be started on the GPU: {said}")


@cache
def report(device: int) -> Tensor:
    """The word a kernel sets when it has waited in vain: in the host's memory, where the GPU can write it."""
    with torch.inference_mode(False):
        return torch.zeros(1, dtype=torch.int32, pin_memory=True)


def check_report(device: int) -> None:
    """Raise what an earlier kernel has reported."""
    word = report(device)
    if int(word):
        word.zero_()
        raise AnaphoraError(
            f"A recurrence on cuda:{device} waited more than two seconds for its other parts and gave up, so its "
            "results are wrong: free the GPU of other programs, or run with fewer layers at once."
        )
