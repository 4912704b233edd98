/* The primitives in plain C, for any processor. */
#include <math.h>
#include <string.h>

#include "primitives.h"

static void fold(const float *values, int64_t n, float *groups, int64_t width) {
    for (int64_t j = 0; j < width; j++) groups[j] = -INFINITY;
    for (int64_t start = 0; start < n; start += width) {
        int64_t part = n - start < width ? n - start : width;
        for (int64_t j = 0; j < part; j++) {
            float value = values[start + j];
            groups[j] = value > groups[j] ? value : groups[j];
        }
    }
}

static void range(const float *values, int64_t n, float *lowest, float *highest) {
    float low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
    }
    *lowest = low;
    *highest = high;
}

static int64_t count(const float *values, int64_t n, float threshold) {
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) total += values[i] >= threshold;
    return total;
}

static int64_t below(const float *values, int64_t n, float threshold) {
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) total += values[i] < threshold;
    return total;
}

static int64_t collect(const float *values, int64_t n, float threshold, int32_t *places) {
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        places[total] = (int32_t)i;
        total += values[i] >= threshold;
    }
    return total;
}

static float exp_one(float x) {
    if (x < EXP_LOWEST) return 0.0f;
    if (!(x <= 0.0f)) return expf(x); /* NaN, and what an infinity leaves */
    float n = floorf(x * EXP_LOG2E + 0.5f);
    float r = (x - n * EXP_LN2_HIGH) - n * EXP_LN2_LOW;
    float p = EXP_P0;
    p = p * r + EXP_P1;
    p = p * r + EXP_P2;
    p = p * r + EXP_P3;
    p = p * r + EXP_P4;
    p = p * (r * r) + r + 1.0f;
    int32_t bits;
    memcpy(&bits, &p, sizeof bits);
    bits += (int32_t)n * (1 << 23);
    memcpy(&p, &bits, sizeof bits);
    return p;
}

static double sum_exp(const float *values, int64_t n, float shift) {
    double total = 0;
    for (int64_t i = 0; i < n; i++) total += exp_one(values[i] - shift);
    return total;
}

static double make_exp(float *values, int64_t n, float shift) {
    double total = 0;
    for (int64_t i = 0; i < n; i++) total += values[i] = exp_one(values[i] - shift);
    return total;
}

static void dots(const float *table, int64_t dim, const int32_t *items, int64_t n, const float *query,
                 float *products) {
    for (int64_t i = 0; i < n; i++) {
        const float *row = table + (items ? items[i] : i) * dim;
        float product = 0;
        for (int64_t j = 0; j < dim; j++) product += row[j] * query[j];
        products[i] = product;
    }
}

static void weigh(const float *table, int64_t dim, const int32_t *items, int64_t n, const float *shares, float *sum) {
    for (int64_t i = 0; i < n; i++) {
        const float *row = table + (items ? items[i] : i) * dim;
        for (int64_t j = 0; j < dim; j++) sum[j] += shares[i] * row[j];
    }
}

static void multiply(int64_t rows, int64_t columns, int64_t inner, Matrix left, const float *right, int64_t right_row,
                     float *sums, int64_t sums_row) {
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < inner; k++) {
            float factor = left.values[i * left.row + k * left.column];
            for (int64_t j = 0; j < columns; j++) sums[i * sums_row + j] += factor * right[k * right_row + j];
        }
    }
}

static void drop(const float *values, float *kept, int64_t n, uint32_t first, const Dropout *dropout) {
    abaca_drop(values, kept, n, first, dropout);
}

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static void gru_step(int64_t n, float *reset, float *update, float *fresh, const float *products, const float *before,
                     float *after) {
    for (int64_t i = 0; i < n; i++) {
        reset[i] = sigmoid(reset[i] + products[i]);
        update[i] = sigmoid(update[i] + products[n + i]);
        fresh[i] = tanhf(fresh[i] + reset[i] * products[2 * n + i]);
        after[i] = fresh[i] + update[i] * (before[i] - fresh[i]);
    }
}

static void gru_backward(int64_t n, float *reset, float *update, float *fresh, float *products, const float *before,
                     const float *grad_after, float *grad) {
    for (int64_t i = 0; i < n; i++) {
        float r = reset[i], z = update[i], c = fresh[i], total = grad[i] + grad_after[i];
        fresh[i] = total * (1.0f - z) * (1.0f - c * c);
        reset[i] = products[i] = fresh[i] * products[2 * n + i] * r * (1.0f - r);
        update[i] = products[n + i] = total * (before[i] - c) * z * (1.0f - z);
        products[2 * n + i] = fresh[i] * r;
        grad[i] = total * z;
    }
}

const Primitives abaca_portable = {
    fold, range, count, below, collect, sum_exp, make_exp, dots, weigh, multiply, drop, gru_step, gru_backward,
};
