/* The transducer loss on a CPU, see lattice.py for the formulas and native.py for the arrays. Follows arithmetic.h and lanes.h.

   Sums over alignments are in double precision, a diagonal t + u = n at a time: its nodes depend on the diagonal before alone, so the
   vectors run along u. A line of a diagonal has EDGE numbers before u = 0 and is as long as a multiple of EDGE; what is no node of the row
   is -inf there, and so are both steps out of it. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define FIXED static inline __attribute__((always_inline))
#define EDGE 8
#define LANES (VECTOR_BYTES / 8)
typedef int32_t FloatBits __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t DoubleBits __attribute__((vector_size(VECTOR_BYTES)));
typedef double LooseDoubles __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));
#define FLOATS(x) ((x) - (FloatVector){0})
#define DOUBLES(x) ((x) - (DoubleVector){0})
#define LOAD(p) ((DoubleVector)*(const LooseDoubles *)(p))
#define STORE(p, v) (*(LooseDoubles *)(p) = (v))
#define CHOOSE(bits, where, a, b) ((__typeof__(a))(((where) & (bits)(a)) | (~(where) & (bits)(b))))

/* e^x for x <= 0 and NaN: x = n ln 2 + r with |r| <= ln 2 / 2, e^r by its series, then 2^n is put into the exponent. Adding 1.5 2^23
   rounds to a whole number and leaves n in the low bits. What is below 1e-37 becomes 0. */
FIXED FloatVector exp_floats(FloatVector x)
{
    static const float series[] = {1.f / 5040, 1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, .5f, 1.f, 1.f};
    const FloatVector shifted = FMA(x, FLOATS(1.44269504f), FLOATS(0x1.8p23f)), n = shifted - FLOATS(0x1.8p23f);
    const FloatVector r = FMA(n, FLOATS(2.12194440e-4f), FMA(n, FLOATS(-0.693359375f), x));
    FloatVector e = FLOATS(series[0]);
    _Pragma("GCC unroll 7") for (int i = 1; i < 8; i++) e = FMA(e, r, FLOATS(series[i]));
    e = (FloatVector)((FloatBits)e + ((FloatBits)shifted << 23));
    e = CHOOSE(FloatBits, (FloatBits)(x == x), e, x);
    return (FloatVector)(~(FloatBits)(x < FLOATS(-85.f)) & (FloatBits)e);
}

/* The same in double precision, for 0 >= x. */
FIXED DoubleVector exp_doubles(DoubleVector x)
{
    static const double series[] = {1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880,
                                    1. / 40320, 1. / 5040, 1. / 720, 1. / 120, 1. / 24, 1. / 6, .5, 1., 1.};
    const DoubleVector shifted = FMA(x, DOUBLES(1.4426950408889634), DOUBLES(0x1.8p52)), n = shifted - DOUBLES(0x1.8p52);
    const DoubleVector r = FMA(n, DOUBLES(-1.90821492927058770e-10), FMA(n, DOUBLES(-6.93147180369123816490e-01), x));
    DoubleVector e = DOUBLES(series[0]);
    _Pragma("GCC unroll 13") for (int i = 1; i < 14; i++) e = FMA(e, r, DOUBLES(series[i]));
    e = (DoubleVector)((DoubleBits)e + ((DoubleBits)shifted << 52));
    e = CHOOSE(DoubleBits, (DoubleBits)(x == x), e, x);
    return (DoubleVector)(~(DoubleBits)(x < DOUBLES(-700.)) & (DoubleBits)e);
}

/* log(1 + e) for 0 <= e <= 1: 2 artanh(s) with s = e / (2 + e) <= 1/3, by its series up to s^33 / 33. */
FIXED DoubleVector log_one_plus(DoubleVector e)
{
    const DoubleVector s = e / (e + DOUBLES(2.)), square = s * s;
    DoubleVector sum = DOUBLES(1. / 33);
    _Pragma("GCC unroll 16") for (int k = 31; k > 0; k -= 2) sum = FMA(sum, square, DOUBLES(1. / k));
    return (s + s) * sum;
}

/* log(e^a + e^b), also where one or both are -inf; NaN where one is NaN. */
FIXED DoubleVector log_add(DoubleVector a, DoubleVector b)
{
    const DoubleBits above = (DoubleBits)(a > b);
    const DoubleVector high = CHOOSE(DoubleBits, above, a, b), low = CHOOSE(DoubleBits, above, b, a);
    const DoubleVector apart = low - high;
    const DoubleBits near = (DoubleBits)(apart > DOUBLES(-700.)); /* not where both are -inf */
    const DoubleVector more = log_one_plus(exp_doubles(CHOOSE(DoubleBits, near, apart, DOUBLES(-701.))));
    return CHOOSE(DoubleBits, (DoubleBits)(a == a) & (DoubleBits)(b == b), high + more, a + b);
}

/* The log of the sum of e^z over the symbols: the greatest z, and the log of the sum of e^(z - greatest). Kept apart, they lose nothing
   where logits are large. The last symbols are completed by -inf in `rest`. */
static void log_sum(const float *z, int64_t symbols, float *parts)
{
    const int64_t whole = symbols & ~15;
    float rest[16];
    for (int k = 0; k < 16; k++) rest[k] = whole + k < symbols ? z[whole + k] : -INFINITY;
    Sixteen most;
    EACH_PART most.part[q] = *part_of(rest, q);
    for (int64_t k = 0; k < whole; k += 16)
        EACH_PART {
            const FloatVector x = *part_of(z + k, q);
            most.part[q] = CHOOSE(FloatBits, (FloatBits)(x > most.part[q]), x, most.part[q]);
        }
    float high = -INFINITY;
    for (int k = 0; k < 16; k++) high = most.quarter[k / 4][k % 4] > high ? most.quarter[k / 4][k % 4] : high;
    Sixteen sum;
    EACH_PART sum.part[q] = exp_floats(*part_of(rest, q) - FLOATS(high));
    for (int64_t k = 0; k < whole; k += 16)
        EACH_PART sum.part[q] += exp_floats(*part_of(z + k, q) - FLOATS(high));
    parts[0] = high;
    parts[1] = (float)log((double)total(sum));
}

/* Steps out of the nodes of one row, diagonal by diagonal: blank and label (T + U, wide); sums (T, places, 2) in natural order. */
static void steps_of(const float *z, const int64_t *labels, int64_t T, int64_t U, int64_t places, int64_t symbols, int64_t silent,
                     int64_t wide, double *blank, double *label, float *sums)
{
    for (int64_t k = 0; k < (T + U) * wide; k++) blank[k] = label[k] = -INFINITY;
    for (int64_t t = 0; t < T; t++)
        for (int64_t u = 0; u <= U; u++) {
            const float *node = z + (t * places + u) * symbols;
            float *parts = sums + 2 * (t * places + u);
            log_sum(node, symbols, parts);
            const double all = (double)parts[0] + parts[1];
            const int64_t at = (t + u) * wide + EDGE + u;
            blank[at] = (double)node[silent] - all;
            if (u < U) label[at] = (double)node[labels[u]] - all;
        }
}

/* Shares of alignments that leave each node by its blank and by its label, (T, places, 2); returns log p(y | x). `lines` holds
   (T + U, wide) of alpha and two lines of beta, which have an EDGE after them as well. */
static double shares_of(int64_t T, int64_t U, int64_t places, int64_t wide, const double *blank, const double *label, double *lines,
                        float *shares)
{
    const int64_t count = T + U;
    double *alpha = lines, *after = lines + count * wide, *now = after + wide + EDGE;
    for (int64_t k = 0; k < wide; k++) alpha[k] = -INFINITY;
    for (int64_t k = 0; k < wide + EDGE; k++) after[k] = now[k] = -INFINITY;
    alpha[EDGE] = 0;
    for (int64_t n = 1; n < count; n++) {
        const double *before = alpha + (n - 1) * wide, *b = blank + (n - 1) * wide, *y = label + (n - 1) * wide;
        double *to = alpha + n * wide;
        for (int64_t k = 0; k < EDGE; k++) to[k] = -INFINITY;
        for (int64_t k = EDGE; k < wide; k += LANES)
            STORE(to + k, log_add(LOAD(before + k) + LOAD(b + k), LOAD(before + k - 1) + LOAD(y + k - 1)));
    }
    const int64_t last = (count - 1) * wide + EDGE + U;
    const double log_p = alpha[last] + blank[last];
    after[EDGE + U] = 0; /* the last blank ends the alignment */
    for (int64_t n = count - 1; n >= 0; n--) {
        const double *a = alpha + n * wide, *b = blank + n * wide, *y = label + n * wide;
        double by_blank[LANES], by_label[LANES];
        for (int64_t k = EDGE; k < wide; k += LANES) {
            const DoubleVector on_blank = LOAD(b + k) + LOAD(after + k), on_label = LOAD(y + k) + LOAD(after + k + 1);
            const DoubleVector reached = LOAD(a + k) - DOUBLES(log_p);
            STORE(now + k, log_add(on_blank, on_label));
            STORE(by_blank, exp_doubles(reached + on_blank));
            STORE(by_label, exp_doubles(reached + on_label));
            for (int i = 0; i < LANES; i++) {
                const int64_t u = k + i - EDGE, t = n - u;
                if (u > U || t < 0 || t >= T) continue;
                shares[2 * (t * places + u)] = (float)by_blank[i];
                shares[2 * (t * places + u) + 1] = (float)by_label[i];
            }
        }
        double *swap = after;
        after = now, now = swap;
    }
    return log_p;
}

/* n: T_most, places, symbols, blank, first row, end. p: logits, labels, frames, sizes, log_p, sums, shares. 1 if there is no memory. */
int transducer_forward(const int64_t *n, void **p)
{
    const int64_t most = n[0], places = n[1], symbols = n[2], silent = n[3];
    const int64_t *frames = p[2], *sizes = p[3];
    const int64_t widest = EDGE + (places + EDGE - 1) / EDGE * EDGE;
    double *memory = malloc(sizeof(double) * (size_t)(3 * (most + places) + 4) * widest);
    if (!memory) return 1;
    for (int64_t b = n[4]; b < n[5]; b++) {
        const int64_t T = frames[b], U = sizes[b], wide = EDGE + (U + EDGE) / EDGE * EDGE, size = (T + U) * wide;
        double *log_p = (double *)p[4] + b;
        *log_p = -INFINITY;
        if (!T) continue;
        steps_of((const float *)p[0] + b * most * places * symbols, (const int64_t *)p[1] + b * (places - 1), T, U, places, symbols,
                 silent, wide, memory, memory + size, (float *)p[5] + 2 * b * most * places);
        *log_p = shares_of(T, U, places, wide, memory, memory + size, memory + 2 * size, (float *)p[6] + 2 * b * most * places);
    }
    free(memory);
    return 0;
}

/* The gradient at one node: visited p, less the shares of the blank and of the next symbol. */
FIXED void node_gradient(const float *z, const float *sum, float by_blank, float by_label, int64_t symbols, int64_t silent, int64_t next,
                         float *to)
{
    const float visited = by_blank + by_label;
    const int64_t whole = symbols & ~15;
    float rest[16];
    for (int64_t k = 0; k < whole; k += 16)
        EACH_PART *part_of(to + k, q) = exp_floats(*part_of(z + k, q) - FLOATS(sum[0]) - FLOATS(sum[1])) * FLOATS(visited);
    for (int k = 0; k < 16; k++) rest[k] = whole + k < symbols ? z[whole + k] - sum[0] - sum[1] : -INFINITY;
    EACH_PART *part_of(rest, q) = exp_floats(*part_of(rest, q)) * FLOATS(visited);
    memcpy(to + whole, rest, sizeof(float) * (symbols - whole));
    to[silent] -= by_blank;
    if (next >= 0) to[next] -= by_label;
}

/* n: as before. p: logits, labels, frames, sizes, log_p, sums, shares, upstream, gradient. */
int transducer_backward(const int64_t *n, void **p)
{
    const int64_t most = n[0], places = n[1], symbols = n[2], silent = n[3];
    const int64_t *frames = p[2], *sizes = p[3];
    for (int64_t b = n[4]; b < n[5]; b++) {
        const int64_t *labels = (const int64_t *)p[1] + b * (places - 1);
        const float g = ((const float *)p[7])[b];
        const int64_t T = ((const double *)p[4])[b] == -INFINITY ? 0 : frames[b], U = sizes[b];
        for (int64_t t = 0; t < most; t++)
            for (int64_t u = 0; u < places; u++) {
                const int64_t at = (b * most + t) * places + u;
                const float *z = (const float *)p[0] + at * symbols, *share = (const float *)p[6] + 2 * at;
                float *to = (float *)p[8] + at * symbols;
                if (t < T && u <= U && share[0] + share[1] != 0)
                    node_gradient(z, (const float *)p[5] + 2 * at, g * share[0], g * share[1], symbols, silent, u < U ? labels[u] : -1, to);
                else
                    memset(to, 0, sizeof(float) * symbols);
            }
    }
    return 0;
}
