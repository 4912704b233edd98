/* The rows of logits that loss and ranking read, and the memory a worker needs for one of them. */
#ifndef ABACA_ROWPASS_H
#define ABACA_ROWPASS_H

#include "topk.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* N rows of logits over V items: what overrides the base. All arrays are contiguous. */
typedef struct {
    int64_t catalogue; /* V */
    int64_t dim;       /* D */
    int64_t slots;     /* K */
    int64_t levels;    /* R */
    const float *table;          /* (V, D) */
    const int64_t *ids;          /* (B, K) items of the histories; V where a slot is empty */
    const int64_t *history_of_row;      /* (N,) the history that row n reads */
    const int64_t *visible;      /* (N,) row n is overridden by its first visible[n] slots, at most K */
    const float *values;         /* (N, K) */
    const int64_t *level_k;      /* (R,) largest first, at most V */
    const float *const *queries; /* R × (N, D) */
    int64_t portable;            /* 1: keep to plain C */
    int64_t added;               /* additions of a row; only ranking reads them */
    const int64_t *added_ids;    /* (N, added) items; V where a slot is empty */
    const float *added_factor;   /* (N, added) */
    const float *added_bonus;    /* (N, added) */
} Logits;

/* What the loss of each row needs and gives. Without gradients, everything after `losses` is null. */
typedef struct {
    const int64_t *targets; /* (N,) */
    const float *weights;   /* (N,) */
    double *losses;         /* (N,) weight · −log P(target) */
    float *scale;           /* (N,) the gradient of a base logit is scale times what the tile holds */
    float *grad_values;     /* (N, K) */
    float *const *grad_queries; /* R × (N, D) */
} Loss;

#define ABACA_ROOM 8 /* what `collect` may write past the end */

/* One worker's memory for a row with at most W candidates. */
typedef struct {
    int32_t *items;   /* (W + 8) candidates of the levels, ascending */
    float *values;    /* (W) their logits */
    float *groups;    /* (W) */
    int32_t *chosen;  /* Σ (k + 8) the items of each level, one after another */
    int32_t *places;  /* (k + 8) */
    float *shares;    /* (k + 8) */
} Scratch;

const Primitives *abaca_primitives(int64_t portable);
int64_t abaca_sum_k(const Logits *logits);
Scratch abaca_carve(const Logits *logits, int64_t width, int32_t *memory);

/* How many 4-byte words of scratch memory a worker needs for rows with at most `width` candidates. */
int64_t abaca_scratch_words(const Logits *logits, int64_t width);

/* Rescore the items of one level among the candidates, whose logits are kept beside the row. Their places among the
 * candidates stay in `places`. Returns 0 where NaN leaves too few. */
int abaca_rescore(const Logits *logits, const Primitives *simd, int64_t level, int64_t n, Scratch scratch,
                  int64_t candidates, int32_t *chosen);

/* Turn a row of base logits into final ones. Returns 0 where NaN leaves too few items to choose from. */
int abaca_override(const Logits *logits, const Primitives *simd, int64_t n, float *row, Scratch scratch);

/* The first slots of row n's history and how many there are. */
const int64_t *abaca_history(const Logits *logits, int64_t n, int64_t *visible);

/* The loss of row n and all its gradients are `value`: 0 where it has no weight, NaN where the logits are. */
void abaca_fill(const Logits *logits, const Loss *loss, int64_t n, float value);

#endif
