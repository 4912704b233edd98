/* The steps of a GRU between the caller's matrix products.
 *
 * All arrays are contiguous: `gates` and `products` (rows, 3, hidden) in the order reset, update, candidate; the others
 * (rows, hidden). `primitives.h` states the contents before and after.
 */
#include "rowpass.h"

EXPORT void abaca_gru_step(int64_t rows, int64_t hidden, float *gates, const float *products, const float *before,
                           float *after, int64_t portable) {
    const Primitives *simd = abaca_primitives(portable);
    for (int64_t row = 0; row < rows; row++, gates += 3 * hidden, products += 3 * hidden) {
        simd->gru_step(hidden, gates, gates + hidden, gates + 2 * hidden, products, before + row * hidden,
                       after + row * hidden);
    }
}

EXPORT void abaca_gru_backward(int64_t rows, int64_t hidden, float *gates, float *products, const float *before,
                               const float *grad_after, float *grad, int64_t portable) {
    const Primitives *simd = abaca_primitives(portable);
    for (int64_t row = 0; row < rows; row++, gates += 3 * hidden, products += 3 * hidden) {
        simd->gru_backward(hidden, gates, gates + hidden, gates + 2 * hidden, products, before + row * hidden,
                           grad_after + row * hidden, grad + row * hidden);
    }
}
