"""Load a kernel through the CUDA driver, launch it on PyTorch's current stream, and notice kernels that timed out.

All blocks of a persistent kernel wait for one another, so they must all be on the GPU at once: the launch is
cooperative, which the driver refuses when they do not fit. Where only the blocks of a cluster wait for one another the
launch is in clusters, each of which the GPU starts as a whole.

A block whose wait takes about two seconds times out. It sets two words (:class:`Watch`): one in the GPU's memory,
on which every block that ends later overwrites its results with NaN, and one in the host's memory, which
:func:`check_kernels` raises as an error. The launch itself never waits for the GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from anaphora.errors import AnaphoraError

_MOST_SHARED_MEMORY = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_NO_CONTEXT = (201, 400)  # CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE
_LARGE_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


class _Attribute(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("unused", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _Configuration(ctypes.Structure):
    """A launch, as cuLaunchKernelEx wants it described."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("memory", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def driver_version() -> int:
    """Of the CUDA driver: 12080 for 12.8."""
    found = ctypes.c_int()
    _check(_driver().cuDriverGetVersion(byref(found)))
    return found.value


class Loaded:
    """One kernel on one GPU."""

    def __init__(self, code: bytes, name: str, shared_memory: int, threads: int, cluster: int = 0):
        """``cluster``: blocks that form one; 0 where all blocks wait for one another, 1 where none does."""
        self.threads, self.shared_memory, self.cluster = threads, shared_memory, cluster
        self._attribute = _Attribute(_CLUSTER, 0, (cluster, 1, 1))
        self._code = code  # the driver may read it as long as the module lives
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        driver = _driver()
        _check(_called(driver.cuModuleLoadData, byref(self._module), code))
        _check(driver.cuModuleGetFunction(byref(self._function), self._module, name.encode()))
        _check(driver.cuFuncSetAttribute(self._function, _MOST_SHARED_MEMORY, shared_memory))
        if cluster > 1:
            _check(driver.cuFuncSetAttribute(self._function, _LARGE_CLUSTERS, 1))

    def launch(
        self,
        blocks: int,
        pointers: Sequence[Tensor | int | None],
        numbers: Sequence[int],
        threads: int | None = None,
    ) -> None:
        """Run it on the current stream; ``pointers`` (tensors or addresses) and ``numbers`` are its arguments, in order."""
        # One block of words for all: an object for each would take longer than the launch itself.
        values = [t.data_ptr() if isinstance(t, Tensor) else t or 0 for t in pointers]
        words = (ctypes.c_uint64 * (len(values) + len(numbers)))(*values, *numbers)
        first = ctypes.addressof(words)
        places = (ctypes.c_void_p * len(words))(*range(first, first + 8 * len(words), 8))
        stream = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())
        size, memory = threads or self.threads, self.shared_memory
        if self.cluster == 1:
            launch = _driver().cuLaunchKernel
            at = ctypes.c_void_p(stream)
            _check(_called(launch, self._function, blocks, 1, 1, size, 1, 1, memory, at, places, None))
            return
        if self.cluster:
            shape = self._in_clusters(blocks, stream)
            _check(_called(_driver().cuLaunchKernelEx, byref(shape), self._function, places, None))
            return
        launch = _driver().cuLaunchCooperativeKernel
        at = ctypes.c_void_p(stream)
        _check(_called(launch, self._function, blocks, 1, 1, size, 1, 1, memory, at, places))

    def clusters_at_once(self) -> int:
        """How many clusters of this kernel the current GPU holds; none where it cannot hold one."""
        found = ctypes.c_int()
        shape = self._in_clusters(self.cluster, 0)
        status = _driver().cuOccupancyMaxActiveClusters(byref(found), self._function, byref(shape))
        return 0 if status else found.value

    def _in_clusters(self, blocks: int, stream: int) -> _Configuration:
        size, memory = (self.threads, 1, 1), self.shared_memory
        return _Configuration((blocks, 1, 1), size, memory, stream, ctypes.pointer(self._attribute), 1)


def _called(function: Callable[..., int], *arguments: object) -> int:
    """The status of a call, in a thread that knows the GPU: PyTorch's own, in which gradients are computed, may not have
    had anything to do there yet."""
    status = function(*arguments)
    if status not in _NO_CONTEXT:
        return status
    driver, device, context = _driver(), ctypes.c_int(), ctypes.c_void_p()
    _check(driver.cuDeviceGet(byref(device), torch.cuda.current_device()))
    _check(driver.cuDevicePrimaryCtxRetain(byref(context), device))
    _check(driver.cuCtxSetCurrent(context))
    return function(*arguments)


def _check(status: int) -> None:
    if status:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(status, byref(text))
        said = text.value.decode() if text.value else f"error {status}"
        raise RuntimeError(f"a kernel could not be started on the GPU: {said}")


class Watch(NamedTuple):
    """Two words ``(1,)`` that a kernel sets when it gives up waiting; both are zero otherwise."""

    aborted: Tensor  # in the GPU's memory, for the blocks that still run and for the kernels after them
    reported: Tensor  # in the host's memory, for the host


_watches: dict[int, Watch] = {}


def watch(device: int) -> Watch:
    """The words of a GPU: made once, since CUDA graphs keep their addresses."""
    found = _watches.get(device)
    if found is None:
        # On a stream of its own: a caller's graph capture must not take the zeroing for a part of its work.
        beside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        with torch.inference_mode(False), torch.cuda.stream(beside):
            aborted = torch.zeros(1, dtype=torch.int32, device=f"cuda:{device}")
            reported = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        beside.synchronize()
        found = _watches.setdefault(device, Watch(aborted, reported))
    return found


def check_kernels(device: torch.device | str | int | None = None, *, wait: bool = True) -> None:
    """Raise an `AnaphoraError` if a kernel of a recurrent layer timed out on a GPU; its results are NaN.

    Call it before you use results that must not be wrong: before a save, after a measurement. Without a GPU it does nothing.

    Args:
        device: one GPU; None: all on which recurrent layers have run.
        wait: let the GPU finish first; False if you know that it has.

    >>> an.nn.check_kernels()
    """
    only = None if device is None else torch.device(device).index or 0
    for index in list(_watches):
        if only in (None, index):
            if wait and not torch.cuda.is_current_stream_capturing():
                torch.cuda.synchronize(index)
            check_report(index)


def check_report(device: int) -> None:
    """Raise what an earlier kernel has reported; a look at the host's memory, which never waits for the GPU."""
    found = _watches.get(device)
    if found is None or not int(found.reported):
        return
    if not torch.cuda.is_current_stream_capturing():  # both words stay set where they cannot be cleared
        torch.cuda.synchronize(device)  # no kernel that still runs may set them again
        found.aborted.zero_()
        found.reported.zero_()
        torch.cuda.synchronize(device)
    raise AnaphoraError(
        f"A recurrence on cuda:{device} timed out: it waited more than two seconds for its other parts, so its "
        "results are NaN: free the GPU of other programs, or run with fewer layers at once."
    )
