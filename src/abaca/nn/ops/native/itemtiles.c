/* The loss of rows that are too long to hold: logits come in tiles of rows × items, twice.
 *
 * In the first pass each row keeps a running maximum and sum, and the Σk best base logits apart from them. Logits that
 * the history or a level overrides are never added, so nothing is subtracted. Then the row is settled: levels, history,
 * loss, and which part scored what. In the second pass a tile becomes the gradient of its logits. State is kept by row:
 * threads share the rows in the first pass and the items in the second.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rowpass.h"

#define BASE -1 /* who scored a candidate, if no level did */
#define COPY -2

/* What is known of each row. */
typedef struct {
    int64_t room;          /* C: how many candidates a row keeps at most; no fewer than Σk, or V */
    const int32_t *sorted; /* (B, K) the items of the histories, ascending */
    const int64_t *slots;  /* (B, K) their places in them */
    float *shift;          /* (N,) the highest logit of the sum, −∞ at first */
    double *sum;           /* (N,) Σ exp(logit − shift): 0 at first; once settled, over all items */
    float *hit;            /* (N,) the target's base logit */
    float *threshold;      /* (N,) what a new candidate must reach, −∞ at first */
    int64_t *count;        /* (N,) how many candidates there are, 0 at first; once settled, those a level scored */
    int32_t *items;        /* (N, C) the candidates; once settled ascending */
    float *values;         /* (N, C) their base logits; once settled the gradients of their logits */
    int8_t *levels;        /* (N, C) once settled: who scored them */
    int64_t *base_target;  /* (N,) once settled: the target if the base scored it, or −1 */
} Running;

/* One worker's memory. */
typedef struct {
    uint64_t *keys;    /* (C) */
    float *values;     /* (C + width) old candidates and new */
    float *evicted;    /* (C) */
    int32_t *fresh;    /* (width + 8) */
    int32_t *places;   /* (C + 8) */
    int32_t *scratch;  /* of the overrides */
    int8_t *marks;     /* (C + width) */
} Desk;

static Desk carve(const Logits *logits, const Running *running, int64_t width, uint64_t *memory) {
    Desk desk;
    desk.keys = memory;
    desk.values = (float *)(desk.keys + running->room);
    desk.evicted = desk.values + running->room + width;
    desk.fresh = (int32_t *)(desk.evicted + running->room);
    desk.places = desk.fresh + width + ABACA_ROOM;
    desk.scratch = desk.places + running->room + ABACA_ROOM;
    desk.marks = (int8_t *)(desk.scratch + abaca_scratch_words(logits, running->room));
    return desk;
}

/* How many bytes a worker needs for tiles of `width` items. */
EXPORT int64_t abaca_items_bytes(const Logits *logits, const Running *running, int64_t width) {
    int64_t words = 5 * running->room + 2 * width + 2 * ABACA_ROOM + abaca_scratch_words(logits, running->room);
    return 4 * words + running->room + width;
}

static int64_t wanted(const Logits *logits) {
    int64_t sum = abaca_sum_k(logits);
    return sum < logits->catalogue ? sum : logits->catalogue;
}

/* The place of the first of n ascending items that is no lower than `item`. */
static int64_t from_item(const int32_t *items, int64_t n, int64_t item) {
    int64_t low = 0;
    while (low < n) {
        int64_t middle = (low + n) / 2;
        if (items[middle] < item) low = middle + 1;
        else n = middle;
    }
    return low;
}

/* Write `value` at the places of the history's items that row n sees. */
static void strike_history(const Logits *logits, const Running *running, int64_t n, float *row, int64_t first,
                           int64_t width, float value) {
    int64_t begin = logits->history_of_row[n] * logits->slots, visible = logits->visible[n];
    const int32_t *sorted = running->sorted + begin;
    const int64_t *slots = running->slots + begin;
    for (int64_t j = from_item(sorted, logits->slots, first); j < logits->slots && sorted[j] < first + width; j++) {
        if (slots[j] < visible) row[sorted[j] - first] = value;
    }
}

static void add(const Primitives *simd, const Running *running, int64_t n, const float *values, int64_t count) {
    float lowest, highest;
    simd->range(values, count, &lowest, &highest);
    if (highest > running->shift[n]) {
        running->sum[n] *= exp((double)running->shift[n] - highest);
        running->shift[n] = highest;
    }
    int nothing = running->shift[n] == -INFINITY; /* but NaN is still found */
    running->sum[n] += simd->sum_exp(values, count, nothing ? 0 : running->shift[n]);
}

static int in_history(const Logits *logits, const Running *running, int64_t n, int64_t item) {
    int64_t begin = logits->history_of_row[n] * logits->slots;
    int64_t at = from_item(running->sorted + begin, logits->slots, item);
    return at < logits->slots && running->sorted[begin + at] == item && running->slots[begin + at] < logits->visible[n];
}

/* Keep the Σk best of the old and the new candidates; what is no longer one joins the sum. */
static void compress(const Logits *logits, const Primitives *simd, const Running *running, int64_t n, float *row,
                     int64_t first, int64_t fresh, Desk desk) {
    int32_t *items = running->items + n * running->room;
    float *values = running->values + n * running->room;
    int64_t old = running->count[n], kept = 0, evicted = 0;
    memcpy(desk.values, values, sizeof(float) * (size_t)old);
    for (int64_t i = 0; i < fresh; i++) desk.values[old + i] = row[desk.fresh[i]];
    memset(desk.marks, 0, (size_t)(old + fresh));
    int64_t best = abaca_select(simd, desk.values, old + fresh, wanted(logits), desk.places);
    for (int64_t i = 0; i < best; i++) desk.marks[desk.places[i]] = 1;
    float lowest = INFINITY;
    for (int64_t i = 0; i < old + fresh; i++) {
        if (!desk.marks[i]) {
            if (i < old && !in_history(logits, running, n, items[i])) desk.evicted[evicted++] = desk.values[i];
            continue;
        }
        items[kept] = i < old ? items[i] : (int32_t)(first + desk.fresh[i - old]);
        values[kept++] = desk.values[i];
        if (i >= old) row[desk.fresh[i - old]] = -INFINITY;
        if (desk.values[i] < lowest) lowest = desk.values[i];
    }
    running->count[n] = kept;
    running->threshold[n] = abaca_above(lowest); /* of those that tie, the first stay */
    add(simd, running, n, desk.evicted, evicted);
}

/* Take from the row what may be among the Σk best. */
static void take_candidates(const Logits *logits, const Primitives *simd, const Running *running, int64_t n, float *row,
                            int64_t first, int64_t width, Desk desk) {
    int64_t old = running->count[n], at = n * running->room + old;
    int64_t fresh = simd->collect(row, width, running->threshold[n], desk.fresh);
    if (old + fresh > running->room) {
        compress(logits, simd, running, n, row, first, fresh, desk);
        return;
    }
    for (int64_t i = 0; i < fresh; i++) {
        running->items[at + i] = (int32_t)(first + desk.fresh[i]);
        running->values[at + i] = row[desk.fresh[i]];
        row[desk.fresh[i]] = -INFINITY;
    }
    running->count[n] = old + fresh;
}

/* Read base logits of rows start … start + count − 1 for items first … first + width − 1. Spoils the tile. */
EXPORT void abaca_items_read(const Logits *logits, const Loss *loss, const Running *running, int64_t start,
                             int64_t count, int64_t first, int64_t width, float *tile, int64_t stride, void *memory) {
    const Primitives *simd = abaca_primitives(logits->portable);
    Desk desk = carve(logits, running, width, memory);
    for (int64_t i = 0; i < count; i++) {
        int64_t n = start + i, target = loss->targets[n] - first;
        float *row = tile + i * stride;
        if (loss->weights[n] == 0) continue;
        if (target >= 0 && target < width) running->hit[n] = row[target];
        if (logits->levels) take_candidates(logits, simd, running, n, row, first, width, desk);
        strike_history(logits, running, n, row, first, width, -INFINITY);
        add(simd, running, n, row, width);
    }
}

/* Copy the candidates of a row to the scratch memory, ascending. */
static int64_t lay_out(const Running *running, int64_t n, Scratch scratch, Desk desk) {
    int64_t count = running->count[n];
    const int32_t *items = running->items + n * running->room;
    for (int64_t i = 0; i < count; i++) desk.keys[i] = (uint64_t)items[i] << 32 | (uint64_t)i;
    qsort(desk.keys, (size_t)count, sizeof *desk.keys, abaca_ascending);
    for (int64_t i = 0; i < count; i++) {
        int64_t from = (int64_t)(desk.keys[i] & 0xffffffffu);
        scratch.items[i] = items[from];
        scratch.values[i] = running->values[n * running->room + from];
    }
    return count;
}

/* Levels and history rescore candidates and mark them. Returns their number, −1 where NaN leaves too few. */
static int64_t override(const Logits *logits, const Primitives *simd, const Running *running, int64_t n,
                        Scratch scratch, Desk desk) {
    if (running->count[n] < wanted(logits)) return -1;
    int64_t count = lay_out(running, n, scratch, desk), visible;
    memset(desk.marks, BASE, (size_t)count);
    int32_t *chosen = scratch.chosen;
    for (int64_t level = 0; level < logits->levels; level++) {
        if (!abaca_rescore(logits, simd, level, n, scratch, count, chosen)) return -1;
        for (int64_t i = 0; i < logits->level_k[level]; i++) desk.marks[scratch.places[i]] = (int8_t)level;
        chosen += logits->level_k[level] + ABACA_ROOM;
    }
    const int64_t *ids = abaca_history(logits, n, &visible);
    for (int64_t j = 0; j < visible; j++) {
        int64_t at = from_item(scratch.items, count, ids[j]);
        if (at == count || scratch.items[at] != ids[j]) continue;
        desk.marks[at] = COPY;
        scratch.values[at] = logits->values[n * logits->slots + j];
    }
    return count;
}

/* Add what was kept out of the sum. */
static void complete(const Logits *logits, const Running *running, int64_t n, Scratch scratch, Desk desk,
                     int64_t count) {
    int64_t visible;
    const int64_t *ids = abaca_history(logits, n, &visible);
    const float *copied = logits->values + n * logits->slots;
    float highest = running->shift[n];
    for (int64_t i = 0; i < count; i++) highest = scratch.values[i] > highest ? scratch.values[i] : highest;
    for (int64_t j = 0; j < visible; j++) {
        if (ids[j] < logits->catalogue && copied[j] > highest) highest = copied[j];
    }
    double sum = running->sum[n];
    if (sum != 0) sum *= exp((double)running->shift[n] - highest);
    for (int64_t i = 0; i < count; i++) {
        if (desk.marks[i] != COPY) sum += exp((double)scratch.values[i] - highest);
    }
    for (int64_t j = 0; j < visible; j++) {
        if (ids[j] < logits->catalogue) sum += exp((double)copied[j] - highest);
    }
    running->shift[n] = highest;
    running->sum[n] = sum;
}

/* The target's final logit; notes whether the base scored it. */
static float find_target(const Logits *logits, const Loss *loss, const Running *running, int64_t n, Scratch scratch,
                         Desk desk, int64_t count) {
    int64_t target = loss->targets[n], visible;
    const int64_t *ids = abaca_history(logits, n, &visible);
    running->base_target[n] = -1;
    for (int64_t j = 0; j < visible; j++) {
        if (ids[j] == target) return logits->values[n * logits->slots + j];
    }
    int64_t at = from_item(scratch.items, count, target);
    if (at < count && scratch.items[at] == target && desk.marks[at] != BASE) return scratch.values[at];
    running->base_target[n] = target;
    return running->hit[n];
}

/* Gradients of the logits that the base did not score: the history's go where they belong, the levels' are kept. */
static void keep_gradients(const Logits *logits, const Loss *loss, const Running *running, int64_t n, Scratch scratch,
                           Desk desk, int64_t count) {
    double sum = running->sum[n], scale = loss->scale[n];
    float shift = running->shift[n];
    int64_t target = loss->targets[n], visible, kept = n * running->room;
    const int64_t *ids = abaca_history(logits, n, &visible);
    for (int64_t j = 0; j < logits->slots; j++) {
        int seen = j < visible && ids[j] < logits->catalogue;
        double share = seen ? exp((double)logits->values[n * logits->slots + j] - shift) : 0;
        loss->grad_values[n * logits->slots + j] = seen ? (float)(scale * (share - (ids[j] == target ? sum : 0))) : 0;
    }
    for (int64_t i = 0; i < count; i++) {
        if (desk.marks[i] < 0) continue;
        double share = exp((double)scratch.values[i] - shift);
        running->items[kept] = scratch.items[i];
        running->values[kept] = (float)(scale * (share - (scratch.items[i] == target ? sum : 0)));
        running->levels[kept++] = desk.marks[i];
    }
    running->count[n] = kept - n * running->room;
}

/* Once all items were read: the losses of rows start … start + count − 1, and what their gradients need. */
EXPORT void abaca_items_settle(const Logits *logits, const Loss *loss, const Running *running, int64_t start,
                               int64_t count, int64_t width, void *memory) {
    const Primitives *simd = abaca_primitives(logits->portable);
    Desk desk = carve(logits, running, width, memory);
    Scratch scratch = abaca_carve(logits, running->room, desk.scratch);
    for (int64_t n = start; n < start + count; n++) {
        float weight = loss->weights[n];
        int64_t candidates = weight == 0 ? -1 : override(logits, simd, running, n, scratch, desk);
        if (candidates < 0) {
            abaca_fill(logits, loss, n, weight == 0 ? 0 : NAN);
            continue;
        }
        complete(logits, running, n, scratch, desk, candidates);
        float hit = find_target(logits, loss, running, n, scratch, desk, candidates);
        loss->losses[n] = weight * (log(running->sum[n]) + ((double)running->shift[n] - hit));
        if (!loss->scale) continue;
        loss->scale[n] = (float)(weight / running->sum[n]);
        keep_gradients(logits, loss, running, n, scratch, desk, candidates);
    }
}

/* Take what the levels scored out of the row and hand it to their queries and the table. */
static void spread_levels(const Logits *logits, const Primitives *simd, const Running *running, int64_t n, float *row,
                          int64_t first, int64_t width, float *const *grad_queries, float *grad_table, Desk desk) {
    const int32_t *items = running->items + n * running->room;
    int64_t begin = from_item(items, running->count[n], first), end = begin;
    for (; end < running->count[n] && items[end] < first + width; end++) row[items[end] - first] = 0;
    for (int64_t level = 0; level < logits->levels && begin < end; level++) {
        int64_t total = 0, at = n * logits->dim;
        for (int64_t i = begin; i < end; i++) {
            desk.places[total] = items[i];
            desk.values[total] = running->values[n * running->room + i];
            total += running->levels[n * running->room + i] == level;
        }
        simd->weigh(logits->table, logits->dim, desk.places, total, desk.values, grad_queries[level] + at);
        for (int64_t i = 0; i < total; i++) {
            const int32_t row_n = (int32_t)n;
            float *grad = grad_table + desk.places[i] * logits->dim;
            simd->weigh(logits->queries[level], logits->dim, &row_n, 1, desk.values + i, grad);
        }
    }
}

/* Turn the base logits of a tile into gradients: times `scale`, it then holds the gradient of logits without override.
 * Those of the levels are added to grad_queries and to rows first … first + width − 1 of grad_table. */
EXPORT void abaca_items_share(const Logits *logits, const Loss *loss, const Running *running, int64_t start,
                              int64_t count, int64_t first, int64_t width, float *tile, int64_t stride,
                              float *const *grad_queries, float *grad_table, void *memory) {
    const Primitives *simd = abaca_primitives(logits->portable);
    Desk desk = carve(logits, running, width, memory);
    for (int64_t i = 0; i < count; i++) {
        int64_t n = start + i, target = running->base_target[n] - first;
        float *row = tile + i * stride;
        if (loss->weights[n] == 0 || isnan(loss->scale[n])) {
            memset(row, 0, sizeof(float) * (size_t)width);
            continue;
        }
        simd->make_exp(row, width, running->shift[n]);
        strike_history(logits, running, n, row, first, width, 0);
        spread_levels(logits, simd, running, n, row, first, width, grad_queries, grad_table, desk);
        if (target >= 0 && target < width) row[target] -= (float)running->sum[n];
    }
}
