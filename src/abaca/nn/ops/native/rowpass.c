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
    int fits = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi");
    if (!portable && fits) return &abaca_avx2;
#endif
    (void)portable;
    return &abaca_portable;
}

int64_t abaca_sum_k(const Logits *logits) {
    int64_t sum = 0;
    for (int64_t i = 0; i < logits->levels; i++) sum += logits->level_k[i];
    return sum;
}

static int64_t largest_k(const Logits *logits) {
    int64_t largest = 0;
    for (int64_t i = 0; i < logits->levels; i++) {
        if (logits->level_k[i] > largest) largest = logits->level_k[i];
    }
    return largest;
}

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

int64_t abaca_scratch_words(const Logits *logits, int64_t width) {
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

const int64_t *abaca_history(const Logits *logits, int64_t n, int64_t *visible) {
    *visible = logits->visible[n] < logits->slots ? logits->visible[n] : logits->slots;
    return logits->ids + logits->history_of_row[n] * logits->slots;
}

int abaca_override(const Logits *logits, const Primitives *simd, int64_t n, float *row, Scratch scratch) {
    if (logits->levels && !rerank(logits, simd, n, row, scratch)) return 0;
    int64_t visible;
    const int64_t *ids = abaca_history(logits, n, &visible);
    const float *values = logits->values + n * logits->slots;
    for (int64_t j = 0; j < visible; j++) {
        if (ids[j] < logits->catalogue) row[ids[j]] = values[j];
    }
    return 1;
}

/* Give the history's logits their gradients and take them out of the row. */
static void history_gradients(const Logits *logits, const Loss *loss, int64_t n, float *row, float scale) {
    int64_t visible;
    const int64_t *ids = abaca_history(logits, n, &visible);
    float *grad = loss->grad_values + n * logits->slots;
    for (int64_t j = 0; j < logits->slots; j++) {
        grad[j] = 0;
        if (j >= visible || ids[j] >= logits->catalogue) continue;
        grad[j] = scale * row[ids[j]];
        row[ids[j]] = 0;
    }
}

/* The levels' part of the table's gradient for the rows of a tile: (row, item, share), level by level. It is added item
 * by item, so that each row of the gradient is read from memory once. */
typedef struct {
    int64_t height;  /* H: rows of a tile at most */
    int64_t *counts; /* (R) */
    int32_t *rows;   /* (H Σk) */
    int32_t *items;  /* (H Σk) */
    float *shares;   /* (H Σk) */
    int32_t *starts; /* (V + 1) where an item's entries begin, once sorted */
    int32_t *sorted_rows;  /* (H k) of one level */
    float *sorted_shares;  /* (H k) */
} Picks;

static Picks carve_picks(const Logits *logits, int64_t height, int64_t *memory) {
    Picks picks;
    int64_t all = height * abaca_sum_k(logits);
    picks.height = height;
    picks.counts = memory;
    picks.rows = (int32_t *)(picks.counts + logits->levels);
    picks.items = picks.rows + all;
    picks.shares = (float *)(picks.items + all);
    picks.starts = (int32_t *)(picks.shares + all);
    picks.sorted_rows = picks.starts + logits->catalogue + 1;
    picks.sorted_shares = (float *)(picks.sorted_rows + height * largest_k(logits));
    return picks;
}

static int64_t picks_words(const Logits *logits, int64_t height) {
    if (!logits->levels) return 0;
    return 2 * logits->levels + height * (3 * abaca_sum_k(logits) + 2 * largest_k(logits)) + logits->catalogue + 1;
}

/* The same for the levels, the smallest k first: it wrote last. What another took before has no share left. */
static void level_gradients(const Logits *logits, const Primitives *simd, const Loss *loss, int64_t n, float *row,
                            float scale, Scratch scratch, Picks *picks) {
    int32_t *chosen = scratch.chosen + abaca_sum_k(logits) + ABACA_ROOM * logits->levels;
    int64_t area = picks->height * abaca_sum_k(logits);
    for (int64_t level = logits->levels - 1; level >= 0; level--) {
        chosen -= logits->level_k[level] + ABACA_ROOM;
        area -= picks->height * logits->level_k[level];
        int64_t begin = area + picks->counts[level], end = begin;
        for (int64_t i = 0; i < logits->level_k[level]; i++) {
            float share = scale * row[chosen[i]];
            row[chosen[i]] = 0;
            if (share == 0) continue;
            picks->rows[end] = (int32_t)n;
            picks->items[end] = chosen[i];
            picks->shares[end++] = share;
        }
        picks->counts[level] += end - begin;
        float *grad = loss->grad_queries[level] + n * logits->dim;
        memset(grad, 0, sizeof(float) * (size_t)logits->dim);
        simd->weigh(logits->table, logits->dim, picks->items + begin, end - begin, picks->shares + begin, grad);
    }
}

/* Sort one level's picks by item. Within an item they stay in the order of the rows. */
static void sort_picks(const Logits *logits, Picks *picks, int64_t area, int64_t count) {
    memset(picks->starts, 0, sizeof(int32_t) * (size_t)(logits->catalogue + 1));
    for (int64_t i = area; i < area + count; i++) picks->starts[picks->items[i]]++;
    int32_t total = 0;
    for (int64_t item = 0; item <= logits->catalogue; item++) {
        int32_t here = picks->starts[item];
        picks->starts[item] = total;
        total += here;
    }
    for (int64_t i = area; i < area + count; i++) {
        int32_t place = picks->starts[picks->items[i]]++; /* in the end, where the next item begins */
        picks->sorted_rows[place] = picks->rows[i];
        picks->sorted_shares[place] = picks->shares[i];
    }
}

static void table_gradients(const Logits *logits, const Primitives *simd, Picks *picks, float *grad_table) {
    int64_t area = 0;
    for (int64_t level = 0; level < logits->levels; level++) {
        sort_picks(logits, picks, area, picks->counts[level]);
        int32_t begin = 0;
        for (int64_t item = 0; item < logits->catalogue; item++) {
            int32_t end = picks->starts[item];
            if (begin == end) continue;
            simd->weigh(logits->queries[level], logits->dim, picks->sorted_rows + begin, end - begin,
                        picks->sorted_shares + begin, grad_table + item * logits->dim);
            begin = end;
        }
        area += picks->height * logits->level_k[level];
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
                     Scratch scratch, Picks *picks) {
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
    level_gradients(logits, simd, loss, n, row, scale, scratch, picks);
}

/* How many 8-byte words of memory a worker needs for tiles of `height` rows. */
EXPORT int64_t abaca_loss_words(const Logits *logits, int64_t height) {
    return (picks_words(logits, height) + abaca_scratch_words(logits, logits->catalogue) + 1) / 2;
}

/* Losses of rows first … first + count − 1, whose base logits are in `tile`. With gradients, what the tile then holds,
 * times `scale`, is the gradient of the base logits that nothing overrode; grad_table receives that of the levels. */
EXPORT void abaca_loss_rows(const Logits *logits, const Loss *loss, int64_t first, int64_t count, float *tile,
                            int64_t stride, int64_t *memory, float *grad_table) {
    const Primitives *simd = abaca_primitives(logits->portable);
    Picks picks = carve_picks(logits, count, memory);
    Scratch scratch = abaca_carve(logits, logits->catalogue, (int32_t *)memory + picks_words(logits, count));
    for (int64_t level = 0; level < logits->levels; level++) picks.counts[level] = 0;
    for (int64_t i = 0; i < count; i++) {
        loss_row(logits, simd, loss, first + i, tile + i * stride, scratch, &picks);
    }
    if (loss->scale) table_gradients(logits, simd, &picks, grad_table);
}

EXPORT void abaca_abi_7(void) {}

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
