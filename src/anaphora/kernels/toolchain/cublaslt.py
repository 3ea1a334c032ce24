"""Products of matrices by NVIDIA's cublasLt, with a kernel that the caller chooses: the library that PyTorch has loaded, called directly.

Matrices are given by columns here, as the library has them: rows of PyTorch's are its columns.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from functools import cache
from threading import Lock
from typing import NamedTuple

import torch
from torch import Tensor

from anaphora.errors import AnaphoraError

_FLOAT32, _TYPES = 0, {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}
_COMPUTE_FLOAT32 = 68
_TRANSPOSED, _EPILOGUE, _BIAS, _ADDS_BIAS = (
    (3, 4),
    7,
    8,
    4,
)  # attributes of a product, and the epilogue that adds a bias
_WORKSPACE = 1  # attribute of a preference
_PARTS = 2  # attribute of a way: in how many parts it sums
SPACE = (
    4096  # bytes that a product may have beside its matrices: enough to count tiles, not for sums in parts
)


class Way(ctypes.Structure):
    """One kernel for one product, as the library describes it."""

    _fields_ = (
        ("how", ctypes.c_uint64 * 8),
        ("space", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("rest", ctypes.c_int * 4),
    )


class Side(NamedTuple):
    """A factor as it lies in memory, by columns: so many rows and columns, and whether it is transposed."""

    rows: int
    columns: int
    transposed: bool


class LibraryError(AnaphoraError):
    """cublasLt cannot be called here."""


@cache
def library() -> ctypes.CDLL:
    """cublasLt itself; raises `LibraryError` where there is none."""
    major = (torch.version.cuda or "0").split(".")[0]
    try:
        return ctypes.CDLL(f"libcublasLt.so.{major}")
    except OSError:
        raise LibraryError("PyTorch has no cublasLt here") from None


@cache
def _handle(index: int) -> ctypes.c_void_p:
    """One for each GPU; the current one is meant."""
    made = ctypes.c_void_p()
    _check(library().cublasLtCreate(byref(made)))
    return made


class Product:
    """out = op(a) op(b) + bias of one size and type on one GPU, ``bias`` one number for each row of ``out`` by columns.

    `ways` gives the kernels for it, and `run` computes it by one of them. They sum in the same order, in float32 and undivided: what they
    give is the same.
    """

    def __init__(self, a: Side, b: Side, dtype: torch.dtype, *, biased: bool, index: int):
        self._handle, self._what, self._biased = _handle(index), ctypes.c_void_p(), biased
        _check(library().cublasLtMatmulDescCreate(byref(self._what), _COMPUTE_FLOAT32, _FLOAT32))
        for attribute, side in zip(_TRANSPOSED, (a, b), strict=True):
            self._set(attribute, ctypes.c_int32(side.transposed))
        if biased:
            self._set(_EPILOGUE, ctypes.c_int32(_ADDS_BIAS))
        rows = a.columns if a.transposed else a.rows
        columns = b.rows if b.transposed else b.columns
        shapes = (a[:2], b[:2], (rows, columns))
        self._layouts = [_layout(_TYPES[dtype], *shape) for shape in shapes]
        self._lock = Lock()
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)

    def ways(self, most: int, bias: Tensor | None = None) -> list[Way]:
        """At most so many, in the order in which the library would take them; ``bias`` is one that `run` may be given."""
        self._place(bias)
        wish, found, count = ctypes.c_void_p(), (Way * most)(), ctypes.c_int()
        _check(library().cublasLtMatmulPreferenceCreate(byref(wish)))
        try:
            space = ctypes.c_uint64(SPACE)
            set_ = library().cublasLtMatmulPreferenceSetAttribute
            _check(set_(wish, _WORKSPACE, byref(space), ctypes.c_size_t(8)))
            a, b, out = self._layouts
            given = (self._handle, self._what, a, b, out, out, wish, most, found, byref(count))
            _check(library().cublasLtMatmulAlgoGetHeuristic(*given))
        finally:
            library().cublasLtMatmulPreferenceDestroy(wish)
        return [
            way for way in found[: count.value] if way.state == 0 and way.space <= SPACE and _parts(way) == 1
        ]

    def run(self, way: Way, a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None = None) -> None:
        """Compute it on the current stream; ``bias`` is of the type of the others."""
        space = torch.empty(SPACE, dtype=torch.uint8, device=out.device)
        places = [ctypes.c_void_p(t.data_ptr()) for t in (a, b, out, space)]
        stream = ctypes.c_void_p(torch.cuda.current_stream(out.device).cuda_stream)
        one, zero, (la, lb, lout) = byref(self._one), byref(self._zero), self._layouts
        matrices = (one, places[0], la, places[1], lb, zero, places[2], lout, places[2], lout)
        how = (byref(way.how), places[3], ctypes.c_size_t(SPACE), stream)
        with self._lock:  # where the bias lies is a part of what all threads share
            self._place(bias)
            _check(library().cublasLtMatmul(self._handle, self._what, *matrices, *how))

    def _place(self, bias: Tensor | None) -> None:
        """Say where the bias lies."""
        if (bias is not None) != self._biased:
            raise ValueError("a bias was promised and is missing, or the other way round")
        if bias is not None:
            self._set(_BIAS, ctypes.c_uint64(bias.data_ptr()))

    def _set(self, attribute: int, value: ctypes.c_int32 | ctypes.c_uint64) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        _check(library().cublasLtMatmulDescSetAttribute(self._what, attribute, byref(value), size))


def _layout(kind: int, rows: int, columns: int) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    sizes = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows))
    _check(library().cublasLtMatrixLayoutCreate(byref(made), kind, *sizes))
    return made


def _parts(way: Way) -> int:
    """In how many parts a way sums; 0 where it does not say."""
    found, written = ctypes.c_int32(), ctypes.c_size_t()
    get = library().cublasLtMatmulAlgoConfigGetAttribute
    status = get(byref(way.how), _PARTS, byref(found), ctypes.c_size_t(4), byref(written))
    return 0 if status else found.value


def _check(status: int) -> None:
    if status:
        raise LibraryError(f"cublasLt failed with status {status}")
