/* Waves of a two-dimensional LSTM along anti-diagonals, and back; see the package for the equations.

   A place of one direction is a row of every array: its gates (5 H numbers), its cell and its state (H numbers). Jobs,
   one for each direction and group of pictures, share nothing, so they are dealt to the threads; a picture's numbers do
   not depend on the others, to the last bit. */

#define SIZES                                                                                     \
  const L B = n[0], h = n[1], w = n[2], D = n[3], H = n[4], threads = n[5], G = 5 * H;            \
  const L *flips = n + 6; /* of each direction: 1, rows from below; 2, columns from the right */  \
  const L groups = (B + GROUP - 1) / GROUP, most = (h < w ? h : w) * GROUP
#define FIRST(d) ((d) - w + 1 > 0 ? (d) - w + 1 : 0)
#define LAST(d) ((d) < h - 1 ? (d) : h - 1)
#define EACH_PLACE(d) for (L i = FIRST(d), j = (d) - i; i <= LAST(d); i++, j--) for (L b = first; b < end; b++)
#define AT(i, j) ((((b * h + (flip & 1 ? h - 1 - (i) : (i))) * w) + (flip & 2 ? w - 1 - (j) : (j))) * D + k)
#define JOB                                                                                       \
  const L k = job / groups, flip = flips[k], first = job % groups * GROUP;                        \
  const L end = first + GROUP < B ? first + GROUP : B

static void activate(L H, R *restrict g, const R *restrict up, const R *restrict left, R *restrict c, R *restrict y) {
  _Pragma("omp simd") for (L u = 0; u < H; u++) {
    const R in = r_sigmoid(g[u]), f = r_sigmoid(g[H + u]), e = r_sigmoid(g[2 * H + u]);
    const R o = r_sigmoid(g[3 * H + u]), new = r_tanh(g[4 * H + u]);
    const R cell = f * up[u] + e * left[u] + in * new;
    g[u] = in, g[H + u] = f, g[2 * H + u] = e, g[3 * H + u] = o, g[4 * H + u] = new;
    c[u] = cell;
    y[u] = o * r_tanh(cell);
  }
}

/* arrays: p (the gates take its place), packed U (up, left of each direction), cells, states */
static int forward_part(const L *n, void *const *p, L part) {
  SIZES;
  const L panels = packed_size(G, H);
  const R *packed = p[1];
  R *gates = p[0], *cells = p[2], *states = p[3];
  R *nothing = calloc(H, sizeof(R));
  const R **from = malloc(most * sizeof(R *));
  R **to = malloc(most * sizeof(R *));
  if (!nothing || !from || !to) return free(nothing), free(from), free(to), 1;
  for (L job = part; job < D * groups; job += threads) {
    JOB;
    for (L d = 0; d < h + w - 1; d++) {
      L M = 0;
      EACH_PLACE(d) if (i) from[M] = states + AT(i - 1, j) * H, to[M++] = gates + AT(i, j) * G;
      gemm(M, from, to, G, H, packed + 2 * k * panels, 1);
      M = 0;
      EACH_PLACE(d) if (j) from[M] = states + AT(i, j - 1) * H, to[M++] = gates + AT(i, j) * G;
      gemm(M, from, to, G, H, packed + (2 * k + 1) * panels, 1);
      EACH_PLACE(d)
        activate(H, gates + AT(i, j) * G, i ? cells + AT(i - 1, j) * H : nothing,
                 j ? cells + AT(i, j - 1) * H : nothing, cells + AT(i, j) * H, states + AT(i, j) * H);
    }
  }
  free(nothing), free(from), free(to);
  return 0;
}

static void differentiate(L H, const R *restrict g, const R *restrict c, const R *restrict up, const R *restrict left,
                          const R *restrict dy, const R *restrict dc, R *restrict dg, R *restrict dup, R *restrict dleft) {
  _Pragma("omp simd") for (L u = 0; u < H; u++) {
    const R in = g[u], f = g[H + u], e = g[2 * H + u], o = g[3 * H + u], new = g[4 * H + u];
    const R t = r_tanh(c[u]), cell = dc[u] + dy[u] * o * (1 - t * t);
    dg[u] = cell * new * in * (1 - in);
    dg[H + u] = cell * up[u] * f * (1 - f);
    dg[2 * H + u] = cell * left[u] * e * (1 - e);
    dg[3 * H + u] = dy[u] * t * o * (1 - o);
    dg[4 * H + u] = cell * in * (1 - new * new);
    dup[u] += cell * f;
    dleft[u] += cell * e;
  }
}

/* arrays: gates, cells, packed U transposed (up, left of each direction), gradients of the states (added to), of the
   cells (zero at first), of p (written) */
static int backward_part(const L *n, void *const *p, L part) {
  SIZES;
  const L panels = packed_size(H, G);
  const R *gates = p[0], *cells = p[1], *packed = p[2];
  R *dstates = p[3], *dcells = p[4], *dgates = p[5];
  R *nothing = calloc(H, sizeof(R)), *nowhere_up = calloc(H, sizeof(R)), *nowhere_left = calloc(H, sizeof(R));
  const R **from = malloc(most * sizeof(R *));
  R **to = malloc(most * sizeof(R *));
  const int failed = !nothing || !nowhere_up || !nowhere_left || !from || !to;
  for (L job = part; !failed && job < D * groups; job += threads) {
    JOB;
    for (L d = h + w - 2; d >= 0; d--) {
      EACH_PLACE(d)
        differentiate(H, gates + AT(i, j) * G, cells + AT(i, j) * H, i ? cells + AT(i - 1, j) * H : nothing,
                      j ? cells + AT(i, j - 1) * H : nothing, dstates + AT(i, j) * H, dcells + AT(i, j) * H,
                      dgates + AT(i, j) * G, i ? dcells + AT(i - 1, j) * H : nowhere_up,
                      j ? dcells + AT(i, j - 1) * H : nowhere_left);
      L M = 0;
      EACH_PLACE(d) if (i) from[M] = dgates + AT(i, j) * G, to[M++] = dstates + AT(i - 1, j) * H;
      gemm(M, from, to, H, G, packed + 2 * k * panels, 1);
      M = 0;
      EACH_PLACE(d) if (j) from[M] = dgates + AT(i, j) * G, to[M++] = dstates + AT(i, j - 1) * H;
      gemm(M, from, to, H, G, packed + (2 * k + 1) * panels, 1);
    }
  }
  free(nothing), free(nowhere_up), free(nowhere_left), free(from), free(to);
  return failed;
}

int grid_forward(const L *n, void *const *p) { return run_all(n, p, n[5], forward_part); }
int grid_backward(const L *n, void *const *p) { return run_all(n, p, n[5], backward_part); }
