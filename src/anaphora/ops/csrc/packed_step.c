/* Attention of one step, and the best of many symbols; follows the recurrences' prelude and lanes.h. Rows are dealt to
   threads. Every sum has a fixed order; loops left to the compiler (omp simd) treat each element on its own, or take a
   maximum, which no order changes. */
#define ROWS(part) for (L r = n[0] * (part) / n[1]; r < n[0] * ((part) + 1) / n[1]; r++)

/* Sixteen floats at x, of which `count` are there, the rest 0. */
static inline Sixteen sixteen(L count, const float *x) {
  float filled[16] = {0};
  Sixteen found;
  if (count < 16) memcpy(filled, x, count * sizeof(float)), x = filled;
  EACH_PART found.part[q] = *part_of(x, q);
  return found;
}

static inline float dot(L d, const float *a, const float *b) {
  Sixteen sum = {0};
  for (L i = 0; i < d; i += 16) {
    const Sixteen x = sixteen(d - i, a + i), y = sixteen(d - i, b + i);
    EACH_PART sum.part[q] = FMA(x.part[q], y.part[q], sum.part[q]);
  }
  return total(sum);
}

static inline float sum_of_row(L count, const float *x) {
  Sixteen sum = {0};
  L i = 0;
  for (; i + 16 <= count; i += 16) EACH_PART sum.part[q] += *part_of(x + i, q);
  if (i < count) {
    const Sixteen rest = sixteen(count - i, x + i);
    EACH_PART sum.part[q] += rest.part[q];
  }
  return total(sum);
}

/* Scores become e^(score − greatest); returns their sum. Places with −∞ get nothing; NaN makes the sum NaN. */
static inline float exponentials(L count, float *scores) {
  float most = -INFINITY;
  int spoilt = 0;
#pragma omp simd reduction(max : most) reduction(| : spoilt)
  for (L i = 0; i < count; i++) {
    most = scores[i] > most ? scores[i] : most;
    spoilt |= scores[i] != scores[i];
  }
  if (most == -INFINITY) most = 0; /* nothing is seen, or NaN alone */
#pragma omp simd
  for (L i = 0; i < count; i++) scores[i] = scores[i] == -INFINITY ? 0 : r_exp(scores[i] - most);
  return spoilt ? NAN : sum_of_row(count, scores);
}

/* out = Σ_s α_s v_s for each head, α = softmax_s (q · k_s / √d − slope (count − 1 − s)); without slopes nothing is taken off.
   At place s keys and values lie side by side at at[s], `kept` heads of each, which neighbouring heads of q share. A place
   that is hidden has no address. scores holds heads · count floats. */
static void attend(L heads, L kept, L d, L count, const float *q, const float *const *at, const float *slopes,
                   float *scores, float *out) {
  const float scale = 1 / sqrtf((float)d);
  const L share = heads / kept;
  for (L s = 0; s < count; s++)
    for (L h = 0; h < heads; h++) {
      float score = at[s] ? dot(d, q + h * d, at[s] + h / share * d) * scale : -INFINITY;
      if (slopes) score -= slopes[h] * (float)(count - 1 - s);
      scores[h * count + s] = score;
    }
  memset(out, 0, heads * d * sizeof(float));
  for (L h = 0; h < heads; h++) {
    const float sum = exponentials(count, scores + h * count), part = sum == 0 ? 0 : 1 / sum;
    for (L s = 0; s < count; s++) scores[h * count + s] *= part;
  }
  for (L s = 0; s < count; s++)
    if (at[s])
      for (L h = 0; h < heads; h++) {
        const float alpha = scores[h * count + s], *v = at[s] + (kept + h / share) * d;
        float *sum = out + h * d;
#pragma omp simd
        for (L i = 0; i < d; i++) sum[i] = FMA(alpha, v[i], sum[i]);
      }
}

/* n: rows, threads, heads, d, places, layer. p: q (rows, heads d), out; the blocks of keys and values, one for each
   place: its address and its rows, the block being (layers, rows of it, 2 heads d); slot (rows, places): which row of
   the block belongs to this row's past. Returns 1 without memory, 2 for a slot that is not there. */
static int past_part(const L *n, void *const *p, L part) {
  const L heads = n[2], d = n[3], count = n[4], layer = n[5], w = heads * d;
  const L *address = p[2], *size = p[3], *slot = p[4];
  const float **at = malloc(count * (sizeof(float *) + heads * sizeof(float)));
  if (!at) return 1;
  ROWS(part) {
    for (L s = 0; s < count; s++) {
      const L chosen = slot[r * count + s];
      if (chosen < 0 || chosen >= size[s]) return free(at), 2;
      at[s] = (const float *)address[s] + (layer * size[s] + chosen) * 2 * w;
    }
    attend(heads, heads, d, count, (const float *)p[0] + r * w, at, 0, (float *)(at + count), (float *)p[1] + r * w);
  }
  free(at);
  return 0;
}
int attend_past(const L *n, void *const *p) { return run_all(n, p, n[1], past_part); }

/* n: rows, threads, heads, d, places, items. p: q, out; keys and values (items, places, 2 heads d), shared by all rows of an
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
    if (item[r] < 0 || item[r] >= n[5]) return free(at), 2;
    float *alpha = (float *)(at + count), *look = (float *)p[5] + r * count;
    for (L s = 0; s < count; s++) at[s] = seen[first + s] ? (const float *)p[2] + (first + s) * 2 * w : 0;
    attend(heads, heads, d, count, (const float *)p[0] + r * w, at, 0, alpha, (float *)p[1] + r * w);
    for (L s = 0; s < count; s++) {
      look[s] = 0;
      for (L h = 0; h < heads; h++) look[s] += alpha[h * count + s] / heads;
    }
  }
  free(at);
  return 0;
}
int attend_memory(const L *n, void *const *p) { return run_all(n, p, n[1], memory_part); }

/* n: rows, threads, heads, d, heads of keys and values, places of a page, pages of a row at most, pages there are, places
   seen at most. p: q (rows, heads d), out; pages (there are, places, 2 · kept heads · d); table (rows, 1 + most): how many
   places a row's past has, and its pages in order; slopes (heads,) or null. Rows of different lengths stand side by side. */
static int pages_part(const L *n, void *const *p, L part) {
  const L heads = n[2], d = n[3], kept = n[4], size = n[5], most = n[6], wide = 2 * kept * d;
  L longest = 1;
  ROWS(part) {
    const L count = ((const L *)p[3])[r * (1 + most)];
    longest = count > longest ? count : longest;
  }
  if (longest > most * size) return 2;
  const float **at = malloc(longest * (sizeof(float *) + heads * sizeof(float)));
  if (!at) return 1;
  ROWS(part) {
    const L *table = (const L *)p[3] + r * (1 + most);
    const L first = table[0] > n[8] ? table[0] - n[8] : 0, count = table[0] - first;
    for (L s = 0; s < count; s++) {
      const L page = table[1 + (first + s) / size];
      if (page < 0 || page >= n[7]) return free(at), 2;
      at[s] = (const float *)p[2] + (page * size + (first + s) % size) * wide;
    }
    attend(heads, kept, d, count, (const float *)p[0] + r * heads * d, at, p[4], (float *)(at + longest),
           (float *)p[1] + r * heads * d);
  }
  free(at);
  return 0;
}
int attend_pages(const L *n, void *const *p) { return run_all(n, p, n[1], pages_part); }

/* ---------------------------------------------------------------- best symbols */
#define CHUNK 256

/* Of a row x: the greatest of each chunk in tops, that of all (0 where nothing is possible) in base; gives Σ e^(x − base). */
static double total_of(L symbols, const float *x, float *tops, float *base) {
  const L chunks = (symbols + CHUNK - 1) / CHUNK;
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
  const float least = *base = greatest == -INFINITY ? 0 : greatest;
  for (L c = 0; c < chunks; c++) {
    const L end = (c + 1) * CHUNK < symbols ? (c + 1) * CHUNK : symbols;
    float shares[CHUNK];
#pragma omp simd
    for (L i = 0; i < end - c * CHUNK; i++) {
      const float e = x[c * CHUNK + i] - least;
      shares[i] = e < -104.f ? 0 : e == e ? r_exp(e) : e;
    }
    total += sum_of_row(end - c * CHUNK, shares);
  }
  return total;
}

/* n: rows, threads, symbols. p: logits (rows, symbols); log p (rows, symbols), the numbers that best_symbols gives of them. */
static int log_part(const L *n, void *const *p, L part) {
  const L symbols = n[2];
  float *tops = malloc((symbols + CHUNK - 1) / CHUNK * sizeof(float));
  if (!tops) return 1;
  ROWS(part) {
    const float *x = (const float *)p[0] + r * symbols;
    float *log_p = (float *)p[1] + r * symbols, base;
    const double total = log(total_of(symbols, x, tops, &base));
    for (L i = 0; i < symbols; i++) log_p[i] = (float)(x[i] - base - total);
  }
  free(tops);
  return 0;
}
int log_probs(const L *n, void *const *p) { return run_all(n, p, n[1], log_part); }

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
    float base;
    const double total_share = total_of(symbols, x, tops, &base);
    for (L c = 0; c < chunks; c++) {
      const L end = (c + 1) * CHUNK < symbols ? (c + 1) * CHUNK : symbols;
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
      log_p[i] = total_share != total_share ? NAN : i < have ? (float)(best[i] - base - log(total_share)) : -INFINITY;
    }
  }
  free(tops);
  return 0;
}
int best_symbols(const L *n, void *const *p) { return run_all(n, p, n[1], best_part); }
