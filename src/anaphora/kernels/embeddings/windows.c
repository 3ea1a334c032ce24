/* One block of text through word2vec: skip-gram or CBOW, with negative samples or a Huffman tree.
 *
 * All pairs of one window share their outputs, which therefore stay in the nearest cache. Rows are `wide` blocks of
 * sixteen numbers; see windows.py for the equations and for the same steps in plain loops. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef float wide __attribute__((vector_size(64), aligned(4)));
typedef float half __attribute__((vector_size(32)));
typedef float quarter __attribute__((vector_size(16)));

static inline float total(wide s)
{
    const half h = __builtin_shufflevector(s, s, 0, 1, 2, 3, 4, 5, 6, 7) +
                   __builtin_shufflevector(s, s, 8, 9, 10, 11, 12, 13, 14, 15);
    const quarter q = __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
    return (q[0] + q[1]) + (q[2] + q[3]);
}

/* scores[j] = u . v_j, three outputs at a time; the last ones may be done twice. */
static inline void products(int64_t blocks, const wide *u, int64_t n, wide **v, float *scores)
{
    for (int64_t j = 0; j < n; j += 3) {
        const int64_t k = j + 1 < n ? j + 1 : j, l = j + 2 < n ? j + 2 : j;
        wide a = {0}, b = {0}, c = {0};
        for (int64_t d = 0; d < blocks; d++) {
            a += u[d] * v[j][d];
            b += u[d] * v[k][d];
            c += u[d] * v[l][d];
        }
        scores[j] = total(a);
        scores[k] = total(b);
        scores[l] = total(c);
    }
}

/* scores become lr (label - sigmoid(score)); returns the sum of log(1 + e^score) - label score. */
static inline float errors(int64_t n, const float *labels, const float *curve, float lr, float *scores)
{
    float loss = 0;
    for (int64_t j = 0; j < n; j++) {
        const float given = scores[j];
        float f = given < 15.99f ? given : 15.99f; /* so that not even NaN leaves the table */
        f = f > -15.99f ? f : -15.99f;
        const float place = (f + 16) * 256;
        const int32_t i = (int32_t)place;
        const float part = place - i;
        const float p = curve[2 * i] + (curve[2 * i + 2] - curve[2 * i]) * part;
        const float bent = curve[2 * i + 1] + (curve[2 * i + 3] - curve[2 * i + 1]) * part;
        loss += bent + (given > f ? given - f : 0) - labels[j] * given;
        scores[j] = (labels[j] - p) * lr;
    }
    return loss;
}

/* gained = sum_j g_j v_j, with the old values, and v_j += g_j u. A word that was drawn twice gains twice. */
static inline void learn(int64_t blocks, const wide *u, int64_t n, wide **v, const float *g, wide *gained)
{
    for (int64_t d = 0; d < blocks; d++) {
        const wide x = u[d];
        wide sum = {0};
        for (int64_t j = 0; j < n; j++) sum += g[j] * v[j][d];
        for (int64_t j = 0; j < n; j++) v[j][d] += g[j] * x;
        gained[d] = sum;
    }
}

#define NEXT (*state = *state * 6364136223846793005ull + 1442695040888963407ull)

static inline int64_t draw(uint64_t *state, int64_t words, const uint32_t *share, const int32_t *other)
{
    const uint64_t place = (NEXT >> 32) * (uint64_t)words;
    const int64_t slot = place >> 32;
    return (uint32_t)place < share[slot] ? slot : other[slot];
}

/* The arguments are those of windows.train_plain. Returns the number of predictions; -1 if there is no memory. */
int64_t w2v_train(int64_t length, const int32_t *ids, const uint64_t *keep, int64_t window, int64_t mean,
                  int64_t width, float *inputs, float *outputs, int64_t negative, int64_t words,
                  const uint32_t *share, const int32_t *other, const int64_t *path_start, const int32_t *path_node,
                  const float *path_label, int64_t longest, const float *rates, uint64_t *state,
                  const float *curve, double *loss)
{
    const int64_t blocks = width / 16, most = 2 * window, rows = negative ? negative + 1 : longest;
    int32_t *kept = malloc(sizeof(int32_t) * (length + 1));
    wide **u = malloc(sizeof(wide *) * (most + rows + 1)), **v = u + most;
    float *scores = malloc(sizeof(float) * 2 * rows), *labels = scores + rows;
    wide *work = aligned_alloc(64, sizeof(wide) * 2 * blocks), *gained = work + blocks;
    int64_t text = 0, predictions = 0;
    double sum = 0;
    if (!kept || !u || !scores || !work) {
        predictions = -1;
        goto done;
    }
    for (int64_t t = 0; t < length; t++) {
        const int32_t w = ids[t];
        if (w == -1) kept[text++] = -1;
        else if (w >= 0 && (NEXT >> 32) < keep[w]) kept[text++] = w;
    }
    for (int64_t j = 0; j < rows; j++) labels[j] = j == 0;
    for (int64_t t = 0; t < text; t++) {
        const int32_t w = kept[t];
        if (w < 0) continue;
        const int64_t reach = 1 + (int64_t)(((NEXT >> 32) * (uint64_t)window) >> 32);
        int64_t m = 0, n = 0;
        for (int64_t s = t - 1; s >= 0 && s >= t - reach && kept[s] >= 0; s--) u[m++] = (wide *)(inputs + kept[s] * width);
        for (int64_t s = t + 1; s < text && s <= t + reach && kept[s] >= 0; s++) u[m++] = (wide *)(inputs + kept[s] * width);
        if (!m) continue;
        if (negative) {
            v[n++] = (wide *)(outputs + w * width);
            for (int64_t k = 0; k < negative; k++) {
                const int64_t x = draw(state, words, share, other);
                if (x != w) v[n++] = (wide *)(outputs + x * width);
            }
        } else {
            for (int64_t p = path_start[w]; p < path_start[w + 1]; p++) {
                labels[n] = path_label[p];
                v[n++] = (wide *)(outputs + path_node[p] * width);
            }
        }
        const float lr = rates[0] + (rates[1] - rates[0]) * t / text;
        if (mean) {
            wide *middle = work;
            const float part = 1.0f / m;
            for (int64_t d = 0; d < blocks; d++) {
                wide s = {0};
                for (int64_t a = 0; a < m; a++) s += u[a][d];
                middle[d] = s * part;
            }
            products(blocks, middle, n, v, scores);
            sum += errors(n, labels, curve, lr, scores);
            learn(blocks, middle, n, v, scores, gained);
            for (int64_t a = 0; a < m; a++)
                for (int64_t d = 0; d < blocks; d++) u[a][d] += gained[d] * part;
            predictions += 1;
        } else {
            for (int64_t a = 0; a < m; a++) {
                products(blocks, u[a], n, v, scores);
                sum += errors(n, labels, curve, lr, scores);
                learn(blocks, u[a], n, v, scores, gained);
                for (int64_t d = 0; d < blocks; d++) u[a][d] += gained[d];
            }
            predictions += m;
        }
    }
    *loss = sum;
done:
    free(kept);
    free(u);
    free(scores);
    free(work);
    return predictions;
}
