/* A whole stack of Transformer layers for some rows; follows product.c and step.c. Rows of at most a few sequences go through
   all layers before the next ones, so that what is between two products stays in the cache. Every row is computed by itself:
   products are chains in the order of the depth, sums have sixteen lanes. */

/* erf in single precision, about one unit in the last place (N. Juffa); both branches, so that loops become vectors. */
static inline float one_erf(float a) {
  const float t = fabsf(a), s = a * a;
  float r = FMA(-1.72853470e-5f, t, 3.83197126e-4f);
  const float u = FMA(-3.88396438e-3f, t, 2.42546219e-2f);
  r = FMA(r, s, u);
  r = FMA(r, t, -1.06777877e-1f);
  r = FMA(r, t, -6.34846687e-1f);
  r = FMA(r, t, -1.28717512e-1f);
  r = FMA(r, t, -t);
  const float far = copysignf(1.f - r_exp(r), a);
  r = -5.96761703e-4f;
  r = FMA(r, s, 4.99119423e-3f);
  r = FMA(r, s, -2.67681349e-2f);
  r = FMA(r, s, 1.12819925e-1f);
  r = FMA(r, s, -3.76125336e-1f);
  r = FMA(r, s, 1.28379166e-1f);
  const float near = FMA(r, a, a);
  return t > 0.927734375f ? far : near;
}
#define EACH_OF(count, value)         \
  _Pragma("omp simd") for (L i = 0; i < (count); i++) { \
    const float v = x[i];             \
    x[i] = value;                     \
  }                                   \
  break
static void activate(L kind, L count, float *x) {
  switch (kind) {
    case 0: EACH_OF(count, v <= 0 ? 0 : v);
    case 1: EACH_OF(count, 0.5f * v * (1.f + one_erf(v * 0.70710678118654752f)));
    case 2: EACH_OF(count, 0.5f * v * (1.f + r_tanh(0.79788456080286536f * (v + 0.044715f * v * v * v))));
    default: EACH_OF(count, v / (1.f + r_exp(-v)));
  }
}

static inline Sixteen shared_by_all(float v) {
  Sixteen found;
  EACH_PART found.part[q] = v - (FloatVector){0};
  return found;
}
/* y = N(x) of one row; d is a multiple of 16. Without shift it is an RMSNorm. */
static void normalise(L d, const float *x, const float *gain, const float *shift, float eps, float *y) {
  Sixteen sum = {0}, square = {0};
  float mean = 0;
  if (shift) {
    for (L i = 0; i < d; i += 16) EACH_PART sum.part[q] += *part_of(x + i, q);
    mean = total(sum) / (float)d;
  }
  const Sixteen off = shared_by_all(mean);
  for (L i = 0; i < d; i += 16) EACH_PART {
    const FloatVector v = *part_of(x + i, q) - off.part[q];
    square.part[q] = FMA(v, v, square.part[q]);
  }
  const float by = 1.f / sqrtf(total(square) / (float)d + eps);
  const Sixteen scale = shared_by_all(by);
  for (L i = 0; i < d; i += 16) EACH_PART {
    const FloatVector v = (*part_of(x + i, q) - off.part[q]) * scale.part[q], g = *part_of(gain + i, q);
    *part_of(y + i, q) = shift ? FMA(v, g, (FloatVector)*part_of(shift + i, q)) : v * g;
  }
}

/* n: rows, width. p: x (rows, width), gain, shift or null, eps, y (rows, width). */
int norm_rows(const L *n, void *const *p) {
  for (L i = 0; i < n[0]; i++)
    normalise(n[1], (const float *)p[0] + i * n[1], p[1], p[2], *(const float *)p[3], (float *)p[4] + i * n[1]);
  return 0;
}

/* What the numbers n and the pointers p of a stack mean; `parts` has these PARTS_OF_LAYER pointers for each layer. */
enum { N_WIDTH, N_INNER, N_LAYERS, N_HEADS, N_KEPT, N_ORDER, N_ACTIVATION, N_GATED, N_ROTATED, N_COUNT };
enum { AFTER, BEFORE, BESIDE }; /* N_ORDER: where the norms are; BESIDE: both sublayers read the same x */
enum { G1, S1, W_IN, B_IN, W_OUT, B_OUT, G2, S2, W_UP, B_UP, W_DOWN, B_DOWN, PARTS_OF_LAYER };
typedef struct {
  const L *n;
  const float *const *parts;
  const float *angles; /* (places, rotated / 2, 2), cosine and sine */
  float eps;
  L threads; /* of a product */
} Stack;
typedef struct {
  float *y, *qkv, *seen, *inner, *gated, *work;
} Room;

static L kept_width(const L *n) { return n[N_WIDTH] / n[N_HEADS] * n[N_KEPT]; }
static L greatest(L a, L b) { return a > b ? a : b; }
static L room_of(const L *n, L rows) {
  const L d = n[N_WIDTH], f = n[N_INNER], qkv = d + 2 * kept_width(n);
  return (rows * (2 * d + qkv + f * (1 + 2 * n[N_GATED]) + greatest(d, f)) + 15) / 16 * 16;
}
/* Room for floats; packed panels in it must lie at whole vectors. */
static float *floats(L count) { return aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64); }
static Room rooms(const L *n, L rows, float *from) {
  const L d = n[N_WIDTH], f = n[N_INNER], qkv = d + 2 * kept_width(n);
  Room r;
  r.y = from, r.qkv = r.y + rows * d, r.seen = r.qkv + rows * qkv, r.inner = r.seen + rows * d;
  r.gated = r.inner + rows * f * (1 + n[N_GATED]);
  r.work = r.gated + (n[N_GATED] ? rows * f : 0);
  return r;
}

static void multiply(const Stack *s, L m, L n, L k, const float *x, const float *w, const float *b, float *y, float *work) {
  const double each = (double)m * n * k;
  const L threads = each < (1 << 22) ? 1 : s->threads, sizes[5] = {m, n, k, n, threads};
  void *const p[5] = {(void *)x, (void *)w, (void *)b, y, work};
  linear_float(sizes, p);
}
static void add(L count, const float *x, float *y) {
#pragma omp simd
  for (L i = 0; i < count; i++) y[i] += x[i];
}

/* Features of q and k of one row, rotated in pairs by the angles of its place. */
static void rotate(const Stack *s, L place, float *qkv) {
  const L half = s->n[N_ROTATED] / 2, d = s->n[N_WIDTH] / s->n[N_HEADS], heads = s->n[N_HEADS] + s->n[N_KEPT];
  const float *angle = s->angles + place * 2 * half;
  for (L h = 0; h < heads; h++)
    for (L i = 0; i < half; i++) {
      float *pair = qkv + h * d + 2 * i;
      const float a = pair[0], b = pair[1], c = angle[2 * i], t = angle[2 * i + 1];
      pair[0] = a * c - b * t, pair[1] = a * t + b * c;
    }
}

typedef int (*Attend)(const Stack *s, L layer, L rows, const Room *r, void *given); /* from r->qkv to r->seen */

/* One layer of `rows` rows x (rows, width), in place. */
static int one_layer(const Stack *s, L layer, L rows, float *x, const Room *r, Attend attend, void *given) {
  const L *n = s->n, d = n[N_WIDTH], f = n[N_INNER], order = n[N_ORDER], qkv = d + 2 * kept_width(n);
  const float *const *part = s->parts + layer * PARTS_OF_LAYER;
  const float *entering = x;
  if (order != AFTER) {
    for (L i = 0; i < rows; i++) normalise(d, x + i * d, part[G1], part[S1], s->eps, r->y + i * d);
    entering = r->y;
  }
  multiply(s, rows, qkv, d, entering, part[W_IN], part[B_IN], r->qkv, r->work);
  const int failed = attend(s, layer, rows, r, given);
  if (failed) return failed;
  if (order == BESIDE) /* before x has changed */
    for (L i = 0; i < rows; i++) normalise(d, x + i * d, part[G2], part[S2], s->eps, r->y + i * d);
  multiply(s, rows, d, d, r->seen, part[W_OUT], part[B_OUT], r->qkv, r->work);
  add(rows * d, r->qkv, x);
  entering = x;
  if (order == AFTER)
    for (L i = 0; i < rows; i++) normalise(d, x + i * d, part[G1], part[S1], s->eps, x + i * d);
  else {
    if (order == BEFORE)
      for (L i = 0; i < rows; i++) normalise(d, x + i * d, part[G2], part[S2], s->eps, r->y + i * d);
    entering = r->y;
  }
  float *inner = r->inner;
  if (n[N_GATED]) {
    multiply(s, rows, 2 * f, d, entering, part[W_UP], part[B_UP], inner, r->work);
    for (L i = 0; i < rows; i++) {
      float *gate = inner + i * 2 * f, *to = r->gated + i * f;
      activate(n[N_ACTIVATION], f, gate);
#pragma omp simd
      for (L j = 0; j < f; j++) to[j] = gate[j] * gate[f + j];
    }
    inner = r->gated;
  } else {
    multiply(s, rows, f, d, entering, part[W_UP], part[B_UP], inner, r->work);
    activate(n[N_ACTIVATION], rows * f, inner);
  }
  multiply(s, rows, d, f, inner, part[W_DOWN], part[B_DOWN], r->qkv, r->work);
  add(rows * d, r->qkv, x);
  if (order == AFTER)
    for (L i = 0; i < rows; i++) normalise(d, x + i * d, part[G2], part[S2], s->eps, x + i * d);
  return 0;
}

/* ---------------------------------------------------------------- whole sequences */
typedef struct {
  const L *length; /* of each sequence; their rows follow each other */
  L sequences, causal;
  float *scratch;
} Whole;
static L panels_of(L columns) { return (columns + WIDE - 1) / WIDE * WIDE; }
static L whole_scratch(const L *n, L longest) { /* keys and values in panels, zeros for a bias, scores, work */
  const L d = n[N_WIDTH] / n[N_HEADS];
  return panels_of(longest) * d + panels_of(d) * longest + greatest(panels_of(longest), panels_of(d)) + 2 * longest * longest +
         3 * longest * d;
}

/* One head of one sequence: q, k and v lie `apart` from row to row, what is seen `wide`. Keys and values are packed already. */
static void attend_head(L count, L d, const float *q, L apart, const float *keys, const float *values, const float *zero,
                        float scale, L causal, float *out, L wide, float *scratch) {
  float *query = scratch, *scores = query + count * d, *work = scores + count * count, *seen = query;
  for (L i = 0; i < count; i++)
    for (L j = 0; j < d; j++) query[i * d + j] = q[i * apart + j] * scale;
  const L first[5] = {count, count, d, count, 1}, second[5] = {count, d, count, d, 1};
  void *const p[5] = {query, (void *)keys, (void *)zero, scores, work};
  linear_float(first, p);
  for (L i = 0; i < count; i++) {
    float *row = scores + i * count;
    const L visible = causal ? i + 1 : count;
    const float sum = exponentials(visible, row), part = sum == 0 ? 0 : 1 / sum;
#pragma omp simd
    for (L j = 0; j < visible; j++) row[j] *= part;
    for (L j = visible; j < count; j++) row[j] = 0;
  }
  void *const t[5] = {scores, (void *)values, (void *)zero, seen, work};
  linear_float(second, t);
  for (L i = 0; i < count; i++) memcpy(out + i * wide, seen + i * d, d * sizeof(float));
}

static int attend_whole(const Stack *s, L layer, L rows, const Room *r, void *given) {
  const Whole *w = given;
  const L *n = s->n, heads = n[N_HEADS], kept = n[N_KEPT], width = n[N_WIDTH], d = width / heads, kv = kept * d;
  const L apart = width + 2 * kv, share = heads / kept;
  const float scale = 1 / sqrtf((float)d);
  for (L b = 0, at = 0; b < w->sequences; at += w->length[b++]) {
    const L count = w->length[b];
    float *qkv = r->qkv + at * apart, *keys = w->scratch, *values = keys + panels_of(count) * d;
    float *zero = values + panels_of(d) * count, *rest = zero + greatest(panels_of(count), panels_of(d));
    memset(zero, 0, (rest - zero) * sizeof(float));
    if (n[N_ROTATED])
      for (L i = 0; i < count; i++) rotate(s, i, qkv + i * apart);
    for (L g = 0; g < kept; g++) {
      const L down[4] = {count, d, apart, 1}, along[4] = {d, count, 1, apart};
      void *const k[2] = {qkv + width + g * d, keys}, *const v[2] = {qkv + width + kv + g * d, values};
      pack(down, k);
      pack(along, v);
      for (L h = g * share; h < (g + 1) * share; h++)
        attend_head(count, d, qkv + h * d, apart, keys, values, zero, scale, w->causal, r->seen + at * width + h * d, width, rest);
    }
  }
  return 0;
}

/* n: the stack's numbers; then sequences, causal, rows of a turn at most, threads. p: x (rows, width) in place, parts, angles, eps,
   length (sequences). Sequences are dealt to threads by turns of about so many rows; one turn alone has threaded products. */
#define TURN_ROWS 3
#define ALL_THREADS 4
typedef struct {
  L first, sequences, at, rows, longest;
} Turn;
static Turn turn_of(const L *n, const L *length, L first, L at, L sequences) {
  Turn t = {first, 0, at, 0, 0};
  while (first + t.sequences < sequences) {
    const L next = length[first + t.sequences];
    if (t.sequences && t.rows + next > n[N_COUNT + TURN_ROWS - 1]) break;
    t.rows += next, t.sequences++, t.longest = greatest(t.longest, next);
  }
  return t;
}
static int whole_part(const L *n, void *const *p, L part) {
  const L *length = p[4], sequences = n[N_COUNT], threads = n[N_COUNT + ALL_THREADS - 1], turns = n[N_COUNT + ALL_THREADS];
  const L deal = turns < threads ? 1 : threads;
  Stack s = {n, p[1], p[2], *(const float *)p[3], deal == 1 ? threads : 1};
  L number = 0, at = 0;
  for (L first = 0; first < sequences;) {
    const Turn t = turn_of(n, length, first, at, sequences);
    if (number++ % deal == part && t.rows) {
      float *room = floats(room_of(n, t.rows) + whole_scratch(n, t.longest));
      if (!room) return 1;
      const Room r = rooms(n, t.rows, room);
      Whole w = {length + first, t.sequences, n[N_COUNT + 1], room + room_of(n, t.rows)};
      for (L layer = 0; layer < n[N_LAYERS]; layer++)
        one_layer(&s, layer, t.rows, (float *)p[0] + t.at * n[N_WIDTH], &r, attend_whole, &w);
      free(room);
    }
    first += t.sequences, at += t.rows;
  }
  return 0;
}
int whole_stack(const L *given, void *const *p) {
  L n[N_COUNT + 5], turns = 0, at = 0;
  memcpy(n, given, sizeof(L) * (N_COUNT + 4));
  for (L first = 0; first < n[N_COUNT]; turns++) {
    const Turn t = turn_of(n, p[4], first, at, n[N_COUNT]);
    first += t.sequences, at += t.rows;
  }
  n[N_COUNT + 4] = turns;
  return run_all(n, p, turns < n[N_COUNT + 3] ? 1 : n[N_COUNT + 3], whole_part);
}

/* ---------------------------------------------------------------- new places of rows whose past lies in pages */
/* n: the stack's numbers; then rows, threads, places of a page, pages of a row at most, pages there are, places seen at most.
   p: x (rows, width) in place, parts, angles, eps, pages (layers, there are, places, 2 · kept width), table (rows, 1 + most),
   position (rows), written (rows): the place of all pages that a row's keys and values take. */
static int attend_paged(const Stack *s, L layer, L rows, const Room *r, void *given) {
  void *const *p = given;
  const L *n = s->n, *more = n + N_COUNT, width = n[N_WIDTH], kv = kept_width(n), apart = width + 2 * kv;
  float *pages = (float *)p[4] + layer * more[4] * more[2] * 2 * kv;
  const L *position = p[6], *written = p[7];
  for (L i = 0; i < rows; i++) {
    float *qkv = r->qkv + i * apart;
    if (written[i] < 0 || written[i] >= more[4] * more[2]) return 2;
    if (n[N_ROTATED]) rotate(s, position[i], qkv);
    memcpy(pages + written[i] * 2 * kv, qkv + width, 2 * kv * sizeof(float));
    memmove(r->qkv + i * width, qkv, width * sizeof(float)); /* queries beside each other, into rows that were read */
  }
  const L sizes[9] = {rows, 1, n[N_HEADS], width / n[N_HEADS], n[N_KEPT], more[2], more[3], more[4], more[5]};
  void *const at[5] = {r->qkv, r->seen, pages, p[5], 0};
  return attend_pages(sizes, at);
}
int paged_stack(const L *n, void *const *p) {
  const L rows = n[N_COUNT];
  Stack s = {n, p[1], p[2], *(const float *)p[3], n[N_COUNT + 1]};
  float *room = floats(room_of(n, rows));
  if (!room) return 1;
  const Room r = rooms(n, rows, room);
  int failed = 0;
  for (L layer = 0; layer < n[N_LAYERS] && !failed; layer++)
    failed = one_layer(&s, layer, rows, p[0], &r, attend_paged, (void *)p);
  free(room);
  return failed;
}
