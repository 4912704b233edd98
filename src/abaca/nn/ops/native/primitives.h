/* What the row pass is made of: loops over one row, or over some rows of the item table.
 *
 * There are two sets of them, portable C and AVX2; which one runs is chosen when the library is called. They agree on
 * every comparison, so both choose the same top-k; their sums differ by rounding.
 */
#ifndef ABACA_PRIMITIVES_H
#define ABACA_PRIMITIVES_H

#include <stdint.h>

/* Dropout follows from a seed and an index: the backward pass draws it again, and no mask is kept. */
typedef struct {
    uint64_t seed;
    int64_t dropped; /* of 2^32 */
    float scale;     /* of what is kept */
} Dropout;

/* 32 random bits for number i: an integer hash whose two multipliers have little bias (Wellons, "Prospecting for hash
 * functions", 2018); half of the seed moves the number, half enters between the rounds. */
static inline uint32_t abaca_draw(uint32_t i, uint32_t low, uint32_t high) {
    uint32_t x = i + low;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = ((x ^ high) ^ (x ^ high) >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* kept[i] = values[i] times scale, or times 0, for numbers first, first + 1, … */
static inline void abaca_drop(const float *values, float *kept, int64_t n, uint32_t first, const Dropout *dropout) {
    uint32_t low = (uint32_t)dropout->seed, high = (uint32_t)(dropout->seed >> 32), below = (uint32_t)dropout->dropped;
    float scale = dropout->scale;
    for (int64_t i = 0; i < n; i++) {
        float factor = abaca_draw(first + (uint32_t)i, low, high) < below ? 0.0f : scale;
        kept[i] = factor * values[i];
    }
}

/* Where the elements of a matrix are: (i, j) at values[i · row + j · column]. */
typedef struct {
    const float *values;
    int64_t row, column;
} Matrix;

typedef struct {
    /* groups[j] = the highest of values[j], values[j + width], …; width divides by 8, n ≥ width. NaN is passed over. */
    void (*fold)(const float *values, int64_t n, float *groups, int64_t width);

    /* The lowest and the highest value. NaN is passed over; without any other value lowest > highest. */
    void (*range)(const float *values, int64_t n, float *lowest, float *highest);

    /* How many values are ≥ threshold. */
    int64_t (*count)(const float *values, int64_t n, float threshold);

    /* How many values are < threshold. */
    int64_t (*below)(const float *values, int64_t n, float threshold);

    /* Indices of the values ≥ threshold, ascending; places has room for 8 more than there are. */
    int64_t (*collect)(const float *values, int64_t n, float threshold, int32_t *places);

    /* Σ exp(value − shift). */
    double (*sum_exp)(const float *values, int64_t n, float shift);

    /* The same; each value becomes exp(value − shift). */
    double (*make_exp)(float *values, int64_t n, float shift);

    /* products[i] = query · table[items[i]]; without items, of the first n rows, which are near. */
    void (*dots)(const float *table, int64_t dim, const int32_t *items, int64_t n, const float *query, float *products);

    /* sum += Σ_i shares[i] · table[items[i]]; without items as before. */
    void (*weigh)(const float *table, int64_t dim, const int32_t *items, int64_t n, const float *shares, float *sum);

    /* sums (rows, columns) += left (rows, inner) · right (inner, columns). The rows of `right` and of `sums` are
     * contiguous and begin `right_row` and `sums_row` floats apart. */
    void (*multiply)(int64_t rows, int64_t columns, int64_t inner, Matrix left, const float *right, int64_t right_row,
                     float *sums, int64_t sums_row);

    /* As `abaca_drop`; both may be the same array. */
    void (*drop)(const float *values, float *kept, int64_t n, uint32_t first, const Dropout *dropout);

    /* A step of a GRU for the n values of a state; n divides by 8. `reset`, `update` and `fresh` hold the products with
     * the input and become the gates r, z and the candidate; `products` holds the three products with the state. */
    void (*gru_step)(int64_t n, float *reset, float *update, float *fresh, const float *products, const float *before,
                     float *after);

    /* The backward pass of the step. `reset`, `update` and `fresh` become the gradients of the products with the input,
     * `products` those of the products with the state before. `grad`, the gradient of the state after from later steps,
     * grows by `grad_after` and becomes the part that reaches the state before directly. */
    void (*gru_backward)(int64_t n, float *reset, float *update, float *fresh, float *products, const float *before,
                     const float *grad_after, float *grad);
} Primitives;

/* exp(x) for x ≤ 0 to within 2e-7, relative: x = n ln 2 + r with |r| ≤ ln 2 / 2,
 * exp(r) = 1 + r + r² (P4 + P3 r + … + P0 r⁴), the coefficients with the least relative error. */
#define EXP_LOWEST -87.3365447f /* below it the result is 0 */
#define EXP_LOG2E 1.44269504088896341f
#define EXP_LN2_HIGH 0.693359375f
#define EXP_LN2_LOW -2.12194440e-4f
#define EXP_P0 1.3814080479e-3f
#define EXP_P1 8.3687801328e-3f
#define EXP_P2 4.1668410107e-2f
#define EXP_P3 1.6666520036e-1f
#define EXP_P4 4.9999993273e-1f

/* Floats are accumulated over at most this many values, then in double. */
#define SUM_BLOCK 1024

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define ABACA_AVX2 1
#else
#define ABACA_AVX2 0
#endif

extern const Primitives abaca_portable;
#if ABACA_AVX2
extern const Primitives abaca_avx2;
#endif

#endif
