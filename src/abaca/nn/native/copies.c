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

/* What the logits' gradients say of each place, to the copies' and to the pointer's, by row and by place. Where nothing
 * repeats, they say the same to both. */
typedef struct {
    float *copied;     /* (T, L) */
    float *pointed;    /* (T, L) */
    float *copied_to;  /* (L, T) */
    float *pointed_to; /* (L, T) */
    float *counts;     /* (L) */
} Shares;

static Shares carve(const Copies *copies, float *memory) {
    int64_t size = copies->length * copies->asked;
    Shares shares = {memory, memory + size, memory + 2 * size, memory + 3 * size, memory + 4 * size};
    return shares;
}

/* How many floats of memory a worker needs. */
EXPORT int64_t abaca_copies_floats(const Copies *copies) { return (4 * copies->asked + 2) * copies->length; }

/* Shares of a row where items repeat: a place gets its part of its slot's gradient. */
static void share_out(const float *grads, const int32_t *home, int64_t reach, float *counts, float *copied,
                      float *pointed) {
    count_places(home, reach, counts);
    for (int64_t j = 0; j < reach; j++) {
        copied[j] = home[j] == j ? grads[j] : 0;
        pointed[j] = home[j] >= 0 ? grads[home[j]] / counts[home[j]] : 0;
    }
}

static void turn(const float *shares, int64_t asked, int64_t length, float *turned) {
    for (int64_t t = 0; t < asked; t++) {
        for (int64_t j = 0; j < length; j++) turned[j * asked + t] = shares[t * length + j];
    }
}

/* made (rows, columns) = left (rows, inner) · right (inner, columns). */
static void product(const Primitives *simd, const float *left, int64_t rows, int64_t inner, const float *right,
                    int64_t columns, float *made) {
    if (columns % PANEL == 0) {
        simd->multiply(left, rows, inner, right, PANEL, columns, columns, made, columns);
        return;
    }
    memset(made, 0, sizeof(float) * (size_t)(rows * columns));
    for (int64_t r = 0; r < rows; r++) simd->weigh(right, columns, NULL, inner, left + r * inner, made + r * columns);
}

/* The shares of a window's rows and, for the offset, their sums. Returns whether the pointer's differ. */
static int shares_of(const Copies *copies, const CopiesGradients *grads, int64_t window, Shares shares) {
    int64_t length = copies->length, asked = copies->asked;
    const int32_t *home = copies->home + window * length;
    int64_t held = held_of(copies, home);
    int repeats = has_repeats(home, held);
    memset(shares.copied, 0, sizeof(float) * (size_t)(2 * asked * length));
    for (int64_t t = 0; t < asked; t++) {
        int64_t row = window * asked + t, reach = reach_of(copies, row);
        const float *given = grads->values + row * length;
        float *copied = shares.copied + t * length, sum = 0;
        if (reach > held) reach = held;
        if (repeats) share_out(given, home, reach, shares.counts, copied, shares.pointed + t * length);
        else memcpy(copied, given, sizeof(float) * (size_t)reach);
        for (int64_t j = 0; j < reach; j++) sum += copied[j];
        if (copies->wide) grads->offset[row] = sum;
    }
    turn(shares.copied, asked, length, shares.copied_to);
    if (repeats) turn(shares.pointed, asked, length, shares.pointed_to);
    return repeats;
}

/* The same windows backwards. */
EXPORT void abaca_copies_back(const Copies *copies, const CopiesGradients *grads, int64_t first, int64_t count,
                              float *memory) {
    const Primitives *simd = abaca_primitives(copies->portable);
    int64_t length = copies->length, asked = copies->asked, dim = copies->dim, wide = copies->wide;
    Shares shares = carve(copies, memory);
    for (int64_t window = first; window < first + count; window++) {
        int repeats = shares_of(copies, grads, window, shares);
        int64_t place = window * length, row = window * asked;
        product(simd, shares.copied, asked, length, copies->embedded + place * dim, dim, grads->copying + row * dim);
        product(simd, shares.copied_to, length, asked, copies->copying + row * dim, dim, grads->embedded + place * dim);
        if (!wide) continue;
        const float *pointed = repeats ? shares.pointed : shares.copied;
        const float *pointed_to = repeats ? shares.pointed_to : shares.copied_to;
        product(simd, pointed, asked, length, copies->read + place * wide, wide, grads->pointing + row * wide);
        product(simd, pointed_to, length, asked, copies->pointing + row * wide, wide, grads->read + place * wide);
    }
}
