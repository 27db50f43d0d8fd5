/* hot_code.c - which functions the time of fetching, collating and the loop goes to
 * SPDX-License-Identifier: Apache-2.0
 */
#include "diagnose/run_reader.h"

#include "base/alloc.h"
#include <stdlib.h>
#include <string.h>

/* A stage that was looked at for less than this tells nothing. */
#define LOOKED_LEAST_NS 150e6
/* Functions below this share are not worth a line. */
#define SHARE_LEAST 0.03
/* Distinct functions and lines kept; a program has tens. */
#define SEEN_MOST 4096

static int same(const mh_hot_seen *a, const mh_hot_seen *b)
{
    return a->loader == b->loader && a->io == b->io && strcmp(a->hot.stage, b->hot.stage) == 0 &&
           strcmp(a->hot.function, b->hot.function) == 0 && strcmp(a->hot.place, b->hot.place) == 0;
}

int mh_hots_event(mh_hots *hots, const mh_log_event *event)
{
    mh_hot_seen seen = {.loader = (uint32_t)mh_log_or(event->loader, 0),
                        .ns = (double)mh_log_or(event->ns, 0),
                        .io = event->io > 0};
    if (event->is != MH_LOG_HOT)
        return 1;
    (void)mh_json_text(&event->stage, seen.hot.stage, sizeof seen.hot.stage);
    (void)mh_json_text(&event->name, seen.hot.function, sizeof seen.hot.function);
    (void)mh_json_text(&event->place, seen.hot.place, sizeof seen.hot.place);
    (void)mh_json_text(&event->code, seen.hot.code, sizeof seen.hot.code);
    for (size_t at = 0; at < hots->count; at++) {
        if (same(&hots->items[at], &seen)) {
            hots->items[at].ns += seen.ns;
            return 1;
        }
    }
    if (hots->count == SEEN_MOST)
        return 1;
    void *items = hots->items;
    if (!mh_array_reserve(&items, &hots->room, hots->count, sizeof *hots->items))
        return 0;
    hots->items = items;
    hots->items[hots->count++] = seen;
    return 1;
}

static int by_function(const void *a, const void *b)
{
    const mh_hot_seen *x = a, *y = b;
    int order = strcmp(x->hot.stage, y->hot.stage);
    order = order ? order : strcmp(x->hot.function, y->hot.function);
    return order ? order : (x->ns < y->ns) - (x->ns > y->ns);
}

static int by_share(const void *a, const void *b)
{
    const mh_hot_seen *x = a, *y = b;
    int order = (x->hot.share < y->hot.share) - (x->hot.share > y->hot.share);
    return order ? order : by_function(a, b);
}

/* Leaves this loader's, one for each function of a stage, with the line that most led there. */
static size_t one_each(mh_hots *hots, uint32_t loader)
{
    size_t kept = 0, count = 0;
    for (size_t at = 0; at < hots->count; at++)
        if (hots->items[at].loader == loader && strcmp(hots->items[at].hot.stage, "thread") != 0)
            hots->items[count++] = hots->items[at];
    qsort(hots->items, count, sizeof *hots->items, by_function);
    for (size_t at = 0; at < count; at++) {
        mh_hot_seen *last = kept ? &hots->items[kept - 1] : NULL;
        if (last && strcmp(last->hot.stage, hots->items[at].hot.stage) == 0 &&
            strcmp(last->hot.function, hots->items[at].hot.function) == 0)
            last->ns += hots->items[at].ns;
        else
            hots->items[kept++] = hots->items[at];
    }
    return kept;
}

/* What the loop waits for besides its device, and who else computes in its interpreter. */
static void loop_facts(const mh_hots *hots, uint32_t loader, mh_facts *facts)
{
    double steps = 0, io = 0, rival = 0, most = 0;
    for (size_t at = 0; at < hots->count; at++) {
        const mh_hot_seen *seen = &hots->items[at];
        int loop = strcmp(seen->hot.stage, "loop") == 0,
            other = strcmp(seen->hot.stage, "thread") == 0;
        if (seen->loader != loader)
            continue;
        steps += loop || strcmp(seen->hot.stage, "train") == 0 ? seen->ns : 0;
        io += loop && seen->io ? seen->ns : 0;
        rival += other ? seen->ns : 0;
        if (other && seen->ns > most) {
            most = seen->ns;
            memcpy(facts->rival_name, seen->hot.function, sizeof facts->rival_name);
        }
    }
    if (steps < LOOKED_LEAST_NS)
        return;
    facts->loop_io = io / steps;
    facts->rival = rival / steps;
}

void mh_hots_facts(mh_hots *hots, uint32_t loader, mh_facts *facts)
{
    if (hots->count == 0) /* there is no array either, and qsort must have one */
        return;
    loop_facts(hots, loader, facts);
    size_t count = one_each(hots, loader);
    for (size_t at = 0; at < count; at++) {
        double whole = 0;
        for (size_t other = 0; other < count; other++)
            if (strcmp(hots->items[other].hot.stage, hots->items[at].hot.stage) == 0)
                whole += hots->items[other].ns;
        hots->items[at].hot.share = whole >= LOOKED_LEAST_NS ? hots->items[at].ns / whole : 0;
    }
    qsort(hots->items, count, sizeof *hots->items, by_share);
    for (size_t at = 0; at < count && facts->hot_count < MH_HOT_MOST; at++)
        if (hots->items[at].hot.share >= SHARE_LEAST)
            facts->hot[facts->hot_count++] = hots->items[at].hot;
}

void mh_hots_deinit(mh_hots *hots)
{
    mh_free(hots->items);
    *hots = (mh_hots){0};
}

const mh_hot *mh_hot_next(const mh_facts *facts, const char *stage, const mh_hot *after)
{
    size_t at = after ? (size_t)(after - facts->hot) + 1 : 0;
    for (; at < facts->hot_count; at++)
        if (strcmp(facts->hot[at].stage, stage) == 0)
            return &facts->hot[at];
    return NULL;
}
