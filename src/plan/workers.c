/* workers.c - how many loader workers a run needs
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan/workers.h"

#include "base/error.h"

#include <string.h>

/* Workers for waiting that needs no CPU, on a machine with few. */
#define WORKERS_WAITING 32
/* Where the number of CPUs is not known: what most machines have. */
#define CPUS_USUAL 8

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int is_stream(const mh_facts *facts)
{
    return facts->iterable == 1 || strcmp(facts->kind, "iterable") == 0 ||
           strcmp(facts->kind, "prefetch") == 0;
}

/* Waiting takes no CPU, so that more workers fit: but for waiting that more of them only prolong.
 */
static double waiting_of(const mh_load *load)
{
    const mh_costs *costs = &load->costs;
    double fetch = mh_helpers_worked(load) || mh_storage_explains(load) ? 0 : costs->fetch_blocked;
    return fetch + costs->collate_blocked;
}

static int most_for(const mh_load *load, int ranks)
{
    const mh_facts *facts = load->facts;
    const mh_costs *costs = &load->costs;
    int had = facts->workers > 0 ? facts->workers : 0;
    double left = mh_cpus_left(facts), waiting = waiting_of(load);
    double computing = costs->fetch_cpu + costs->read_cpu + costs->collate_cpu;
    double busy = left > 0 ? left : CPUS_USUAL; /* workers, if they did nothing but compute */
    int ever = larger(WORKERS_WAITING, 4 * larger(facts->cpus, had));
    int most = waiting > 0 ? smaller(ever, MH_WORKERS_MOST) : MH_WORKERS_MOST;
    if (computing > 0) /* while one waits, another of its rank computes, then those of the others */
        busy *= 1 + ranks * waiting / computing;
    else if (waiting > 0)
        return most;
    return busy < most ? larger((int)(busy + 0.5), 1) : most;
}

/* Where samples mostly wait for storage; a decoder that reads a little is not held up by it. */
static int storage_holds_up(const mh_load *load)
{
    const mh_costs *costs = &load->costs;
    return costs->fetch_blocked > 0 && mh_storage_explains(load) &&
           costs->fetch_blocked + costs->read_cpu >= costs->fetch_cpu;
}

mh_workers_range mh_workers_worth_trying(const mh_load *load, int ranks)
{
    const mh_facts *facts = load->facts;
    int had = facts->workers > 0 ? facts->workers : 0;
    mh_workers_range range = {0, most_for(load, ranks)};
    if (mh_crowded(load)) /* nobody knows what fewer would do: times in a crowd are not true */
        return (mh_workers_range){larger(facts->cpus - 1, 1), facts->cpus};
    if (is_stream(facts) || mh_lock_is_shared(load))
        range.most = smaller(range.most, larger(had, 1));
    else if (had > 0 && storage_holds_up(load))
        range.most = smaller(range.most, had);
    return range;
}

mh_status mh_workers_fewest(int *workers, double *ns, mh_workers_range range, mh_workers_time *time,
                            const void *run, mh_error *err)
{
    int tried[16], count = 0;
    double took[16], best = -1;
    for (int at = range.least;; at = smaller(larger(2 * at, 1), range.most)) {
        MH_TRY(time(run, at, &took[count], err));
        tried[count++] = at;
        if (best < 0 || took[count - 1] < best)
            best = took[count - 1];
        if (at >= range.most)
            break;
    }
    int first = 0;
    while (took[first] > MH_SAME * best)
        first++;
    *workers = tried[first];
    *ns = took[first];
    int low = first ? tried[first - 1] : tried[0];
    while (*workers - low > 1) { /* `low` is not as good */
        int middle = low + (*workers - low) / 2;
        double then;
        MH_TRY(time(run, middle, &then, err));
        if (then <= MH_SAME * best) {
            *workers = middle;
            *ns = then;
        } else {
            low = middle;
        }
    }
    return MH_OK;
}
