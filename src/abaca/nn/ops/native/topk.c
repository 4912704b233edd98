#include "topk.h"

#include <math.h>
#include <string.h>

#define FLOAT_STEPS 24 /* bisections by value before bisecting by float representation */

typedef struct {
    float reached;  /* a value that `count` ≥ k values reach */
    float missed;   /* a higher one that fewer values reach */
    int64_t count;
} Threshold;

/* Floats in their order as integers. */
static int64_t order(float value) {
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits < 0 ? (int64_t)(bits ^ 0x7fffffff) : bits;
}

static float at_order(int64_t place) {
    int32_t bits = (int32_t)place;
    float value;
    if (bits < 0) bits ^= 0x7fffffff;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float abaca_above(float value) { return at_order(order(value + 0.0f) + 1); } /* −0 is 0 */

static float between(Threshold bounds, int step) {
    int64_t low = order(bounds.reached), high = order(bounds.missed);
    float middle = 0.5f * bounds.reached + 0.5f * bounds.missed;
    if (step < FLOAT_STEPS && bounds.reached < middle && middle < bounds.missed) return middle;
    return at_order(low + (high - low) / 2);
}

/* Narrow a threshold until no more than `enough` values reach it, or only ties with it are too many. */
static Threshold find(const Primitives *simd, const float *values, int64_t n, int64_t k, int64_t enough) {
    float low, high;
    simd->range(values, n, &low, &high);
    Threshold bounds = {low, abaca_above(high), simd->count(values, n, low)};
    if (bounds.count < k) return bounds;
    for (int step = 0; bounds.count > enough && order(bounds.missed) - order(bounds.reached) > 1; step++) {
        float middle = between(bounds, step);
        int64_t count = simd->count(values, n, middle);
        if (count >= k) {
            bounds.reached = middle;
            bounds.count = count;
        } else {
            bounds.missed = middle;
        }
    }
    return bounds;
}

static int64_t everything(int64_t n, int32_t *places) {
    for (int64_t i = 0; i < n; i++) places[i] = (int32_t)i;
    return n;
}

int64_t abaca_candidates(const Primitives *simd, const float *values, int64_t n, int64_t k, float *groups,
                         int32_t *places) {
    if (k >= n) return everything(n, places);
    int64_t width = (3 * k + 31) / 32 * 32;
    if (2 * width > n) return simd->collect(values, n, find(simd, values, n, k, k + k / 8).reached, places);
    /* If k group maxima reach a value, at least k values do. */
    simd->fold(values, n, groups, width);
    return simd->collect(values, n, find(simd, groups, width, k, k + k / 8).reached, places);
}

int64_t abaca_select(const Primitives *simd, const float *values, int64_t n, int64_t k, int32_t *places) {
    if (k >= n) return everything(n, places);
    Threshold bounds = find(simd, values, n, k, k);
    if (bounds.count <= k) return simd->collect(values, n, bounds.reached, places);
    /* Of those that tie, the first. */
    int64_t total = 0;
    for (int64_t i = 0; i < n && total < k; i++) {
        if (values[i] > bounds.reached) places[total++] = (int32_t)i;
    }
    for (int64_t i = 0; i < n && total < k; i++) {
        if (values[i] == bounds.reached) places[total++] = (int32_t)i;
    }
    return total;
}

int abaca_ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}
