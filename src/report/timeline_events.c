/* timeline_events.c - events of a run on their way to a timeline
 * SPDX-License-Identifier: Apache-2.0
 */
#include "report/timeline_events.h"

#include "base/alloc.h"
#include "base/error.h"
#include <math.h>
#include <stdbool.h>

/* What a look is of; with its pid or device the key of its record. */
enum { LOOK_PROCESS = 1, LOOK_MACHINE, LOOK_GPU };
enum { OPEN_SETUP, OPEN_EPOCH };

typedef struct look_record {
    mh_record_key key; /* what, 0, 0, pid or device */
    uint64_t t, cpu, memory, disk, net;
    uint64_t shared; /* of a process's memory, when that was last told */
    bool shared_told;
    double util;
} look_record;

typedef struct row_record {
    mh_record_key key; /* 0, 0, 0, pid */
    uint32_t row;
} row_record;

void mh_gather_init(mh_gather *gather, mh_timeline *timeline, size_t spans)
{
    *gather = (mh_gather){
        .timeline = timeline,
        .spans = spans,
        .looks.size = sizeof(look_record),
        .rows.size = sizeof(row_record),
        .row_workers = -1,
        .earth_open = {UINT64_MAX, UINT64_MAX},
    };
    mh_timeline_init(timeline, spans);
}

void mh_gather_deinit(mh_gather *gather)
{
    mh_records_deinit(&gather->looks);
    mh_records_deinit(&gather->rows);
    mh_free(gather->rare);
}

static int rare_add(mh_gather *gather, uint32_t loader, mh_lane_kind kind, uint64_t ns)
{
    void *items = gather->rare;
    if (!mh_array_reserve(&items, &gather->rare_room, gather->rare_count, sizeof *gather->rare))
        return 0;
    gather->rare = items;
    gather->rare[gather->rare_count++] = (mh_rare){loader, kind, ns};
    return 1;
}

/* --- our events --- */

static int work_event(mh_gather *gather, const mh_log_event *event, mh_lane_kind kind)
{
    int64_t about = event->is == MH_LOG_SAMPLE ? event->index
                    : mh_lane_has_tasks(kind)  ? event->tasks
                                               : event->nth;
    if (event->t < 0 || event->ns < 0)
        return 1;
    return mh_timeline_add(gather->timeline, (uint32_t)mh_log_or(event->loader, 0), kind,
                           event->worker < 0 ? -1 : event->worker, (uint64_t)event->t,
                           (uint64_t)event->ns, about < 0 ? -1 : about);
}

/* Set-up and epochs: of the loop, and few. */
static int rare_event(mh_gather *gather, const mh_log_event *event, mh_lane_kind kind)
{
    uint32_t loader = (uint32_t)mh_log_or(event->loader, 0);
    if (event->t < 0 || event->ns < 0)
        return 1;
    return rare_add(gather, loader, kind, (uint64_t)event->ns) &&
           mh_timeline_add(gather->timeline, loader, kind, -1, (uint64_t)event->t,
                           (uint64_t)event->ns, event->epoch < 0 ? -1 : event->epoch);
}

/* --- looks: what a counter gained, or how long a value held, since the last one --- */

static double gained(uint64_t from, uint64_t to)
{
    return to > from ? (double)(to - from) : 0;
}

/* Whether a look comes too soon after the last to tell anything. */
static bool too_soon(uint64_t last, uint64_t t)
{
    return last && t < last + MH_LOOKS_APART_NS;
}

static look_record *look_of(mh_gather *gather, uint32_t what, uint32_t number)
{
    return mh_records_get(&gather->looks, (mh_record_key){what, 0, 0, number});
}

/* A process's share of memory is not told at every look. What it shares changes little, and what
 * one worker shares the others do too. */
static uint64_t memory_of(mh_gather *gather, look_record *process, const mh_log_event *event,
                          bool is_main)
{
    uint64_t rss = mh_log_or(event->rss, 0);
    if (event->pss >= 0) {
        uint64_t pss = (uint64_t)event->pss;
        process->shared = gather->shared[is_main] = rss > pss ? rss - pss : 0;
        process->shared_told = true;
        return pss;
    }
    uint64_t shared = process->shared_told ? process->shared : gather->shared[is_main];
    return rss > shared ? rss - shared : 0;
}

/* A process that was not there at the look before began since then: with no CPU time spent, and
 * soon with the memory it has. */
static void begin_process(const mh_gather *gather, look_record *process, uint64_t memory)
{
    process->t = gather->looked_before;
    process->cpu = 0;
    process->memory = memory;
}

static int usage_event(mh_gather *gather, const mh_log_event *event)
{
    mh_timeline *timeline = gather->timeline;
    bool is_main = mh_json_is(&event->role, "main");
    uint64_t t = mh_log_or(event->t, 0), cpu = mh_log_or(event->cpu, 0);
    look_record *last = look_of(gather, LOOK_PROCESS, (uint32_t)mh_log_or(event->pid, 0));
    if (!last)
        return 0;
    uint64_t memory = memory_of(gather, last, event, is_main);
    int good = 1;
    if (is_main && !too_soon(gather->looked, t)) {
        gather->looked_before = gather->looked;
        gather->looked = t;
    } else if (!is_main && !last->t) {
        begin_process(gather, last, memory);
    }
    if (too_soon(last->t, t))
        return good;
    if (last->t)
        good = mh_timeline_weigh(timeline, is_main ? MH_SERIES_CPU_MAIN : MH_SERIES_CPU_WORKERS,
                                 last->t, t, gained(last->cpu, cpu)) &&
               mh_timeline_weigh(
                   timeline, is_main ? MH_SERIES_MEMORY_MAIN : MH_SERIES_MEMORY_WORKERS, last->t, t,
                   ((double)last->memory + (double)memory) / 2 * (double)(t - last->t));
    last->t = t;
    last->cpu = cpu;
    last->memory = memory;
    return good;
}

static int system_event(mh_gather *gather, const mh_log_event *event)
{
    mh_timeline *timeline = gather->timeline;
    uint64_t t = mh_log_or(event->t, 0), available = mh_log_or(event->available, 0);
    uint64_t busy = mh_log_or(event->busy, 0), disk = mh_log_or(event->disk_read, 0);
    uint64_t net = mh_log_or(event->net_read, 0);
    look_record *last = look_of(gather, LOOK_MACHINE, 0);
    if (!last)
        return 0;
    int good = 1;
    timeline->cpus = (uint32_t)mh_log_or(event->cpus, 0);
    if (too_soon(last->t, t))
        return good;
    if (last->t) /* bytes a ns are shown as bytes a second */
        good = mh_timeline_weigh(timeline, MH_SERIES_CPU_MACHINE, last->t, t,
                                 gained(last->cpu, busy)) &&
               mh_timeline_weigh(timeline, MH_SERIES_DISK_READ, last->t, t,
                                 gained(last->disk, disk) * 1e9) &&
               mh_timeline_weigh(timeline, MH_SERIES_NET_READ, last->t, t,
                                 gained(last->net, net) * 1e9) &&
               mh_timeline_weigh(timeline, MH_SERIES_MEMORY_AVAILABLE, last->t, t,
                                 ((double)last->memory + (double)available) / 2 *
                                     (double)(t - last->t));
    last->t = t;
    last->cpu = busy;
    last->disk = disk;
    last->net = net;
    last->memory = available;
    return good;
}

/* The mean of all devices would need their number; the first stands for all. */
static int gpu_event(mh_gather *gather, const mh_log_event *event)
{
    uint64_t t = mh_log_or(event->t, 0);
    if (event->device > 0 || isnan(event->util))
        return 1;
    look_record *last = look_of(gather, LOOK_GPU, 0);
    if (!last)
        return 0;
    int good = !last->t || t <= last->t ||
               mh_timeline_weigh(gather->timeline, MH_SERIES_GPU, last->t, t,
                                 event->util * (double)(t - last->t));
    last->t = t;
    return good;
}

/* --- Earthmover's events: an end tells how long it took --- */

/* Its log names processes, and with every epoch come new ones: each takes the row of one that has
 * ended, which is the one not heard of for longest. NULL: no memory. */
static row_record *row_of(mh_gather *gather, uint32_t pid)
{
    mh_record_key key = {0, 0, 0, pid};
    row_record *record = mh_records_find(&gather->rows, key);
    if (record)
        return record;
    record = mh_records_add(&gather->rows, key);
    if (!record)
        return NULL;
    uint32_t most = MH_TIMELINE_ROWS;
    if (gather->row_workers > 0 && gather->row_workers < MH_TIMELINE_ROWS)
        most = (uint32_t)gather->row_workers;
    if (gather->row_count < most) {
        record->row = gather->row_count++;
        return record;
    }
    for (uint32_t row = 1; row < most; row++)
        if (gather->row_used[row] < gather->row_used[record->row])
            record->row = row;
    return record;
}

static int get_event(mh_gather *gather, const mh_log_event *event)
{
    const row_record *record = row_of(gather, (uint32_t)mh_log_or(event->pid, 0));
    if (!record)
        return 0;
    if (event->t < event->ns || event->ns < 0)
        return 1;
    if ((uint64_t)event->t > gather->row_used[record->row])
        gather->row_used[record->row] = (uint64_t)event->t;
    return mh_timeline_add(
        gather->timeline, 0, MH_LANE_SAMPLE, gather->row_workers == 0 ? -1 : (int64_t)record->row,
        (uint64_t)(event->t - event->ns), (uint64_t)event->ns, event->idx < 0 ? -1 : event->idx);
}

static int earth_rare(mh_gather *gather, const mh_log_event *event, mh_lane_kind kind, int which)
{
    uint64_t t = mh_log_or(event->t, 0), begin = gather->earth_open[which];
    gather->earth_open[which] = UINT64_MAX;
    if (event->ns >= 0 && event->ns <= event->t)
        begin = t - (uint64_t)event->ns;
    if (begin > t)
        return 1;
    return rare_add(gather, 0, kind, t - begin) &&
           mh_timeline_add(gather->timeline, 0, kind, -1, begin, t - begin,
                           event->epoch < 0 ? -1 : event->epoch);
}

static int earth_event(mh_gather *gather, const mh_log_event *event)
{
    switch (event->is) {
    case MH_LOG_RUN_START:
        gather->row_workers = event->workers < 0 ? 0 : event->workers;
        return 1;
    case MH_LOG_SETUP_START:
        gather->earth_open[OPEN_SETUP] = mh_log_or(event->t, UINT64_MAX);
        return 1;
    case MH_LOG_SETUP_END:
        return earth_rare(gather, event, MH_LANE_SETUP, OPEN_SETUP);
    case MH_LOG_EPOCH_START:
        gather->earth_open[OPEN_EPOCH] = mh_log_or(event->t, UINT64_MAX);
        return 1;
    case MH_LOG_EPOCH_END:
        return earth_rare(gather, event, MH_LANE_EPOCH, OPEN_EPOCH);
    case MH_LOG_GET_END:
        return get_event(gather, event);
    default:
        return 1;
    }
}

/* --- the observer --- */

static int gather_event(mh_gather *gather, const mh_log_event *event)
{
    switch (event->is) {
    case MH_LOG_SETUP:
        return rare_event(gather, event, MH_LANE_SETUP);
    case MH_LOG_EPOCH:
        return rare_event(gather, event, MH_LANE_EPOCH);
    case MH_LOG_FETCH:
        return work_event(gather, event, MH_LANE_FETCH);
    case MH_LOG_SAMPLE:
        return work_event(gather, event, MH_LANE_SAMPLE);
    case MH_LOG_COLLATE:
        return work_event(gather, event, MH_LANE_COLLATE);
    case MH_LOG_READ:
        return work_event(gather, event, MH_LANE_READ);
    case MH_LOG_DECODE:
        return work_event(gather, event, MH_LANE_DECODE);
    case MH_LOG_PLACE:
        return work_event(gather, event, MH_LANE_PLACE);
    case MH_LOG_STORAGE:
        return work_event(gather, event, MH_LANE_STORAGE);
    case MH_LOG_USAGE:
        return usage_event(gather, event);
    case MH_LOG_SYSTEM:
        return system_event(gather, event);
    case MH_LOG_GPU:
        return gpu_event(gather, event);
    default:
        return event->is < MH_LOG_RUN_START || earth_event(gather, event);
    }
}

static mh_status on_event(void *argument, const mh_log_event *event, mh_error *err)
{
    return gather_event(argument, event) ? MH_OK
                                         : mh_fail(err, MH_ERR_NOMEM, "no memory for a timeline");
}

static void on_forget(void *argument)
{
    mh_gather *gather = argument;
    mh_timeline *timeline = gather->timeline;
    mh_timeline_deinit(timeline);
    mh_gather_deinit(gather);
    mh_gather_init(gather, timeline, gather->spans);
}

/* Batches come in the end, of the loader that was chosen: theirs is loader 0 of the loop's lanes,
 * which no event writes to. */
static int on_batch(void *argument, uint64_t t, const mh_batch_cost *cost)
{
    mh_gather *gather = argument;
    mh_timeline *timeline = gather->timeline;
    uint64_t had = t + cost->wait;
    int64_t about = gather->batches++;
    int good = mh_timeline_add(timeline, 0, MH_LANE_WAIT, -1, t, cost->wait, about) &&
               mh_timeline_add(timeline, 0, MH_LANE_TRAIN, -1, had, cost->step, about);
    if (good && cost->collate != MH_NOT_MEASURED && cost->worker >= 0 && cost->transfer <= had)
        good = mh_timeline_add(timeline, 0, MH_LANE_TRANSFER, cost->worker, had - cost->transfer,
                               cost->transfer, about);
    return good;
}

mh_run_observer mh_gather_observer(mh_gather *gather)
{
    return (mh_run_observer){gather, on_event, on_forget, on_batch};
}
