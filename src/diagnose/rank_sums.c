/* rank_sums.c - what every rank of a distributed run spent on what
 * SPDX-License-Identifier: Apache-2.0
 */
#include "diagnose/run_reader.h"

#include "base/alloc.h"
#include "base/error.h"

int mh_ranks_begin(mh_ranks *ranks, uint32_t rank)
{
    void *items = ranks->items;
    if (!mh_array_reserve(&items, &ranks->room, ranks->count, sizeof *ranks->items))
        return 0;
    ranks->items = items;
    ranks->items[ranks->count++] = (mh_rank_sums){.cost.rank = rank, .last_step = -1};
    return 1;
}

static void phase_add(mh_rank_sums *sums, const mh_log_event *event)
{
    uint64_t ns = mh_log_or(event->ns, 0);
    sums->phases += ns;
    if (mh_json_is(&event->name, "data")) {
        sums->first_data = sums->data ? sums->first_data : ns;
        sums->data += ns;
    } else if (mh_json_is(&event->name, "backward")) {
        sums->backward += ns;
    } else if (mh_json_is(&event->name, "waiting")) {
        sums->waiting += ns;
    }
    if (event->step != sums->last_step) {
        sums->last_step = event->step;
        sums->timer_steps++;
    }
}

void mh_ranks_event(mh_ranks *ranks, const mh_log_event *event)
{
    mh_rank_sums *sums = &ranks->items[ranks->count - 1];
    switch (event->is) {
    case MH_LOG_HEADER:
        sums->cost.rank = (uint32_t)mh_log_or(event->rank, sums->cost.rank);
        (void)mh_json_text(&event->host, sums->cost.host, sizeof sums->cost.host);
        break;
    case MH_LOG_WAIT:
        sums->wait += mh_log_or(event->ns, 0);
        if (sums->cost.steps++ == 0)
            sums->first_wait = sums->wait;
        break;
    case MH_LOG_STEP:
        sums->step += mh_log_or(event->ns, 0);
        break;
    case MH_LOG_PHASE:
        phase_add(sums, event);
        break;
    default:
        break;
    }
}

/* Ranks meet in backward, or, where no timer tells phases, somewhere in the step. Whoever spends
 * the least there has come last: the others' excess over it is waiting. Where a timer has barriers
 * it has measured the waiting itself. */
static uint64_t meeting(const mh_rank_sums *sums)
{
    return sums->phases ? sums->backward : sums->step;
}

/* What the first batch took is start-up, unless there is no other. */
static uint64_t data_of(const mh_rank_sums *sums)
{
    if (sums->data)
        return sums->data - (sums->timer_steps > 1 ? sums->first_data : 0);
    return sums->wait - (sums->cost.steps > 1 ? sums->first_wait : 0);
}

static mh_rank_cost rank_cost(const mh_rank_sums *sums, bool measured, uint64_t least_meeting)
{
    mh_rank_cost cost = sums->cost;
    cost.data = data_of(sums);
    /* a timer around the step alone leaves the loader's wait to the loader's events */
    cost.total = cost.data + (sums->phases ? sums->phases - sums->data : sums->step);
    cost.steps = sums->phases ? sums->timer_steps : cost.steps;
    uint64_t here = meeting(sums);
    cost.waiting = measured ? sums->waiting : here > least_meeting ? here - least_meeting : 0;
    cost.own = cost.total > cost.waiting ? cost.total - cost.waiting : 0;
    return cost;
}

mh_status mh_ranks_facts(const mh_ranks *ranks, mh_rank_cost **out, size_t *count, mh_error *err)
{
    size_t found = 0;
    bool measured = false;
    uint64_t least = UINT64_MAX;
    for (size_t at = 0; at < ranks->count; at++) {
        const mh_rank_sums *sums = &ranks->items[at];
        if (!sums->phases && !sums->wait && !sums->step)
            continue;
        found++;
        measured |= sums->waiting > 0;
        least = meeting(sums) < least ? meeting(sums) : least;
    }
    if (found < 2)
        return MH_OK;
    mh_rank_cost *costs = mh_calloc(found, sizeof *costs);
    if (!costs)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu ranks", found);
    for (size_t at = 0; at < ranks->count; at++) {
        const mh_rank_sums *sums = &ranks->items[at];
        if (sums->phases || sums->wait || sums->step)
            costs[(*count)++] = rank_cost(sums, measured, least);
    }
    *out = costs;
    return MH_OK;
}
