/* GELU, and what Mi makes of three positions; the caller's matrix products stand between. */
#include <string.h>

#include "mix.h"

EXPORT void abaca_gelu(const float *values, float *made, float *slope, int64_t n, int64_t portable) {
    abaca_primitives(portable)->gelu(values, n, made, slope);
}

EXPORT void abaca_mix(int64_t windows, int64_t length, int64_t dim, int64_t parts, int64_t width, int64_t stride,
                      const float *states, const float *said, const float *bias, float *queries, float *slope,
                      int64_t portable) {
    const Primitives *simd = abaca_primitives(portable);
    for (int64_t row = 0; row < windows * length; row++) {
        int64_t place = row % length;
        const float *own = said + row * stride + 2 * parts;
        float *query = queries + row * (dim + parts), *heard = query + dim;
        memcpy(query, states + (row + 1) * width - dim, dim * sizeof *query);
        for (int64_t i = 0; i < parts; i++) heard[i] = own[i] + bias[i];
        for (int64_t back = 1; back <= 2 && back <= place; back++) {
            const float *other = own - back * (stride + parts);
            for (int64_t i = 0; i < parts; i++) heard[i] += other[i];
        }
        simd->gelu(heard, parts, heard, slope ? slope + row * parts : 0);
    }
}

/* The same backwards: the gradient of `said`. */
EXPORT void abaca_mix_back(int64_t windows, int64_t length, int64_t dim, const float *grad_queries, const float *slope,
                           float *grad_said) {
    for (int64_t row = 0; row < windows * length; row++) {
        int64_t place = row % length;
        const float *grad = grad_queries + (2 * row + 1) * dim, *steep = slope + row * dim;
        float *own = grad_said + (3 * row + 2) * dim;
        for (int64_t i = 0; i < dim; i++) own[i] = grad[i] * steep[i];
        for (int64_t back = 1; back <= 2 && back <= place; back++) memcpy(own - 4 * back * dim, own, dim * sizeof *own);
        for (int64_t ahead = 1; ahead <= 2; ahead++) {
            if (place + ahead >= length) memset(own - ahead * dim, 0, dim * sizeof *own); /* nobody is there to hear */
        }
    }
}
