/* The primitives for x86 processors with AVX2 and FMA. */
#include "primitives.h"

#if ABACA_AVX2
#include <immintrin.h>
#include <math.h>

#define AVX2 __attribute__((target("avx2,fma,bmi,popcnt")))
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

AVX2 static int64_t count(const float *values, int64_t n, float threshold) {
    __m256 at = _mm256_set1_ps(threshold);
    __m256i hits[4];
    for (int u = 0; u < 4; u++) hits[u] = _mm256_setzero_si256();
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int u = 0; u < 4; u++) {
            __m256 hit = _mm256_cmp_ps(_mm256_loadu_ps(values + i + 8 * u), at, _CMP_GE_OQ);
            hits[u] = _mm256_sub_epi32(hits[u], _mm256_castps_si256(hit));
        }
    }
    int32_t lanes[8];
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(hits[0], hits[1]), _mm256_add_epi32(hits[2], hits[3]));
    _mm256_storeu_si256((__m256i *)lanes, sum);
    int64_t total = 0;
    for (int u = 0; u < 8; u++) total += lanes[u];
    for (; i < n; i++) total += values[i] >= threshold;
    return total;
}

/* Write the places of the bits of a mask. Four at a time without a branch: most masks have fewer. */
INLINE int64_t take(uint32_t mask, int64_t start, int32_t *places, int64_t total) {
    int64_t stop = total + __builtin_popcount(mask);
    for (; total < stop; total += 4) {
        for (int u = 0; u < 4; u++) {
            places[total + u] = (int32_t)(start + __builtin_ctz(mask | 0x80000000u));
            mask &= mask - 1;
        }
    }
    return stop;
}

INLINE unsigned reaching(const float *values, __m256 at) {
    return (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(values), at, _CMP_GE_OQ));
}

AVX2 static int64_t collect(const float *values, int64_t n, float threshold, int32_t *places) {
    __m256 at = _mm256_set1_ps(threshold);
    int64_t i = 0, total = 0;
    for (; i + 32 <= n; i += 32) {
        const float *here = values + i;
        unsigned low = reaching(here, at) | reaching(here + 8, at) << 8;
        unsigned high = reaching(here + 16, at) | reaching(here + 24, at) << 8;
        if (low | high) total = take(low | high << 16, i, places, total);
    }
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
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P5));
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
    while (i + 32 <= n) {
        int64_t stop = i + SUM_BLOCK < n ? i + SUM_BLOCK : n;
        __m256 sums[4];
        for (int u = 0; u < 4; u++) sums[u] = _mm256_setzero_ps();
        for (; i + 32 <= stop; i += 32) {
            for (int u = 0; u < 4; u++) {
                __m256 e = exp_eight(_mm256_sub_ps(_mm256_loadu_ps(values + i + 8 * u), down));
                if (write) _mm256_storeu_ps(values + i + 8 * u, e);
                sums[u] = _mm256_add_ps(sums[u], e);
            }
        }
        total += horizontal(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
    }
    for (; i < n; i += 8) total += exp_rest(values + i, n - i < 8 ? n - i : 8, down, write);
    return total;
}

AVX2 static double sum_exp(const float *values, int64_t n, float shift) {
    return exp_row((float *)values, n, shift, 0);
}

AVX2 static double make_exp(float *values, int64_t n, float shift) { return exp_row(values, n, shift, 1); }

#define AHEAD 12

INLINE void prefetch(const float *row, int64_t dim) {
    for (int64_t j = 0; j < dim; j += 16) _mm_prefetch((const char *)(row + j), _MM_HINT_T0);
}

/* The sums of four vectors. */
INLINE __m128 horizontal_four(__m256 a, __m256 b, __m256 c, __m256 d) {
    __m256 sums = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
}

/* Four items at a time; past the end the last one is done again. */
AVX2 static void dots(const float *table, int64_t dim, const int32_t *items, int64_t n, const float *query,
                      float *products) {
    int64_t whole = dim & ~(int64_t)7;
    for (int64_t i = 0; i < n; i += 4) {
        const float *row[4];
        for (int u = 0; u < 4; u++) {
            row[u] = table + items[i + u < n ? i + u : n - 1] * dim;
            if (i + u + AHEAD < n) prefetch(table + items[i + u + AHEAD] * dim, dim);
        }
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

/* What one item hands on. */
INLINE void spread_one(const float *row, int64_t first, int64_t dim, float share, const float *query,
                       float *grad_query, float *grad) {
    for (int64_t j = first; j < dim; j++) {
        grad_query[j] += share * row[j];
        grad[j] += share * query[j];
    }
}

AVX2 static void spread(const float *table, int64_t dim, const int32_t *items, int64_t n, const float *shares,
                        const float *query, float *grad_query, float *grad_table) {
    int64_t whole = dim & ~(int64_t)7, i = 0;
    for (; i + 4 <= n; i += 4) {
        const float *row[4];
        float *grad[4];
        __m256 share[4];
        for (int u = 0; u < 4; u++) {
            row[u] = table + items[i + u] * dim;
            grad[u] = grad_table + items[i + u] * dim;
            share[u] = _mm256_set1_ps(shares[i + u]);
            if (i + u + AHEAD >= n) continue;
            prefetch(table + items[i + u + AHEAD] * dim, dim);
            prefetch(grad_table + items[i + u + AHEAD] * dim, dim);
        }
        for (int64_t j = 0; j < whole; j += 8) {
            __m256 q = _mm256_loadu_ps(query + j), sum = _mm256_loadu_ps(grad_query + j);
            for (int u = 0; u < 4; u++) {
                sum = _mm256_fmadd_ps(share[u], _mm256_loadu_ps(row[u] + j), sum);
                _mm256_storeu_ps(grad[u] + j, _mm256_fmadd_ps(share[u], q, _mm256_loadu_ps(grad[u] + j)));
            }
            _mm256_storeu_ps(grad_query + j, sum);
        }
        for (int u = 0; u < 4; u++) spread_one(row[u], whole, dim, shares[i + u], query, grad_query, grad[u]);
    }
    for (; i < n; i++) {
        int64_t at = items[i] * dim;
        spread_one(table + at, 0, dim, shares[i], query, grad_query, grad_table + at);
    }
}

const Primitives abaca_avx2 = {fold, range, count, collect, sum_exp, make_exp, dots, spread};
#else
typedef int abaca_no_avx2; /* a file may not be empty */
#endif
