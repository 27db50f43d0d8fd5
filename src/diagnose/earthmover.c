/* earthmover.c - events of Earthmover's dataloader-demo: what its batches cost
 * SPDX-License-Identifier: Apache-2.0
 *
 * The log tells of training steps and, in spite of the name "get-batch", of single samples by the
 * pid of their worker. Events are in the order of printing, so everything is sorted by time first.
 */
#include "diagnose/run.h"

#include "base/alloc.h"
#include "base/error.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The samples of the batch a process is fetching. Key: 0, 0, 0, pid. */
typedef struct pid_record {
    mh_record_key key;
    uint32_t samples; /* of the batch under way */
    uint32_t get;     /* its get_record */
    uint32_t worker;  /* in the order in which processes were seen */
} pid_record;

/* A batch that was fetched, wholly or in part. Key: 0, 0, 0, its number. */
typedef struct get_record {
    mh_record_key key;
    uint64_t begin, ns, excess;
    uint32_t samples;
    int32_t worker;
} get_record;

void mh_earth_init(mh_earth *earth)
{
    *earth = (mh_earth){.pids.size = sizeof(pid_record),
                        .gets.size = sizeof(get_record),
                        .setup_start = MH_NOT_MEASURED,
                        .setup_ns = MH_NOT_MEASURED,
                        .first_t = UINT64_MAX,
                        .workers = -1,
                        .prefetch = -1,
                        .batch_size = -1,
                        .persistent = -1,
                        .pin_memory = -1};
}

void mh_earth_deinit(mh_earth *earth)
{
    mh_free(earth->marks);
    mh_records_deinit(&earth->pids);
    mh_records_deinit(&earth->gets);
    mh_free(earth->samples.items);
}

/* --- events --- */

static int setting(int64_t value, int otherwise)
{
    return value < 0 || value > INT32_MAX ? otherwise : (int)value;
}

static int run_start(mh_earth *earth, const mh_log_event *event)
{
    /* what the demo does not pass on is torch's default */
    earth->workers = setting(event->workers, 0);
    earth->prefetch = setting(event->prefetch, earth->workers ? 2 : -1);
    earth->batch_size = setting(event->batch_size, -1);
    earth->persistent = setting(event->persistent, 0);
    earth->pin_memory = setting(event->pin_memory, 0);
    (void)snprintf(earth->start, sizeof earth->start, "%s", earth->workers ? "forkserver" : "none");
    return 1;
}

static int mark_add(mh_earth *earth, const mh_log_event *event)
{
    void *items = earth->marks;
    if (!mh_array_reserve(&items, &earth->mark_room, earth->mark_count, sizeof *earth->marks))
        return 0;
    earth->marks = items;
    earth->marks[earth->mark_count] = (mh_earth_mark){
        .t = (uint64_t)event->t,
        .ns = mh_log_or(event->ns, MH_NOT_MEASURED),
        .batch = (uint32_t)mh_log_or(event->batch, UINT32_MAX),
        .order = (uint32_t)earth->mark_count,
        .is = event->is,
    };
    earth->mark_count++;
    return 1;
}

static int get_end(mh_earth *earth, const mh_log_event *event)
{
    uint64_t ns = mh_log_or(event->ns, 0);
    uint32_t size = earth->batch_size > 0 ? (uint32_t)earth->batch_size : 1;
    mh_record_key key = {0, 0, 0, (uint32_t)mh_log_or(event->pid, 0)};
    pid_record *process = mh_records_find(&earth->pids, key);
    if (!process) {
        process = mh_records_add(&earth->pids, key);
        if (!process)
            return 0;
        process->worker = (uint32_t)earth->pids.count - 1;
    }
    if (process->samples == 0) {
        get_record *fresh =
            mh_records_add(&earth->gets, (mh_record_key){.nth = (uint32_t)earth->gets.count});
        if (!fresh)
            return 0;
        fresh->begin = (uint64_t)event->t - (ns < (uint64_t)event->t ? ns : 0);
        fresh->worker = earth->workers > 0 ? (int32_t)process->worker : -1;
        process->get = (uint32_t)earth->gets.count - 1;
    }
    get_record *get = mh_records_at(&earth->gets, process->get);
    get->ns += ns;
    get->samples++;
    process->samples = (process->samples + 1) % size;
    return mh_samples_add(&earth->samples, ns, process->get);
}

static void setup_event(mh_earth *earth, const mh_log_event *event)
{
    if (event->is == MH_LOG_SETUP_START)
        earth->setup_start = (uint64_t)event->t;
    else if (event->ns >= 0)
        earth->setup_ns = (uint64_t)event->ns;
    else if (earth->setup_start <= (uint64_t)event->t)
        earth->setup_ns = (uint64_t)event->t - earth->setup_start;
}

int mh_earth_event(mh_earth *earth, const mh_log_event *event)
{
    if (event->is < MH_LOG_RUN_START || event->t < 0)
        return 1;
    earth->seen = 1;
    earth->first_t = (uint64_t)event->t < earth->first_t ? (uint64_t)event->t : earth->first_t;
    earth->last_t = (uint64_t)event->t > earth->last_t ? (uint64_t)event->t : earth->last_t;
    switch (event->is) {
    case MH_LOG_RUN_START:
        return run_start(earth, event) && mark_add(earth, event);
    case MH_LOG_SETUP_START:
    case MH_LOG_SETUP_END:
        setup_event(earth, event);
        return 1;
    case MH_LOG_GET_END:
        return get_end(earth, event);
    case MH_LOG_EPOCH_START:
    case MH_LOG_TRAIN_START:
    case MH_LOG_TRAIN_END:
        return mark_add(earth, event);
    case MH_LOG_RUN_END:
        earth->ended = 1;
        return 1;
    default:
        return 1;
    }
}

/* --- facts --- */

/* Where times are equal, as the log has them. */
static int by_time(const void *a, const void *b)
{
    const mh_earth_mark *x = a, *y = b;
    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static int by_begin(const void *a, const void *b)
{
    const get_record *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Walking through the marks. */
typedef struct walk {
    mh_batch_cost *batches;
    uint64_t *starts; /* when each batch's training began */
    size_t count;
    uint64_t *waits; /* as users count them */
    size_t wait_count;
    uint64_t last_end;    /* of training; MH_NOT_MEASURED: not known */
    uint64_t epoch_start; /* the last one; MH_NOT_MEASURED: none */
    bool open;            /* a step has begun and not ended */
    uint32_t last_batch;
} walk;

/* A batch whose training began at `t`. */
static void walk_start(walk *w, const mh_earth_mark *mark, uint64_t t)
{
    mh_batch_cost *cost = &w->batches[w->count];
    if (w->open) { /* the end of the one before is not in the log: it counts as training */
        cost[-1].step = t - w->starts[w->count - 1];
        w->last_end = MH_NOT_MEASURED;
    }
    bool again = w->count && mark->batch != UINT32_MAX && mark->batch <= w->last_batch;
    *cost = (mh_batch_cost){
        .wait_cpu = MH_NOT_MEASURED,
        .step_train = MH_NOT_MEASURED,
        .step_cpu = MH_NOT_MEASURED,
        .fetch = MH_NOT_MEASURED,
        .fetch_cpu = MH_NOT_MEASURED,
        .collate = MH_NOT_MEASURED,
        .collate_cpu = MH_NOT_MEASURED,
        .worker = -1,
        .first = w->count == 0 || again,
        .epoch = w->count ? cost[-1].epoch + again : 0,
    };
    if (w->last_end != MH_NOT_MEASURED) {
        cost->wait = t > w->last_end ? t - w->last_end : 0;
        w->waits[w->wait_count++] = cost->wait;
    } else if (w->epoch_start != MH_NOT_MEASURED && !w->open && t > w->epoch_start) {
        cost->wait = t - w->epoch_start;
    }
    w->starts[w->count++] = t;
    w->last_batch = mark->batch;
    w->open = true;
}

static void walk_end(walk *w, const mh_earth_mark *mark)
{
    if (!w->open) { /* its start is not in the log, but how long it took */
        if (mark->ns == MH_NOT_MEASURED || mark->ns > mark->t)
            return;
        walk_start(w, mark, mark->t - mark->ns);
    }
    mh_batch_cost *cost = &w->batches[w->count - 1];
    cost->step = mark->t > w->starts[w->count - 1] ? mark->t - w->starts[w->count - 1] : 0;
    cost->step_train = cost->step; /* the demo does nothing else in a step */
    w->last_end = mark->t;
    w->open = false;
}

static void walk_marks(walk *w, const mh_earth *earth)
{
    for (size_t at = 0; at < earth->mark_count; at++) {
        const mh_earth_mark *mark = &earth->marks[at];
        switch (mark->is) {
        case MH_LOG_TRAIN_START:
            walk_start(w, mark, mark->t);
            break;
        case MH_LOG_TRAIN_END:
            walk_end(w, mark);
            break;
        case MH_LOG_EPOCH_START:
            w->epoch_start = mark->t;
            break;
        default: /* another run in the same log: its first batch waited for nothing here */
            w->last_end = w->epoch_start = MH_NOT_MEASURED;
            w->open = false;
        }
    }
}

/* Which fetched batch was delivered when is not in the log. Loaders hand out orders in turn, so the
 * nth delivered in an epoch is taken for the nth begun in it. */
static void walk_gets(walk *w, const mh_earth *earth)
{
    size_t get = 0;
    for (size_t at = 0; at < w->count; at++) {
        mh_batch_cost *cost = &w->batches[at];
        uint64_t epoch_begin = cost->first ? w->starts[at] - cost->wait : 0;
        const get_record *found = NULL;
        for (; get < earth->gets.count && !found; get++) {
            const get_record *candidate = mh_records_at(&earth->gets, get);
            if (candidate->begin >= epoch_begin)
                found = candidate;
        }
        if (!found)
            return;
        cost->fetch = found->ns;
        cost->fetch_excess = found->excess;
        cost->samples = found->samples;
        cost->worker = found->worker;
    }
}

static void add_excess(void *argument, uint32_t work, uint64_t ns)
{
    mh_earth *earth = argument;
    ((get_record *)mh_records_at(&earth->gets, work))->excess += ns;
}

static void settings_facts(const mh_earth *earth, mh_facts *facts)
{
    facts->vantage = MH_VANTAGE_LOG;
    facts->workers = earth->workers;
    facts->prefetch = earth->prefetch;
    facts->batch_size = earth->batch_size;
    facts->persistent = earth->persistent;
    facts->pin_memory = earth->pin_memory;
    facts->in_order = 1; /* the demo does not know another way */
    facts->cpus = -1;
    facts->run_ns = earth->last_t > earth->first_t ? earth->last_t - earth->first_t : 0;
    facts->setup_ns = earth->setup_ns == MH_NOT_MEASURED ? 0 : earth->setup_ns;
    memcpy(facts->start, earth->start, sizeof facts->start);
    (void)snprintf(facts->kind, sizeof facts->kind, "earthmover");
}

mh_status mh_earth_facts(mh_earth *earth, mh_run *run, mh_error *err)
{
    size_t most = earth->mark_count;
    walk w = {.last_end = MH_NOT_MEASURED, .epoch_start = MH_NOT_MEASURED};
    settings_facts(earth, &run->facts);
    run->setup_s = (double)run->facts.setup_ns / 1e9;
    run->cut = !earth->ended;
    MH_TRY(mh_samples_facts(&earth->samples, earth->samples.count, 0, &run->facts, add_excess,
                            earth, err));
    run->batches = w.batches = mh_calloc(most ? most : 1, sizeof *w.batches);
    w.starts = mh_calloc(most ? most : 1, sizeof *w.starts);
    w.waits = mh_calloc(most ? most : 1, sizeof *w.waits);
    mh_status status = MH_OK;
    if (w.batches && w.starts && w.waits) {
        if (most)
            qsort(earth->marks, most, sizeof *earth->marks, by_time);
        if (earth->gets.count)
            qsort(earth->gets.items, earth->gets.count, earth->gets.size, by_begin);
        walk_marks(&w, earth);
        if (earth->batch_size > 0)
            walk_gets(&w, earth);
        for (size_t at = 0; at < w.count; at++)
            run->facts.epochs += w.batches[at].first;
        run->facts.batches = run->batches;
        run->facts.batch_count = w.count;
        run->waits = mh_waits_of(w.waits, w.wait_count);
    } else {
        status = mh_fail(err, MH_ERR_NOMEM, "no memory for %zu batches", most);
    }
    mh_free(w.starts);
    mh_free(w.waits);
    return status;
}
