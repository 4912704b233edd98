/* Causal attention of one head in one window, with dropout of its weights, and its gradients.
 *
 * A window is (L, 3, heads, D): query, key and value of each position side by side, as one product makes them. A head's
 * share of it fits into the nearest cache, where it is laid out as three (L, D) matrices first.
 */
#include <math.h>
#include <string.h>

#include "rowpass.h"

typedef struct {
    int64_t length; /* L */
    int64_t heads;
    int64_t dim;    /* D, of a head */
    const float *packed; /* (B, L, 3, heads, D) */
    float *weights;      /* (B, heads, L, L) before dropout; written by the forward pass */
    Dropout dropout;
    int64_t portable;
} Attention;

/* One worker's memory. */
typedef struct {
    float *query, *key, *value, *mixed;           /* (L, D) */
    float *grad_query, *grad_key, *grad_value;    /* (L, D) */
    float *kept, *grad;                           /* (L) of a row */
    float *kept_of, *grad_of;                     /* (L, L) by place */
} Desk;

/* How many floats of memory a worker needs. */
EXPORT int64_t abaca_attention_floats(const Attention *attention) {
    return attention->length * (7 * attention->dim + 2 + 2 * attention->length);
}

static Desk carve(const Attention *attention, float *memory) {
    int64_t length = attention->length, size = length * attention->dim;
    float *rows = memory + 7 * size;
    Desk desk = {memory, memory + size, memory + 2 * size, memory + 3 * size, memory + 4 * size, memory + 5 * size,
                 memory + 6 * size, rows, rows + length, rows + 2 * length, rows + (2 + length) * length};
    return desk;
}

/* Where position 0 of part 0 (query), 1 (key) or 2 (value) begins; the next one is 3 · heads · D further. */
static int64_t part_at(const Attention *attention, int64_t window, int64_t head, int64_t part) {
    int64_t row = 3 * attention->heads * attention->dim;
    return window * attention->length * row + (part * attention->heads + head) * attention->dim;
}

static void lay_out(const Attention *attention, int64_t window, int64_t head, Desk desk) {
    int64_t dim = attention->dim, row = 3 * attention->heads * dim;
    float scale = 1.0f / sqrtf((float)dim), *parts[3] = {desk.query, desk.key, desk.value};
    for (int64_t part = 0; part < 3; part++) {
        const float *from = attention->packed + part_at(attention, window, head, part);
        for (int64_t t = 0; t < attention->length; t++) {
            memcpy(parts[part] + t * dim, from + t * row, sizeof(float) * (size_t)dim);
        }
    }
    for (int64_t i = 0; i < attention->length * dim; i++) desk.query[i] *= scale;
}

static int64_t first_weight(const Attention *attention, int64_t window, int64_t head, int64_t t) {
    return ((window * attention->heads + head) * attention->length + t) * attention->length;
}

/* Weights after dropout of the first t + 1 positions. */
static void drop_row(const Attention *attention, const Primitives *simd, int64_t at, int64_t t, float *kept) {
    const float *weights = attention->weights + at;
    if (attention->dropout.dropped) simd->drop(weights, kept, t + 1, (uint32_t)at, &attention->dropout);
    else memcpy(kept, weights, sizeof(float) * (size_t)(t + 1));
}

/* Windows first … first + count − 1; mixed is (B, L, heads, D). */
EXPORT void abaca_attend(const Attention *attention, int64_t first, int64_t count, float *mixed, float *memory) {
    const Primitives *simd = abaca_primitives(attention->portable);
    Desk desk = carve(attention, memory);
    int64_t length = attention->length, dim = attention->dim, heads = attention->heads;
    for (int64_t pair = first * heads; pair < (first + count) * heads; pair++) {
        int64_t window = pair / heads, head = pair % heads;
        lay_out(attention, window, head, desk);
        for (int64_t t = 0; t < length; t++) {
            int64_t at = first_weight(attention, window, head, t);
            float *weights = attention->weights + at, *sum = mixed + ((window * length + t) * heads + head) * dim;
            float lowest, highest;
            simd->dots(desk.key, dim, NULL, t + 1, desk.query + t * dim, weights);
            simd->range(weights, t + 1, &lowest, &highest);
            float share = (float)(1.0 / simd->make_exp(weights, t + 1, highest));
            for (int64_t j = 0; j <= t; j++) weights[j] *= share;
            drop_row(attention, simd, at, t, desk.kept);
            memset(sum, 0, sizeof(float) * (size_t)dim);
            simd->weigh(desk.value, dim, NULL, t + 1, desk.kept, sum);
        }
    }
}

/* Gradients of row t's weights and of its query. */
static void backward_row(const Attention *attention, const Primitives *simd, int64_t at, int64_t t,
                         const float *grad_mixed, Desk desk) {
    int64_t dim = attention->dim, length = attention->length;
    const float *weights = attention->weights + at;
    drop_row(attention, simd, at, t, desk.kept);
    simd->dots(desk.value, dim, NULL, t + 1, grad_mixed, desk.grad);
    if (attention->dropout.dropped) simd->drop(desk.grad, desk.grad, t + 1, (uint32_t)at, &attention->dropout);
    float mean = 0;
    for (int64_t j = 0; j <= t; j++) mean += weights[j] * desk.grad[j];
    for (int64_t j = 0; j <= t; j++) {
        desk.grad[j] = weights[j] * (desk.grad[j] - mean);
        desk.grad_of[j * length + t] = desk.grad[j];
        desk.kept_of[j * length + t] = desk.kept[j];
    }
    simd->weigh(desk.key, dim, NULL, t + 1, desk.grad, desk.grad_query + t * dim);
}

/* Gradients of one part, back beside the others. */
static void put_back(const Attention *attention, int64_t window, int64_t head, int64_t part, const float *from,
                     float scale, float *grad_packed) {
    int64_t dim = attention->dim, row = 3 * attention->heads * dim;
    float *to = grad_packed + part_at(attention, window, head, part);
    for (int64_t t = 0; t < attention->length; t++) {
        for (int64_t i = 0; i < dim; i++) to[t * row + i] = scale * from[t * dim + i];
    }
}

/* The backward pass: grad_mixed (B, L, heads, D) → grad_packed (B, L, 3, heads, D). */
EXPORT void abaca_attend_backward(const Attention *attention, int64_t first, int64_t count, const float *grad_mixed,
                              float *grad_packed, float *memory) {
    const Primitives *simd = abaca_primitives(attention->portable);
    Desk desk = carve(attention, memory);
    int64_t length = attention->length, dim = attention->dim, heads = attention->heads;
    float scale = 1.0f / sqrtf((float)dim);
    for (int64_t pair = first * heads; pair < (first + count) * heads; pair++) {
        int64_t window = pair / heads, head = pair % heads;
        lay_out(attention, window, head, desk);
        memset(desk.grad_query, 0, sizeof(float) * (size_t)(3 * length * dim));
        for (int64_t t = 0; t < length; t++) {
            float *grad = desk.mixed + t * dim;
            memcpy(grad, grad_mixed + ((window * length + t) * heads + head) * dim, sizeof(float) * (size_t)dim);
            backward_row(attention, simd, first_weight(attention, window, head, t), t, grad, desk);
        }
        for (int64_t j = 0; j < length; j++) { /* position j is seen by rows j … L − 1 */
            int64_t rows = length - j, at = j * length + j;
            simd->weigh(desk.mixed + j * dim, dim, NULL, rows, desk.kept_of + at, desk.grad_value + j * dim);
            simd->weigh(desk.query + j * dim, dim, NULL, rows, desk.grad_of + at, desk.grad_key + j * dim);
        }
        put_back(attention, window, head, 0, desk.grad_query, scale, grad_packed);
        put_back(attention, window, head, 1, desk.grad_key, 1, grad_packed);
        put_back(attention, window, head, 2, desk.grad_value, 1, grad_packed);
    }
}
