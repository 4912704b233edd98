/* What Mi makes of three positions. */
#ifndef ABACA_MIX_H
#define ABACA_MIX_H

#include "rowpass.h"

/* A position of a window hears what it says itself and what the two before it say, each in its own third of `said`,
 * (windows, length) rows of (3, parts) which lie `stride` apart: the first is meant for the position after next, the last
 * for itself. Its query (dim + parts) is its state, the last dim of `width` values, and GELU of what it hears plus the
 * bias. `slope`, of (parts) a position, may be null. Mi has as many parts as a state; whoever needs less, hears less. */
EXPORT void abaca_mix(int64_t windows, int64_t length, int64_t dim, int64_t parts, int64_t width, int64_t stride,
                      const float *states, const float *said, const float *bias, float *queries, float *slope,
                      int64_t portable);

#endif
