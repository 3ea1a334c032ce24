/* The greedy output of an encoder and a decoder that are one GRU each (reset after the product); follows product.c and step.c.

   What a symbol adds to the gates, W e + b, is a row of a table that was made once: a step is one product, U h, and rows that
   have ended take no part in it. Every row is computed by itself. */

/* h = (1 − u) h + u tanh(c + r (U h + b′)) of rows (m, h): `inward` are the rows of the table (r, u, c; 3 h wide), gates (m, 3 h) hold
   U h + b′. */
static void gated_rows(L m, L h, const float *const *inward, const float *gates, float *state) {
  for (L i = 0; i < m; i++) {
    const float *x = inward[i], *g = gates + i * 3 * h;
    float *s = state + i * h;
#pragma omp simd
    for (L j = 0; j < h; j++) {
      const float r = r_sigmoid(x[j] + g[j]), u = r_sigmoid(x[h + j] + g[h + j]);
      const float c = r_tanh(FMA(r, g[2 * h + j], x[2 * h + j]));
      s[j] = FMA(u, c - s[j], s[j]);
    }
  }
}

/* n: rows, threads, h, places of a source, symbols of a source, symbols of an output, places of an output, start, EOS, least length.
   p: source (rows, places), lengths (rows) that do not grow from row to row, at least 1; of the encoder its table (symbols, 3 h),
   packed U (3 h, h) and bias (0, 0, b′); the same of the decoder; the output layer's packed weights and bias; limits (rows), at least
   1; symbols (rows, places of an output), −1 at first, and their log p. Returns 1 without memory, 2 for a symbol that is not there.
   A row ends behind EOS, at its limit, or where no symbol is possible. */
static int greedy_part(const L *n, void *const *p, L part) {
  const L begin = n[0] * part / n[1], rows = n[0] * (part + 1) / n[1] - begin, h = n[2], places = n[3], known = n[4], symbols = n[5], most = n[6];
  const L *source = (const L *)p[0] + begin * places, *lengths = (const L *)p[1] + begin, *limits = (const L *)p[10] + begin;
  if (rows < 1) return 0;
  const size_t floats = (rows * (5 * h + symbols + 1) + 1) / 2 * 2; /* what follows has eight bytes each */
  float *state = malloc(floats * sizeof(float) + rows * (sizeof(float *) + 3 * sizeof(L)));
  if (!state) return 1;
  float *gates = state + rows * h, *work = gates + 3 * rows * h, *logits = work + rows * h, *log_p = logits + rows * symbols;
  const float **inward = (const float **)(void *)(state + floats);
  L *item = (L *)(inward + rows), *last = item + rows, *found = last + rows, active = rows, failed = 0;
  memset(state, 0, rows * h * sizeof(float));
  for (L t = 0; t < places; t++) {
    while (active && lengths[active - 1] <= t) active--;
    if (!active) break;
    for (L i = 0; i < active; i++) {
      const L symbol = source[i * places + t];
      if (symbol < 0 || symbol >= known) return free(state), 2;
      inward[i] = (const float *)p[2] + symbol * 3 * h;
    }
    if (t) {
      const L sizes[5] = {active, 3 * h, h, 3 * h, 1};
      linear_float(sizes, (void *[]){state, p[3], p[4], gates, work});
    } else /* from nothing */
      for (L i = 0; i < active; i++) memcpy(gates + i * 3 * h, p[4], 3 * h * sizeof(float));
    gated_rows(active, h, inward, gates, state);
  }
  active = rows;
  for (L i = 0; i < rows; i++) item[i] = i, last[i] = n[7];
  for (L t = 0; t < most && active; t++) {
    for (L i = 0; i < active; i++) inward[i] = (const float *)p[5] + last[i] * 3 * h;
    const L sizes[5] = {active, 3 * h, h, 3 * h, 1}, out[5] = {active, symbols, h, symbols, 1};
    linear_float(sizes, (void *[]){state, p[6], p[7], gates, work});
    gated_rows(active, h, inward, gates, state);
    linear_float(out, (void *[]){state, p[8], p[9], logits, work});
    const L best[5] = {active, 1, symbols, 1, t + 1 < n[9] ? n[8] : -1};
    if ((failed = best_part(best, (void *[]){logits, log_p, found}, 0))) break;
    L kept = 0;
    for (L i = 0; i < active; i++) {
      const L at = (begin + item[i]) * most + t;
      if (log_p[i] == -INFINITY) continue;
      ((L *)p[11])[at] = found[i], ((float *)p[12])[at] = log_p[i];
      if (found[i] == n[8] || t + 1 >= limits[item[i]] || log_p[i] != log_p[i]) continue;
      if (kept < i) memcpy(state + kept * h, state + i * h, h * sizeof(float));
      item[kept] = item[i], last[kept++] = found[i];
    }
    active = kept;
  }
  free(state);
  return (int)failed;
}
int greedy_gru(const L *n, void *const *p) { return run_all(n, p, n[1], greedy_part); }
