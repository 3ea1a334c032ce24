/* Sums and best paths over linear chains, one row of the batch after the other, in double precision.
 *
 * Matrices are row-major, emissions and the like (rows, time, tags). Inner loops run over the tags a step leads to,
 * which lie next to each other. The sums take them eight at a time: their tables have `wide` columns, the number of
 * tags rounded up to a multiple of eight, with zeros in the columns that stand for no tag. */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef double eight __attribute__((vector_size(64), aligned(8)));
#define AT(array, block) (*(eight *)((array) + 8 * (block)))

/* out = p . m for p (tags) and m (tags, wide): two sums at a time, so that none waits for the last addition. */
static inline void product(int64_t tags, int64_t wide, const double *p, const double *m, double *restrict out)
{
    for (int64_t block = 0; block < wide / 8; block++) {
        eight even = {0}, odd = {0};
        const double *column = m + 8 * block;
        int64_t i = 0;
        for (; i + 1 < tags; i += 2) {
            even += p[i] * AT(column + i * wide, 0);
            odd += p[i + 1] * AT(column + (i + 1) * wide, 0);
        }
        if (i < tags) even += p[i] * AT(column + i * wide, 0);
        AT(out, block) = even + odd;
    }
}

static inline double total_of(int64_t wide, const double *a, const double *b)
{
    eight sum = {0};
    for (int64_t block = 0; block < wide / 8; block++) sum += AT(a, block) * AT(b, block);
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* count[i, j] = sum over t of forward[t - 1, i] backward[t, j], two rows i at a time. */
static void transition_counts(int64_t n, int64_t tags, int64_t wide, const double *forward, const double *backward,
                              double *count)
{
    for (int64_t i = 0; i < tags; i += 2) {
        const int64_t other = i + 1 < tags ? i + 1 : i;
        for (int64_t block = 0; block < wide / 8; block++) {
            eight one = {0}, two = {0};
            for (int64_t t = 1; t < n; t++) {
                const double *f = forward + (t - 1) * wide;
                const eight b = AT(backward + t * wide, block);
                one += f[i] * b;
                two += f[other] * b;
            }
            AT(count + i * wide, block) = one;
            AT(count + other * wide, block) = two;
        }
    }
}

/* Scaled forward and backward sums; see scaled.py for the equations.
 *
 * chances (rows, time, wide) exp(emission - highest), moves (tags, wide) exp(transition - highest), moves_t the same
 * of its transpose, begin and finish (wide) likewise. Writes log_sum (rows), the logarithm of the sum over all paths
 * of products of these; the marginals, zero past each end, over the chances; counts (rows, tags, wide), the expected
 * numbers of transitions. work holds 2 * (1 + time) * wide numbers. */
void crf_sums(int64_t rows, int64_t time, int64_t tags, int64_t wide, double *chances, const double *moves,
              const double *moves_t, const double *begin, const double *finish, const int64_t *lengths,
              double *log_sum, double *counts, double *work)
{
    const int64_t blocks = wide / 8;
    double *after = work, *u = work + wide, *forward = work + 2 * wide, *backward = forward + time * wide;
    for (int64_t row = 0; row < rows; row++) {
        double *chance = chances + row * time * wide;
        double *count = counts + row * tags * wide;
        const int64_t n = lengths[row];
        memset(chance + n * wide, 0, (time - n) * wide * sizeof(double));
        log_sum[row] = 0.0;
        if (n == 0) {
            memset(count, 0, tags * wide * sizeof(double));
            continue;
        }

        double logs = 0.0;
        for (int64_t t = 0; t < n; t++) {
            double *f = forward + t * wide;
            if (t == 0)
                memcpy(u, begin, wide * sizeof(double));
            else
                product(tags, wide, f - wide, moves, u);
            const double total = total_of(wide, u, chance + t * wide);
            const double scale = 1.0 / total;
            for (int64_t k = 0; k < blocks; k++) AT(f, k) = AT(u, k) * AT(chance + t * wide, k) * scale;
            logs += log(total);
        }

        memcpy(after, finish, wide * sizeof(double));
        double total = total_of(wide, forward + (n - 1) * wide, after);
        log_sum[row] = logs + log(total);
        for (int64_t t = n - 1;; t--) {
            const double *f = forward + t * wide;
            double *e = chance + t * wide, *b = backward + t * wide;
            const double scale = 1.0 / total; /* so that neither direction can run away */
            for (int64_t k = 0; k < blocks; k++) {
                const eight scaled = AT(after, k) * scale;
                AT(b, k) = scaled * AT(e, k);
                AT(e, k) = scaled * AT(f, k);
            }
            if (t == 0) break;
            product(tags, wide, b, moves_t, after);
            total = total_of(wide, f - wide, after);
            for (int64_t k = 0; k < blocks; k++) AT(b, k) /= total;
        }
        transition_counts(n, tags, wide, forward, backward, count);
        for (int64_t k = 0; k < tags * blocks; k++) AT(count, k) *= AT(moves, k);
    }
}

/* Best paths. Writes path (rows, time), 0 past each end, and score (rows); of equal paths the one with the lower tag.
 * work holds 2 * tags numbers, from (time, tags) the best predecessor of each tag at each place. */
void crf_viterbi(int64_t rows, int64_t time, int64_t tags, const double *emissions, const double *transitions,
                 const double *start, const double *end, const int64_t *lengths, int64_t *path, double *score,
                 double *work, int64_t *from)
{
    const int64_t K = tags;
    for (int64_t row = 0; row < rows; row++) {
        double *restrict delta = work, *restrict best = work + K;
        const double *emitted = emissions + row * time * K;
        int64_t *taken = path + row * time;
        const int64_t n = lengths[row];
        for (int64_t t = 0; t < time; t++) taken[t] = 0;
        score[row] = 0.0;
        if (n == 0) continue;
        for (int64_t j = 0; j < K; j++) delta[j] = start[j] + emitted[j];
        for (int64_t t = 1; t < n; t++) {
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
                    const int better = s > best[j];
                    best[j] = better ? s : best[j];
                    origin[j] = better ? i : origin[j];
                }
            }
            for (int64_t j = 0; j < K; j++) delta[j] = best[j] + emitted[t * K + j];
        }
        int64_t tag = 0;
        for (int64_t j = 1; j < K; j++)
            if (delta[j] + end[j] > delta[tag] + end[tag]) tag = j;
        score[row] = delta[tag] + end[tag];
        for (int64_t t = n - 1; t > 0; t--) {
            taken[t] = tag;
            tag = from[t * K + tag];
        }
        taken[0] = tag;
    }
}
