/* weights.h - along one side: which pixels a result is made of, and how much of each
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pillow's: a filter as wide as the scale, centred on the result's place, normalised to a sum of 1
 * and rounded to 22 bits behind the point.
 */
#ifndef MH_OP_WEIGHTS_H
#define MH_OP_WEIGHTS_H

#include "op/scratch.h"
#include "op/step.h"

#define MH_WEIGHT_BITS 22

typedef enum mh_weights_kind {
    MH_WEIGHTS_SAME,  /* result i is pixel i */
    MH_WEIGHTS_PICK,  /* result i is pixel starts[i] */
    MH_WEIGHTS_BLEND, /* a sum over lengths[i] pixels from starts[i] on */
} mh_weights_kind;

typedef struct mh_weights {
    mh_weights_kind kind;
    uint32_t count;      /* of results */
    uint32_t first, end; /* the pixels that any result needs; starts count from `first` */
    uint32_t longest;    /* BLEND: of lengths */
    uint32_t stride;   /* weights for each result, at least 8 and a multiple of 4; the rest are 0 */
    uint32_t *starts;  /* not for SAME */
    uint32_t *lengths; /* BLEND */
    int32_t *values;   /* BLEND: count x stride */
    uint32_t *pairs;   /* BLEND: the same for kernels that multiply pairs; see pair_up */
    double *room;      /* in which the weights of one result are made */
    mh_scratch memory;
} mh_weights;

/* What is asked for along one side. */
typedef struct mh_side {
    mh_filter filter;
    uint32_t in;           /* pixels there are */
    double from, to;       /* the part of them that is resized */
    uint32_t out;          /* what the part becomes */
    uint32_t first, count; /* which of those results are wanted */
    bool flip;             /* in reverse order */
} mh_side;

/* MH_ERR_NOMEM. The memory is used again by the next call and freed by mh_weights_deinit. */
MH_MUST_CHECK mh_status mh_weights_make(mh_weights *weights, const mh_side *side, mh_error *err);
void mh_weights_deinit(mh_weights *weights);

/* How a weight is divided: value = high * 2^15 + low, 0 <= low < 2^15, so that both fit 16 bits. */
#define MH_WEIGHT_LOW_BITS 15

#endif
