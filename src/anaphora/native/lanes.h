/* Sums of floats in sixteen lanes, whatever the width of a vector: one, two or four vectors, folded in one order. So the
   result does not depend on how a compiler would vectorise, and AVX2 and AVX-512 give the same bits. Follows arithmetic.h. */
#include <string.h>

#define LANE_PARTS (64 / VECTOR_BYTES)
#define EACH_PART _Pragma("GCC unroll 4") for (int q = 0; q < LANE_PARTS; q++)
typedef float UnalignedVector __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef float FourFloats __attribute__((vector_size(16)));
typedef union { FloatVector part[LANE_PARTS]; FourFloats quarter[4]; } Sixteen;

/* Part q of the sixteen floats at x. */
static inline UnalignedVector *part_of(const float *x, int q) { return (UnalignedVector *)(x + VECTOR_BYTES / 4 * q); }

static inline float total(Sixteen s) {
  const FourFloats sum = (s.quarter[0] + s.quarter[2]) + (s.quarter[1] + s.quarter[3]);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}
