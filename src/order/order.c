/* order.c - a shuffle and a share of it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "order/order.h"

#include "base/alloc.h"
#include "base/error.h"
#include "order/keyed.h"
#include "order/randperm.h"

/* Some milliseconds, where the shuffle is in no cache. */
#define DRAWS_AT_ONCE 65536

struct mh_order {
    mh_order_kind kind;
    mh_share share;
    mh_keyed keyed;        /* MH_ORDER_KEYED */
    mh_randperm *randperm; /* MH_ORDER_TORCH */
};

mh_status mh_order_new(mh_order **out, mh_order_kind kind, uint64_t seed, uint64_t epoch,
                       const mh_share *share, mh_error *err)
{
    mh_randperm *randperm = NULL;
    if ((unsigned)kind >= MH_ORDER_KINDS)
        return mh_fail(err, MH_ERR_INVALID, "there is no order %d", (int)kind);
    if (kind == MH_ORDER_TORCH)
        MH_TRY(mh_randperm_new(&randperm, share->count, seed, err));
    mh_order *order = mh_calloc(1, sizeof *order);
    if (!order) {
        mh_randperm_free(randperm);
        return mh_fail(err, MH_ERR_NOMEM, "no memory for an epoch's order");
    }
    order->kind = kind;
    order->share = *share;
    order->randperm = randperm;
    if (kind == MH_ORDER_KEYED)
        mh_keyed_init(&order->keyed, share->count, seed, epoch);
    *out = order;
    return MH_OK;
}

void mh_order_free(mh_order *order)
{
    if (!order)
        return;
    mh_randperm_free(order->randperm);
    mh_free(order);
}

uint64_t mh_order_length(const mh_order *order)
{
    return order->share.length;
}

uint64_t mh_order_at(mh_order *order, uint64_t nth)
{
    uint64_t position = mh_share_at(&order->share, nth);
    switch (order->kind) {
    case MH_ORDER_KEYED:
        return mh_keyed_at(&order->keyed, position);
    case MH_ORDER_TORCH:
        return mh_randperm_at(order->randperm, position);
    default:
        return position;
    }
}

void mh_order_several(mh_order *order, uint64_t first, uint64_t count, uint64_t *out)
{
    const int keyed = order->kind == MH_ORDER_KEYED;
    for (uint64_t i = 0; i < count; i++)
        out[i] = keyed ? mh_share_at(&order->share, first + i) : mh_order_at(order, first + i);
    if (keyed)
        mh_keyed_several(&order->keyed, out, count);
}

int mh_order_prepare(mh_order *order, uint64_t nth)
{
    if (order->kind != MH_ORDER_TORCH)
        return 1;
    return mh_randperm_draw(order->randperm, mh_share_at(&order->share, nth), DRAWS_AT_ONCE);
}
