/* pace.c - how many requests at a time, when to ask again, when to ask twice
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/pace.h"

#include <stdlib.h>
#include <string.h>

#define BUDGET_START 100.0
#define BUDGET_MOST 500.0
#define BUDGET_GAIN 0.2 /* of a repeat, by every success: 1 in 5 may fail for ever */
#define DELAY_NS UINT64_C(50000000)
#define DELAY_MOST_NS UINT64_C(5000000000)
#define RETRY_AFTER_MOST_S 60u
#define HEDGE_SHARE 0.02
#define HEDGE_LATE 1.5  /* times the median: what is over nearly at once is not asked for again */
#define TIMES_LEAST 64u /* to know what is slow */
#define TIMES_STEP 64u  /* how often it is found out again */

void mh_pace_init(mh_pace *pace, uint32_t most, uint64_t seed)
{
    *pace = (mh_pace){
        .most = most ? most : 1, .budget = BUDGET_START, .random = seed | 1, .shrunk_ns = 0};
    pace->window = pace->most;
}

void mh_pace_allow(mh_pace *pace, uint32_t most)
{
    bool full = pace->window >= pace->most;
    pace->most = most ? most : 1;
    if (full || pace->window > pace->most)
        pace->window = pace->most;
}

uint32_t mh_pace_window(const mh_pace *pace)
{
    return pace->window < 1 ? 1 : (uint32_t)pace->window;
}

static int by_size(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void find_slow(mh_pace *pace)
{
    uint64_t sorted[MH_PACE_TIMES];
    size_t count = pace->time_count < MH_PACE_TIMES ? pace->time_count : MH_PACE_TIMES;
    memcpy(sorted, pace->times, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_size);
    uint64_t late = (uint64_t)(HEDGE_LATE * (double)sorted[count / 2]);
    pace->slow_ns = sorted[count * 95 / 100];
    if (pace->slow_ns < late)
        pace->slow_ns = late;
}

void mh_pace_success(mh_pace *pace, uint64_t took_ns)
{
    if (pace->window < pace->most)
        pace->window += 1 / pace->window;
    if (pace->window > pace->most)
        pace->window = pace->most;
    pace->budget =
        pace->budget + BUDGET_GAIN > BUDGET_MOST ? BUDGET_MOST : pace->budget + BUDGET_GAIN;
    pace->times[pace->time_count++ % MH_PACE_TIMES] = took_ns;
    if (pace->time_count >= TIMES_LEAST && pace->time_count % TIMES_STEP == 0)
        find_slow(pace);
}

void mh_pace_throttled(mh_pace *pace, uint64_t began_ns, uint64_t now_ns)
{
    if (pace->shrunk_ns && began_ns <= pace->shrunk_ns)
        return;
    pace->shrunk_ns = now_ns;
    pace->window = pace->window / 2 < 1 ? 1 : pace->window / 2;
}

bool mh_pace_retry(mh_pace *pace)
{
    if (pace->budget < 1)
        return false;
    pace->budget -= 1;
    pace->retried++;
    return true;
}

uint64_t mh_pace_delay_ns(mh_pace *pace, uint32_t attempt, uint32_t retry_after_s)
{
    uint64_t most = DELAY_NS << (attempt < 8 ? attempt : 8);
    if (most > DELAY_MOST_NS)
        most = DELAY_MOST_NS;
    pace->random = pace->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t delay = (uint64_t)((double)(pace->random >> 11) * 0x1p-53 * (double)most);
    if (retry_after_s > RETRY_AFTER_MOST_S)
        retry_after_s = RETRY_AFTER_MOST_S;
    return retry_after_s * UINT64_C(1000000000) + delay;
}

bool mh_pace_hedge(mh_pace *pace, uint64_t age_ns)
{
    bool shrunk = pace->window < pace->most;
    if (!pace->slow_ns || age_ns <= pace->slow_ns || shrunk ||
        (double)(pace->hedged + 1) > HEDGE_SHARE * (double)pace->begun)
        return false;
    pace->hedged++;
    return true;
}
