/* The steps of a GRU between the caller's matrix products.
 *
 * All arrays are contiguous; `gates` and `heard` are (rows, 3, hidden) in the order reset, update, candidate, the others
 * (rows, hidden). What each holds before and after is told with the primitives.
 */
#include "rowpass.h"

EXPORT void abaca_gru_step(int64_t rows, int64_t hidden, float *gates, const float *heard, const float *before,
                           float *after, int64_t portable) {
    const Primitives *simd = abaca_primitives(portable);
    for (int64_t row = 0; row < rows; row++) {
        float *gate = gates + 3 * row * hidden;
        simd->gru_step(hidden, gate, gate + hidden, gate + 2 * hidden, heard + 3 * row * hidden, before + row * hidden,
                       after + row * hidden);
    }
}

EXPORT void abaca_gru_back(int64_t rows, int64_t hidden, float *gates, float *heard, const float *before,
                           const float *grad_after, float *grad, int64_t portable) {
    const Primitives *simd = abaca_primitives(portable);
    for (int64_t row = 0; row < rows; row++) {
        float *gate = gates + 3 * row * hidden;
        simd->gru_back(hidden, gate, gate + hidden, gate + 2 * hidden, heard + 3 * row * hidden, before + row * hidden,
                       grad_after + row * hidden, grad + row * hidden);
    }
}
