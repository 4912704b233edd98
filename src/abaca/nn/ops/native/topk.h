/* Exact top-k of a row without sorting. Ties are broken by the lower index; NaN is never chosen. */
#ifndef ABACA_TOPK_H
#define ABACA_TOPK_H

#include "primitives.h"

/* Collect, ascending, all values that reach a threshold which at least k values reach; usually a few more than k.
 * groups has room for n floats, places for n + 8. Returns their number: below k only where NaN is among them. */
int64_t abaca_candidates(const Primitives *simd, const float *values, int64_t n, int64_t k, float *groups,
                         int32_t *places);

/* Collect the k highest values, in no particular order. places has room for k + 8. */
int64_t abaca_select(const Primitives *simd, const float *values, int64_t n, int64_t k, int32_t *places);

/* The lowest float above a value. */
float abaca_above(float value);

/* Compares 64-bit integers for `qsort`. */
int abaca_ascending(const void *a, const void *b);

#endif
