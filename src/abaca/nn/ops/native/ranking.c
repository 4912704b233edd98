/* The answer of each row of final logits: rank of the target, best items, normaliser, given items. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rowpass.h"

#define COPY -1 /* the partition of an item that the history overrides */

/* The question of each row, and the arrays of the answers. Ids are padded with V. */
typedef struct {
    int64_t n, mass_width, banned_width;
    int64_t only_width;     /* −1 where all items may be recommended */
    const int64_t *targets; /* (N,) negative for none */
    const int64_t *mass_of; /* (N, X) */
    const int64_t *banned;  /* (N, Y) */
    const int64_t *only;    /* (N, Z) */
    int64_t *rank;          /* (N,) */
    int64_t *items;         /* (N, n) */
    float *logits;          /* (N, n) */
    int8_t *partitions;     /* (N, n) */
    float *normaliser;      /* (N,) */
    float *mass;            /* (N,) */
    int64_t *ahead;         /* (N,) */
} Question;

/* One worker's memory: that of the overrides, and what the answers need. */
typedef struct {
    Scratch overrides;
    uint64_t *keys;  /* (n) */
    int32_t *places; /* (n + 8) */
    int8_t *codes;   /* (V) all zero between rows */
} Desk;

static Desk carve(const Logits *logits, const Question *question, uint64_t *memory) {
    Desk desk;
    desk.keys = memory;
    desk.places = (int32_t *)(desk.keys + question->n);
    desk.overrides = abaca_carve(logits, logits->catalogue, desk.places + question->n + ABACA_ROOM);
    desk.codes = (int8_t *)((int32_t *)desk.overrides.items + abaca_scratch_words(logits, logits->catalogue));
    return desk;
}

/* How many bytes a worker needs; they must be zero at first. */
EXPORT int64_t abaca_answer_bytes(const Logits *logits, const Question *question) {
    int64_t words = 3 * question->n + ABACA_ROOM;
    return 4 * (words + abaca_scratch_words(logits, logits->catalogue)) + logits->catalogue;
}

static float normaliser_of(const Primitives *simd, const float *row, int64_t n) {
    float lowest, highest;
    simd->range(row, n, &lowest, &highest);
    if (lowest > highest) return NAN;
    if (isinf(highest)) return highest;
    return (float)(highest + log(simd->sum_exp(row, n, highest)));
}

static float mass_of(const Logits *logits, const Question *question, int64_t n, const float *row, float normaliser) {
    const int64_t *ids = question->mass_of + n * question->mass_width;
    double mass = 0;
    for (int64_t i = 0; i < question->mass_width; i++) {
        if (ids[i] < logits->catalogue) mass += exp((double)row[ids[i]] - normaliser);
    }
    return (float)mass;
}

/* The other items of `mass_of` that do not score below the target: all of them where no row of logits is given. */
static int64_t ahead_of(const Logits *logits, const Question *question, int64_t n, const float *row) {
    const int64_t *ids = question->mass_of + n * question->mass_width;
    int64_t target = question->targets[n], ahead = 0;
    if (target < 0) return 0;
    for (int64_t i = 0; i < question->mass_width; i++) {
        if (ids[i] < logits->catalogue && ids[i] != target) ahead += !row || !(row[ids[i]] < row[target]);
    }
    return ahead;
}

/* Items that may not be recommended get −∞. */
static void ban(const Logits *logits, const Question *question, int64_t n, float *row) {
    const int64_t *banned = question->banned + n * question->banned_width;
    for (int64_t i = 0; i < question->banned_width; i++) {
        if (banned[i] < logits->catalogue) row[banned[i]] = -INFINITY;
    }
}

/* Where only listed items may be recommended: those that are not banned, each once. */
static int64_t listed(const Logits *logits, const Question *question, int64_t n, const float *row, Desk desk) {
    const int64_t *only = question->only + n * question->only_width;
    int32_t *found = desk.overrides.items;
    int64_t count = 0;
    for (int64_t i = 0; i < question->only_width; i++) {
        if (only[i] >= logits->catalogue || desk.codes[only[i]] || row[only[i]] == -INFINITY) continue;
        desk.codes[only[i]] = 1;
        found[count++] = (int32_t)only[i];
    }
    for (int64_t i = 0; i < count; i++) desk.codes[found[i]] = 0;
    return count;
}

/* Sorts by logit, highest first, then by item: a key's upper half falls as the logit rises. */
static uint64_t key(float logit, int32_t item) {
    float plain = logit + 0.0f; /* −0 is 0 */
    uint32_t bits;
    memcpy(&bits, &plain, sizeof bits);
    bits = bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
    return (uint64_t)bits << 32 | (uint32_t)item;
}

/* Returns 0 where NaN leaves too few items. Slots after the last item have −∞. */
static int best_items(const Logits *logits, const Primitives *simd, const Question *question, int64_t n,
                      const float *row, Desk desk) {
    Scratch free = desk.overrides; /* all but `chosen`, which the partitions read */
    int64_t count, best = question->n;
    if (question->only_width < 0) {
        count = abaca_candidates(simd, row, logits->catalogue, best, free.groups, free.items);
        if (count < best) return 0;
    } else {
        count = listed(logits, question, n, row, desk);
        if (count < best) best = count;
    }
    for (int64_t i = 0; i < count; i++) free.values[i] = row[free.items[i]];
    if (abaca_select(simd, free.values, count, best, desk.places) < best) return 0;
    for (int64_t i = 0; i < best; i++) {
        if (isnan(free.values[desk.places[i]])) return 0;
        desk.keys[i] = key(free.values[desk.places[i]], free.items[desk.places[i]]);
    }
    qsort(desk.keys, (size_t)best, sizeof *desk.keys, abaca_ascending);
    for (int64_t i = 0; i < question->n; i++) {
        int64_t item = i < best ? (int64_t)(desk.keys[i] & 0xffffffffu) : 0;
        question->items[n * question->n + i] = item;
        question->logits[n * question->n + i] = i < best ? row[item] : -INFINITY;
    }
    return 1;
}

/* Who scored the best items. `codes` is written where something overrides, read, and cleared again. */
static void partitions_of(const Logits *logits, const Question *question, int64_t n, Desk desk) {
    int64_t visible;
    const int64_t *ids = abaca_history(logits, n, &visible);
    const int32_t *chosen = desk.overrides.chosen;
    for (int64_t level = 0; level < logits->levels; level++, chosen += ABACA_ROOM) {
        for (int64_t i = 0; i < logits->level_k[level]; i++) desk.codes[*chosen++] = (int8_t)(logits->levels - level);
    }
    for (int64_t j = 0; j < visible; j++) {
        if (ids[j] < logits->catalogue) desk.codes[ids[j]] = COPY;
    }
    for (int64_t i = 0; i < question->n; i++) {
        question->partitions[n * question->n + i] = desk.codes[question->items[n * question->n + i]];
    }
    chosen = desk.overrides.chosen;
    for (int64_t level = 0; level < logits->levels; level++, chosen += ABACA_ROOM) {
        for (int64_t i = 0; i < logits->level_k[level]; i++) desk.codes[*chosen++] = 0;
    }
    for (int64_t j = 0; j < visible; j++) {
        if (ids[j] < logits->catalogue) desk.codes[ids[j]] = 0;
    }
}

/* Logits that are no numbers have no best items; the target is last. */
static void no_answer(const Logits *logits, const Question *question, int64_t n) {
    question->rank[n] = question->targets[n] < 0 ? logits->catalogue + 1 : logits->catalogue;
    question->normaliser[n] = question->mass[n] = NAN;
    question->ahead[n] = ahead_of(logits, question, n, NULL);
    for (int64_t i = 0; i < question->n; i++) {
        question->items[n * question->n + i] = i;
        question->logits[n * question->n + i] = NAN;
        question->partitions[n * question->n + i] = 0;
    }
}

/* Logit ← factor · logit + bonus for the items of the row's additions. */
static void add(const Logits *logits, int64_t n, float *row) {
    for (int64_t i = n * logits->added; i < (n + 1) * logits->added; i++) {
        int64_t item = logits->added_ids[i];
        if (item < logits->catalogue) row[item] = logits->added_factor[i] * row[item] + logits->added_bonus[i];
    }
}

static void answer_row(const Logits *logits, const Primitives *simd, const Question *question, int64_t n, float *row,
                       Desk desk) {
    if (!abaca_override(logits, simd, n, row, desk.overrides)) {
        no_answer(logits, question, n);
        return;
    }
    add(logits, n, row);
    int64_t target = question->targets[n];
    question->rank[n] = logits->catalogue + (target < 0 ? 1 : -simd->below(row, logits->catalogue, row[target]));
    float normaliser = normaliser_of(simd, row, logits->catalogue);
    question->normaliser[n] = normaliser;
    question->mass[n] = mass_of(logits, question, n, row, normaliser);
    question->ahead[n] = ahead_of(logits, question, n, row);
    if (!question->n) return;
    ban(logits, question, n, row);
    if (best_items(logits, simd, question, n, row, desk)) {
        partitions_of(logits, question, n, desk);
    } else {
        no_answer(logits, question, n);
    }
}

/* Answers for rows first … first + count − 1, whose base logits are in `tile`. */
EXPORT void abaca_answer_rows(const Logits *logits, const Question *question, int64_t first, int64_t count,
                              float *tile, int64_t stride, void *memory) {
    const Primitives *simd = abaca_primitives(logits->portable);
    Desk desk = carve(logits, question, memory);
    for (int64_t i = 0; i < count; i++) {
        answer_row(logits, simd, question, first + i, tile + i * stride, desk);
    }
}
