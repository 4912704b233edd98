/* Products with one matrix, whose rows are the columns of `Primitives.multiply`: panels of (dim, PANEL). */
#include "rowpass.h"

EXPORT int64_t abaca_panels_floats(int64_t n, int64_t dim) { return (n + PANEL - 1) / PANEL * PANEL * dim; }

/* Rows (n, dim) into panels; after the last row stand zeros. */
EXPORT void abaca_panels(const float *rows, int64_t n, int64_t dim, float *panels) {
    for (int64_t first = 0; first < n; first += PANEL) {
        for (int64_t k = 0; k < dim; k++) {
            for (int64_t u = 0; u < PANEL; u++) *panels++ = first + u < n ? rows[(first + u) * dim + k] : 0;
        }
    }
}

EXPORT void abaca_multiply(const float *left, int64_t rows, int64_t dim, const float *panels, int64_t columns,
                           float *made, int64_t stride, int64_t portable) {
    abaca_primitives(portable)->multiply(left, rows, dim, panels, PANEL * dim, PANEL, columns, made, stride);
}
