/* Logits of the history's items, window by window. */
#ifndef ABACA_COPIES_H
#define ABACA_COPIES_H

#include "rowpass.h"

typedef struct {
    int64_t length;  /* L: places of a window */
    int64_t asked;   /* T: rows of a window */
    int64_t dim;     /* D */
    int64_t wide;    /* Q; 0 without pointer */
    const int64_t *items;     /* (B, L) negative where there is none */
    const int64_t *positions; /* (B, T) negative where nothing is asked */
    const float *embedded;    /* (B, L, D) */
    const float *copying;     /* (B, T, D) */
    const float *read;        /* (B, L, Q) */
    const float *pointing;    /* (B, T, Q) */
    const float *offset;      /* (B, T) */
    int32_t *home;            /* (B, L) made on the way forward; −1 where there is no item */
    int64_t portable;
} Copies;

/* Windows first … first + count − 1. ids (B, L) gets the items in their slots, `empty` elsewhere; values (B, T, L) the
 * logits, 0 in slots out of reach. scratch holds 2 L floats or more. */
EXPORT void abaca_copies(const Copies *copies, int64_t first, int64_t count, int64_t empty, int64_t *ids, float *values,
                         float *scratch);

#endif
