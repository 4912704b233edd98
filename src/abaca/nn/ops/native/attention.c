/* Causal attention of one head in one window, with biases by distance and dropout of its weights, and its gradients.
 *
 * A window is (L, 3, heads, D): query, key and value of each position side by side, as one product makes them. A head's
 * share of it is laid out as (L, D) matrices first. Then one tile of TILE rows is computed after another, within the
 * nearest caches. The rows of a tile are as long as its last one; weights of positions after the own one are 0. Only the
 * normaliser of each row is kept; the backward pass computes the weights again.
 */
#include <math.h>
#include <string.h>

#include "rowpass.h"

#define TILE 16 /* rows */
#define LANES 4 /* sums of each bucket: neighbours are often in one bucket, and would wait for each other */

typedef struct {
    int64_t length; /* L */
    int64_t heads;
    int64_t dim;    /* D, of a head */
    int64_t row;    /* floats from one position of `packed` to the next */
    int64_t kinds;  /* of buckets; 0 where there are no biases */
    const float *packed;    /* (B, L, 3, heads, D) */
    const float *places;    /* (heads, L) bias by the places between, most places first */
    const float *times;     /* (heads, kinds) bias by the bucket of the time between */
    const uint8_t *buckets; /* (B, L, L); those of positions after the own one are not read */
    float *normaliser;      /* (B, heads, L) log Σ exp(logit) of each row; written by the forward pass */
    Dropout dropout;
    int64_t portable;
} Attention;

/* Gradients, all contiguous. */
typedef struct {
    const float *mixed, *grad_mixed; /* (B, L, heads, D) */
    float *packed;                   /* (B, L, 3, heads, D) */
    float *places;                   /* (B, heads, L) */
    float *times;                    /* (B, heads, kinds) */
} Gradients;

/* One worker's memory. W is L rounded up to whole tiles. */
typedef struct {
    float *query, *key, *value, *mixed;        /* (L, D) */
    float *grad_query, *grad_key, *grad_value; /* (L, D) */
    float *key_across, *value_across;          /* (D, W) */
    float *weights, *kept, *grad;              /* (TILE, W) before dropout, after it, and their gradients */
    float *times;                              /* (kinds, LANES) */
} Desk;

static int64_t whole(int64_t length) { return (length + TILE - 1) / TILE * TILE; }

static int64_t rows_from(const Attention *attention, int64_t start) {
    return attention->length - start < TILE ? attention->length - start : TILE;
}

/* How many floats of memory a worker needs. */
EXPORT int64_t abaca_attention_floats(const Attention *attention) {
    int64_t width = whole(attention->length);
    return 7 * attention->length * attention->dim + (2 * attention->dim + 3 * TILE) * width + LANES * attention->kinds;
}

static float *take(float **memory, int64_t floats) {
    float *taken = *memory;
    *memory += floats;
    return taken;
}

static Desk carve(const Attention *attention, float *memory) {
    int64_t size = attention->length * attention->dim, width = whole(attention->length);
    Desk desk;
    float **matrices[7] = {&desk.query, &desk.key, &desk.value, &desk.mixed, &desk.grad_query, &desk.grad_key,
                           &desk.grad_value};
    for (int i = 0; i < 7; i++) *matrices[i] = take(&memory, size);
    desk.key_across = take(&memory, attention->dim * width);
    desk.value_across = take(&memory, attention->dim * width);
    desk.weights = take(&memory, TILE * width);
    desk.kept = attention->dropout.dropped ? take(&memory, TILE * width) : desk.weights;
    desk.grad = take(&memory, TILE * width);
    desk.times = memory;
    return desk;
}

/* Rows that begin `apart` floats from each other, one after another. */
static void gather(const float *from, int64_t apart, int64_t length, int64_t dim, float scale, float *to) {
    for (int64_t t = 0; t < length; t++) {
        for (int64_t i = 0; i < dim; i++) to[t * dim + i] = scale * from[t * apart + i];
    }
}

/* The reverse. */
static void scatter(const float *from, int64_t length, int64_t dim, float scale, float *to, int64_t apart) {
    for (int64_t t = 0; t < length; t++) {
        for (int64_t i = 0; i < dim; i++) to[t * apart + i] = scale * from[t * dim + i];
    }
}

/* (L, D) → (D, W), zeros at the end. */
static void transpose(const float *from, int64_t length, int64_t dim, float *to) {
    int64_t width = whole(length);
    for (int64_t i = 0; i < dim; i++) {
        for (int64_t t = 0; t < length; t++) to[i * width + t] = from[t * dim + i];
        for (int64_t t = length; t < width; t++) to[i * width + t] = 0;
    }
}

static float scale_of(const Attention *attention) { return 1.0f / sqrtf((float)attention->dim); }

static void lay_out(const Attention *attention, int64_t pair, Desk desk) {
    int64_t length = attention->length, dim = attention->dim, heads = attention->heads, part = heads * dim;
    const float *first = attention->packed + pair / heads * length * attention->row + pair % heads * dim;
    gather(first, attention->row, length, dim, scale_of(attention), desk.query);
    gather(first + part, attention->row, length, dim, 1, desk.key);
    gather(first + 2 * part, attention->row, length, dim, 1, desk.value);
    transpose(desk.key, length, dim, desk.key_across);
}

/* The logits of a tile; −∞ for positions after the own one. */
static void make_logits(const Attention *attention, const Primitives *simd, int64_t pair, int64_t start, Desk desk) {
    int64_t length = attention->length, dim = attention->dim, width = whole(length), rows = rows_from(attention, start);
    const float *times = attention->times + pair % attention->heads * attention->kinds;
    for (int64_t r = 0; r < rows; r++) {
        float *row = desk.weights + r * width;
        int64_t t = start + r;
        if (attention->kinds) {
            const float *places = attention->places + (pair % attention->heads + 1) * length - 1 - t;
            const uint8_t *buckets = attention->buckets + (pair / attention->heads * length + t) * length;
            for (int64_t j = 0; j <= t; j++) row[j] = places[j] + times[buckets[j]];
        } else {
            memset(row, 0, sizeof(float) * (size_t)(t + 1));
        }
        for (int64_t j = t + 1; j < start + TILE; j++) row[j] = -INFINITY;
    }
    Matrix query = {desk.query + start * dim, dim, 1};
    simd->multiply(rows, start + TILE, dim, query, desk.key_across, width, desk.weights, width);
}

/* Dropout of row t of the weights, or of their gradients; without any, `kept` is the row itself. */
static void drop_row(const Attention *attention, const Primitives *simd, int64_t pair, int64_t t, const float *row,
                     float *kept) {
    uint32_t number = (uint32_t)((pair * attention->length + t) * attention->length);
    if (attention->dropout.dropped) simd->drop(row, kept, whole(t + 1), number, &attention->dropout);
}

/* One tile of rows; mixed is (L, heads, D) of the window, from the head on. */
static void attend_tile(const Attention *attention, const Primitives *simd, int64_t pair, int64_t start, Desk desk,
                        float *mixed) {
    int64_t dim = attention->dim, width = whole(attention->length), rows = rows_from(attention, start);
    float shares[TILE];
    make_logits(attention, simd, pair, start, desk);
    for (int64_t r = 0; r < rows; r++) {
        float *row = desk.weights + r * width, lowest, highest;
        simd->range(row, start + TILE, &lowest, &highest);
        double total = simd->make_exp(row, start + TILE, highest);
        shares[r] = (float)(1 / total);
        attention->normaliser[pair * attention->length + start + r] = highest + (float)log(total);
        drop_row(attention, simd, pair, start + r, row, row);
    }
    Matrix weights = {desk.weights, width, 1};
    memset(desk.mixed, 0, sizeof(float) * (size_t)(rows * dim));
    simd->multiply(rows, dim, start + rows, weights, desk.value, dim, desk.mixed, dim);
    for (int64_t r = 0; r < rows; r++) {
        scatter(desk.mixed + r * dim, 1, dim, shares[r], mixed + (start + r) * attention->heads * dim, 0);
    }
}

/* Windows first … first + count − 1; mixed is (B, L, heads, D). */
EXPORT void abaca_attend(const Attention *attention, int64_t first, int64_t count, float *mixed, float *memory) {
    const Primitives *simd = abaca_primitives(attention->portable);
    Desk desk = carve(attention, memory);
    int64_t length = attention->length, heads = attention->heads;
    for (int64_t pair = first * heads; pair < (first + count) * heads; pair++) {
        float *to = mixed + (pair / heads * length * heads + pair % heads) * attention->dim;
        lay_out(attention, pair, desk);
        for (int64_t start = 0; start < length; start += TILE) attend_tile(attention, simd, pair, start, desk, to);
    }
}

/* Adds the gradients of row t's logits to those of the biases. */
static void backward_biases(const Attention *attention, int64_t pair, int64_t t, const float *grad, float *places,
                            float *times) {
    int64_t length = attention->length, j = 0;
    const uint8_t *buckets = attention->buckets + (pair / attention->heads * length + t) * length;
    float *by_place = places + (pair + 1) * length - 1 - t;
    for (int64_t i = 0; i <= t; i++) by_place[i] += grad[i];
    for (; j + LANES <= t + 1; j += LANES) {
        for (int lane = 0; lane < LANES; lane++) times[buckets[j + lane] * LANES + lane] += grad[j + lane];
    }
    for (; j <= t; j++) times[buckets[j] * LANES] += grad[j];
}

/* One tile of rows: adds to the gradients of query, key and value, and of the biases. */
static void backward_tile(const Attention *attention, const Primitives *simd, int64_t pair, int64_t start,
                          const Gradients *gradients, Desk desk) {
    int64_t length = attention->length, dim = attention->dim, heads = attention->heads, width = whole(length);
    int64_t rows = rows_from(attention, start), columns = start + TILE;
    float *grad_mixed = desk.mixed + start * dim;
    make_logits(attention, simd, pair, start, desk);
    for (int64_t r = 0; r < rows; r++) memset(desk.grad + r * width, 0, sizeof(float) * (size_t)columns);
    Matrix from = {grad_mixed, dim, 1};
    simd->multiply(rows, columns, dim, from, desk.value_across, width, desk.grad, width);
    for (int64_t r = 0; r < rows; r++) {
        int64_t t = start + r;
        float *weights = desk.weights + r * width, *grad = desk.grad + r * width, mean;
        const float *mixed = gradients->mixed + ((pair / heads * length + t) * heads + pair % heads) * dim;
        simd->dots(mixed, dim, NULL, 1, grad_mixed + r * dim, &mean); /* of the row's gradients, by weight */
        simd->make_exp(weights, columns, attention->normaliser[pair * length + t]);
        drop_row(attention, simd, pair, t, weights, desk.kept + r * width);
        drop_row(attention, simd, pair, t, grad, grad);
        for (int64_t j = 0; j < columns; j++) grad[j] = weights[j] * (grad[j] - mean);
        if (attention->kinds) backward_biases(attention, pair, t, grad, gradients->places, desk.times);
    }
    Matrix grad = {desk.grad, width, 1}, grad_across = {desk.grad, 1, width}, kept_across = {desk.kept, 1, width};
    simd->multiply(rows, dim, start + rows, grad, desk.key, dim, desk.grad_query + start * dim, dim);
    simd->multiply(start + rows, dim, rows, grad_across, desk.query + start * dim, dim, desk.grad_key, dim);
    simd->multiply(start + rows, dim, rows, kept_across, grad_mixed, dim, desk.grad_value, dim);
}

EXPORT void abaca_attend_backward(const Attention *attention, int64_t first, int64_t count, const Gradients *gradients,
                                  float *memory) {
    const Primitives *simd = abaca_primitives(attention->portable);
    Desk desk = carve(attention, memory);
    int64_t length = attention->length, dim = attention->dim, heads = attention->heads, kinds = attention->kinds;
    for (int64_t pair = first * heads; pair < (first + count) * heads; pair++) {
        int64_t window = pair / heads, head = pair % heads, part = heads * dim;
        lay_out(attention, pair, desk);
        transpose(desk.value, length, dim, desk.value_across);
        gather(gradients->grad_mixed + window * length * part + head * dim, part, length, dim, 1, desk.mixed);
        memset(desk.grad_query, 0, sizeof(float) * (size_t)(3 * length * dim));
        if (kinds) {
            memset(gradients->places + pair * length, 0, sizeof(float) * (size_t)length);
            memset(desk.times, 0, sizeof(float) * (size_t)(LANES * kinds));
        }
        for (int64_t start = 0; start < length; start += TILE) {
            backward_tile(attention, simd, pair, start, gradients, desk);
        }
        float *to = gradients->packed + window * length * 3 * part + head * dim;
        scatter(desk.grad_query, length, dim, scale_of(attention), to, 3 * part);
        scatter(desk.grad_key, length, dim, 1, to + part, 3 * part);
        scatter(desk.grad_value, length, dim, 1, to + 2 * part, 3 * part);
        for (int64_t kind = 0; kind < kinds; kind++) {
            float sum = 0;
            for (int lane = 0; lane < LANES; lane++) sum += desk.times[kind * LANES + lane];
            gradients->times[pair * kinds + kind] = sum;
        }
    }
}

/* buckets (B, L, L): ⌊log2(time between + 1.5)⌋, at most `unknown` − 1, or `unknown`; of positions up to the own one. */
EXPORT void abaca_buckets(const double *times, int64_t windows, int64_t length, int64_t unknown, uint8_t *buckets) {
    for (int64_t window = 0; window < windows; window++, times += length, buckets += length * length) {
        for (int64_t t = 0; t < length; t++) {
            for (int64_t j = 0; j <= t; j++) {
                double gap = times[t] - times[j];
                double moved = (gap > 0 ? gap : 0) + 1.5; /* at least 1: its exponent is the logarithm, rounded down */
                int64_t bits;
                memcpy(&bits, &moved, sizeof bits);
                int64_t bucket = (bits >> 52) - 1023;
                bucket = bucket < unknown - 1 ? bucket : unknown - 1;
                buckets[t * length + j] = (uint8_t)(gap == gap ? bucket : unknown);
            }
        }
    }
}

/* Dropout of a whole tensor. */
EXPORT void abaca_dropout(const float *values, float *kept, int64_t n, const Dropout *dropout, int64_t portable) {
    abaca_primitives(portable)->drop(values, kept, n, 0, dropout);
}
