"""What one thread of this processor can do at best, measured: the floor under every benchmark of products."""

from __future__ import annotations

import ctypes
import time

import torch

from anaphora.native import c

SOURCE = """
typedef long long L;
#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
typedef float V __attribute__((vector_size(BYTES), aligned(4), may_alias));
#define ALL for (int i = 0; i < 12; i++)
L lanes(void) { return BYTES / 4; }
/* Twelve chains of multiply-adds that wait for nothing but themselves. */
void multiply(L times, float *out) {
  const V a = *(V *)out, b = *(V *)(out + BYTES / 4);
  V s[12];
  ALL s[i] = b * (float)i;
  for (L k = 0; k < times; k++) _Pragma("GCC unroll 12") ALL s[i] = s[i] * a + b;
  ALL *(V *)(out + i * BYTES / 4) = s[i];
}
/* Reads n floats (a multiple of 12 vectors) from first to last, again and again. */
void read(L times, const float *p, L n, float *out) {
  V s[12];
  ALL s[i] = (V){0};
  for (L k = 0; k < times; k++)
    for (L at = 0; at < n; at += 12 * BYTES / 4) _Pragma("GCC unroll 12") ALL s[i] += *(V *)(p + at + i * BYTES / 4);
  ALL *(V *)(out + i * BYTES / 4) = s[i];
}
"""


class Processor:
    """The limits of one thread, in float32; each call measures again and gives the best of many tries."""

    def __init__(self) -> None:
        self.library = c.load(SOURCE, "processor")
        self.lanes = int(self.library.lanes())
        self.scratch = torch.full((12 * self.lanes,), 0.5)

    def operations(self, tries: int = 400) -> float:
        """Multiplications and additions in a second."""
        times, best = 20_000, float("inf")
        for _ in range(tries):
            self.scratch.fill_(0.5)
            begin = time.perf_counter()
            self.library.multiply(ctypes.c_longlong(times), ctypes.c_void_p(self.scratch.data_ptr()))
            best = min(best, time.perf_counter() - begin)
        return 2.0 * 12 * self.lanes * times / best

    def bytes_read(self, size: int, tries: int = 400) -> float:
        """Bytes read in a second from ``size`` bytes that are read over and over."""
        count = size // 4 // (12 * self.lanes) * 12 * self.lanes
        data, times, best = torch.zeros(count), max(1, (8 << 20) // size), float("inf")
        for _ in range(tries):
            begin = time.perf_counter()
            self.library.read(
                ctypes.c_longlong(times),
                ctypes.c_void_p(data.data_ptr()),
                ctypes.c_longlong(count),
                ctypes.c_void_p(self.scratch.data_ptr()),
            )
            best = min(best, time.perf_counter() - begin)
        return 4.0 * count * times / best
