/* The energies that filters let through, of frames of sound; see native.py for the equations. In double precision, VW
   frames side by side in the lanes of every number, so that all steps are the same for all of them.

   N real points are M = N / 2 complex ones, z_n = x_2n + i x_2n+1, whose transform Z is computed in place, by fours
   (decimation in frequency), and left in the order of `places`. The transform of x is then

       X_k = E + T,  X_M-k = conj(E - T),  2 E = Z_k + conj Z_M-k,  2 T = -i e^(-2 pi i k / N) (Z_k - conj Z_M-k)

   where the halves are in the window already. */
typedef struct { V r, i; } C;
static inline C plus(C a, C b) { return (C){a.r + b.r, a.i + b.i}; }
static inline C minus(C a, C b) { return (C){a.r - b.r, a.i - b.i}; }
/* a times the complex number at w */
static inline C times(C a, const R *w) {
  const V r = w[0] - (V){0}, i = w[1] - (V){0};
  return (C){FMA(-a.i, i, a.r * r), FMA(a.i, r, a.r * i)};
}

/* z (M), turns (M): e^(-2 pi i k / M). */
static void transform(C *z, L M, const R *turns) {
  L length = M;
  for (; length >= 4; length /= 4) {
    const L part = length / 4, step = M / length;
    for (C *at = z; at < z + M; at += length)
      for (L j = 0; j < part; j++) {
        C *a = at + j, *b = a + part, *c = b + part, *d = c + part;
        const C even = plus(*a, *c), odd = minus(*a, *c), sum = plus(*b, *d), difference = minus(*b, *d);
        const C down = {odd.r + difference.i, odd.i - difference.r}, up = {odd.r - difference.i, odd.i + difference.r};
        *a = plus(even, sum);
        *b = times(down, turns + 2 * step * j);
        *c = times(minus(even, sum), turns + 4 * step * j);
        *d = times(up, turns + 6 * step * j);
      }
  }
  if (length == 2)
    for (C *a = z; a < z + M; a += 2) {
      const C sum = plus(a[0], a[1]), difference = minus(a[0], a[1]);
      a[0] = sum, a[1] = difference;
    }
}

/* |X_k|^2 for k = 0 ... M. half_turns (M / 2 + 1): -i e^(-2 pi i k / N). */
static void spectrum(const C *z, L M, const L *places, const R *half_turns, V *power) {
  for (L k = 0; k <= M / 2; k++) {
    const C a = z[places[k]], b = z[places[(M - k) & (M - 1)]];
    const C e = {a.r + b.r, a.i - b.i}, t = times((C){a.r - b.r, a.i + b.i}, half_turns + 2 * k);
    const C x = plus(e, t), y = minus(e, t);
    power[k] = FMA(x.r, x.r, x.i * x.i);
    power[M - k] = FMA(y.r, y.r, y.i * y.i);
  }
}

/* The windowed samples x' (W) of one frame, VW apart; x' is zero from `end` on. */
static void take(R *points, const R *x, R before, R factor, const R *window, L W, L end) {
  const L count = end < W ? end : W;
  if (count > 0) points[0] = window[0] * FMA(-factor, before, x[0]);
  for (L i = 1; i < count; i++) points[i * VW] = window[i] * FMA(-factor, x[i - 1], x[i]);
}

/* Groups of VW frames are dealt to the threads. n: threads, rows, frames, samples, hop, W, M, bins.
   p: waves (rows, samples), before (rows), ends (rows), factor, window (W), turns, half_turns, places (M), heard
   (bins, 2): the first frequency of a filter and how many, weights: those of all filters, one after the other;
   energies (rows, frames, bins), single precision. */
static int energies_part(const L *n, void *const *p, L part) {
  const L threads = n[0], rows = n[1], frames = n[2], samples = n[3], hop = n[4], W = n[5], M = n[6], bins = n[7];
  const R *waves = p[0], *before = p[1], *factor = p[3], *window = p[4], *turns = p[5], *half_turns = p[6];
  const L *ends = p[2], *places = p[7], *heard = p[8];
  const R *weights = p[9];
  float *energies = p[10];
  void *memory;
  if (posix_memalign(&memory, 64, M * sizeof(C) + (M + 1) * sizeof(V))) return 1;
  C *z = memory;
  V *power = (V *)(z + M);
  const L groups = (frames + VW - 1) / VW;
  for (L job = part; job < rows * groups; job += threads) {
    const L row = job / groups, first = job % groups * VW, count = frames - first < VW ? frames - first : VW;
    memset(z, 0, M * sizeof(C)); /* also the lanes of frames that are not there */
    for (L lane = 0; lane < count; lane++) {
      const L begin = (first + lane) * hop;
      const R *x = waves + row * samples + begin;
      take((R *)z + lane, x, begin ? x[-1] : before[row], *factor, window, W, ends[row] - begin);
    }
    transform(z, M, turns);
    spectrum(z, M, places, half_turns, power);
    const R *weight = weights;
    float *out = energies + (row * frames + first) * bins;
    for (L m = 0; m < bins; m++) {
      V sum = {0};
      const V *at = power + heard[2 * m];
      for (L k = 0; k < heard[2 * m + 1]; k++) sum = FMA(*weight++ - (V){0}, at[k], sum);
      for (L lane = 0; lane < count; lane++) out[lane * bins + m] = sum[lane];
    }
  }
  free(memory);
  return 0;
}

int energies(const L *n, void *const *p) { return run_all(n, p, n[0], energies_part); }
