/* Dropout follows from a seed and an index: the backward pass draws it again, and no mask is kept. */
#ifndef ABACA_DROPOUT_H
#define ABACA_DROPOUT_H

#include <stdint.h>

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

#endif
