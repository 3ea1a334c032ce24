/* Every C kernel starts with this: one meaning of a fused multiply-add, whatever compiler and instruction set.

   The compiler may not contract a * b + c by itself (-ffp-contract=off): it would do so in one loop and not in another,
   and a row alone would differ from the same row in a batch. Code that wants the speed writes FMA(a, b, c). It rounds
   once where the CPU has the instruction; elsewhere it is a * b + c, rounded twice, everywhere: the C library's fma
   would take a hundred times as long. */
#if defined(__FP_FAST_FMAF) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define HAS_FMA 1
#define FMA_FLOAT(a, b, c) __builtin_fmaf(a, b, c)
#define FMA_DOUBLE(a, b, c) __builtin_fma(a, b, c)
#else
#define HAS_FMA 0
#define FMA_FLOAT(a, b, c) ((a) * (b) + (c))
#define FMA_DOUBLE(a, b, c) ((a) * (b) + (c))
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
/* The widest vectors of this instruction set. */
typedef float FloatVector __attribute__((vector_size(VECTOR_BYTES)));
typedef double DoubleVector __attribute__((vector_size(VECTOR_BYTES)));

static inline float fma_float(float a, float b, float c) { return FMA_FLOAT(a, b, c); }
static inline double fma_double(double a, double b, double c) { return FMA_DOUBLE(a, b, c); }
#define VECTOR_FMA static inline __attribute__((always_inline))
#if !HAS_FMA
VECTOR_FMA FloatVector fma_floats(FloatVector a, FloatVector b, FloatVector c) { return a * b + c; }
VECTOR_FMA DoubleVector fma_doubles(DoubleVector a, DoubleVector b, DoubleVector c) { return a * b + c; }
#elif defined(__GNUC__) && !defined(__clang__) && defined(__AVX512F__)
VECTOR_FMA FloatVector fma_floats(FloatVector a, FloatVector b, FloatVector c) {
  return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4); /* all lanes, rounded as usual */
}
VECTOR_FMA DoubleVector fma_doubles(DoubleVector a, DoubleVector b, DoubleVector c) {
  return __builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4);
}
#elif defined(__GNUC__) && !defined(__clang__) && defined(__AVX__)
VECTOR_FMA FloatVector fma_floats(FloatVector a, FloatVector b, FloatVector c) {
  return __builtin_ia32_vfmaddps256(a, b, c);
}
VECTOR_FMA DoubleVector fma_doubles(DoubleVector a, DoubleVector b, DoubleVector c) {
  return __builtin_ia32_vfmaddpd256(a, b, c);
}
#else /* one instruction for all lanes: other compilers see it at once, gcc too late for its best code */
VECTOR_FMA FloatVector fma_floats(FloatVector a, FloatVector b, FloatVector c) {
  for (int i = 0; i < VECTOR_BYTES / 4; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}
VECTOR_FMA DoubleVector fma_doubles(DoubleVector a, DoubleVector b, DoubleVector c) {
  for (int i = 0; i < VECTOR_BYTES / 8; i++) c[i] = __builtin_fma(a[i], b[i], c[i]);
  return c;
}
#endif
/* For scalars and vectors alike; c decides which. A scalar x as a vector is x - (V){0}, which keeps the sign of zero. */
#define FMA(a, b, c) \
  _Generic((c), float: fma_float, double: fma_double, FloatVector: fma_floats, DoubleVector: fma_doubles)(a, b, c)
