/* Logits of the history's items and their gradients, window by window.
 *
 * Row t of a window sees its first reach = position + 1 places. A slot is the first place of an item, `home` tells each
 * place's slot. The logit in it: copying · (what stands there) + offset + the mean of pointing · (what is read) over the
 * item's places that are seen.
 */
#include <string.h>

#include "copies.h"

/* Gradients. */
typedef struct {
    const float *values; /* (B, T, L) of the logits */
    float *embedded;     /* (B, L, D) */
    float *copying;      /* (B, T, D) */
    float *read;         /* (B, L, Q) */
    float *pointing;     /* (B, T, Q) */
    float *offset;       /* (B, T) */
} CopiesGradients;

/* Returns whether an item stands twice. */
static int find_homes(const Copies *copies, int64_t window, int64_t *ids, int64_t empty) {
    const int64_t *items = copies->items + window * copies->length;
    int32_t *home = copies->home + window * copies->length;
    int repeats = 0;
    for (int64_t j = 0; j < copies->length; j++) {
        int64_t first = 0;
        while (items[first] != items[j]) first++;
        repeats |= items[j] >= 0 && first < j;
        home[j] = items[j] < 0 ? -1 : (int32_t)first;
        ids[window * copies->length + j] = items[j] >= 0 && first == j ? items[j] : empty;
    }
    return repeats;
}

/* How many places there are up to the last item. */
static int64_t held_of(const Copies *copies, const int32_t *home) {
    int64_t held = copies->length;
    while (held > 0 && home[held - 1] < 0) held--;
    return held;
}

/* Whether an item stands twice among them, or one of them is empty. */
static int has_repeats(const int32_t *home, int64_t held) {
    for (int32_t j = 0; j < held; j++) {
        if (home[j] != j) return 1;
    }
    return 0;
}

/* How often the item of each slot stands among the first `reach` places. */
static void count_places(const int32_t *home, int64_t reach, float *counts) {
    memset(counts, 0, sizeof(float) * (size_t)reach);
    for (int64_t j = 0; j < reach; j++) {
        if (home[j] >= 0) counts[home[j]]++;
    }
}

static int64_t reach_of(const Copies *copies, int64_t row) {
    int64_t reach = copies->positions[row] + 1;
    if (reach < 0) return 0;
    return reach < copies->length ? reach : copies->length;
}

/* Add what the pointer says, read for all places, to the slots. */
static void point(const Copies *copies, const int32_t *home, int64_t row, int64_t reach, int repeats, float *scratch,
                  float *values) {
    const float *pointed = scratch, offset = copies->offset[row];
    if (!repeats) {
        for (int64_t j = 0; j < reach; j++) values[j] += offset + pointed[j];
        return;
    }
    float *counts = scratch + copies->length;
    count_places(home, reach, counts);
    for (int64_t j = 0; j < reach; j++) {
        if (home[j] == j) values[j] += offset;
        if (home[j] >= 0) values[home[j]] += pointed[j] / counts[home[j]];
    }
}

EXPORT void abaca_copies(const Copies *copies, int64_t first, int64_t count, int64_t empty, int64_t *ids, float *values,
                         float *scratch) {
    const Primitives *simd = abaca_primitives(copies->portable);
    int64_t length = copies->length;
    for (int64_t window = first; window < first + count; window++) {
        int repeats = find_homes(copies, window, ids, empty);
        const int32_t *home = copies->home + window * length;
        for (int64_t row = window * copies->asked; row < (window + 1) * copies->asked; row++) {
            int64_t reach = reach_of(copies, row);
            float *logits = values + row * length;
            memset(logits, 0, sizeof(float) * (size_t)length);
            simd->dots(copies->embedded + window * length * copies->dim, copies->dim, NULL, reach,
                       copies->copying + row * copies->dim, logits);
            if (!copies->wide) continue;
            simd->dots(copies->read + window * length * copies->wide, copies->wide, NULL, reach,
                       copies->pointing + row * copies->wide, scratch);
            point(copies, home, row, reach, repeats, scratch, logits);
        }
    }
}

/* What the logits' gradients say of each place, to the copies' and to the pointer's: by row, and by place for all rows.
 * Where nothing repeats the two say the same, and by row it is the gradients themselves. */
typedef struct {
    float *copied;   /* (L) of a row */
    float *pointed;  /* (L) */
    float *counts;   /* (L) */
    float *copied_to;  /* (L, T) */
    float *pointed_to; /* (L, T) */
} Shares;

static Shares carve(const Copies *copies, float *memory) {
    int64_t length = copies->length;
    Shares shares = {memory, memory + length, memory + 2 * length, memory + 3 * length,
                     memory + (3 + copies->asked) * length};
    return shares;
}

/* How many floats of memory a worker needs. */
EXPORT int64_t abaca_copies_floats(const Copies *copies) { return (3 + 2 * copies->asked) * copies->length; }

/* Shares of a row of a window; a place gets its part of its slot's gradient. */
static void share_out(const Copies *copies, const float *grads, const int32_t *home, int64_t reach, Shares shares) {
    count_places(home, reach, shares.counts);
    for (int64_t j = 0; j < copies->length; j++) {
        int seen = j < reach && home[j] >= 0;
        shares.copied[j] = seen && home[j] == j ? grads[j] : 0;
        shares.pointed[j] = seen ? grads[home[j]] / shares.counts[home[j]] : 0;
    }
}

/* A row's shares become a column of all rows'. */
static void turn(const float *shares, int64_t reach, int64_t length, int64_t asked, float *column) {
    for (int64_t j = 0; j < reach; j++) column[j * asked] = shares[j];
    for (int64_t j = reach; j < length; j++) column[j * asked] = 0;
}

static void gather(const Primitives *simd, const float *rows, int64_t dim, int64_t count, const float *shares,
                   float *sum) {
    memset(sum, 0, sizeof(float) * (size_t)dim);
    simd->weigh(rows, dim, NULL, count, shares, sum);
}

/* Gradients of what is asked in a window. Its shares by place are left behind; returns whether the pointer has its own. */
static int rows_back(const Copies *copies, const CopiesGradients *grads, const Primitives *simd, int64_t window,
                     Shares shares) {
    int64_t length = copies->length, asked = copies->asked, dim = copies->dim, wide = copies->wide;
    const int32_t *home = copies->home + window * length;
    int64_t held = held_of(copies, home);
    int repeats = has_repeats(home, held);
    for (int64_t t = 0; t < asked; t++) {
        int64_t row = window * asked + t, reach = reach_of(copies, row);
        if (reach > held) reach = held;
        const float *copied = grads->values + row * length, *pointed = copied;
        if (repeats) {
            share_out(copies, copied, home, reach, shares);
            copied = shares.copied;
            pointed = shares.pointed;
        }
        turn(copied, reach, length, asked, shares.copied_to + t);
        gather(simd, copies->embedded + window * length * dim, dim, reach, copied, grads->copying + row * dim);
        if (!wide) continue;
        if (repeats) turn(pointed, reach, length, asked, shares.pointed_to + t);
        gather(simd, copies->read + window * length * wide, wide, reach, pointed, grads->pointing + row * wide);
        float sum = 0;
        for (int64_t j = 0; j < reach; j++) sum += copied[j];
        grads->offset[row] = sum;
    }
    return repeats;
}

/* The same windows backwards. */
EXPORT void abaca_copies_back(const Copies *copies, const CopiesGradients *grads, int64_t first, int64_t count,
                              float *memory) {
    const Primitives *simd = abaca_primitives(copies->portable);
    int64_t asked = copies->asked, dim = copies->dim, wide = copies->wide;
    Shares shares = carve(copies, memory);
    for (int64_t window = first; window < first + count; window++) {
        int repeats = rows_back(copies, grads, simd, window, shares);
        const float *pointed_to = repeats ? shares.pointed_to : shares.copied_to;
        int64_t place = window * copies->length, row = window * asked;
        for (int64_t j = 0; j < copies->length; j++, place++) {
            gather(simd, copies->copying + row * dim, dim, asked, shares.copied_to + j * asked,
                   grads->embedded + place * dim);
            if (!wide) continue;
            gather(simd, copies->pointing + row * wide, wide, asked, pointed_to + j * asked, grads->read + place * wide);
        }
    }
}
