/* Logits of the history's items and their gradients, window by window.
 *
 * Row t of a window sees its first reach = position + 1 places. A slot is the first place of an item, `home` tells each
 * place's slot. The logit in it: copying · (what stands there) + offset + the mean of pointing · (what is read) over the
 * item's places that are seen.
 */
#include <string.h>

#include "copies.h"

/* Gradients; but for `offset`, what is made must begin with zeros. */
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

static int has_repeats(const Copies *copies, const int32_t *home) {
    for (int32_t j = 0; j < copies->length; j++) {
        if (home[j] >= 0 && home[j] != j) return 1;
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

/* What the logits' gradients say of each place, to the copies' and to the pointer's: by row, and by place for all rows. */
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

/* Shares of row t of a window; a place gets its part of its slot's gradient. Returns the sum over slots. */
static float share_out(const Copies *copies, const float *grads, const int32_t *home, int64_t t, int64_t reach,
                       int repeats, Shares shares) {
    float sum = 0;
    if (repeats) count_places(home, reach, shares.counts);
    for (int64_t j = 0; j < copies->length; j++) {
        int seen = j < reach && home[j] >= 0, slot = seen && home[j] == j;
        shares.copied[j] = slot ? grads[j] : 0;
        shares.pointed[j] = !seen ? 0 : repeats ? grads[home[j]] / shares.counts[home[j]] : grads[j];
        shares.copied_to[j * copies->asked + t] = shares.copied[j];
        shares.pointed_to[j * copies->asked + t] = shares.pointed[j];
        sum += shares.copied[j];
    }
    return sum;
}

/* The same windows backwards. */
EXPORT void abaca_copies_back(const Copies *copies, const CopiesGradients *grads, int64_t first, int64_t count,
                              float *memory) {
    const Primitives *simd = abaca_primitives(copies->portable);
    int64_t length = copies->length, asked = copies->asked, dim = copies->dim, wide = copies->wide;
    Shares shares = carve(copies, memory);
    for (int64_t window = first; window < first + count; window++) {
        const int32_t *home = copies->home + window * length;
        int repeats = has_repeats(copies, home);
        int64_t place = window * length, row = window * asked;
        for (int64_t t = 0; t < asked; t++, row++) {
            int64_t reach = reach_of(copies, row);
            float sum = share_out(copies, grads->values + row * length, home, t, reach, repeats, shares);
            simd->weigh(copies->embedded + place * dim, dim, NULL, reach, shares.copied, grads->copying + row * dim);
            if (!wide) continue;
            grads->offset[row] = sum;
            simd->weigh(copies->read + place * wide, wide, NULL, reach, shares.pointed, grads->pointing + row * wide);
        }
        row -= asked;
        for (int64_t j = 0; j < length; j++, place++) {
            simd->weigh(copies->copying + row * dim, dim, NULL, asked, shares.copied_to + j * asked,
                        grads->embedded + place * dim);
            if (!wide) continue;
            simd->weigh(copies->pointing + row * wide, wide, NULL, asked, shares.pointed_to + j * asked,
                        grads->read + place * wide);
        }
    }
}
