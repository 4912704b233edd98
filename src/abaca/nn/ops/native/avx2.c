/* The primitives for x86 processors with AVX2 and FMA. */
#include "primitives.h"

#if ABACA_AVX2
#include <immintrin.h>
#include <math.h>

#define AVX2 __attribute__((target("avx2,fma,popcnt,bmi")))
#define INLINE AVX2 static inline __attribute__((always_inline))

/* max_ps and min_ps give their second operand where one is NaN: with the new value first, NaN is passed over. */

AVX2 static void fold(const float *values, int64_t n, float *groups, int64_t width) {
    int64_t start = width;
    for (int64_t j = 0; j < width; j += 8) {
        _mm256_storeu_ps(groups + j, _mm256_max_ps(_mm256_loadu_ps(values + j), _mm256_set1_ps(-INFINITY)));
    }
    for (; start + 4 * width <= n; start += 4 * width) {
        const float *a = values + start, *b = a + width, *c = b + width, *d = c + width;
        for (int64_t j = 0; j < width; j += 8) {
            __m256 high = _mm256_max_ps(_mm256_loadu_ps(a + j), _mm256_loadu_ps(groups + j));
            high = _mm256_max_ps(_mm256_loadu_ps(b + j), high);
            high = _mm256_max_ps(_mm256_loadu_ps(c + j), high);
            _mm256_storeu_ps(groups + j, _mm256_max_ps(_mm256_loadu_ps(d + j), high));
        }
    }
    for (; start < n; start += width) {
        int64_t part = n - start < width ? n - start : width, j = 0;
        for (; j + 8 <= part; j += 8) {
            __m256 high = _mm256_max_ps(_mm256_loadu_ps(values + start + j), _mm256_loadu_ps(groups + j));
            _mm256_storeu_ps(groups + j, high);
        }
        for (; j < part; j++) groups[j] = values[start + j] > groups[j] ? values[start + j] : groups[j];
    }
}

AVX2 static void range(const float *values, int64_t n, float *lowest, float *highest) {
    __m256 low[2], high[2];
    low[0] = low[1] = _mm256_set1_ps(INFINITY);
    high[0] = high[1] = _mm256_set1_ps(-INFINITY);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int u = 0; u < 2; u++) {
            __m256 value = _mm256_loadu_ps(values + i + 8 * u);
            low[u] = _mm256_min_ps(value, low[u]);
            high[u] = _mm256_max_ps(value, high[u]);
        }
    }
    float lows[8], highs[8];
    _mm256_storeu_ps(lows, _mm256_min_ps(low[0], low[1]));
    _mm256_storeu_ps(highs, _mm256_max_ps(high[0], high[1]));
    float least = INFINITY, most = -INFINITY;
    for (int u = 0; u < 8; u++) {
        least = lows[u] < least ? lows[u] : least;
        most = highs[u] > most ? highs[u] : most;
    }
    for (; i < n; i++) {
        least = values[i] < least ? values[i] : least;
        most = values[i] > most ? values[i] : most;
    }
    *lowest = least;
    *highest = most;
}

INLINE __m256i minus_one_where(const float *values, __m256 at, int less) {
    __m256 value = _mm256_loadu_ps(values);
    return _mm256_castps_si256(less ? _mm256_cmp_ps(value, at, _CMP_LT_OQ) : _mm256_cmp_ps(value, at, _CMP_GE_OQ));
}

INLINE int64_t count_where(const float *values, int64_t n, float threshold, int less) {
    __m256 at = _mm256_set1_ps(threshold);
    __m256i hits[4];
    for (int u = 0; u < 4; u++) hits[u] = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int u = 0; u < 4; u++) hits[u] = _mm256_sub_epi32(hits[u], minus_one_where(values + i + 8 * u, at, less));
    }
    for (; i + 8 <= n; i += 8) hits[0] = _mm256_sub_epi32(hits[0], minus_one_where(values + i, at, less));
    int32_t lanes[8];
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(hits[0], hits[1]), _mm256_add_epi32(hits[2], hits[3]));
    _mm256_storeu_si256((__m256i *)lanes, sum);
    int64_t total = 0;
    for (int u = 0; u < 8; u++) total += lanes[u];
    for (; i < n; i++) total += less ? values[i] < threshold : values[i] >= threshold;
    return total;
}

AVX2 static int64_t count(const float *values, int64_t n, float threshold) {
    return count_where(values, n, threshold, 0);
}

AVX2 static int64_t below(const float *values, int64_t n, float threshold) {
    return count_where(values, n, threshold, 1);
}

/* PLACES[mask] holds the places of the bits of a mask, one in a byte. */
#define BIT(m, i) ((uint64_t)((m) >> (i) & 1))
#define BELOW(m, i) (BIT((m) & ((1 << (i)) - 1), 0) + BIT((m) & ((1 << (i)) - 1), 1) + BIT((m) & ((1 << (i)) - 1), 2) \
                     + BIT((m) & ((1 << (i)) - 1), 3) + BIT((m) & ((1 << (i)) - 1), 4) \
                     + BIT((m) & ((1 << (i)) - 1), 5) + BIT((m) & ((1 << (i)) - 1), 6))
#define PLACE(m, i) (BIT(m, i) * (uint64_t)(i) << 8 * BELOW(m, i))
#define ENTRY(m) PLACE(m, 1) | PLACE(m, 2) | PLACE(m, 3) | PLACE(m, 4) | PLACE(m, 5) | PLACE(m, 6) | PLACE(m, 7)
#define FOUR(m) ENTRY(m), ENTRY((m) + 1), ENTRY((m) + 2), ENTRY((m) + 3)
#define SIXTEEN(m) FOUR(m), FOUR((m) + 4), FOUR((m) + 8), FOUR((m) + 12)
#define SIXTY_FOUR(m) SIXTEEN(m), SIXTEEN((m) + 16), SIXTEEN((m) + 32), SIXTEEN((m) + 48)
static const uint64_t PLACES[256] = {SIXTY_FOUR(0), SIXTY_FOUR(64), SIXTY_FOUR(128), SIXTY_FOUR(192)};

INLINE unsigned reaching(const float *values, __m256 at) {
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(values), at, _CMP_GE_OQ));
}

/* Without a branch for each vector: eight places are written, as many count as are set. */
INLINE int64_t take(uint64_t mask, int64_t start, int32_t *places, int64_t total) {
    __m256i eight = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)&PLACES[mask]));
    _mm256_storeu_si256((__m256i *)(places + total), _mm256_add_epi32(eight, _mm256_set1_epi32((int32_t)start)));
    return total + __builtin_popcount((unsigned)mask);
}

#define FEW 4

/* Few are taken one by one, whether they are there or not: a wrong guess of a branch costs more. */
AVX2 static int64_t collect(const float *values, int64_t n, float threshold, int32_t *places) {
    __m256 at = _mm256_set1_ps(threshold);
    int64_t i = 0, total = 0;
    for (; i + 64 <= n; i += 64) {
        uint64_t all = 0;
        for (int u = 0; u < 8; u++) all |= (uint64_t)reaching(values + i + 8 * u, at) << 8 * u;
        int64_t count = __builtin_popcountll(all);
        if (count <= FEW) {
            for (int u = 0; u < FEW; u++, all &= all - 1) places[total + u] = (int32_t)(i + (int64_t)_tzcnt_u64(all));
            total += count;
        } else {
            for (int u = 0; u < 8; u++) total = take(all >> 8 * u & 255, i + 8 * u, places, total);
        }
    }
    for (; i + 8 <= n; i += 8) total = take(reaching(values + i, at), i, places, total);
    for (; i < n; i++) {
        if (values[i] >= threshold) places[total++] = (int32_t)i;
    }
    return total;
}

/* Added to a small number, it leaves the nearest integer in the lowest bits. */
#define ROUNDING 12582912.0f /* 1.5 · 2^23 */

INLINE __m256 exp_eight(__m256 x) {
    __m256 keep = _mm256_cmp_ps(x, _mm256_set1_ps(EXP_LOWEST), _CMP_NLT_UQ); /* NaN stays NaN */
    x = _mm256_max_ps(_mm256_set1_ps(EXP_LOWEST), x);
    __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_LOG2E), _mm256_set1_ps(ROUNDING));
    __m256 n = _mm256_sub_ps(shifted, _mm256_set1_ps(ROUNDING));
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(EXP_LN2_HIGH), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(EXP_LN2_LOW), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(EXP_P0), r, _mm256_set1_ps(EXP_P1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P4));
    p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
    __m256i power = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    p = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
    return _mm256_and_ps(p, keep);
}

INLINE float horizontal(__m256 v) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

/* The last values of a row, fewer than 8. */
INLINE float exp_rest(float *values, int64_t n, __m256 shift, int write) {
    float lanes[8];
    for (int64_t u = 0; u < 8; u++) lanes[u] = u < n ? values[u] : -INFINITY;
    _mm256_storeu_ps(lanes, exp_eight(_mm256_sub_ps(_mm256_loadu_ps(lanes), shift)));
    float sum = 0;
    for (int64_t u = 0; u < n; u++) {
        sum += lanes[u];
        if (write) values[u] = lanes[u];
    }
    return sum;
}

INLINE double exp_row(float *values, int64_t n, float shift, int write) {
    __m256 down = _mm256_set1_ps(shift);
    double total = 0;
    int64_t i = 0;
    while (i + 16 <= n) {
        int64_t stop = i + SUM_BLOCK < n ? i + SUM_BLOCK : n;
        __m256 even = _mm256_setzero_ps(), odd = _mm256_setzero_ps();
        for (; i + 16 <= stop; i += 16) {
            __m256 a = exp_eight(_mm256_sub_ps(_mm256_loadu_ps(values + i), down));
            __m256 b = exp_eight(_mm256_sub_ps(_mm256_loadu_ps(values + i + 8), down));
            if (write) {
                _mm256_storeu_ps(values + i, a);
                _mm256_storeu_ps(values + i + 8, b);
            }
            even = _mm256_add_ps(even, a);
            odd = _mm256_add_ps(odd, b);
        }
        total += horizontal(_mm256_add_ps(even, odd));
    }
    for (; i < n; i += 8) total += exp_rest(values + i, n - i < 8 ? n - i : 8, down, write);
    return total;
}

AVX2 static double sum_exp(const float *values, int64_t n, float shift) {
    return exp_row((float *)values, n, shift, 0);
}

AVX2 static double make_exp(float *values, int64_t n, float shift) { return exp_row(values, n, shift, 1); }

/* The sums of four vectors. */
INLINE __m128 horizontal_four(__m256 a, __m256 b, __m256 c, __m256 d) {
    __m256 sums = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
}

/* Ask for the rows of the items that come next: they lie anywhere in the table. */
INLINE void expect(const float *table, int64_t dim, const int32_t *items, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        const char *row = (const char *)(table + items[i] * dim);
        for (int64_t byte = 0; byte < 4 * dim; byte += 64) _mm_prefetch(row + byte, _MM_HINT_T0);
    }
}

#define AHEAD 12 /* items */

INLINE const float *row_of(const float *table, int64_t dim, const int32_t *items, int64_t i) {
    return table + (items ? items[i] : i) * dim;
}

/* Four items at a time; past the end the last one is done again. */
INLINE void dots_of(const float *table, int64_t dim, const int32_t *items, int64_t n, const float *query,
                    float *products) {
    int64_t whole = dim & ~(int64_t)7;
    if (items) expect(table, dim, items, 0, n < AHEAD ? n : AHEAD);
    for (int64_t i = 0; i < n; i += 4) {
        if (items) expect(table, dim, items, i + AHEAD < n ? i + AHEAD : n, i + AHEAD + 4 < n ? i + AHEAD + 4 : n);
        const float *row[4];
        for (int u = 0; u < 4; u++) row[u] = row_of(table, dim, items, i + u < n ? i + u : n - 1);
        __m256 sums[4];
        for (int u = 0; u < 4; u++) sums[u] = _mm256_setzero_ps();
        for (int64_t j = 0; j < whole; j += 8) {
            __m256 q = _mm256_loadu_ps(query + j);
            for (int u = 0; u < 4; u++) sums[u] = _mm256_fmadd_ps(_mm256_loadu_ps(row[u] + j), q, sums[u]);
        }
        float four[4];
        _mm_storeu_ps(four, horizontal_four(sums[0], sums[1], sums[2], sums[3]));
        for (int u = 0; u < 4 && i + u < n; u++) {
            for (int64_t j = whole; j < dim; j++) four[u] += row[u][j] * query[j];
            products[i + u] = four[u];
        }
    }
}

AVX2 static void dots(const float *table, int64_t dim, const int32_t *items, int64_t n, const float *query,
                      float *products) {
    if (items) dots_of(table, dim, items, n, query, products);
    else dots_of(table, dim, NULL, n, query, products);
}

/* `eights` times 8 dimensions of all items: their sums stay in registers. */
INLINE void weigh_part(const float *table, int64_t dim, const int32_t *items, int64_t n, const float *shares, float *sum,
                       int eights) {
    __m256 sums[8];
    for (int u = 0; u < eights; u++) sums[u] = _mm256_loadu_ps(sum + 8 * u);
    for (int64_t i = 0; i < n; i++) {
        const float *row = row_of(table, dim, items, i);
        __asm__("" : "+r"(row)); /* one address for all loads, not one for each */
        __m256 share = _mm256_set1_ps(shares[i]);
        for (int u = 0; u < eights; u++) sums[u] = _mm256_fmadd_ps(share, _mm256_loadu_ps(row + 8 * u), sums[u]);
    }
    for (int u = 0; u < eights; u++) _mm256_storeu_ps(sum + 8 * u, sums[u]);
}

AVX2 static void weigh(const float *table, int64_t dim, const int32_t *items, int64_t n, const float *shares,
                       float *sum) {
    int64_t first = 0;
    for (; first + 64 <= dim; first += 64) weigh_part(table + first, dim, items, n, shares, sum + first, 8);
    for (; first + 32 <= dim; first += 32) weigh_part(table + first, dim, items, n, shares, sum + first, 4);
    for (; first + 8 <= dim; first += 8) weigh_part(table + first, dim, items, n, shares, sum + first, 1);
    for (int64_t i = 0; i < n && first < dim; i++) {
        for (int64_t j = first; j < dim; j++) sum[j] += shares[i] * row_of(table, dim, items, i)[j];
    }
}

/* `rows` times 8 · `eights` sums, which stay in registers. */
INLINE void multiply_block(int rows, int eights, int64_t inner, Matrix left, const float *right, int64_t right_row,
                           float *sums, int64_t sums_row) {
    __m256 block[4][2];
    for (int r = 0; r < rows; r++) {
        for (int e = 0; e < eights; e++) block[r][e] = _mm256_loadu_ps(sums + r * sums_row + 8 * e);
    }
    for (int64_t k = 0; k < inner; k++, right += right_row, left.values += left.column) {
        __m256 line[2];
        for (int e = 0; e < eights; e++) line[e] = _mm256_loadu_ps(right + 8 * e);
        for (int r = 0; r < rows; r++) {
            __m256 factor = _mm256_broadcast_ss(left.values + r * left.row);
            for (int e = 0; e < eights; e++) block[r][e] = _mm256_fmadd_ps(factor, line[e], block[r][e]);
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int e = 0; e < eights; e++) _mm256_storeu_ps(sums + r * sums_row + 8 * e, block[r][e]);
    }
}

/* All rows of 8 · `eights` columns. */
INLINE void multiply_part(int eights, int64_t rows, int64_t inner, Matrix left, const float *right, int64_t right_row,
                          float *sums, int64_t sums_row) {
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4, left.values += 4 * left.row, sums += 4 * sums_row) {
        multiply_block(4, eights, inner, left, right, right_row, sums, sums_row);
    }
    for (; i < rows; i++, left.values += left.row, sums += sums_row) {
        multiply_block(1, eights, inner, left, right, right_row, sums, sums_row);
    }
}

AVX2 static void multiply(int64_t rows, int64_t columns, int64_t inner, Matrix left, const float *right,
                          int64_t right_row, float *sums, int64_t sums_row) {
    int64_t j = 0;
    for (; j + 16 <= columns; j += 16) {
        multiply_part(2, rows, inner, left, right + j, right_row, sums + j, sums_row);
    }
    for (; j + 8 <= columns; j += 8) multiply_part(1, rows, inner, left, right + j, right_row, sums + j, sums_row);
    for (; j < columns; j++) {
        for (int64_t i = 0; i < rows; i++) {
            const float *row = left.values + i * left.row;
            for (int64_t k = 0; k < inner; k++) sums[i * sums_row + j] += row[k * left.column] * right[k * right_row + j];
        }
    }
}

AVX2 static void drop(const float *values, float *kept, int64_t n, uint32_t first, const Dropout *dropout) {
    abaca_drop(values, kept, n, first, dropout);
}

/* exp(−|x|), from which sigmoid and tanh follow without overflow. */
INLINE __m256 exp_minus_size(__m256 x) { return exp_eight(_mm256_or_ps(x, _mm256_set1_ps(-0.0f))); }

INLINE __m256 sigmoid(__m256 x) {
    __m256 e = exp_minus_size(x), one = _mm256_set1_ps(1.0f);
    return _mm256_div_ps(_mm256_blendv_ps(one, e, x), _mm256_add_ps(one, e));
}

INLINE __m256 hyperbolic_tangent(__m256 x) {
    __m256 e = exp_minus_size(_mm256_add_ps(x, x)), one = _mm256_set1_ps(1.0f);
    __m256 size = _mm256_div_ps(_mm256_sub_ps(one, e), _mm256_add_ps(one, e));
    return _mm256_or_ps(size, _mm256_and_ps(x, _mm256_set1_ps(-0.0f)));
}

INLINE void step_eight(float *reset, float *update, float *fresh, const float *products, int64_t apart,
                       const float *before, float *after) {
    __m256 r = sigmoid(_mm256_add_ps(_mm256_loadu_ps(reset), _mm256_loadu_ps(products)));
    __m256 z = sigmoid(_mm256_add_ps(_mm256_loadu_ps(update), _mm256_loadu_ps(products + apart)));
    __m256 c = _mm256_fmadd_ps(r, _mm256_loadu_ps(products + 2 * apart), _mm256_loadu_ps(fresh));
    c = hyperbolic_tangent(c);
    _mm256_storeu_ps(reset, r);
    _mm256_storeu_ps(update, z);
    _mm256_storeu_ps(fresh, c);
    _mm256_storeu_ps(after, _mm256_fmadd_ps(z, _mm256_sub_ps(_mm256_loadu_ps(before), c), c));
}

INLINE void backward_eight(float *reset, float *update, float *fresh, float *products, int64_t apart,
                           const float *before, const float *grad_after, float *grad) {
    __m256 one = _mm256_set1_ps(1.0f), r = _mm256_loadu_ps(reset), z = _mm256_loadu_ps(update);
    __m256 c = _mm256_loadu_ps(fresh), total = _mm256_add_ps(_mm256_loadu_ps(grad), _mm256_loadu_ps(grad_after));
    __m256 kept = _mm256_mul_ps(total, z);
    __m256 to_fresh = _mm256_mul_ps(_mm256_sub_ps(total, kept), _mm256_fnmadd_ps(c, c, one));
    __m256 to_reset = _mm256_mul_ps(_mm256_mul_ps(to_fresh, _mm256_loadu_ps(products + 2 * apart)), r);
    to_reset = _mm256_fnmadd_ps(to_reset, r, to_reset);
    __m256 to_update = _mm256_mul_ps(kept, _mm256_sub_ps(_mm256_loadu_ps(before), c));
    to_update = _mm256_fnmadd_ps(to_update, z, to_update);
    _mm256_storeu_ps(reset, to_reset);
    _mm256_storeu_ps(update, to_update);
    _mm256_storeu_ps(fresh, to_fresh);
    _mm256_storeu_ps(products, to_reset);
    _mm256_storeu_ps(products + apart, to_update);
    _mm256_storeu_ps(products + 2 * apart, _mm256_mul_ps(to_fresh, r));
    _mm256_storeu_ps(grad, kept);
}

AVX2 static void gru_step(int64_t n, float *reset, float *update, float *fresh, const float *products,
                          const float *before, float *after) {
    for (int64_t i = 0; i < n; i += 8) {
        step_eight(reset + i, update + i, fresh + i, products + i, n, before + i, after + i);
    }
}

AVX2 static void gru_backward(int64_t n, float *reset, float *update, float *fresh, float *products,
                              const float *before, const float *grad_after, float *grad) {
    for (int64_t i = 0; i < n; i += 8) {
        backward_eight(reset + i, update + i, fresh + i, products + i, n, before + i, grad_after + i, grad + i);
    }
}

const Primitives abaca_avx2 = {
    fold, range, count, below, collect, sum_exp, make_exp, dots, weigh, multiply, drop, gru_step, gru_backward,
};
#else
typedef int abaca_no_avx2; /* a file may not be empty */
#endif
