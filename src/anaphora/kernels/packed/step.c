/* Attention of one step, and the best of many symbols; follows the recurrences' prelude. Rows are dealt to threads. */
#define ROWS(part) for (L r = n[0] * (part) / n[1]; r < n[0] * ((part) + 1) / n[1]; r++)

static inline float dot(L d, const float *a, const float *b) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (L i = 0; i < d; i++) sum += a[i] * b[i];
  return sum;
}

/* Scores become e^(score − greatest); returns their sum. Places with −∞ get nothing. */
static inline float exponentials(L count, float *scores) {
  float most = -INFINITY, sum = 0;
#pragma omp simd reduction(max : most)
  for (L i = 0; i < count; i++) most = scores[i] > most ? scores[i] : most;
  if (most == -INFINITY) {
    memset(scores, 0, count * sizeof(float));
    return 0;
  }
#pragma omp simd reduction(+ : sum)
  for (L i = 0; i < count; i++) {
    const float e = scores[i] == -INFINITY ? 0 : r_exp(scores[i] - most);
    scores[i] = e;
    sum += e;
  }
  return sum;
}

/* out = Σ_s α_s v_s for each head, α = softmax_s (q · k_s / √d). At place s keys and values lie side by side at at[s].
   A place that is hidden has no address. scores holds heads · count floats. */
static void attend(L heads, L d, L count, const float *q, const float *const *at, float *scores, float *out) {
  const float scale = 1 / sqrtf((float)d);
  for (L s = 0; s < count; s++)
    for (L h = 0; h < heads; h++)
      scores[h * count + s] = at[s] ? dot(d, q + h * d, at[s] + h * d) * scale : -INFINITY;
  memset(out, 0, heads * d * sizeof(float));
  for (L h = 0; h < heads; h++) {
    const float sum = exponentials(count, scores + h * count), share = sum > 0 ? 1 / sum : 0;
    for (L s = 0; s < count; s++) scores[h * count + s] *= share;
  }
  for (L s = 0; s < count; s++)
    if (at[s])
      for (L h = 0; h < heads; h++) {
        const float alpha = scores[h * count + s], *v = at[s] + (heads + h) * d;
        float *sum = out + h * d;
#pragma omp simd
        for (L i = 0; i < d; i++) sum[i] += alpha * v[i];
      }
}

/* n: rows, threads, heads, d, places, layer. p: q (rows, heads d), out; the blocks of keys and values, one for each
   place: its address and its rows, the block being (layers, rows of it, 2 heads d); slot (rows, places): which row of
   the block belongs to this row's past. */
static int past_part(const L *n, void *const *p, L part) {
  const L heads = n[2], d = n[3], count = n[4], layer = n[5], w = heads * d;
  const L *address = p[2], *size = p[3], *slot = p[4];
  const float **at = malloc(count * (sizeof(float *) + heads * sizeof(float)));
  if (!at) return 1;
  ROWS(part) {
    for (L s = 0; s < count; s++)
      at[s] = (const float *)address[s] + (layer * size[s] + slot[r * count + s]) * 2 * w;
    attend(heads, d, count, (const float *)p[0] + r * w, at, (float *)(at + count), (float *)p[1] + r * w);
  }
  free(at);
  return 0;
}
int attend_past(const L *n, void *const *p) { return run_all(n, p, n[1], past_part); }

/* n: rows, threads, heads, d, places. p: q, out; keys and values (items, places, 2 heads d), shared by all rows of an
   item; item (rows,); seen (items, places), a byte each, 0 where the place is hidden; looks (rows, places), the mean
   of the heads' weights. */
static int memory_part(const L *n, void *const *p, L part) {
  const L heads = n[2], d = n[3], count = n[4], w = heads * d;
  const L *item = p[3];
  const char *seen = p[4];
  const float **at = malloc(count * (sizeof(float *) + heads * sizeof(float)));
  if (!at) return 1;
  ROWS(part) {
    const L first = item[r] * count;
    float *alpha = (float *)(at + count), *look = (float *)p[5] + r * count;
    for (L s = 0; s < count; s++) at[s] = seen[first + s] ? (const float *)p[2] + (first + s) * 2 * w : 0;
    attend(heads, d, count, (const float *)p[0] + r * w, at, alpha, (float *)p[1] + r * w);
    for (L s = 0; s < count; s++) {
      look[s] = 0;
      for (L h = 0; h < heads; h++) look[s] += alpha[h * count + s] / heads;
    }
  }
  free(at);
  return 0;
}
int attend_memory(const L *n, void *const *p) { return run_all(n, p, n[1], memory_part); }

/* ---------------------------------------------------------------- best symbols */
#define CHUNK 256

/* n: rows, threads, symbols, count, forbidden symbol or −1. p: logits (rows, symbols); log p (rows, count) and symbol
   (rows, count) of the best, greatest first, equal ones by lower symbol; −∞ where there are fewer. log p = logit −
   log Σ e^logit over all symbols, the forbidden one too; NaN in a row makes all its log p NaN. */
static int best_part(const L *n, void *const *p, L part) {
  const L symbols = n[2], count = n[3], forbidden = n[4], chunks = (symbols + CHUNK - 1) / CHUNK;
  float *tops = malloc((chunks + count) * sizeof(float));
  if (!tops) return 1;
  float *best = tops + chunks;
  ROWS(part) {
    const float *x = (const float *)p[0] + r * symbols;
    L *found = (L *)p[2] + r * count, have = 0;
    float greatest = -INFINITY;
    double total = 0;
    for (L c = 0; c < chunks; c++) {
      const L end = (c + 1) * CHUNK < symbols ? (c + 1) * CHUNK : symbols;
      float top = -INFINITY;
#pragma omp simd reduction(max : top)
      for (L i = c * CHUNK; i < end; i++) top = x[i] > top ? x[i] : top;
      tops[c] = top;
      greatest = top > greatest ? top : greatest;
    }
    const float base = greatest == -INFINITY ? 0 : greatest;
    for (L c = 0; c < chunks; c++) {
      const L end = (c + 1) * CHUNK < symbols ? (c + 1) * CHUNK : symbols;
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (L i = c * CHUNK; i < end; i++) {
        const float e = x[i] - base;
        sum += e < -104.f ? 0 : e == e ? r_exp(e) : e;
      }
      total += sum;
      if (have == count && !(tops[c] > best[count - 1])) continue;
      for (L i = c * CHUNK; i < end; i++) {
        if (i == forbidden || x[i] == -INFINITY || (have == count && !(x[i] > best[count - 1]))) continue;
        L place = have < count ? have++ : count - 1;
        for (; place > 0 && best[place - 1] < x[i]; place--) best[place] = best[place - 1], found[place] = found[place - 1];
        best[place] = x[i];
        found[place] = i;
      }
    }
    float *log_p = (float *)p[1] + r * count;
    for (L i = 0; i < count; i++) {
      if (i >= have) found[i] = 0;
      log_p[i] = total != total ? NAN : i < have ? (float)(best[i] - base - log(total)) : -INFINITY;
    }
  }
  free(tops);
  return 0;
}
int best_symbols(const L *n, void *const *p) { return run_all(n, p, n[1], best_part); }
