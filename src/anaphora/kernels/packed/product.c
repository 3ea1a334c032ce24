/* y = x Wᵀ + b for few rows x (m, k) and weights W (n, k) that were packed once; follows the recurrences' prelude.

   W lies in panels of WIDE outputs, k after k, so that it is read once and in order, whatever the number of rows.
   Every output is one chain of multiply-adds in the order of k: neither the rows beside it nor the number of threads
   change a bit. n: m, n, k, floats from one row of y to the next, threads. Bias and scales fill whole panels. */
#include <stdint.h>
#if defined(__AVX2__)
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

/* ---------------------------------------------------------------- single precision: x, W, b, y */
FIXED void float_block(const L rows, L k, const float *x, const float *w, const float *ahead, VU (*sums)[2]) {
  V sum[HIGH][2];
  _Pragma("GCC unroll 12") for (L r = 0; r < rows; r++) sum[r][0] = sum[r][1] = (V){0};
  for (L i = 0; i < k; i++) {
    const V w0 = *(const V *)(w + i * WIDE), w1 = *(const V *)(w + i * WIDE + VW);
    __builtin_prefetch(ahead + 16 * i);
    _Pragma("GCC unroll 12") for (L r = 0; r < rows; r++) {
      const float a = x[r * k + i];
      sum[r][0] += a * w0;
      sum[r][1] += a * w1;
    }
  }
  _Pragma("GCC unroll 12") for (L r = 0; r < rows; r++) sums[r][0] = sum[r][0], sums[r][1] = sum[r][1];
}

static int float_part(const L *n, void *const *p, L part) {
  const L m = n[0], outputs = n[1], k = n[2], ldy = n[3], threads = n[4], panels = (outputs + WIDE - 1) / WIDE;
  const float *x = p[0], *bias = p[2];
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
int linear_float(const L *n, void *const *p) { return run_all(n, p, n[4], float_part); }

/* ---------------------------------------------------------------- eight bits: x, W, b, y, scale, shift, work, work */
/* W_o ≈ scale_o q_o with q from −127 to 127, four inputs side by side; a row of x ≈ s (u − 128) with u from 1 to 255.
   Where the processor multiplies u by q: Σ (u − 128) q = Σ u q − 128 Σ q, and shift_o = 128 Σ q_o is known beforehand.
   Sums of integers are exact, so that all ways give the same. */
void pack_int8(const L *n, void *const *p) {
  const L outputs = n[0], k = n[1], fours = (k + 3) / 4;
  const int8_t *w = p[0];
  int8_t *packed = p[1];
  int32_t *shift = p[2];
  for (L o = 0; o < outputs; o++) {
    int32_t sum = 0;
    for (L i = 0; i < k; i++) {
      packed[((o / WIDE * fours + i / 4) * WIDE + o % WIDE) * 4 + i % 4] = w[o * k + i];
      sum += w[o * k + i];
    }
    shift[o] = 128 * sum;
  }
}

static void round_row(L k, const float *x, uint8_t *u, float *scale) {
  float most = 0, spoilt = 0; /* 0 · x is 0, or NaN where x is not finite */
#pragma omp simd reduction(max : most) reduction(+ : spoilt)
  for (L i = 0; i < k; i++) {
    most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    spoilt += 0 * x[i];
  }
  *scale = most / 127 + spoilt;
  const float by = most > 0 ? 127 / most : 0;
  for (L i = 0; i < k; i++) u[i] = (uint8_t)(int32_t)(x[i] * by + 128.5f);
  for (L i = k; i % 4; i++) u[i] = 128;
}

/* sum_o + Σ x q_o over four inputs, given as u = x + 128 in the bytes of `four`. */
#define SIGNED(four) ((int32_t)((uint32_t)(four) ^ 0x80808080u)) /* the bytes u − 128 */
static inline I add_fours(I sum, int32_t four, const int8_t *w) {
#if defined(__AVX512VNNI__) /* multiplies u by q; EXACT makes up for it */
  return (I)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(four), _mm512_loadu_si512(w));
#elif defined(__AVX2__) /* |x| · (q with the sign of x): two products of at most 127² fit into sixteen bits */
  const __m256i x = _mm256_set1_epi32(SIGNED(four)), size = _mm256_abs_epi8(x), one = _mm256_set1_epi16(1);
  __m256i parts[VECTOR_BYTES / 32];
  memcpy(parts, &sum, sizeof parts);
  for (L h = 0; h < VECTOR_BYTES / 32; h++) {
    const __m256i q = _mm256_sign_epi8(_mm256_loadu_si256((const __m256i *)(w + 32 * h)), x);
    parts[h] = _mm256_add_epi32(parts[h], _mm256_madd_epi16(_mm256_maddubs_epi16(size, q), one));
  }
  memcpy(&sum, parts, sizeof parts);
  return sum;
#elif defined(__ARM_FEATURE_DOTPROD)
  return (I)vdotq_s32((int32x4_t)sum, vld1q_s8(w), vreinterpretq_s8_s32(vdupq_n_s32(SIGNED(four))));
#else
  int8_t x[4];
  const int32_t bytes = SIGNED(four);
  memcpy(x, &bytes, 4);
  for (L o = 0; o < VW; o++)
    sum[o] += x[0] * w[4 * o] + x[1] * w[4 * o + 1] + x[2] * w[4 * o + 2] + x[3] * w[4 * o + 3];
  return sum;
#endif
}
#if defined(__AVX512VNNI__)
#define EXACT(sum, shift) ((sum) - *(const I *)(shift))
#else
#define EXACT(sum, shift) (sum)
#endif

FIXED void int8_block(const L rows, L fours, const int32_t *x, const int8_t *w, const int8_t *ahead, I (*sums)[2]) {
  I sum[HIGH][2];
  _Pragma("GCC unroll 12") for (L r = 0; r < rows; r++) sum[r][0] = sum[r][1] = (I){0};
  for (L i = 0; i < fours; i++) {
    __builtin_prefetch(ahead + 64 * i);
    _Pragma("GCC unroll 12") for (L r = 0; r < rows; r++) {
      const int32_t four = x[r * fours + i];
      sum[r][0] = add_fours(sum[r][0], four, w + i * WIDE * 4);
      sum[r][1] = add_fours(sum[r][1], four, w + i * WIDE * 4 + VW * 4);
    }
  }
  _Pragma("GCC unroll 12") for (L r = 0; r < rows; r++) sums[r][0] = sum[r][0], sums[r][1] = sum[r][1];
}

static int int8_part(const L *n, void *const *p, L part) {
  const L m = n[0], outputs = n[1], fours = (n[2] + 3) / 4, ldy = n[3], threads = n[4];
  const L panels = (outputs + WIDE - 1) / WIDE;
  const int32_t *x = p[6], *shift = p[5];
  const float *bias = p[2], *scale = p[4], *row_scale = p[7];
  float *y = p[3];
  for (L panel = panels * part / threads; panel < panels * (part + 1) / threads; panel++) {
    const int8_t *w = (const int8_t *)p[1] + panel * fours * WIDE * 4;
    const L o = panel * WIDE, width = outputs - o < WIDE ? outputs - o : WIDE;
    EACH_BLOCK(m) {
      I sum[HIGH][2];
      const int8_t *ahead = w + fours * WIDE * 4 + fours * WIDE * 4 / blocks * b;
#define CALL(R) int8_block(R, fours, x + first * fours, w, ahead, sum)
      BY_HEIGHT(CALL)
#undef CALL
      for (L r = 0; r < rows; r++) {
        VU real[2];
        for (L v = 0; v < 2; v++) {
          const I exact = EXACT(sum[r][v], shift + o + v * VW);
          real[v] = __builtin_convertvector(exact, VU) * *(const VU *)(scale + o + v * VW) * row_scale[first + r];
        }
        put(y + (first + r) * ldy + o, real, bias + o, width);
      }
    }
  }
  return 0;
}
int linear_int8(const L *n, void *const *p) {
  const L m = n[0], k = n[2], padded = (k + 3) / 4 * 4;
  for (L r = 0; r < m; r++)
    round_row(k, (const float *)p[0] + r * k, (uint8_t *)p[6] + r * padded, (float *)p[7] + r);
  return run_all(n, p, n[4], int8_part);
}
