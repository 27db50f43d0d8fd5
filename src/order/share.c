/* share.c - the positions of one rank
 * SPDX-License-Identifier: Apache-2.0
 */
#include "order/share.h"

#include "base/error.h"
#include "order/keyed.h"

mh_status mh_share_init(mh_share *out, uint64_t count, uint64_t start, uint64_t ranks,
                        uint64_t rank, mh_share_mode mode, mh_error *err)
{
    if (count > MH_ORDER_MOST)
        return mh_fail(err, MH_ERR_INVALID, "%llu samples are more than 2^63",
                       (unsigned long long)count);
    if (ranks < 1 || ranks > MH_RANKS_MOST || rank >= ranks)
        return mh_fail(err, MH_ERR_INVALID, "there is no rank %llu of %llu",
                       (unsigned long long)rank, (unsigned long long)ranks);
    if (start > count)
        return mh_fail(err, MH_ERR_INVALID, "position %llu is beyond an epoch of %llu samples",
                       (unsigned long long)start, (unsigned long long)count);
    if ((unsigned)mode >= MH_SHARE_MODES)
        return mh_fail(err, MH_ERR_INVALID, "unknown way %d to share samples", (int)mode);
    uint64_t length = (count - start) / ranks;
    uint64_t over = (count - start) % ranks;
    if ((mode == MH_SHARE_PAD && over > 0) || (mode == MH_SHARE_UNEVEN && rank < over))
        length++;
    *out = (mh_share){.count = count, .first = start + rank, .ranks = ranks, .length = length};
    return MH_OK;
}

uint64_t mh_share_at(const mh_share *share, uint64_t nth)
{
    uint64_t position = share->first + nth * share->ranks;
    return position < share->count ? position : position % share->count;
}
