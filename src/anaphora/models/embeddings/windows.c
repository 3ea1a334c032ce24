/* word2vec over one block of text: skip-gram or CBOW, with negative samples or a Huffman tree. windows.py has the
 * equations and the same steps in plain loops.
 *
 * A row of a matrix is a number of blocks of sixteen floats, see lanes.h. All pairs of one window share their outputs,
 * which therefore stay in the nearest cache. */
#include <stdint.h>
#include <stdlib.h>

static inline UnalignedVector *at(float *row, int64_t d, int q) { return part_of(row + 16 * d, q); }

/* scores[j] = u . v_j. Three outputs at a time: with AVX2 six sums that do not wait for each other. The last output may
 * be computed twice. */
static inline void products(int64_t blocks, float *u, int64_t n, float **v, float *scores)
{
    for (int64_t j = 0; j < n; j += 3) {
        const int64_t k = j + 1 < n ? j + 1 : j, l = j + 2 < n ? j + 2 : j;
        float *first = v[j], *second = v[k], *third = v[l];
        Sixteen a = {0}, b = {0}, c = {0};
        for (int64_t d = 0; d < blocks; d++)
            EACH_PART {
                const FloatVector x = *at(u, d, q);
                a.part[q] = FMA(x, *at(first, d, q), a.part[q]);
                b.part[q] = FMA(x, *at(second, d, q), b.part[q]);
                c.part[q] = FMA(x, *at(third, d, q), c.part[q]);
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
        const float p = FMA(curve[2 * i + 2] - curve[2 * i], part, curve[2 * i]);
        const float bent = FMA(curve[2 * i + 3] - curve[2 * i + 1], part, curve[2 * i + 1]);
        loss += bent + (given > f ? given - f : 0) - labels[j] * given;
        scores[j] = (labels[j] - p) * lr;
    }
    return loss;
}

/* gained = sum_j g_j v_j with the old values, then v_j += g_j u. Two loops over j, because a word that was drawn twice
 * is twice among the v_j: both of its terms have the old value, and it gains twice. */
static inline void learn(int64_t blocks, float *u, int64_t n, float **v, const float *g, float *gained)
{
    for (int64_t d = 0; d < blocks; d++) {
        FloatVector x[LANE_PARTS], sum[LANE_PARTS];
        EACH_PART x[q] = *at(u, d, q), sum[q] = (FloatVector){0};
        for (int64_t j = 0; j < n; j++) {
            const FloatVector slope = g[j] - (FloatVector){0};
            EACH_PART sum[q] = FMA(slope, *at(v[j], d, q), sum[q]);
        }
        for (int64_t j = 0; j < n; j++) {
            const FloatVector slope = g[j] - (FloatVector){0};
            EACH_PART *at(v[j], d, q) = FMA(slope, x[q], *at(v[j], d, q));
        }
        EACH_PART *at(gained, d, q) = sum[q];
    }
}

#define NEXT (*state = *state * 6364136223846793005ull + 1442695040888963407ull)

static inline int64_t draw(uint64_t *state, int64_t words, const uint32_t *share, const int32_t *other)
{
    const uint64_t place = (NEXT >> 32) * (uint64_t)words;
    const int64_t slot = place >> 32;
    return (uint32_t)place < share[slot] ? slot : other[slot];
}

/* The arguments are those of windows.train_plain, sizes n before arrays p. Returns 1 if there is no memory. */
int w2v_train(const int64_t *n, void *const *p)
{
    const int64_t length = n[0], window = n[1], mean = n[2], width = n[3], negative = n[4], words = n[5];
    const int64_t longest = n[6];
    const int32_t *ids = p[0], *other = p[5], *path_node = p[7];
    const uint64_t *keep = p[1];
    float *inputs = p[2], *outputs = p[3];
    const uint32_t *share = p[4];
    const int64_t *path_start = p[6];
    const float *path_label = p[8], *rates = p[9], *curve = p[11];
    uint64_t *state = p[10];
    double *loss = p[12];
    int64_t *made = p[13];
    const int64_t blocks = width / 16, most = 2 * window, rows = negative ? negative + 1 : longest;
    int32_t *kept = malloc(sizeof(int32_t) * (length + 1));
    float **u = malloc(sizeof(float *) * (most + rows + 1)), **v = u + most;
    float *scores = malloc(sizeof(float) * 2 * rows), *labels = scores + rows;
    float *work = aligned_alloc(64, sizeof(float) * 2 * width), *gained = work + width;
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
        for (int64_t s = t - 1; s >= 0 && s >= t - reach && kept[s] >= 0; s--) u[m++] = inputs + kept[s] * width;
        for (int64_t s = t + 1; s < text && s <= t + reach && kept[s] >= 0; s++) u[m++] = inputs + kept[s] * width;
        if (!m) continue;
        if (negative) {
            v[n++] = outputs + w * width;
            for (int64_t k = 0; k < negative; k++) {
                const int64_t x = draw(state, words, share, other);
                if (x != w) v[n++] = outputs + x * width;
            }
        } else {
            for (int64_t p = path_start[w]; p < path_start[w + 1]; p++) {
                labels[n] = path_label[p];
                v[n++] = outputs + path_node[p] * width;
            }
        }
        const float lr = rates[0] + (rates[1] - rates[0]) * t / text;
        if (mean) {
            const float part = 1.0f / m;
            for (int64_t d = 0; d < blocks; d++)
                EACH_PART {
                    FloatVector s = {0};
                    for (int64_t a = 0; a < m; a++) s += *at(u[a], d, q);
                    *at(work, d, q) = s * part;
                }
            products(blocks, work, n, v, scores);
            sum += errors(n, labels, curve, lr, scores);
            learn(blocks, work, n, v, scores, gained);
            for (int64_t d = 0; d < blocks; d++)
                EACH_PART {
                    const FloatVector share = *at(gained, d, q) * part;
                    for (int64_t a = 0; a < m; a++) *at(u[a], d, q) += share;
                }
            predictions += 1;
        } else {
            for (int64_t a = 0; a < m; a++) {
                products(blocks, u[a], n, v, scores);
                sum += errors(n, labels, curve, lr, scores);
                learn(blocks, u[a], n, v, scores, gained);
                for (int64_t d = 0; d < blocks; d++) EACH_PART *at(u[a], d, q) += *at(gained, d, q);
            }
            predictions += m;
        }
    }
    *loss = sum;
    *made = predictions;
done:
    free(kept);
    free(u);
    free(scores);
    free(work);
    return predictions < 0;
}
