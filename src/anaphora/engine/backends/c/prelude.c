/* Shared by every generated recurrence: arithmetic, packed products, threads.

   A product's element is one chain of multiply-adds in the order of k, whatever the number of rows computed beside
   it: so a row's result never depends on its batch, to the last bit. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef long long L;
#define K(v) ((R)(v))

#if VECTOR_BYTES == 32
#define TALL 6 /* rows of a tile: their sums fill the sixteen registers */
#else
#define TALL 8
#endif
#define VW ((L)(VECTOR_BYTES / sizeof(R)))
#define WIDE (2 * VW) /* columns of a panel */

typedef R V __attribute__((vector_size(VECTOR_BYTES), aligned(VECTOR_BYTES)));
typedef R VU __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(R)), may_alias));

/* ---------------------------------------------------------------- arithmetic */
#ifdef SINGLE
static inline float power_of_two(int n) {
  int bits = (n + 127) << 23;
  float v;
  memcpy(&v, &bits, 4);
  return v;
}
static inline float r_exp(float x) {
  /* x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial fitted there, then scaled by 2^n in two steps so that
     neither end of the range overflows on the way. */
  x = x > 89.f ? 89.f : x;
  x = x < -104.f ? -104.f : x;
  float shifted = FMA(x, 1.44269504f, 12582912.f), whole = shifted - 12582912.f;
  int n = (int)whole, half = n >> 1;
  float r = FMA(whole, 2.12194440e-4f, FMA(whole, -0.693359375f, x));
  float p = 0.0013933650f;
  p = FMA(p, r, 0.0083631799f);
  p = FMA(p, r, 0.0416664667f);
  p = FMA(p, r, 0.1666657627f);
  p = FMA(p, r, 0.5f);
  p = FMA(p, r * r, r) + 1.f;
  return p * power_of_two(half) * power_of_two(n - half);
}
static inline float r_tanh(float x) {
  /* tanh |x| = (1 - e)/(1 + e) with e = e^(-2|x|) = 2^n (1 + q), where q = e^r - 1: nothing is lost near 0, and one
     power is enough, as e is nothing beside 1 long before it leaves the range. */
  float a = 2.f * fabsf(x);
  a = a > 88.f ? 88.f : a;
  float shifted = FMA(a, -1.44269504f, 12582912.f), whole = shifted - 12582912.f;
  float r = FMA(whole, 2.12194440e-4f, FMA(whole, -0.693359375f, -a));
  float s = power_of_two((int)whole), p = 0.0013933650f;
  p = FMA(p, r, 0.0083631799f);
  p = FMA(p, r, 0.0416664667f);
  p = FMA(p, r, 0.1666657627f);
  p = FMA(p, r, 0.5f);
  float q = FMA(p, r * r, r);
  return copysignf(FMA(s, q, s - 1.f) / FMA(s, q, s + 1.f), x);
}
static inline float r_sqrt(float x) { return sqrtf(x); }
static inline float r_abs(float x) { return fabsf(x); }
#define r_log logf
#define r_log1p log1pf
#define r_sin sinf
#define r_cos cosf
#define r_erf erff
#else
#define r_exp exp
#define r_tanh tanh
#define r_sqrt sqrt
#define r_abs fabs
#define r_log log
#define r_log1p log1p
#define r_sin sin
#define r_cos cos
#define r_erf erf
#endif
static inline R r_sigmoid(R x) { return K(1) / (K(1) + r_exp(-x)); }
static inline R r_relu(R x) { return x < K(0) ? K(0) : x; }
static inline R r_rsqrt(R x) { return K(1) / r_sqrt(x); }
static inline R r_sign(R x) { return (x > K(0) ? K(1) : K(0)) - (x < K(0) ? K(1) : K(0)); }
static inline R r_max(R a, R b) { return (a > b || a != a) ? a : b; }
static inline R r_min(R a, R b) { return (a < b || a != a) ? a : b; }

/* ---------------------------------------------------------------- rows */
/* Element j of a row goes to lane j mod LANES, and the lanes are joined in pairs: an order that no compiler, vector length
   or batch changes. */
#define LANES ((L)(128 / sizeof(R)))
#define PARTS (LANES / VW)
#define UNROLLED _Pragma("GCC unroll 16")
static inline R sum_of(V v) {
  typedef R Four __attribute__((vector_size(16))); /* two of them if they are doubles */
  Four q[VECTOR_BYTES / 16];
  memcpy(q, &v, sizeof v);
  UNROLLED for (int half = VECTOR_BYTES / 32; half; half /= 2)
    UNROLLED for (int i = 0; i < half; i++) q[i] += q[i + half];
#ifdef SINGLE
  return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
#else
  return q[0][0] + q[0][1];
#endif
}
/* The sums of some rows side by side: one alone would wait for its own additions. */
#define SUMS_AT_ONCE (VECTOR_BYTES == 64 ? 4 : 2) /* as many as there are registers for */
static inline __attribute__((always_inline)) void some_sums(const int rows, const R *const *x, L n, R *sums) {
  R lanes[LANES] __attribute__((aligned(VECTOR_BYTES)));
  V s[SUMS_AT_ONCE * PARTS];
  L j = 0;
  UNROLLED for (int i = 0; i < rows * PARTS; i++) s[i] = (V){0};
  for (; j + LANES <= n; j += LANES)
    UNROLLED for (int r = 0; r < rows; r++)
      UNROLLED for (int i = 0; i < PARTS; i++) s[r * PARTS + i] += *(const VU *)(x[r] + j + i * VW);
  UNROLLED for (int r = 0; r < rows; r++) {
    V *const own = s + r * PARTS;
    if (j < n) { /* what is left, and zeros */
      for (L l = 0; l < LANES; l++) lanes[l] = j + l < n ? x[r][j + l] : K(0);
      UNROLLED for (int i = 0; i < PARTS; i++) own[i] += *(const V *)(lanes + i * VW);
    }
    UNROLLED for (int half = PARTS / 2; half; half /= 2)
      UNROLLED for (int i = 0; i < half; i++) own[i] += own[i + half];
    sums[r] = sum_of(own[0]);
  }
}
/* Of at most four rows. */
static inline __attribute__((always_inline)) void row_sums(const int rows, const R *const *x, L n, R *sums) {
  const int first = rows < SUMS_AT_ONCE ? rows : SUMS_AT_ONCE;
  some_sums(first, x, n, sums);
  if (rows > first) some_sums(rows - first, x + first, n, sums + first);
}
static inline R row_maximum(const R *x, L n) {
  R lanes[LANES];
  for (L l = 0; l < LANES; l++) lanes[l] = -INFINITY;
  for (L j = 0; j < n; j += LANES)
    for (L l = 0; l < LANES && j + l < n; l++) lanes[l] = r_max(lanes[l], x[j + l]);
  for (L l = 1; l < LANES; l++) lanes[0] = r_max(lanes[0], lanes[l]);
  return lanes[0];
}

/* ---------------------------------------------------------------- products */
/* Panels of WIDE columns, k after k: P[panel][k][WIDE]; W holds element (column n, row k) at n*ln + k*lk. */
void pack(const L *n, void *const *p) {
  const L N = n[0], Kd = n[1], ln = n[2], lk = n[3];
  const R *W = p[0];
  R *P = p[1];
  for (L q = 0; q < N; q += WIDE) {
    if (ln == 1 && q + WIDE <= N) {
      for (L k = 0; k < Kd; k++) memcpy(P + q * Kd + k * WIDE, W + q + k * lk, WIDE * sizeof(R));
      continue;
    }
    for (L k0 = 0; k0 < Kd; k0 += 16)
      for (L j = 0; j < WIDE; j++) {
        const L kn = Kd - k0 < 16 ? Kd - k0 : 16;
        if (q + j < N)
          for (L k = k0; k < k0 + kn; k++) P[q * Kd + k * WIDE + j] = W[(q + j) * ln + k * lk];
        else
          for (L k = k0; k < k0 + kn; k++) P[q * Kd + k * WIDE + j] = K(0);
      }
  }
}
L packed_size(L N, L Kd) { return (N + WIDE - 1) / WIDE * WIDE * Kd; }

/* Multiplying leaves reading idle, so products fetch what the work after them will touch: a list of places, one of
   them at every 2^every-th k, each of them in one tile. */
typedef struct { const char **line; L count, next, each; int every; } Ahead;
static const char *const nowhere[1] = {""};
static inline void want(Ahead *h, const R *from, L n) {
  const char *first = (const char *)((size_t)from & ~(size_t)63), **to = h->line + h->count;
  const L lines = ((const char *)(from + n) - first + 63) / 64;
  for (L i = 0; i < lines; i++) to[i] = first + 64 * i;
  h->count += lines;
}
/* Deals what is left of the list to a number of tiles; the list has room for Kd places more. */
static void deal(Ahead *h, L tiles, L Kd) {
  const L share = (h->count - h->next + tiles - 1) / tiles;
  for (h->every = 0; h->every < 40 && Kd >> (h->every + 1) >= share;) h->every++;
  h->each = ((Kd - 1) >> h->every) + 1;
  for (L i = 0; i < h->each && h->next < h->count; i++) h->line[h->count + i] = nowhere[0];
}

/* M rows times a panel. TILE reads rows by pointers, OUTER_TILE reads them interleaved, a[k][M]. */
#define TILE(M) TILE_AS(tile##M, M, const R *const *a, a[i][k])
#define OUTER_TILE(M) TILE_AS(outer_tile, M, const R *a, a[k * M + i])
#define TILE_AS(NAME, M, ROWS, ELEMENT)                                                \
  static void NAME(L Kd, ROWS, const R *p, R *const *c, int add, Ahead *ahead) {       \
    V s0[M], s1[M];                                                                    \
    const int more = ahead->next < ahead->count, every = more ? ahead->every : 40;     \
    const char *const *next = more ? ahead->line + ahead->next : nowhere;              \
    if (more) ahead->next += ahead->each;                                              \
    for (int i = 0; i < M; i++) {                                                      \
      if (add) {                                                                       \
        s0[i] = *(const VU *)c[i];                                                     \
        s1[i] = *(const VU *)(c[i] + VW);                                              \
      } else {                                                                         \
        s0[i] = (V){0};                                                                \
        s1[i] = (V){0};                                                                \
      }                                                                                \
    }                                                                                  \
    for (L k = 0; k < Kd; k++) {                                                       \
      const V b0 = *(const V *)(p + k * WIDE), b1 = *(const V *)(p + k * WIDE + VW);   \
      if (M > 4) __builtin_prefetch(next[k >> every], 0, 2);                           \
      _Pragma("GCC unroll 16") for (int i = 0; i < M; i++) {                           \
        const V x = ELEMENT - (V){0};                                                  \
        s0[i] = FMA(x, b0, s0[i]);                                                     \
        s1[i] = FMA(x, b1, s1[i]);                                                     \
      }                                                                                \
    }                                                                                  \
    for (int i = 0; i < M; i++) {                                                      \
      *(VU *)c[i] = s0[i];                                                             \
      *(VU *)(c[i] + VW) = s1[i];                                                      \
    }                                                                                  \
  }
TILE(8) TILE(7) TILE(6) TILE(5) TILE(4) TILE(3) TILE(2) TILE(1) OUTER_TILE(TALL)

static void tile(L m, L Kd, const R *const *a, const R *p, R *const *c, int add, Ahead *h) {
  switch (m) {
    case 8: tile8(Kd, a, p, c, add, h); break;
    case 7: tile7(Kd, a, p, c, add, h); break;
    case 6: tile6(Kd, a, p, c, add, h); break;
    case 5: tile5(Kd, a, p, c, add, h); break;
    case 4: tile4(Kd, a, p, c, add, h); break;
    case 3: tile3(Kd, a, p, c, add, h); break;
    case 2: tile2(Kd, a, p, c, add, h); break;
    default: tile1(Kd, a, p, c, add, h);
  }
}
/* One row times four panels: alone, a row is bound by the reading of the weights, and four streams read faster. */
static void row_by_four(L Kd, const R *a, const R *p, R *c, int add) {
  V s[8];
  const R *q[4] = {p, p + WIDE * Kd, p + 2 * WIDE * Kd, p + 3 * WIDE * Kd};
  for (int j = 0; j < 8; j++)
    if (add) s[j] = *(const VU *)(c + j * VW);
    else s[j] = (V){0};
  for (L k = 0; k < Kd; k++) {
    const V x = a[k] - (V){0};
    _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) {
      s[2 * j] = FMA(x, *(const V *)(q[j] + k * WIDE), s[2 * j]);
      s[2 * j + 1] = FMA(x, *(const V *)(q[j] + k * WIDE + VW), s[2 * j + 1]);
    }
  }
  for (int j = 0; j < 8; j++) *(VU *)(c + j * VW) = s[j];
}
/* c[i] (+)= a[i] · W for M rows given by pointers; N columns, K inner; meanwhile what is ahead is fetched. */
static void gemm_ahead(L M, const R *const *a, R *const *c, L N, L Kd, const R *P, int add, Ahead *h) {
  L q = 0;
  if (M) deal(h, (N + WIDE - 1) / WIDE * ((M + TALL - 1) / TALL), Kd);
  if (M == 1)
    for (; q + 4 * WIDE <= N; q += 4 * WIDE) row_by_four(Kd, a[0], P + q * Kd, c[0] + q, add);
  for (; q < N; q += WIDE) {
    const R *panel = P + q * Kd;
    const L here = N - q < WIDE ? N - q : WIDE;
    for (L r = 0; r < M;) {
      /* Even tiles: a small one at the end would wait for its own sums. */
      const L left = M - r, tiles = (left + TALL - 1) / TALL, m = (left + tiles - 1) / tiles;
      R *target[TALL];
      R edge[TALL * WIDE] __attribute__((aligned(VECTOR_BYTES)));
      for (L i = 0; i < m; i++) {
        target[i] = c[r + i] + q;
        if (here < WIDE) {
          if (add) memcpy(edge + i * WIDE, target[i], here * sizeof(R));
          target[i] = edge + i * WIDE;
        }
      }
      tile(m, Kd, a + r, panel, target, add, h);
      if (here < WIDE)
        for (L i = 0; i < m; i++) memcpy(c[r + i] + q, edge + i * WIDE, here * sizeof(R));
      r += m;
    }
  }
}

static void gemm(L M, const R *const *a, R *const *c, L N, L Kd, const R *P, int add) {
  gemm_ahead(M, a, c, N, Kd, P, add, &(Ahead){0});
}

/* ---------------------------------------------------------------- one row, again and again */
/* Weights that only ever meet one row lie in blocks of BLOCK columns, k after k, and are read as a single stream. */
#define BLOCK (8 * VW)
static inline L block_width(L N, L q) { return N - q >= BLOCK ? BLOCK : (N - q + VW - 1) / VW * VW; }
void pack_row(const L *n, void *const *p) {
  const L N = n[0], Kd = n[1], ln = n[2], lk = n[3];
  const R *W = p[0];
  R *P = p[1];
  for (L q = 0; q < N; q += BLOCK) {
    const L width = block_width(N, q);
    for (L j = 0; j < width; j++)
      for (L k = 0; k < Kd; k++) P[q * Kd + k * width + j] = q + j < N ? W[(q + j) * ln + k * lk] : K(0);
  }
}
#define ROW_TILE(S)                                                                                \
  static void row_tile##S(L Kd, const R *a, const R *p, R *c, int add) {                           \
    V s[S];                                                                                        \
    for (int j = 0; j < S; j++)                                                                    \
      if (add) s[j] = *(const VU *)(c + j * VW);                                                   \
      else s[j] = (V){0};                                                                          \
    for (L k = 0; k < Kd; k++) {                                                                   \
      const V x = a[k] - (V){0};                                                                   \
      _Pragma("GCC unroll 8") for (int j = 0; j < S; j++) s[j] = FMA(x, *(const V *)(p + (k * S + j) * VW), s[j]); \
    }                                                                                              \
    for (int j = 0; j < S; j++) *(VU *)(c + j * VW) = s[j];                                        \
  }
ROW_TILE(8) ROW_TILE(7) ROW_TILE(6) ROW_TILE(5) ROW_TILE(4) ROW_TILE(3) ROW_TILE(2) ROW_TILE(1)
typedef void (*RowTile)(L, const R *, const R *, R *, int);
static const RowTile row_tiles[] = {row_tile1, row_tile2, row_tile3, row_tile4, row_tile5, row_tile6, row_tile7, row_tile8};
static void gemm_row(L M, const R *const *a, R *const *c, L N, L Kd, const R *P, int add) {
  for (L r = 0; r < M; r++)
    for (L q = 0; q < N; q += BLOCK) {
      const L width = block_width(N, q), here = N - q < width ? N - q : width;
      R edge[BLOCK] __attribute__((aligned(VECTOR_BYTES)));
      R *target = here < width ? edge : c[r] + q;
      if (add && here < width) memcpy(edge, c[r] + q, here * sizeof(R));
      row_tiles[width / VW - 1](Kd, a[r], P + q * Kd, target, add);
      if (here < width) memcpy(c[r] + q, edge, here * sizeof(R));
    }
}

/* ---------------------------------------------------------------- memory and threads */
/* Rows come in groups of GROUP, dealt to the threads in turn; what is summed over rows is summed per group, so
   that the result does not depend on the number of threads. */
#define GROUP 8
#define ROUND(count) (((count) + 63) / 64 * 64)
#define TAKE(name, count) R *name = at_hand; at_hand += ROUND(count)

typedef struct { const L *n; void *const *p; L part; int (*work)(const L *, void *const *, L); int result; } Job;
static void *run_job(void *job) {
  Job *j = job;
  j->result = j->work(j->n, j->p, j->part);
  return 0;
}
/* Threads are made for each call and ended with it: nothing outlives a fork. */
static int run_all(const L *n, void *const *p, L threads, int (*work)(const L *, void *const *, L)) {
  if (threads <= 1) return work(n, p, 0);
  Job jobs[threads];
  pthread_t ids[threads];
  char started[threads];
  for (L k = 0; k < threads; k++) jobs[k] = (Job){n, p, k, work, 0};
  for (L k = 1; k < threads; k++) started[k] = pthread_create(&ids[k], 0, run_job, &jobs[k]) == 0;
  run_job(&jobs[0]);
  int result = jobs[0].result;
  for (L k = 1; k < threads; k++) {
    if (started[k]) pthread_join(ids[k], 0);
    else run_job(&jobs[k]);
    result |= jobs[k].result;
  }
  return result;
}

/* ---------------------------------------------------------------- weight gradients */
/* C[m][n] = sum over k of A[k][m] B[k][n], where k runs over the given rows of A and B in their order. Blocks of
   A's columns are dealt to the threads; every element is one chain of multiply-adds, so that neither the number
   of threads nor rows of zeros left out change a bit. */
#define DEEP ((L)(1024 / sizeof(R)))
#define BROAD (32 * TALL) /* columns of A at a time */
#define LONG (16 * WIDE)  /* columns of B at a time */
#define AT_ONCE 8 /* rows copied beside each other: as many streams of reads, and whole lines of writes */
/* A little more than a power of two apart, or all tiles would fall into the same lines of the cache. */
#define TILE_AT (DEEP * TALL + VW)
#define PANEL_AT (DEEP * WIDE + VW)
#define LINES(columns) ((columns) * (L)sizeof(R) / 64 + 2)

/* Part of a matrix: some columns of rows k to end of those that are given. */
typedef struct { const R *from; const L *rows; L stride, k, end, columns; } Block;
static inline const R *row_of(const Block *b, L k) { return b->from + (b->rows ? b->rows[k] : k) * b->stride; }
static void want_block(Ahead *h, Block b) {
  for (; b.k < b.end; b.k++) want(h, row_of(&b, b.k), b.columns);
}
/* Pieces of `wide` columns, k after k: to[piece][k][wide], pieces `apart`. */
static inline __attribute__((always_inline)) void copy_block(Block b, L wide, L apart, R *to) {
  for (L ks = b.k; ks < b.end; ks += AT_ONCE, to += AT_ONCE * wide) {
    const L some = b.end - ks < AT_ONCE ? b.end - ks : AT_ONCE;
    const R *row[AT_ONCE];
    for (L k = 0; k < some; k++) row[k] = row_of(&b, ks + k);
    R *piece = to;
    for (L m = 0; m < b.columns; m += wide, piece += apart)
      for (L k = 0; k < some; k++)
        if (m + wide <= b.columns)
          memcpy(piece + k * wide, row[k] + m, wide * sizeof(R));
        else
          for (L i = 0; i < wide; i++) piece[k * wide + i] = m + i < b.columns ? row[k][m + i] : K(0);
  }
}
/* Copied blocks multiplied: mn columns of A, nn of B, kn rows; rows of C lie N apart. */
static void outer_block(L mn, L nn, L kn, const R *pa, const R *pb, R *C, L N, int add, Ahead *h) {
  deal(h, (nn + WIDE - 1) / WIDE * ((mn + TALL - 1) / TALL), kn);
  for (L q = 0; q < nn; q += WIDE, pb += PANEL_AT)
    for (L m = 0; m < mn; m += TALL) {
      const L tall = mn - m < TALL ? mn - m : TALL, here = nn - q < WIDE ? nn - q : WIDE;
      const int whole = here == WIDE && tall == TALL;
      R *target[TALL];
      R edge[TALL * WIDE] __attribute__((aligned(VECTOR_BYTES)));
      for (L i = 0; i < TALL; i++) {
        target[i] = whole ? C + (m + i) * N + q : edge + i * WIDE;
        if (!whole && add && i < tall) memcpy(edge + i * WIDE, C + (m + i) * N + q, here * sizeof(R));
      }
      for (L i = 0; whole && i < TALL && m + TALL + i < mn; i++) {
        __builtin_prefetch(target[i] + TALL * N, 1);
        __builtin_prefetch(target[i] + TALL * N + VW, 1);
      }
      outer_tile(kn, pa + m / TALL * TILE_AT, pb, target, add, h);
      if (!whole)
        for (L i = 0; i < tall; i++) memcpy(C + (m + i) * N + q, edge + i * WIDE, here * sizeof(R));
    }
}
static int outer_part(const L *n, void *const *p, L part) {
  const L M = n[0], N = n[1], count = n[2], threads = n[3], la = n[4], lb = n[5];
  const R *A = p[0], *B = p[1];
  R *C = p[2];
  const L *rows = p[3];
  L tall = ((M + threads - 1) / threads + TALL - 1) / TALL * TALL; /* enough blocks for all threads */
  if (tall > BROAD) tall = BROAD;
  const L first = part * tall, apart = threads * tall, wide = N < LONG ? N : LONG;
  if (first >= M) return 0;
  if (!count)
    for (L m = first; m < M; m += apart) memset(C + m * N, 0, (M - m < tall ? M - m : tall) * N * sizeof(R));
  void *memory;
  const char **list = malloc(DEEP * (LINES(BROAD) + LINES(wide) + 1) * sizeof(char *));
  const L panels = (wide + WIDE - 1) / WIDE, size = BROAD / TALL * TILE_AT + panels * PANEL_AT + 64;
  if (!list || posix_memalign(&memory, 64, size * sizeof(R))) return free(list), 1;
  R *pa = memory, *pb = pa + BROAD / TALL * TILE_AT;
  for (L n0 = 0; n0 < N; n0 += wide)
    for (L k0 = 0; k0 < count; k0 += DEEP) {
      const L nn = N - n0 < wide ? N - n0 : wide, k1 = k0 + DEEP < count ? k0 + DEEP : count;
      const L k2 = k1 + DEEP < count ? k1 + DEEP : count;
      copy_block((Block){B + n0, rows, lb, k0, k1, nn}, WIDE, PANEL_AT, pb);
      for (L m = first; m < M; m += apart) {
        const L mn = M - m < tall ? M - m : tall, after = m + apart, last = after >= M, to = last ? first : after;
        copy_block((Block){A + m, rows, la, k0, k1, mn}, TALL, TILE_AT, pa);
        Ahead h = {list};
        want_block(&h, (Block){A + to, rows, la, last ? k1 : k0, last ? k2 : k1, M - to < tall ? M - to : tall});
        if (last) want_block(&h, (Block){B + n0, rows, lb, k1, k2, nn});
        outer_block(mn, nn, k1 - k0, pa, pb, C + m * N + n0, N, k0 > 0, &h);
      }
    }
  free(memory);
  free(list);
  return 0;
}
int outer(const L *n, void *const *p) { return run_all(n, p, n[3], outer_part); }
