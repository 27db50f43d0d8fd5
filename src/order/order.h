/* order.h - the samples of one rank in one epoch, in order: a shuffle and a share of it
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_ORDER_ORDER_H
#define MH_ORDER_ORDER_H

#include "order/share.h"

typedef enum mh_order_kind {
    MH_ORDER_SEQUENTIAL, /* sample k at position k */
    MH_ORDER_KEYED,      /* a computed shuffle: no memory, any position at once */
    MH_ORDER_TORCH,      /* torch.randperm's: 4 bytes a sample, drawn from the front */
    MH_ORDER_KINDS
} mh_order_kind;

/* One thread at a time. */
typedef struct mh_order mh_order;

/* seed and epoch choose the shuffle; MH_ORDER_TORCH looks at the seed alone (torch's sampler seeds
 * with the sum of the two). Free with mh_order_free. *out is untouched on failure. Errors:
 * MH_ERR_NOMEM, MH_ERR_INVALID, and MH_ERR_UNSUPPORTED for MH_ORDER_TORCH above MH_RANDPERM_MOST.
 */
MH_MUST_CHECK mh_status mh_order_new(mh_order **out, mh_order_kind kind, uint64_t seed,
                                     uint64_t epoch, const mh_share *share, mh_error *err);

/* NULL allowed. */
void mh_order_free(mh_order *order);

/* How many samples the rank has. */
uint64_t mh_order_length(const mh_order *order);

/* The rank's sample number `nth`, which is below the length. */
uint64_t mh_order_at(mh_order *order, uint64_t nth);

/* Those from `first` on, `count` of them. */
void mh_order_several(mh_order *order, uint64_t first, uint64_t count, uint64_t *out);

/* Does a bounded part (some milliseconds) of the work that sample `nth` needs first; 1 when nothing
 * is left of it. Only a torch shuffle that is entered far from its front has any. */
int mh_order_prepare(mh_order *order, uint64_t nth);

#endif
