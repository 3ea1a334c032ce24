/* y = x Wᵀ + b for few rows x (m, k) and weights W (n, k) that were packed once; follows the recurrences' prelude.

   W lies in panels of WIDE outputs, k after k, so that it is read once and in order, whatever the number of rows. Before,
   x is copied so that the rows of a block lie side by side, [k][rows]: one pointer reaches all of them. Every output is
   one chain of multiply-adds in the order of k: neither the rows beside it nor the number of threads change a bit.
   n: m, n, k, floats from one row of y to the next, threads. Bias and scales fill whole panels. */
#include <stdint.h>
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
#define HIGH 12 /* rows at once: their sums fill 24 of 32 registers */
#else
#define HIGH 6
#endif
typedef int32_t I __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

L panel_width(void) { return WIDE; }

/* Blocks of at most HIGH rows, of nearly the same height; `rows` becomes a constant in each call. */
#define EACH_BLOCK(m)                                                                           \
  for (L blocks = ((m) + HIGH - 1) / HIGH, b = 0, first = 0, rows; b < blocks; b++, first += rows) \
    if ((rows = ((m) - first + blocks - b - 1) / (blocks - b)), 1)
#if HIGH > 6
#define HIGHER(CALL)         \
  case 6: CALL(6); break;    \
  case 7: CALL(7); break;    \
  case 8: CALL(8); break;    \
  case 9: CALL(9); break;    \
  case 10: CALL(10); break;  \
  case 11: CALL(11); break;
#else
#define HIGHER(CALL)
#endif
#define BY_HEIGHT(CALL)      \
  switch (rows) {            \
    case 1: CALL(1); break;  \
    case 2: CALL(2); break;  \
    case 3: CALL(3); break;  \
    case 4: CALL(4); break;  \
    case 5: CALL(5); break;  \
    HIGHER(CALL)             \
    default: CALL(HIGH);     \
  }
#define FIXED static inline __attribute__((always_inline))

static void put(float *y, const VU *sum, const float *bias, L width) {
  VU out[2] = {sum[0] + *(const VU *)bias, sum[1] + *(const VU *)(bias + VW)};
  memcpy(y, out, width * sizeof(float));
}

/* ---------------------------------------------------------------- single precision: x, W, b, y, work (m, k) */
FIXED void float_block(const L rows, L k, const float *x, const float *w, const float *ahead, VU (*sums)[2]) {
  V sum[HIGH][2];
  _Pragma("GCC unroll 12") for (L r = 0; r < rows; r++) sum[r][0] = sum[r][1] = (V){0};
  for (L i = 0; i < k; i++, x += rows, w += WIDE, ahead += 16) {
    const V w0 = *(const V *)w, w1 = *(const V *)(w + VW);
    if (rows > 2) __builtin_prefetch(ahead);
    else __builtin_prefetch(w + 512), __builtin_prefetch(w + 512 + VW); /* few rows only wait for their weights */
    _Pragma("GCC unroll 12") for (L r = 0; r < rows; r++) {
      const V a = x[r] - (V){0};
      sum[r][0] = FMA(a, w0, sum[r][0]);
      sum[r][1] = FMA(a, w1, sum[r][1]);
    }
  }
  _Pragma("GCC unroll 12") for (L r = 0; r < rows; r++) sums[r][0] = sum[r][0], sums[r][1] = sum[r][1];
}

static int float_part(const L *n, void *const *p, L part) {
  const L m = n[0], outputs = n[1], k = n[2], ldy = n[3], threads = n[4], panels = (outputs + WIDE - 1) / WIDE;
  const float *x = p[4], *bias = p[2];
  float *y = p[3];
  for (L panel = panels * part / threads; panel < panels * (part + 1) / threads; panel++) {
    const float *w = (const float *)p[1] + panel * k * WIDE;
    const L o = panel * WIDE, width = outputs - o < WIDE ? outputs - o : WIDE;
    EACH_BLOCK(m) {
      VU sum[HIGH][2];
      const float *ahead = w + k * WIDE + k * WIDE / blocks * b; /* every block fetches its share of the next panel */
#define CALL(R) float_block(R, k, x + first * k, w, ahead, sum)
      BY_HEIGHT(CALL)
#undef CALL
      for (L r = 0; r < rows; r++) put(y + (first + r) * ldy + o, sum[r], bias + o, width);
    }
  }
  return 0;
}
/* x (rows, k) -> to (k, rows) */
static void side_by_side(L rows, L k, const float *x, float *to) {
  L i = 0;
#if defined(__SSE2__)
  for (; rows >= 4 && i + 4 <= k; i += 4)
    for (L r = 0; r < rows; r += 4) {
      const L at = r + 4 <= rows ? r : rows - 4; /* the last four rows may be copied twice in part */
      const float *from = x + at * k + i;
      float *there = to + i * rows + at;
      __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + k), c = _mm_loadu_ps(from + 2 * k), d = _mm_loadu_ps(from + 3 * k);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      _mm_storeu_ps(there, a), _mm_storeu_ps(there + rows, b);
      _mm_storeu_ps(there + 2 * rows, c), _mm_storeu_ps(there + 3 * rows, d);
    }
#endif
  for (; i < k; i++)
    for (L r = 0; r < rows; r++) to[i * rows + r] = x[r * k + i];
}
int linear_float(const L *n, void *const *p) {
  const L m = n[0], k = n[2];
  EACH_BLOCK(m) side_by_side(rows, k, (const float *)p[0] + first * k, (float *)p[4] + first * k);
  return run_all(n, p, n[4], float_part);
}

/* ---------------------------------------------------------------- eight bits: x, W, b, y, scale, shift, work, scales */
/* W_o ≈ scale_o q_o and a row of x ≈ s v, with q and v whole numbers from −127 to 127. Products are summed in 32 bits,
   which is exact for up to 133 144 inputs: so every instruction set gives the same sums, and from them, by the same
   single multiplications and additions, the same bits.

   DEPTH inputs of an output lie side by side in W, [panel][k / DEPTH][WIDE][DEPTH], and DEPTH elements of x are one
   word of 32 bits that meets WIDE outputs at once:
   - AVX-512 with VNNI multiplies unsigned by signed bytes. x is v + OFFSET, 1 to 255, and what that adds to a sum,
     128 Σ q_o, is the `shift` that was counted when W was packed. Sums may wrap on the way, never at the end. Without
     OFFSET the shift is 0.
   - ARM's dot product takes signed bytes.
   - Elsewhere bytes are widened to 16 bits, then multiplied and added in pairs (pmaddwd): 2 · 127² is far from the end of
     32 bits. The shorter product of bytes, pmaddubsw, would saturate in 16 bits. A block of rows shares the widening. */
#if defined(__AVX512VNNI__)
#define DEPTH 4
#define OFFSET 128
typedef uint8_t E;
typedef __m512i Weights;
#define WEIGHTS(w) _mm512_loadu_si512(w)
#define ADD(sum, word, w) ((I)_mm512_dpbusd_epi32((__m512i)(sum), _mm512_set1_epi32(word), w))
#elif defined(__ARM_FEATURE_DOTPROD)
#define DEPTH 4
#define OFFSET 0
typedef int8_t E;
typedef int8x16_t Weights;
#define WEIGHTS(w) vld1q_s8(w)
#define ADD(sum, word, w) ((I)vdotq_s32((int32x4_t)(sum), w, vreinterpretq_s8_s32(vdupq_n_s32(word))))
#else
#define DEPTH 2
#define OFFSET 0
typedef int16_t E;
#if defined(__AVX512BW__)
typedef __m512i Weights;
#define WEIGHTS(w) _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(w)))
#define ADD(sum, word, w) ((sum) + (I)_mm512_madd_epi16(_mm512_set1_epi32(word), w))
#elif defined(__AVX2__) && VECTOR_BYTES == 32
typedef __m256i Weights;
#define WEIGHTS(w) _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(w)))
#define ADD(sum, word, w) ((sum) + (I)_mm256_madd_epi16(_mm256_set1_epi32(word), w))
#elif defined(__SSE2__) && VECTOR_BYTES == 16
typedef __m128i Weights;
static inline __m128i widened(const int8_t *w) {
  const __m128i bytes = _mm_loadl_epi64((const __m128i *)w);
  return _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
}
#define WEIGHTS(w) widened(w)
#define ADD(sum, word, w) ((sum) + (I)_mm_madd_epi16(_mm_set1_epi32(word), w))
#else
typedef const int8_t *Weights;
static inline I add_pairs(I sum, int32_t word, const int8_t *w) {
  int16_t x[2];
  memcpy(x, &word, 4);
  for (L o = 0; o < VW; o++) sum[o] += x[0] * w[2 * o] + x[1] * w[2 * o + 1];
  return sum;
}
#define WEIGHTS(w) (w)
#define ADD(sum, word, w) add_pairs(sum, word, w)
#endif
#endif
#define STEPS(k) (((k) + DEPTH - 1) / DEPTH)

/* q (n, k) -> packed, zero at first, and shift (n). */
void pack_int8(const L *n, void *const *p) {
  const L outputs = n[0], k = n[1];
  const int8_t *w = p[0];
  int8_t *packed = p[1];
  int32_t *shift = p[2];
  for (L o = 0; o < outputs; o++) {
    int32_t sum = 0;
    for (L i = 0; i < k; i++) {
      packed[((o / WIDE * STEPS(k) + i / DEPTH) * WIDE + o % WIDE) * DEPTH + i % DEPTH] = w[o * k + i];
      sum += w[o * k + i];
    }
    shift[o] = OFFSET * sum;
  }
}

/* One row of x as words, `apart` from each other; row (k, filled up to whole words) is for work. */
static void round_row(L k, const float *x, E *row, int32_t *words, L apart, float *scale) {
  float most = 0, spoilt = 0; /* 0 · x is 0, or NaN where x is not finite; neither result depends on the order */
#pragma omp simd reduction(max : most) reduction(+ : spoilt)
  for (L i = 0; i < k; i++) {
    most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    spoilt += 0 * x[i];
  }
  *scale = most / 127 + spoilt;
  const float by = most > 0 ? 127 / most : 0;
  for (L i = 0; i < k; i++) row[i] = (E)((int32_t)(x[i] * by + 128.5f) - 128 + OFFSET);
  for (L i = k; i % DEPTH; i++) row[i] = OFFSET;
  for (L i = 0; i < STEPS(k); i++) memcpy(words + i * apart, row + i * DEPTH, 4);
}

FIXED void int8_block(const L rows, L steps, const int32_t *x, const int8_t *w, const int8_t *ahead, I (*sums)[2]) {
  I sum[HIGH][2];
  _Pragma("GCC unroll 12") for (L r = 0; r < rows; r++) sum[r][0] = sum[r][1] = (I){0};
  for (L i = 0; i < steps; i++, x += rows, w += WIDE * DEPTH) {
    const Weights w0 = WEIGHTS(w), w1 = WEIGHTS(w + VW * DEPTH);
    if (rows > 1) __builtin_prefetch(ahead + 16 * DEPTH * i); /* one row has no time to wait for its own prefetches */
    _Pragma("GCC unroll 12") for (L r = 0; r < rows; r++) {
      sum[r][0] = ADD(sum[r][0], x[r], w0);
      sum[r][1] = ADD(sum[r][1], x[r], w1);
    }
  }
  _Pragma("GCC unroll 12") for (L r = 0; r < rows; r++) sums[r][0] = sum[r][0], sums[r][1] = sum[r][1];
}

static int int8_part(const L *n, void *const *p, L part) {
  const L m = n[0], outputs = n[1], steps = STEPS(n[2]), ldy = n[3], threads = n[4];
  const L panels = (outputs + WIDE - 1) / WIDE, size = steps * WIDE * DEPTH;
  const int32_t *x = p[6], *shift = p[5];
  const float *bias = p[2], *scale = p[4], *row_scale = p[7];
  float *y = p[3];
  for (L panel = panels * part / threads; panel < panels * (part + 1) / threads; panel++) {
    const int8_t *w = (const int8_t *)p[1] + panel * size;
    const L o = panel * WIDE, width = outputs - o < WIDE ? outputs - o : WIDE;
    EACH_BLOCK(m) {
      I sum[HIGH][2];
      const int8_t *ahead = w + size + size / blocks * b;
#define CALL(R) int8_block(R, steps, x + first * steps, w, ahead, sum)
      BY_HEIGHT(CALL)
#undef CALL
      for (L r = 0; r < rows; r++) {
        VU real[2];
        for (L v = 0; v < 2; v++) {
          const I exact = sum[r][v] - *(const I *)(shift + o + v * VW);
          real[v] = __builtin_convertvector(exact, VU) * *(const VU *)(scale + o + v * VW) * row_scale[first + r];
        }
        put(y + (first + r) * ldy + o, real, bias + o, width);
      }
    }
  }
  return 0;
}
int linear_int8(const L *n, void *const *p) {
  const L m = n[0], k = n[2];
  int32_t *words = p[6];
  E *row = (E *)(words + m * STEPS(k));
  EACH_BLOCK(m) for (L r = 0; r < rows; r++)
    round_row(k, (const float *)p[0] + (first + r) * k, row, words + first * STEPS(k) + r, rows, (float *)p[7] + first + r);
  return run_all(n, p, n[4], int8_part);
}
