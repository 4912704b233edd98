/* How many items of a history reach the logit of a target that is not among them.
 *
 * Windows are read where they lie, and what is made of one stays in the worker's memory until the next.
 */
#include <math.h>
#include <string.h>

#include "copies.h"
#include "mix.h"

typedef struct {
    int64_t length; /* L */
    int64_t dim;    /* D */
    int64_t width;  /* M D: states of a position */
    int64_t wide;   /* Q: what the pointer reads of a position, D, with Mi D + parts; 0 without pointer */
    int64_t parts;  /* of what Mi makes, those that are read; 0 without Mi */
    const int64_t *items;     /* (B, L) negative where there is none */
    const int64_t *positions; /* (B,) the last item of a window */
    const float *states;      /* (B, L, M D) */
    const float *table;       /* (V, D) */
    const float *panels;      /* Mi's weights, (3 parts, M D) as panels */
    const float *bias;        /* (parts) */
    const int64_t *windows;   /* (n) the windows that are asked about */
    const float *copying;     /* (n, D) */
    const float *pointing;    /* (n, Q) */
    const float *offset;      /* (n) */
    const float *unheard;     /* (n) what the other parts of Mi add at most, by the length of the states; null for nothing */
    const float *logits;      /* (n) the targets' */
    int64_t portable;
} Reaching;

/* One worker's memory. */
typedef struct {
    int64_t *ids;   /* (L) */
    float *said;    /* (L, 3 parts) in whole panels */
    float *read;    /* (L, Q) */
    float *copied;  /* (L, D) the items' rows of the table */
    float *values;  /* (L) */
    float *scratch; /* (2 L) */
    int32_t *home;  /* (L) */
} Bench;

static int64_t stride_of(const Reaching *asked) { return abaca_panels_floats(3 * asked->parts, 1); }

static Bench carve(const Reaching *asked, int64_t *memory) {
    Bench bench;
    bench.ids = memory;
    bench.said = (float *)(bench.ids + asked->length);
    bench.read = bench.said + asked->length * stride_of(asked);
    bench.copied = bench.read + asked->length * asked->wide;
    bench.values = bench.copied + asked->length * asked->dim;
    bench.scratch = bench.values + asked->length;
    bench.home = (int32_t *)(bench.scratch + 2 * asked->length);
    return bench;
}

/* How many 8-byte words of memory a worker needs. */
EXPORT int64_t abaca_reaching_words(const Reaching *asked) {
    return asked->length * (7 + stride_of(asked) + asked->wide + asked->dim) / 2 + asked->length;
}

/* What the pointer reads of the first `reach` positions of a window. */
static void read_window(const Reaching *asked, const float *states, int64_t reach, Bench bench) {
    int64_t stride = stride_of(asked), parts = asked->parts;
    if (parts) {
        abaca_multiply(states, reach, asked->width, asked->panels, 3 * parts, bench.said, stride, asked->portable);
        abaca_mix(1, reach, asked->dim, parts, asked->width, stride, states, bench.said, asked->bias, bench.read, NULL,
                  asked->portable);
        return;
    }
    for (int64_t j = 0; j < reach; j++) {
        memcpy(bench.read + j * asked->dim, states + (j + 1) * asked->width - asked->dim,
               sizeof(float) * (size_t)asked->dim);
    }
}

/* Ask for states of the window that comes next: they lie far from those before. */
static void expect(const float *states, int64_t floats) {
#if defined(__GNUC__) || defined(__clang__)
    for (int64_t i = 0; i < floats; i += 16) __builtin_prefetch(states + i);
#else
    (void)states, (void)floats;
#endif
}

static float square_of(const float *values, int64_t n) {
    float sums[8] = {0}, total = 0;
    for (int64_t i = 0; i + 8 <= n; i += 8) {
        for (int u = 0; u < 8; u++) sums[u] += values[i + u] * values[i + u];
    }
    for (int64_t i = n & ~(int64_t)7; i < n; i++) total += values[i] * values[i];
    for (int u = 0; u < 8; u++) total += sums[u];
    return total;
}

/* The length of the states of three positions, where they are longest. */
static float longest_three(const float *states, int64_t width, int64_t reach) {
    float one = 0, two = 0, most = 0;
    for (int64_t j = 0; j < reach; j++) {
        float own = square_of(states + j * width, width), sum = own + one + two;
        if (sum > most) most = sum;
        two = one;
        one = own;
    }
    return sqrtf(most);
}

/* found[i] of the windows first … first + count − 1 of those that are asked about. */
EXPORT void abaca_reaching(const Reaching *asked, int64_t first, int64_t count, int64_t *memory, int64_t *found) {
    Bench bench = carve(asked, memory);
    for (int64_t i = first; i < first + count; i++) {
        int64_t window = asked->windows[i], place = window * asked->length, reach = asked->positions[window] + 1;
        for (int64_t j = 0; j < reach; j++) {
            memcpy(bench.copied + j * asked->dim, asked->table + asked->items[place + j] * asked->dim,
                   sizeof(float) * (size_t)asked->dim);
        }
        const float *states = asked->states + place * asked->width;
        if (i + 1 < first + count) {
            int64_t next = asked->windows[i + 1] * asked->length;
            expect(asked->states + next * asked->width, reach * asked->width);
        }
        if (asked->wide) read_window(asked, states, reach, bench);
        float offset = asked->wide ? asked->offset[i] : 0;
        if (asked->unheard && asked->unheard[i] != 0) {
            offset += asked->unheard[i] * longest_three(states, asked->width, reach);
        }
        Copies copies = {
            .length = reach, .asked = 1, .dim = asked->dim, .wide = asked->wide,
            .items = asked->items + place, .positions = asked->positions + window,
            .embedded = bench.copied, .copying = asked->copying + i * asked->dim,
            .read = bench.read, .pointing = asked->pointing + i * asked->wide, .offset = &offset,
            .home = bench.home, .portable = asked->portable,
        };
        abaca_copies(&copies, 0, 1, -1, bench.ids, bench.values, bench.scratch);
        found[i] = 0;
        for (int64_t j = 0; j < reach; j++) found[i] += bench.ids[j] >= 0 && !(bench.values[j] < asked->logits[i]);
    }
}
