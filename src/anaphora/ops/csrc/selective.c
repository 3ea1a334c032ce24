/* Mamba's selective scan: h_t = exp(delta_t A) h_{t-1} + (delta_t u_t) B_t for each channel and each of its N numbers, and
   y_t = h_t C_t. CHANNELS channels go through all steps while their numbers lie in the nearest cache, number by number.
   Forward leaves the states before each group of STEPS steps; backward computes those within a group again, so the states of
   all steps are never stored. Follows the prelude of recurrences. */

#define PIECE 4
#define CHANNELS (PIECE * VW)
#define STEPS 16
#define EACH UNROLLED for (int j = 0; j < PIECE; j++)
#define PART(x) (*(V *)((x) + j * VW))

#define SIZES                                                                                            \
  const L B = n[0], T = n[1], H = n[2], N = n[3], threads = n[4], groups = (T + STEPS - 1) / STEPS;      \
  const L blocks = (H + CHANNELS - 1) / CHANNELS, own = N * CHANNELS

/* How many channels a block of marks has. */
L channels(void) { return CHANNELS; }

static inline __attribute__((always_inline)) V spread(R x) { return x - (V){0}; }

static inline void take(R *to, const R *from, L n) {
  for (L c = 0; c < CHANNELS; c++) to[c] = c < n ? from[c] : K(0);
}
/* (channels, N) as N rows of CHANNELS, and back. */
static void transpose_in(R *to, const R *from, L N, L count) {
  for (L m = 0; m < N; m++)
    for (L c = 0; c < CHANNELS; c++) to[m * CHANNELS + c] = c < count ? from[c * N + m] : K(0);
}
static void transpose_out(R *to, const R *from, L N, L count) {
  for (L c = 0; c < count; c++)
    for (L m = 0; m < N; m++) to[c * N + m] = from[m * CHANNELS + c];
}

/* One step: decays (kept for the backward pass), the new state, and what is read from it. */
static inline void advance(L N, const R *rate, const R *u, const R *delta, const R *b, const R *c, const R *h, R *decay,
                           R *to, R *y) {
  V x[PIECE], sum[PIECE];
  EACH x[j] = PART(delta) * PART(u), sum[j] = (V){0};
  for (L m = 0; m < N; m++) {
    const R *a = rate + m * CHANNELS;
    R *e = decay + m * CHANNELS;
    _Pragma("omp simd") for (L i = 0; i < CHANNELS; i++) e[i] = r_exp(delta[i] * a[i]);
    const V put = spread(b[m]), read = spread(c[m]);
    EACH {
      const V new = FMA(PART(e), PART(h + m * CHANNELS), x[j] * put);
      PART(to + m * CHANNELS) = new;
      sum[j] = FMA(new, read, sum[j]);
    }
  }
  EACH PART(y) = sum[j];
}

/* arrays: u, delta, rate, b, c, first state, y, last state, marks (B, groups, blocks, N, CHANNELS) or null */
static int forward_part(const L *n, void *const *p, L part) {
  SIZES;
  const R *us = p[0], *deltas = p[1], *rates = p[2], *bs = p[3], *cs = p[4], *first = p[5];
  R *y = p[6], *last = p[7], *marks = p[8];
  R *memory = aligned_alloc(64, (3 * ROUND(own) + 3 * CHANNELS) * sizeof(R));
  if (!memory) return 1;
  R *h = memory, *rate = h + ROUND(own), *decay = rate + ROUND(own);
  R *u = decay + ROUND(own), *delta = u + CHANNELS, *out = delta + CHANNELS;
  for (L job = part; job < B * blocks; job += threads) {
    const L row = job / blocks, block = job % blocks, begin = block * CHANNELS;
    const L count = H - begin < CHANNELS ? H - begin : CHANNELS;
    transpose_in(h, first + (row * H + begin) * N, N, count);
    transpose_in(rate, rates + begin * N, N, count);
    for (L t = 0; t < T; t++) {
      const L at = row * T + t;
      if (marks && t % STEPS == 0)
        memcpy(marks + ((row * groups + t / STEPS) * blocks + block) * own, h, own * sizeof(R));
      take(u, us + at * H + begin, count), take(delta, deltas + at * H + begin, count);
      advance(N, rate, u, delta, bs + at * N, cs + at * N, h, decay, h, out);
      memcpy(y + at * H + begin, out, count * sizeof(R));
    }
    transpose_out(last + (row * H + begin) * N, h, N, count);
  }
  free(memory);
  return 0;
}
int selective_forward(const L *n, void *const *p) { return run_all(n, p, n[4], forward_part); }

/* The gradient of the state after a step becomes that of the state before it. */
static inline void retreat(L N, const R *rate, const R *u, const R *delta, const R *b, const R *c, const R *before,
                           const R *after, const R *decay, const R *dy, R *dh, R *du, R *ddelta, R *drate, R *db, R *dc) {
  V x[PIECE], dx[PIECE], dd[PIECE];
  EACH x[j] = PART(delta) * PART(u), dx[j] = dd[j] = (V){0};
  for (L m = 0; m < N; m++) {
    const L k = m * CHANNELS;
    const V put = spread(b[m]), read = spread(c[m]);
    V puts = (V){0}, reads = (V){0};
    EACH {
      const V g = FMA(PART(dy), read, PART(dh + k));
      reads = FMA(PART(dy), PART(after + k), reads);
      puts = FMA(g, x[j], puts);
      dx[j] = FMA(g, put, dx[j]);
      const V e = PART(decay + k), slope = g * PART(before + k) * e;
      dd[j] = FMA(slope, PART(rate + k), dd[j]);
      PART(drate + k) = FMA(slope, PART(delta), PART(drate + k));
      PART(dh + k) = g * e;
    }
    db[m] += sum_of(puts), dc[m] += sum_of(reads);
  }
  EACH PART(du) = dx[j] * PART(delta), PART(ddelta) = FMA(dx[j], PART(u), dd[j]);
}

/* arrays: u, delta, rate, b, c, marks, dy, dlast, then the gradients of u, delta, rate (B, H, N), b and c (both begin as
   zeros) and the first state. A row is the work of one thread: its channels are summed in order. */
static int backward_part(const L *n, void *const *p, L part) {
  SIZES;
  const R *us = p[0], *deltas = p[1], *rates = p[2], *bs = p[3], *cs = p[4], *marks = p[5], *dys = p[6], *dlast = p[7];
  R *dus = p[8], *ddeltas = p[9], *drates = p[10], *dbs = p[11], *dcs = p[12], *dfirst = p[13];
  const L one = ROUND(own);
  R *memory = aligned_alloc(64, ((2 * STEPS + 4) * one + (3 * STEPS + 2) * CHANNELS) * sizeof(R));
  if (!memory) return 1;
  R *dh = memory, *rate = dh + one, *drate = rate + one, *h = drate + one, *decay = h + (STEPS + 1) * one;
  R *u = decay + STEPS * one, *delta = u + STEPS * CHANNELS, *dy = delta + STEPS * CHANNELS;
  R *du = dy + STEPS * CHANNELS, *ddelta = du + CHANNELS;
  for (L row = part; row < B; row += threads) for (L block = 0; block < blocks; block++) {
    const L begin = block * CHANNELS;
    const L count = H - begin < CHANNELS ? H - begin : CHANNELS;
    transpose_in(dh, dlast + (row * H + begin) * N, N, count);
    transpose_in(rate, rates + begin * N, N, count);
    memset(drate, 0, own * sizeof(R));
    for (L group = groups - 1; group >= 0; group--) {
      const L from = group * STEPS, steps = T - from < STEPS ? T - from : STEPS;
      memcpy(h, marks + ((row * groups + group) * blocks + block) * own, own * sizeof(R));
      for (L i = 0; i < steps; i++) {
        const L at = row * T + from + i, c = i * CHANNELS;
        take(u + c, us + at * H + begin, count), take(delta + c, deltas + at * H + begin, count);
        take(dy + c, dys + at * H + begin, count);
        advance(N, rate, u + c, delta + c, bs + at * N, cs + at * N, h + i * one, decay + i * one, h + (i + 1) * one, du);
      }
      for (L i = steps - 1; i >= 0; i--) {
        const L at = row * T + from + i, c = i * CHANNELS;
        retreat(N, rate, u + c, delta + c, bs + at * N, cs + at * N, h + i * one, h + (i + 1) * one, decay + i * one,
                dy + c, dh, du, ddelta, drate, dbs + at * N, dcs + at * N);
        memcpy(dus + at * H + begin, du, count * sizeof(R));
        memcpy(ddeltas + at * H + begin, ddelta, count * sizeof(R));
      }
    }
    transpose_out(drates + (row * H + begin) * N, drate, N, count);
    transpose_out(dfirst + (row * H + begin) * N, dh, N, count);
  }
  free(memory);
  return 0;
}
int selective_backward(const L *n, void *const *p) {
  return run_all(n, p, n[4] < n[0] ? n[4] : n[0], backward_part);
}
