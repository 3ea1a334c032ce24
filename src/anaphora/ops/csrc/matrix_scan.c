/* The matrix scan, step after step; the package has the equations. Columns of a state do not meet: some of them, PIECE
   vectors at most, go through all steps while they lie in the nearest cache. Forward leaves the state before each group of
   STEPS steps; backward computes those within a group again, so the states of all steps are never stored. A number is one
   chain of operations in the order of time, so a sequence cut in two has the bits of the whole, and a row those it has in
   any batch. Follows the prelude of recurrences. */

#define PIECE 4
#define STEPS 16
#define COLUMNS (PIECE * VW)

#define SIZES                                                                                     \
  const L B = n[0], T = n[1], N = n[2], D = n[3], E = n[4], by_head = n[5], delta = n[6];         \
  const L threads = n[7], groups = (T + STEPS - 1) / STEPS, W = by_head ? 1 : D
#define STEP(t) ((b * T + (t)) * N + h)

typedef struct { L D, delta; const R *r, *k, *w, *a, *b; } Given; /* of one step */

static inline __attribute__((always_inline)) V spread(R x) { return x - (V){0}; }

/* n columns, and zeros. */
static inline void take(R *to, const R *from, L n) {
  for (L e = 0; e < COLUMNS; e++) to[e] = e < n ? from[e] : K(0);
}

/* S becomes the state after a step: D rows of COLUMNS; u: what a reads of it before. */
static inline __attribute__((always_inline)) void forward_step(const int wide, Given g, L by_head, const R *v, const R *S,
                                                               R *to, R *u, R *y) {
  V vs[PIECE], us[PIECE], ys[PIECE];
  UNROLLED for (int j = 0; j < wide; j++) vs[j] = *(const V *)(v + j * VW), us[j] = ys[j] = (V){0};
  if (g.delta) {
    for (L d = 0; d < g.D; d++) {
      const V a = spread(g.a[d]);
      UNROLLED for (int j = 0; j < wide; j++) us[j] = FMA(a, *(const V *)(S + d * COLUMNS + j * VW), us[j]);
    }
    UNROLLED for (int j = 0; j < wide; j++) *(V *)(u + j * VW) = us[j];
  }
  for (L d = 0; d < g.D; d++) {
    const V w = spread(g.w[by_head ? 0 : d]), k = spread(g.k[d]), r = spread(g.r[d]);
    const V b = g.delta ? spread(g.b[d]) : (V){0};
    UNROLLED for (int j = 0; j < wide; j++) {
      V s = FMA(w, *(const V *)(S + d * COLUMNS + j * VW), k * vs[j]);
      if (g.delta) s = FMA(b, us[j], s);
      *(V *)(to + d * COLUMNS + j * VW) = s;
      ys[j] = FMA(r, s, ys[j]);
    }
  }
  UNROLLED for (int j = 0; j < wide; j++) *(V *)(y + j * VW) = ys[j];
}
static void step_forward(L wide, Given g, L by_head, const R *v, const R *S, R *to, R *u, R *y) {
  if (wide == 1) forward_step(1, g, by_head, v, S, to, u, y);
  else if (wide == 2) forward_step(2, g, by_head, v, S, to, u, y);
  else if (wide == 3) forward_step(3, g, by_head, v, S, to, u, y);
  else forward_step(4, g, by_head, v, S, to, u, y);
}

static inline Given given_at(const L *n, void *const *p, L place) {
  SIZES;
  const L at = place * D;
  return (Given){D, delta, (R *)p[0] + at, (R *)p[1] + at, (R *)p[3] + place * W,
                 delta ? (R *)p[4] + at : 0, delta ? (R *)p[5] + at : 0};
}

/* arrays: r, k, v, w, a, b, first state, y, last state, marks (B, N, groups, D, E) or null */
static int forward_part(const L *n, void *const *p, L part) {
  SIZES;
  const R *first = p[6];
  R *y = p[7], *last = p[8], *marks = p[9];
  R *S = aligned_alloc(64, ROUND(D * COLUMNS) * sizeof(R));
  if (!S) return 1;
  R v[COLUMNS] __attribute__((aligned(64))), u[COLUMNS] __attribute__((aligned(64)));
  R ys[COLUMNS] __attribute__((aligned(64)));
  for (L row = part; row < B * N; row += threads) {
    const L b = row / N, h = row % N;
    for (L e = 0; e < E; e += COLUMNS) {
      const L count = E - e < COLUMNS ? E - e : COLUMNS, wide = (count + VW - 1) / VW;
      for (L d = 0; d < D; d++) take(S + d * COLUMNS, first + (row * D + d) * E + e, count);
      for (L t = 0; t < T; t++) {
        if (marks && t % STEPS == 0)
          for (L d = 0; d < D; d++)
            memcpy(marks + ((row * groups + t / STEPS) * D + d) * E + e, S + d * COLUMNS, count * sizeof(R));
        take(v, (R *)p[2] + STEP(t) * E + e, count);
        step_forward(wide, given_at(n, p, STEP(t)), by_head, v, S, S, u, ys);
        memcpy(y + STEP(t) * E + e, ys, count * sizeof(R));
      }
      for (L d = 0; d < D; d++) memcpy(last + (row * D + d) * E + e, S + d * COLUMNS, count * sizeof(R));
    }
  }
  free(S);
  return 0;
}
int matrix_forward(const L *n, void *const *p) { return run_all(n, p, n[7], forward_part); }

/* What the gradients of one step are added to. */
typedef struct { R *dr, *dk, *dw, *da, *db; } Gradient;

/* dS, the gradient of the state after a step, becomes that of the state before it; S before, after: these states. */
static inline __attribute__((always_inline)) void backward_step(const int wide, Given g, L by_head, const R *v, const R *u,
                                                                const R *dy, const R *S, const R *after, R *dS, R *dv,
                                                                Gradient to) {
  V vs[PIECE], us[PIECE], dys[PIECE], dvs[PIECE], dus[PIECE];
  UNROLLED for (int j = 0; j < wide; j++) {
    vs[j] = *(const V *)(v + j * VW), dys[j] = *(const V *)(dy + j * VW), dvs[j] = dus[j] = (V){0};
    us[j] = g.delta ? *(const V *)(u + j * VW) : (V){0};
  }
  R decays = 0;
  for (L d = 0; d < g.D; d++) {
    const V r = spread(g.r[d]), k = spread(g.k[d]), w = spread(g.w[by_head ? 0 : d]);
    V dr = (V){0}, dk = (V){0}, dw = (V){0}, db = (V){0};
    UNROLLED for (int j = 0; j < wide; j++) {
      R *const place = dS + d * COLUMNS + j * VW;
      const V ds = FMA(r, dys[j], *(const V *)place);
      dr = FMA(*(const V *)(after + d * COLUMNS + j * VW), dys[j], dr);
      dk = FMA(ds, vs[j], dk);
      dw = FMA(ds, *(const V *)(S + d * COLUMNS + j * VW), dw);
      dvs[j] = FMA(k, ds, dvs[j]);
      if (g.delta) db = FMA(ds, us[j], db), dus[j] = FMA(spread(g.b[d]), ds, dus[j]);
      *(V *)place = w * ds;
    }
    to.dr[d] += sum_of(dr);
    to.dk[d] += sum_of(dk);
    if (by_head) decays += sum_of(dw);
    else to.dw[d] += sum_of(dw);
    if (g.delta) to.db[d] += sum_of(db);
  }
  if (by_head) *to.dw += decays;
  if (g.delta)
    for (L d = 0; d < g.D; d++) {
      const V a = spread(g.a[d]);
      V da = (V){0};
      UNROLLED for (int j = 0; j < wide; j++) {
        R *const place = dS + d * COLUMNS + j * VW;
        da = FMA(*(const V *)(S + d * COLUMNS + j * VW), dus[j], da);
        *(V *)place = FMA(a, dus[j], *(const V *)place);
      }
      to.da[d] += sum_of(da);
    }
  UNROLLED for (int j = 0; j < wide; j++) *(V *)(dv + j * VW) = dvs[j];
}
static void step_backward(L wide, Given g, L by_head, const R *v, const R *u, const R *dy, const R *S, const R *after,
                          R *dS, R *dv, Gradient to) {
  if (wide == 1) backward_step(1, g, by_head, v, u, dy, S, after, dS, dv, to);
  else if (wide == 2) backward_step(2, g, by_head, v, u, dy, S, after, dS, dv, to);
  else if (wide == 3) backward_step(3, g, by_head, v, u, dy, S, after, dS, dv, to);
  else backward_step(4, g, by_head, v, u, dy, S, after, dS, dv, to);
}

/* arrays: r, k, v, w, a, b, marks, dy, dlast, and the gradients of r, k, v, w, a, b and the first state; all but those of v
   and the state begin as zeros */
static int backward_part(const L *n, void *const *p, L part) {
  SIZES;
  const R *marks = p[6], *dy = p[7], *dlast = p[8];
  R *dvs = p[11], *dfirst = p[15];
  const L own = ROUND(D * COLUMNS);
  R *memory = aligned_alloc(64, ((STEPS + 2) * own + STEPS * 4 * COLUMNS) * sizeof(R));
  if (!memory) return 1;
  R *dS = memory, *S = memory + own, *v = S + (STEPS + 1) * own, *u = v + STEPS * COLUMNS, *g = u + STEPS * COLUMNS;
  R *spare = g + STEPS * COLUMNS;
  for (L row = part; row < B * N; row += threads) {
    const L b = row / N, h = row % N;
    for (L e = 0; e < E; e += COLUMNS) {
      const L count = E - e < COLUMNS ? E - e : COLUMNS, wide = (count + VW - 1) / VW;
      for (L d = 0; d < D; d++) take(dS + d * COLUMNS, dlast + (row * D + d) * E + e, count);
      for (L group = groups - 1; group >= 0; group--) {
        const L begin = group * STEPS, steps = T - begin < STEPS ? T - begin : STEPS;
        for (L d = 0; d < D; d++) take(S + d * COLUMNS, marks + ((row * groups + group) * D + d) * E + e, count);
        for (L i = 0; i < steps; i++) {
          const L at = STEP(begin + i);
          take(v + i * COLUMNS, (R *)p[2] + at * E + e, count);
          take(g + i * COLUMNS, dy + at * E + e, count);
          step_forward(wide, given_at(n, p, at), by_head, v + i * COLUMNS, S + i * own, S + (i + 1) * own,
                       u + i * COLUMNS, spare);
        }
        for (L i = steps - 1; i >= 0; i--) {
          const L at = STEP(begin + i);
          const Gradient to = {(R *)p[9] + at * D, (R *)p[10] + at * D, (R *)p[12] + at * W,
                               delta ? (R *)p[13] + at * D : 0, delta ? (R *)p[14] + at * D : 0};
          step_backward(wide, given_at(n, p, at), by_head, v + i * COLUMNS, u + i * COLUMNS, g + i * COLUMNS,
                        S + i * own, S + (i + 1) * own, dS, spare, to);
          memcpy(dvs + at * E + e, spare, count * sizeof(R));
        }
      }
      for (L d = 0; d < D; d++) memcpy(dfirst + (row * D + d) * E + e, dS + d * COLUMNS, count * sizeof(R));
    }
  }
  free(memory);
  return 0;
}
int matrix_backward(const L *n, void *const *p) { return run_all(n, p, n[7], backward_part); }
