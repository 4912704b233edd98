/* The row pass: overrides, and the loss of a row with all its gradients.
 *
 * It works on one tile of base logits at a time, between two matrix products of the caller. It keeps no state and
 * allocates nothing, so any number of threads may call it, each with a tile and scratch memory of its own.
 */
#include "rowpass.h"

#include <math.h>
#include <string.h>

const Primitives *abaca_primitives(int64_t portable) {
#if ABACA_AVX2
    if (!portable && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &abaca_avx2;
#endif
    (void)portable;
    return &abaca_portable;
}

int64_t abaca_sum_k(const Logits *logits) {
    int64_t sum = 0;
    for (int64_t i = 0; i < logits->levels; i++) sum += logits->level_k[i];
    return sum;
}

static int64_t largest_k(const Logits *logits) { return logits->levels ? logits->level_k[0] : 0; }

Scratch abaca_carve(const Logits *logits, int64_t width, int32_t *memory) {
    Scratch scratch;
    scratch.items = memory;
    scratch.values = (float *)(scratch.items + width + ABACA_ROOM);
    scratch.groups = scratch.values + width;
    scratch.chosen = (int32_t *)(scratch.groups + width);
    scratch.places = scratch.chosen + abaca_sum_k(logits) + ABACA_ROOM * logits->levels;
    scratch.shares = (float *)(scratch.places + largest_k(logits) + ABACA_ROOM);
    return scratch;
}

EXPORT int64_t abaca_scratch_words(const Logits *logits, int64_t width) {
    int64_t chosen = abaca_sum_k(logits) + ABACA_ROOM * logits->levels;
    return 3 * width + ABACA_ROOM + chosen + 2 * (largest_k(logits) + ABACA_ROOM);
}

int abaca_rescore(const Logits *logits, const Primitives *simd, int64_t level, int64_t n, Scratch scratch,
                  int64_t candidates, int32_t *chosen) {
    int64_t k = logits->level_k[level];
    if (abaca_select(simd, scratch.values, candidates, k, scratch.places) < k) return 0;
    for (int64_t i = 0; i < k; i++) chosen[i] = scratch.items[scratch.places[i]];
    const float *query = logits->queries[level] + n * logits->dim;
    simd->dots(logits->table, logits->dim, chosen, k, query, scratch.shares);
    for (int64_t i = 0; i < k; i++) scratch.values[scratch.places[i]] = scratch.shares[i];
    return 1;
}

/* All levels choose among the Σk best of the base: what a level can still want from outside its predecessors' choice is
 * no further down. So the row is searched once. */
static int rerank(const Logits *logits, const Primitives *simd, int64_t n, float *row, Scratch scratch) {
    int64_t want = abaca_sum_k(logits);
    if (want > logits->catalogue) want = logits->catalogue;
    int64_t candidates = abaca_candidates(simd, row, logits->catalogue, want, scratch.groups, scratch.items);
    if (candidates < want) return 0;
    for (int64_t i = 0; i < candidates; i++) scratch.values[i] = row[scratch.items[i]];
    int32_t *chosen = scratch.chosen;
    for (int64_t level = 0; level < logits->levels; level++) {
        if (!abaca_rescore(logits, simd, level, n, scratch, candidates, chosen)) return 0;
        chosen += logits->level_k[level] + ABACA_ROOM;
    }
    for (int64_t i = 0; i < candidates; i++) row[scratch.items[i]] = scratch.values[i];
    return 1;
}

const int64_t *abaca_history(const Logits *logits, int64_t n, int64_t *reach) {
    *reach = logits->reach[n] < logits->slots ? logits->reach[n] : logits->slots;
    return logits->ids + logits->owner[n] * logits->slots;
}

int abaca_override(const Logits *logits, const Primitives *simd, int64_t n, float *row, Scratch scratch) {
    if (logits->levels && !rerank(logits, simd, n, row, scratch)) return 0;
    int64_t reach;
    const int64_t *ids = abaca_history(logits, n, &reach);
    const float *values = logits->values + n * logits->slots;
    for (int64_t j = 0; j < reach; j++) {
        if (ids[j] < logits->catalogue) row[ids[j]] = values[j];
    }
    return 1;
}

/* Give the history's logits their gradients and take them out of the row. */
static void history_gradients(const Logits *logits, const Loss *loss, int64_t n, float *row, float scale) {
    int64_t reach;
    const int64_t *ids = abaca_history(logits, n, &reach);
    float *grad = loss->grad_values + n * logits->slots;
    for (int64_t j = 0; j < logits->slots; j++) {
        grad[j] = 0;
        if (j >= reach || ids[j] >= logits->catalogue) continue;
        grad[j] = scale * row[ids[j]];
        row[ids[j]] = 0;
    }
}

/* The same for the levels, the smallest k first: it wrote last. What another took before has no share left. */
static void level_gradients(const Logits *logits, const Primitives *simd, const Loss *loss, int64_t n, float *row,
                            float scale, Scratch scratch, float *grad_table) {
    int32_t *chosen = scratch.chosen + abaca_sum_k(logits) + ABACA_ROOM * logits->levels;
    for (int64_t level = logits->levels - 1; level >= 0; level--) {
        chosen -= logits->level_k[level] + ABACA_ROOM;
        int64_t left = 0;
        for (int64_t i = 0; i < logits->level_k[level]; i++) {
            float share = scale * row[chosen[i]];
            row[chosen[i]] = 0;
            scratch.places[left] = chosen[i];
            scratch.shares[left] = share;
            left += share != 0;
        }
        float *grad = loss->grad_queries[level] + n * logits->dim;
        memset(grad, 0, sizeof(float) * (size_t)logits->dim);
        simd->spread(logits->table, logits->dim, scratch.places, left, scratch.shares,
                     logits->queries[level] + n * logits->dim, grad, grad_table);
    }
}

void abaca_fill(const Logits *logits, const Loss *loss, int64_t n, float value) {
    loss->losses[n] = value;
    if (!loss->scale) return;
    loss->scale[n] = value;
    for (int64_t j = 0; j < logits->slots; j++) loss->grad_values[n * logits->slots + j] = value;
    for (int64_t level = 0; level < logits->levels; level++) {
        for (int64_t j = 0; j < logits->dim; j++) loss->grad_queries[level][n * logits->dim + j] = value;
    }
}

static void loss_row(const Logits *logits, const Primitives *simd, const Loss *loss, int64_t n, float *row,
                     Scratch scratch, float *grad_table) {
    float weight = loss->weights[n], lowest, highest;
    if (weight == 0 || !abaca_override(logits, simd, n, row, scratch)) {
        abaca_fill(logits, loss, n, weight == 0 ? 0 : NAN);
        memset(row, 0, sizeof(float) * (size_t)logits->catalogue);
        return;
    }
    float hit = row[loss->targets[n]];
    simd->range(row, logits->catalogue, &lowest, &highest);
    double sum = loss->scale ? simd->make_exp(row, logits->catalogue, highest)
                             : simd->sum_exp(row, logits->catalogue, highest);
    loss->losses[n] = weight * (log(sum) + ((double)highest - hit));
    if (!loss->scale) return;
    float scale = (float)(weight / sum);
    loss->scale[n] = scale;
    row[loss->targets[n]] -= (float)sum;
    history_gradients(logits, loss, n, row, scale);
    level_gradients(logits, simd, loss, n, row, scale, scratch, grad_table);
}

/* Losses of rows first … first + count − 1, whose base logits are in `tile`. With gradients, what the tile then holds,
 * times `scale`, is the gradient of the base logits that nothing overrode; grad_table receives that of the levels. */
EXPORT void abaca_loss_rows(const Logits *logits, const Loss *loss, int64_t first, int64_t count, float *tile,
                            int64_t stride, int32_t *memory, float *grad_table) {
    const Primitives *simd = abaca_primitives(logits->portable);
    Scratch scratch = abaca_carve(logits, logits->catalogue, memory);
    for (int64_t i = 0; i < count; i++) {
        loss_row(logits, simd, loss, first + i, tile + i * stride, scratch, grad_table);
    }
}

/* 1 where the AVX2 primitives run. */
EXPORT int64_t abaca_uses_avx2(void) { return abaca_primitives(0) != &abaca_portable; }

/* For tests: the k highest of n values by the way the levels take. groups holds n floats, candidates and places n + 8
 * integers, kept n floats. */
EXPORT int64_t abaca_top_k(const float *values, int64_t n, int64_t k, int64_t portable, float *groups,
                           int32_t *candidates, float *kept, int32_t *places) {
    const Primitives *simd = abaca_primitives(portable);
    int64_t count = abaca_candidates(simd, values, n, k, groups, candidates);
    for (int64_t i = 0; i < count; i++) kept[i] = values[candidates[i]];
    count = abaca_select(simd, kept, count, k, places);
    for (int64_t i = 0; i < count; i++) places[i] = candidates[places[i]];
    return count;
}

/* For tests: each value becomes its exponential; the sum is returned. */
EXPORT double abaca_exp(float *values, int64_t n, float shift, int64_t portable) {
    return abaca_primitives(portable)->make_exp(values, n, shift);
}
