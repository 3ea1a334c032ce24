/* Sums and best paths over linear chains, one row of the batch after the other, in double precision.
 *
 * The sums keep the tags of one place in `wide` columns: their number rounded up to a multiple of eight, with zeros in
 * the columns that stand for no tag. Eight columns are PARTS vectors of the instruction set at hand, and totals have
 * eight lanes that are folded in one order: AVX2 and AVX-512 give the same bits. Every sum is a chain of multiply-adds
 * in a fixed order, so a row's result does not depend on its batch. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES (VECTOR_BYTES / 8)
#define PARTS (8 / LANES)
#define GROUP (PARTS > 2 ? PARTS : 3 * PARTS) /* vectors whose even and odd sums fit into the registers */
#define UNROLL _Pragma("GCC unroll 8")
#define FIXED static inline __attribute__((always_inline))
#define AT(array, k) (*(DoubleVector *)((array) + LANES * (k)))
#define ALL(x) ((x) - (DoubleVector){0})
typedef int64_t bits __attribute__((vector_size(VECTOR_BYTES)));
typedef double two __attribute__((vector_size(16)));
typedef union { DoubleVector part[PARTS]; two pair[4]; } eight;

/* e^x for -700 < x <= 0: x = n ln 2 + r with |r| <= ln 2 / 2, e^r by its series up to r^13 / 13!, whose remainder is
 * below 5e-18, then 2^n is put into the exponent. ln 2 comes in two parts, the first so short that n times it is exact
 * without a fused multiply-add, too. Adding 1.5 2^52 rounds to a whole number and leaves n in the low bits. */
FIXED DoubleVector exponential(DoubleVector x)
{
    static const double series[] = {1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880,
                                    1. / 40320, 1. / 5040, 1. / 720, 1. / 120, 1. / 24, 1. / 6, .5, 1., 1.};
    const DoubleVector shifted = FMA(x, ALL(1.4426950408889634), ALL(0x1.8p52)), n = shifted - ALL(0x1.8p52);
    const DoubleVector r = FMA(n, ALL(-1.90821492927058770e-10), FMA(n, ALL(-6.93147180369123816490e-01), x));
    DoubleVector e = ALL(series[0]);
    _Pragma("GCC unroll 13") for (int i = 1; i < 14; i++) e = FMA(e, r, ALL(series[i]));
    return (DoubleVector)((bits)e + ((bits)shifted << 52));
}

/* out = p . m for p (tags) and m (tags, wide), some vectors of columns; two sums for each column, so that half as many
 * additions wait for each other. */
FIXED void product_of(const int vectors, int64_t tags, int64_t wide, const double *p, const double *m, double *out)
{
    DoubleVector even[GROUP], odd[GROUP];
    UNROLL for (int k = 0; k < vectors; k++) even[k] = odd[k] = ALL(0);
    int64_t i = 0;
    for (; i + 1 < tags; i += 2) {
        const DoubleVector a = ALL(p[i]), b = ALL(p[i + 1]);
        UNROLL for (int k = 0; k < vectors; k++) {
            even[k] = FMA(a, AT(m + i * wide, k), even[k]);
            odd[k] = FMA(b, AT(m + (i + 1) * wide, k), odd[k]);
        }
    }
    if (i < tags) UNROLL for (int k = 0; k < vectors; k++) even[k] = FMA(ALL(p[i]), AT(m + i * wide, k), even[k]);
    UNROLL for (int k = 0; k < vectors; k++) AT(out, k) = even[k] + odd[k];
}

static inline void product(int64_t tags, int64_t wide, const double *p, const double *m, double *out)
{
    const double *end = out + wide;
    for (; out + GROUP * LANES <= end; out += GROUP * LANES, m += GROUP * LANES)
        product_of(GROUP, tags, wide, p, m, out);
    if (GROUP > 2 * PARTS && out + 2 * PARTS * LANES <= end) {
        product_of(2 * PARTS, tags, wide, p, m, out);
        return;
    }
    for (; out < end; out += 8, m += 8) product_of(PARTS, tags, wide, p, m, out);
}

static inline double total_of(int64_t wide, const double *a, const double *b)
{
    eight sum = {0};
    for (int64_t j = 0; j < wide; j += 8)
        UNROLL for (int q = 0; q < PARTS; q++) sum.part[q] = FMA(AT(a + j, q), AT(b + j, q), sum.part[q]);
    const two folded = (sum.pair[0] + sum.pair[2]) + (sum.pair[1] + sum.pair[3]);
    return folded[0] + folded[1];
}

/* count[i, j] = sum over t of forward[t - 1, i] backward[t, j]: RANK rows i times eight columns at a time. */
#define RANK 4
static void transition_counts(int64_t n, int64_t tags, int64_t wide, const double *forward, const double *backward,
                              const double *moves, double *count)
{
    for (int64_t i = 0; i < tags; i += RANK)
        for (int64_t j = 0; j < wide; j += 8) {
            DoubleVector sum[RANK][PARTS];
            UNROLL for (int r = 0; r < RANK; r++) UNROLL for (int q = 0; q < PARTS; q++) sum[r][q] = ALL(0);
            for (int64_t t = 1; t < n; t++) {
                const double *f = forward + (t - 1) * wide + i, *b = backward + t * wide + j;
                UNROLL for (int r = 0; r < RANK; r++) /* past the last tag f is a column of zeros */
                    UNROLL for (int q = 0; q < PARTS; q++) sum[r][q] = FMA(ALL(f[r]), AT(b, q), sum[r][q]);
            }
            for (int r = 0; r < RANK && i + r < tags; r++)
                for (int q = 0; q < PARTS; q++) {
                    const int64_t at = (i + r) * wide + j;
                    AT(count + at, q) = sum[r][q] * AT(moves + at, q);
                }
        }
}

/* Scores come and go as floats or doubles; between, they are doubles. */
static inline void take(int64_t count, const void *from, int64_t at, int single, double *to)
{
    for (int64_t j = 0; j < count; j++) to[j] = single ? ((const float *)from)[at + j] : ((const double *)from)[at + j];
}
static inline void put(int64_t count, const double *from, void *to, int64_t at, int single)
{
    if (single) for (int64_t j = 0; j < count; j++) ((float *)to)[at + j] = (float)from[j];
    else for (int64_t j = 0; j < count; j++) ((double *)to)[at + j] = from[j];
}

/* a in the lanes where `which` is −1, b where it is 0. */
FIXED DoubleVector chosen(bits which, DoubleVector a, DoubleVector b)
{
    return (DoubleVector)(((bits)a & which) | ((bits)b & ~which));
}

/* x (rows, wide), of which `tags` columns count, becomes e^(x - highest), 0 in the other columns. Writes the highest, and
 * returns how far it is from the lowest; NaN if a score is infinite or NaN. Scores further apart than 700 are left
 * without a meaning: the caller does not use them. */
static double chances_of(int64_t rows, int64_t tags, int64_t wide, double *x, double *highest)
{
    double high = x[0], low = x[0];
    DoubleVector most, least, spoilt = ALL(0); /* x - x is 0, or NaN */
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = tags; j < wide; j++) x[i * wide + j] = x[0];
    most = least = ALL(x[0]);
    for (int64_t k = 0; k < rows * wide / LANES; k++) {
        const DoubleVector s = AT(x, k);
        most = chosen(s > most, s, most);
        least = chosen(s < least, s, least);
        spoilt += s - s;
    }
    for (int k = 0; k < LANES; k++) {
        high = most[k] > high ? most[k] : high;
        low = least[k] < low ? least[k] : low;
        if (spoilt[k] != 0) return NAN;
    }
    *highest = high;
    for (int64_t k = 0; k < rows * wide / LANES; k++) AT(x, k) = exponential(AT(x, k) - ALL(high));
    for (int64_t i = 0; i < rows; i++) memset(x + i * wide + tags, 0, (wide - tags) * sizeof(double));
    return high - low;
}

/* What the rows of a batch share, each less its highest score and after the exponential. */
typedef struct {
    int64_t tags, wide;
    double *moves, *back, *begin, *finish; /* (tags, wide), its transpose, (wide), (wide) */
    double highest[3], apart;              /* of transitions, start and end; how far they lie apart together */
} chain;

static void share(chain *c, const void *transitions, const void *start, const void *end, int single)
{
    const int64_t tags = c->tags, wide = c->wide;
    for (int64_t i = 0; i < tags; i++) take(tags, transitions, i * tags, single, c->moves + i * wide);
    take(tags, start, 0, single, c->begin);
    take(tags, end, 0, single, c->finish);
    c->apart = chances_of(tags, tags, wide, c->moves, c->highest);
    c->apart += chances_of(1, tags, wide, c->begin, c->highest + 1);
    c->apart += chances_of(1, tags, wide, c->finish, c->highest + 2);
    memset(c->back, 0, tags * wide * sizeof(double));
    for (int64_t i = 0; i < tags; i++)
        for (int64_t j = 0; j < tags; j++) c->back[i * wide + j] = c->moves[j * wide + i];
}

/* log of a product of many numbers, none outside 1e-270 to 1e30, with few logarithms */
typedef struct { double product, log; } logarithm;
static inline void multiply(logarithm *l, double x)
{
    l->product *= x;
    if (l->product < 1e-30 || l->product > 1e30) l->log += log(l->product), l->product = 1;
}

/* forward[t] = before[t] chance[t] / scale, before[0] = begin, before[t + 1] = forward[t] . moves; returns the logarithm
 * of the sum over all paths. u (wide) is for work. */
static double forward_sums(const chain *c, int64_t n, const double *chance, double *forward, double *u)
{
    const int64_t wide = c->wide;
    logarithm sum = {1, 0};
    memcpy(u, c->begin, wide * sizeof(double));
    for (int64_t t = 0; t < n; t++, chance += wide, forward += wide) {
        if (t) product(c->tags, wide, forward - wide, c->moves, u);
        const double total = total_of(wide, u, chance);
        const DoubleVector scale = ALL(1 / total);
        for (int64_t k = 0; k < wide / LANES; k++) AT(forward, k) = AT(u, k) * AT(chance, k) * scale;
        multiply(&sum, total);
    }
    multiply(&sum, total_of(wide, forward - wide, c->finish));
    return sum.log + log(sum.product);
}

/* after[n - 1] = finish, after[t - 1] = moves . (after[t] chance[t]); marginal[t] = after[t] forward[t] / sum, written
 * over the chances; backward[t] = after[t] chance[t] / the sum that makes forward[t - 1] moves backward[t] sum to one. */
static void backward_sums(const chain *c, int64_t n, double *chance, const double *forward, double *backward, double *after)
{
    const int64_t wide = c->wide;
    memcpy(after, c->finish, wide * sizeof(double));
    for (int64_t t = n - 1; t >= 0; t--) {
        double *e = chance + t * wide, *b = backward + t * wide;
        const double *f = forward + t * wide;
        const DoubleVector scale = ALL(1 / total_of(wide, f, after)); /* so that neither direction can run away */
        for (int64_t k = 0; k < wide / LANES; k++) {
            const DoubleVector scaled = AT(after, k) * scale;
            AT(b, k) = scaled * AT(e, k);
            AT(e, k) = scaled * AT(f, k);
        }
        if (!t) break;
        product(c->tags, wide, b, c->back, after);
        const DoubleVector share = ALL(1 / total_of(wide, f - wide, after));
        for (int64_t k = 0; k < wide / LANES; k++) AT(b, k) *= share;
    }
}

/* log Z and its gradient; see scaled.py for the equations.
 *
 * n: rows, time, tags, whether scores are floats, whether the gradient is wanted. p: emissions (rows, time, tags),
 * transitions (tags, tags), start (tags), end (tags), lengths (rows) int64. Writes log_z (rows) doubles; safe (rows)
 * bytes, 0 where scores lie so far apart that a sum might underflow, or are infinite or NaN; marginals (rows, time,
 * tags), zero past each end; counts (rows, tags, tags), the expected numbers of transitions. A row that is not safe gets
 * zeros. Returns 1 without memory, 2 for a length that cannot be. */
int crf_sums(const int64_t *n, void *const *p)
{
    const int64_t rows = n[0], time = n[1], tags = n[2], wide = (tags + 7) / 8 * 8, single = n[3], size = single ? 4 : 8;
    const int64_t *lengths = p[4];
    double *log_z = p[5], *memory;
    unsigned char *safe = p[6];
    for (int64_t row = 0; row < rows; row++)
        if (lengths[row] < 0 || lengths[row] > time) return 2;
    if (posix_memalign((void **)&memory, 64, (3 * time + 2 * tags + tags + 4) * wide * sizeof(double))) return 1;
    double *chance = memory, *forward = chance + time * wide, *backward = forward + time * wide;
    double *count = backward + time * wide, *work = count + tags * wide;
    chain c = {tags, wide, work + wide, work + (1 + tags) * wide, work + (1 + 2 * tags) * wide, work + (2 + 2 * tags) * wide};
    share(&c, p[1], p[2], p[3], single);
    for (int64_t row = 0; row < rows; row++) {
        const int64_t length = lengths[row];
        char *marginals = (char *)p[7] + row * time * tags * size, *counts = (char *)p[8] + row * tags * tags * size;
        double total = 0, apart = 0;
        for (int64_t t = 0; t < length; t++) {
            double *x = chance + t * wide, highest = 0;
            take(tags, p[0], (row * time + t) * tags, single, x);
            const double here = chances_of(1, tags, wide, x, &highest);
            apart = here < apart ? apart : here; /* NaN if `here` is */
            if (!(apart + c.apart < 600)) break; /* NaN is not below, either */
            total += highest;
        }
        /* A tag's share of a sum is at least e^-apart / tags, and doubles reach down to e^-708. */
        safe[row] = !length || apart + c.apart < 600;
        log_z[row] = 0;
        if (safe[row] && length) {
            total += c.highest[1] + c.highest[2] + c.highest[0] * (length - 1);
            log_z[row] = forward_sums(&c, length, chance, forward, work) + total;
        }
        if (!n[4]) continue;
        const int64_t known = safe[row] ? length : 0;
        memset(marginals + known * tags * size, 0, (time - known) * tags * size);
        if (!known) {
            memset(counts, 0, tags * tags * size);
            continue;
        }
        backward_sums(&c, length, chance, forward, backward, work);
        transition_counts(length, tags, wide, forward, backward, c.moves, count);
        for (int64_t t = 0; t < length; t++) put(tags, chance + t * wide, marginals, t * tags, single);
        for (int64_t i = 0; i < tags; i++) put(tags, count + i * wide, counts, i * tags, single);
    }
    free(memory);
    return 0;
}

/* Whether a score replaces the best one so far: it is higher, or the first NaN, which then stays, as torch.max has it. */
#define BETTER(s, best) (((s) > (best)) | (((s) != (s)) & ((best) == (best))))

/* Best paths. n: rows, time, tags. p, in doubles: emissions, transitions, start, end, as above; lengths; path (rows, time)
 * int64, 0 past each end; score (rows). Of equal paths the one with the lower tag wins. Returns as crf_sums does. */
int crf_viterbi(const int64_t *n, void *const *p)
{
    const int64_t rows = n[0], time = n[1], K = n[2], *lengths = p[4];
    const double *emissions = p[0], *transitions = p[1], *start = p[2], *end = p[3];
    int64_t *path = p[5];
    double *score = p[6];
    for (int64_t row = 0; row < rows; row++)
        if (lengths[row] < 0 || lengths[row] > time) return 2;
    double *work = malloc((2 * K + time * K) * sizeof(double));
    if (!work) return 1;
    int64_t *from = (int64_t *)(work + 2 * K); /* (time, tags), the best predecessor of each tag at each place */
    for (int64_t row = 0; row < rows; row++) {
        double *restrict delta = work, *restrict best = work + K;
        const double *emitted = emissions + row * time * K;
        int64_t *taken = path + row * time;
        const int64_t length = lengths[row];
        for (int64_t t = 0; t < time; t++) taken[t] = 0;
        score[row] = 0.0;
        if (length == 0) continue;
        for (int64_t j = 0; j < K; j++) delta[j] = start[j] + emitted[j];
        for (int64_t t = 1; t < length; t++) {
            int64_t *restrict origin = from + t * K;
            for (int64_t j = 0; j < K; j++) {
                best[j] = delta[0] + transitions[j];
                origin[j] = 0;
            }
            for (int64_t i = 1; i < K; i++) {
                const double d = delta[i];
                const double *restrict a = transitions + i * K;
                for (int64_t j = 0; j < K; j++) {
                    const double s = d + a[j];
                    const int64_t better = BETTER(s, best[j]);
                    best[j] = better ? s : best[j];
                    origin[j] = better ? i : origin[j];
                }
            }
            for (int64_t j = 0; j < K; j++) delta[j] = best[j] + emitted[t * K + j];
        }
        int64_t tag = 0;
        for (int64_t j = 1; j < K; j++)
            if (BETTER(delta[j] + end[j], delta[tag] + end[tag])) tag = j;
        score[row] = delta[tag] + end[tag];
        for (int64_t t = length - 1; t > 0; t--) {
            taken[t] = tag;
            tag = from[t * K + tag];
        }
        taken[0] = tag;
    }
    free(work);
    return 0;
}
