/* Dropout of a whole tensor. */
#include "rowpass.h"

EXPORT void abaca_dropout(const float *values, float *kept, int64_t n, const Dropout *dropout, int64_t portable) {
    abaca_primitives(portable)->drop(values, kept, n, 0, dropout);
}
