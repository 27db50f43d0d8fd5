/* batches.c - our own events: what every batch cost, how the loader was set up
 * SPDX-License-Identifier: Apache-2.0
 */
#include "diagnose/run_reader.h"

#include "base/alloc.h"
#include "base/error.h"
#include "plan/batch_costs.h"
#include <stdlib.h>
#include <string.h>

/* Steps of a timer count as batches of a loader of this number where there are no others. */
#define TIMER_LOADER UINT32_MAX

/* A batch. Key: loader, epoch, 0, batch. The consumer's events fill its cost while they are read;
 * what the worker tells is added in the end. */
typedef struct wait_record {
    mh_record_key key;
    uint64_t t;
    uint32_t nth;
    uint32_t waited; /* 1: its wait was seen, not only its step */
    uint32_t made;   /* 1: its cost holds what its worker reported */
    mh_batch_cost cost;
} wait_record;

/* What its worker reported. */
typedef struct work_record {
    mh_record_key key;
    uint64_t t; /* when it began */
    uint64_t fetch, fetch_cpu, fetch_delay, excess;
    uint64_t collate, collate_cpu, collate_delay;
    uint64_t made; /* when the last of its parts was; 0: not known */
    uint64_t fetch_helpers, collate_helpers, read;
    uint32_t samples, probes, native;
    uint8_t fetched, collated, no_cpu;
} work_record;

void mh_batches_init(mh_batches *batches)
{
    *batches = (mh_batches){.waits.size = sizeof(wait_record),
                            .works.size = sizeof(work_record),
                            .first_t = UINT64_MAX};
}

void mh_batches_deinit(mh_batches *batches)
{
    mh_records_deinit(&batches->waits);
    mh_records_deinit(&batches->works);
    mh_free(batches->samples.items);
    mh_free(batches->loaders);
}

/* --- events --- */

static mh_loader_seen *loader_of(mh_batches *batches, uint32_t loader)
{
    for (size_t at = 0; at < batches->loader_count; at++)
        if (batches->loaders[at].loader == loader)
            return &batches->loaders[at];
    void *items = batches->loaders;
    if (!mh_array_reserve(&items, &batches->loader_room, batches->loader_count,
                          sizeof *batches->loaders))
        return NULL;
    batches->loaders = items;
    mh_loader_seen *seen = &batches->loaders[batches->loader_count++];
    *seen = (mh_loader_seen){.loader = loader,
                             .workers = -1,
                             .prefetch = -1,
                             .batch_size = -1,
                             .in_order = -1,
                             .persistent = -1,
                             .pin_memory = -1,
                             .cpus = -1};
    return seen;
}

static int setting(int64_t value)
{
    return value < 0 || value > INT32_MAX ? -1 : (int)value;
}

static int loader_event(mh_batches *batches, const mh_log_event *event)
{
    mh_loader_seen *seen = loader_of(batches, (uint32_t)mh_log_or(event->loader, 0));
    if (!seen)
        return 0;
    seen->workers = setting(event->workers);
    seen->prefetch = setting(event->prefetch);
    seen->batch_size = setting(event->batch_size);
    seen->in_order = setting(event->in_order);
    seen->persistent = setting(event->persistent);
    seen->pin_memory = setting(event->pin_memory);
    seen->cpus = setting(event->cpus);
    seen->by_sample = mh_json_is(&event->dispatch, "sample");
    (void)mh_json_text(&event->start, seen->start, sizeof seen->start);
    (void)mh_json_text(&event->kind, seen->kind, sizeof seen->kind);
    seen->iterable = event->iterable > 0;
    (void)mh_json_text(&event->dataset, seen->dataset, sizeof seen->dataset);
    (void)mh_json_text(&event->place, seen->place, sizeof seen->place);
    return 1;
}

/* What the threads of a native loader did since they last told. */
static int stages_event(mh_batches *batches, const mh_log_event *event)
{
    mh_loader_seen *seen = loader_of(batches, (uint32_t)mh_log_or(event->loader, 0));
    if (!seen)
        return 0;
    mh_native_sum *native = &seen->native;
    native->threads = setting(event->threads);
    native->in_flight = setting(event->in_flight);
    native->samples += mh_log_or(event->samples, 0);
    native->cpu_ns += mh_log_or(event->cpu, 0);
    native->reads += mh_log_or(event->reads, 0);
    native->latency_ns += mh_log_or(event->latency, 0);
    native->bytes += mh_log_or(event->bytes, 0);
    native->wait_read_ns += mh_log_or(event->wait_read, 0);
    native->wait_decode_ns += mh_log_or(event->wait_decode, 0);
    native->wait_place_ns += mh_log_or(event->wait_place, 0);
    native->pin_ns += mh_log_or(event->pin, 0);
    native->map_ns += mh_log_or(event->map, 0);
    native->requests += mh_log_or(event->requests, 0);
    native->cache_hits += mh_log_or(event->cache_hits, 0);
    native->cache_misses += mh_log_or(event->cache_misses, 0);
    native->cache_bytes += mh_log_or(event->cache_bytes, 0);
    native->cache_evicted += mh_log_or(event->cache_evicted, 0);
    return 1;
}

static int setup_event(mh_batches *batches, const mh_log_event *event)
{
    mh_loader_seen *seen = loader_of(batches, (uint32_t)mh_log_or(event->loader, 0));
    if (!seen)
        return 0;
    if (!seen->set_up++)
        seen->first_setup_ns = mh_log_or(event->ns, 0);
    seen->setup_ns += mh_log_or(event->ns, 0);
    seen->setup_order_ns += mh_log_or(event->order, 0);
    seen->setup_t = mh_log_or(event->t, 0);
    seen->setup_epoch = mh_log_or(event->epoch, 0);
    if (seen->ended_t && seen->setup_t > seen->ended_t)
        seen->between_ns += seen->setup_t - seen->ended_t;
    seen->ended_t = 0;
    return 1;
}

static int epoch_event(mh_batches *batches, const mh_log_event *event)
{
    mh_loader_seen *seen = loader_of(batches, (uint32_t)mh_log_or(event->loader, 0));
    if (!seen)
        return 0;
    uint64_t ended = mh_log_or(event->t, 0) + mh_log_or(event->ns, 0);
    uint64_t epoch = mh_log_or(event->epoch, 0);
    /* an iterator that is left early ends when it is replaced: the next one is made by then */
    if (epoch >= seen->setup_epoch)
        seen->ended_t = ended;
    else if (epoch + 1 == seen->setup_epoch && seen->setup_t > ended)
        seen->between_ns += seen->setup_t - ended;
    return 1;
}

static mh_record_key wait_key(const mh_log_event *event)
{
    return (mh_record_key){(uint32_t)mh_log_or(event->loader, 0),
                           (uint32_t)mh_log_or(event->epoch, 0), 0,
                           (uint32_t)mh_log_or(event->batch, 0)};
}

static wait_record *wait_add(mh_batches *batches, mh_record_key key)
{
    wait_record *record = mh_records_add(&batches->waits, key);
    if (record)
        record->cost = (mh_batch_cost){
            .wait_cpu = MH_NOT_MEASURED,
            .step_train = MH_NOT_MEASURED,
            .step_cpu = MH_NOT_MEASURED,
            .fetch = MH_NOT_MEASURED,
            .fetch_cpu = MH_NOT_MEASURED,
            .collate = MH_NOT_MEASURED,
            .collate_cpu = MH_NOT_MEASURED,
            .epoch = key.epoch,
            .worker = -1,
        };
    return record;
}

static wait_record *wait_get(mh_batches *batches, mh_record_key key)
{
    wait_record *record = mh_records_find(&batches->waits, key);
    return record ? record : wait_add(batches, key);
}

static int wait_event(mh_batches *batches, const mh_log_event *event)
{
    wait_record *record = wait_get(batches, wait_key(event));
    if (record && record->waited) /* the same number again: another batch */
        record = wait_add(batches, wait_key(event));
    mh_loader_seen *seen = record ? loader_of(batches, record->key.loader) : NULL;
    if (!seen)
        return 0;
    record->waited = 1;
    record->t = mh_log_or(event->t, 0);
    record->nth = (uint32_t)mh_log_or(event->nth, mh_log_or(event->batch, 0));
    record->cost.wait = mh_log_or(event->ns, 0);
    record->cost.wait_cpu = mh_log_or(event->cpu, MH_NOT_MEASURED);
    record->cost.wait_delay = mh_log_or(event->delay, 0);
    record->cost.worker = event->worker < 0 ? -1 : (int32_t)event->worker;
    record->cost.samples = (uint32_t)mh_log_or(event->samples, 0);
    seen->waited++;
    seen->total_ns += record->cost.wait;
    seen->wait_ns += record->cost.wait;
    if (record->key.nth == 0)
        seen->first_wait_ns = record->cost.wait;
    if (mh_log_or(event->bytes, 0) > seen->batch_bytes)
        seen->batch_bytes = (uint64_t)event->bytes;
    if (mh_log_or(event->texts, 0) > seen->batch_texts)
        seen->batch_texts = (uint64_t)event->texts;
    batches->seen = 1;
    return 1;
}

static int step_event(mh_batches *batches, const mh_log_event *event)
{
    wait_record *record = wait_get(batches, wait_key(event));
    mh_loader_seen *seen = record ? loader_of(batches, record->key.loader) : NULL;
    if (!seen)
        return 0;
    record->cost.step = mh_log_or(event->ns, 0);
    record->cost.step_cpu = mh_log_or(event->cpu, MH_NOT_MEASURED);
    record->cost.step_delay = mh_log_or(event->delay, 0);
    record->cost.step_train = mh_log_or(event->train, MH_NOT_MEASURED);
    record->cost.step_own = mh_log_or(event->own, 0);
    seen->total_ns += record->cost.step;
    return 1;
}

/* A timer's phases: data is the wait, the rest the step. */
static int phase_event(mh_batches *batches, const mh_log_event *event)
{
    mh_record_key key = {TIMER_LOADER, 0, 0, (uint32_t)mh_log_or(event->step, 0)};
    wait_record *record = wait_get(batches, key);
    uint64_t ns = mh_log_or(event->ns, 0);
    if (!record)
        return 0;
    if (!record->waited || mh_log_or(event->t, 0) < record->t)
        record->t = mh_log_or(event->t, 0);
    record->waited = 1;
    *(mh_json_is(&event->name, "data") ? &record->cost.wait : &record->cost.step) += ns;
    batches->seen = 1;
    return loader_of(batches, TIMER_LOADER) != NULL;
}

static work_record *work_get(mh_batches *batches, const mh_log_event *event)
{
    mh_record_key key = {
        (uint32_t)mh_log_or(event->loader, 0), (uint32_t)mh_log_or(event->epoch, 0),
        event->worker < 0 ? -1 : (int32_t)event->worker, (uint32_t)mh_log_or(event->nth, 0)};
    return mh_records_get(&batches->works, key);
}

static void add_end(work_record *work, const mh_log_event *event)
{
    uint64_t end = mh_log_or(event->t, 0) + mh_log_or(event->ns, 0);
    if (event->t >= 0 && end > work->made)
        work->made = end;
}

/* Added up: several workers may have made parts of one batch. */
static int fetch_event(mh_batches *batches, const mh_log_event *event)
{
    work_record *work = work_get(batches, event);
    if (!work)
        return 0;
    if (!work->fetched)
        work->t = mh_log_or(event->t, 0);
    work->fetched = 1;
    work->fetch += mh_log_or(event->ns, 0);
    work->fetch_cpu += mh_log_or(event->cpu, 0);
    work->no_cpu |= event->cpu < 0;
    work->fetch_delay += mh_log_or(event->delay, 0);
    work->fetch_helpers += mh_log_or(event->helpers, 0);
    work->read += mh_log_or(event->read, 0);
    work->samples += (uint32_t)mh_log_or(event->samples, 0);
    work->probes += (uint32_t)mh_log_or(event->probes, 0);
    work->native += (uint32_t)mh_log_or(event->native, 0);
    add_end(work, event);
    return 1;
}

static int collate_event(mh_batches *batches, const mh_log_event *event)
{
    work_record *work = work_get(batches, event);
    if (!work)
        return 0;
    work->collated = 1;
    work->collate += mh_log_or(event->ns, 0);
    work->collate_cpu += mh_log_or(event->cpu, 0);
    work->collate_delay += mh_log_or(event->delay, 0);
    work->collate_helpers += mh_log_or(event->helpers, 0);
    add_end(work, event);
    return 1;
}

static int sample_event(mh_batches *batches, const mh_log_event *event)
{
    const work_record *work = work_get(batches, event);
    return work && mh_samples_add(&batches->samples, mh_log_or(event->ns, 0),
                                  (uint32_t)mh_records_number(&batches->works, work));
}

/* It comes before its batch's own events, which are held back for a moment. */
static int order_event(mh_batches *batches, const mh_log_event *event)
{
    wait_record *record = wait_get(batches, wait_key(event));
    if (record)
        record->cost.order += mh_log_or(event->ns, 0);
    return record != NULL;
}

int mh_batches_event(mh_batches *batches, const mh_log_event *event)
{
    static int (*const handlers[MH_LOG_KINDS])(mh_batches *, const mh_log_event *) = {
        [MH_LOG_LOADER] = loader_event,   [MH_LOG_SETUP] = setup_event,
        [MH_LOG_WAIT] = wait_event,       [MH_LOG_STEP] = step_event,
        [MH_LOG_PHASE] = phase_event,     [MH_LOG_FETCH] = fetch_event,
        [MH_LOG_COLLATE] = collate_event, [MH_LOG_SAMPLE] = sample_event,
        [MH_LOG_ORDER] = order_event,     [MH_LOG_EPOCH] = epoch_event,
        [MH_LOG_STAGES] = stages_event,
    };
    if (event->t >= 0) {
        uint64_t begin = (uint64_t)event->t, end = begin;
        if (event->is != MH_LOG_END) /* its ns count from the header */
            end += mh_log_or(event->ns, 0);
        batches->first_t = begin < batches->first_t ? begin : batches->first_t;
        batches->last_t = end > batches->last_t ? end : batches->last_t;
        if (handlers[event->is] && end > batches->worked_t)
            batches->worked_t = end;
    }
    return handlers[event->is] ? handlers[event->is](batches, event) : 1;
}

/* --- facts --- */

/* Whether two loaders may be one that the program makes anew for every epoch: of as many batches,
 * but for a few where one epoch was left early. One that validates has fewer. */
static int made_alike(const mh_loader_seen *a, const mh_loader_seen *b)
{
    uint64_t few = a->waited < b->waited ? a->waited : b->waited;
    uint64_t many = a->waited < b->waited ? b->waited : a->waited;
    return many - few <= many / 10 && a->set_up == 1 && b->set_up == 1 && a->workers > 0 &&
           a->workers == b->workers && a->prefetch == b->prefetch &&
           a->batch_size == b->batch_size && a->in_order == b->in_order &&
           a->by_sample == b->by_sample && strcmp(a->kind, b->kind) == 0 &&
           strcmp(a->start, b->start) == 0;
}

/* Waits below this share of the time are nobody's trouble. */
#define WAITS_MATTER 0.05
/* A loader with fewer batches cannot be judged: Lightning's sanity check is one. */
#define BATCHES_TO_JUDGE 21

/* Whether `a` is to be judged rather than `b`: the one the loop waits for, where it waits, else the
 * one most time goes to. */
static int goes_first(const mh_loader_seen *a, const mh_loader_seen *b, int waits)
{
    int enough = a->waited >= BATCHES_TO_JUDGE;
    if (enough != (b->waited >= BATCHES_TO_JUDGE))
        return enough;
    return waits ? a->wait_ns > b->wait_ns : a->total_ns > b->total_ns;
}

/* The loader to judge; a timer only where there is no other. */
static mh_loader_seen *loader_choose(mh_batches *batches, mh_run *run)
{
    mh_loader_seen *chosen = NULL;
    uint64_t all_ns = 0, wait_ns = 0;
    for (size_t at = 0; at < batches->loader_count; at++) {
        const mh_loader_seen *seen = &batches->loaders[at];
        if (seen->loader == TIMER_LOADER || !seen->waited)
            continue;
        all_ns += seen->total_ns;
        wait_ns = seen->wait_ns > wait_ns ? seen->wait_ns : wait_ns;
    }
    int waits = (double)wait_ns >= WAITS_MATTER * (double)all_ns;
    for (size_t at = 0; at < batches->loader_count; at++) {
        mh_loader_seen *seen = &batches->loaders[at];
        if (seen->loader == TIMER_LOADER || !seen->waited)
            continue;
        run->other_loaders += chosen != NULL;
        if (!chosen || goes_first(seen, chosen, waits))
            chosen = seen;
    }
    if (!chosen)
        return loader_of(batches, TIMER_LOADER);
    run->other_loaders_ns = all_ns - chosen->total_ns;
    run->facts.other_ns = run->other_loaders_ns;
    for (size_t at = 0; at < batches->loader_count; at++) {
        const mh_loader_seen *seen = &batches->loaders[at];
        if (seen == chosen || !seen->waited || !made_alike(seen, chosen))
            continue;
        run->facts.remade++; /* the same fix serves them */
        run->facts.remade_ns += seen->setup_ns + seen->total_ns;
        run->facts.remade_start_ns += seen->setup_ns + seen->first_wait_ns;
        run->facts.other_ns -= seen->total_ns;
    }
    return chosen;
}

static int by_time(const void *a, const void *b)
{
    const wait_record *x = a, *y = b;
    return (x->t > y->t) - (x->t < y->t);
}

/* Leaves the waits of one loader, in the order of their times. The index is gone then. */
static size_t waits_keep(mh_records *waits, uint32_t loader)
{
    size_t kept = 0;
    bool ordered = true;
    for (size_t at = 0; at < waits->count; at++) {
        const wait_record *record = mh_records_at(waits, at);
        if (!record->waited || record->key.loader != loader)
            continue;
        const wait_record *before = mh_records_at(waits, kept ? kept - 1 : 0);
        ordered &= kept == 0 || before->t <= record->t;
        memmove(mh_records_at(waits, kept++), record, sizeof *record);
    }
    mh_free(waits->index);
    waits->index = NULL;
    waits->slots = 0;
    waits->count = kept;
    if (!ordered)
        qsort(waits->items, kept, waits->size, by_time);
    return kept;
}

/* What no log can tell more of (see mh_ns). */
#define MOST 1e15

static uint64_t part_of(double share, double sum)
{
    double part = share * sum;
    return (uint64_t)(part < MOST ? part : MOST);
}

/* A batch that several workers made, or one whose maker is not known, has its samples' share of all
 * that they did. Of how it was taken over only the sampler's part is known. */
static void add_share(const mh_work_sum *sum, mh_batch_cost *cost)
{
    double share = cost->samples / sum->samples;
    cost->fetch = part_of(share, sum->fetch);
    cost->fetch_cpu = sum->no_cpu ? MH_NOT_MEASURED : part_of(share, sum->fetch_cpu);
    cost->fetch_delay = part_of(share, sum->fetch_delay);
    cost->fetch_helpers = part_of(share, sum->fetch_helpers);
    cost->read_bytes = part_of(share, sum->read);
    cost->collate = part_of(share, sum->collate);
    cost->collate_cpu = part_of(share, sum->collate_cpu);
    cost->collate_delay = part_of(share, sum->collate_delay);
    cost->collate_helpers = part_of(share, sum->collate_helpers);
    cost->transfer = cost->order < cost->wait ? cost->order : cost->wait;
}

/* Adds what the worker reported. */
static void add_work(const mh_batches *batches, wait_record *wait)
{
    mh_batch_cost *cost = &wait->cost;
    mh_record_key key = {wait->key.loader, wait->key.epoch, cost->worker, wait->nth};
    if (wait->made)
        return;
    const work_record *work = mh_records_find(&batches->works, key);
    if (work && work->fetched) {
        cost->fetch = work->fetch;
        cost->fetch_cpu = work->no_cpu ? MH_NOT_MEASURED : work->fetch_cpu;
        cost->fetch_delay = work->fetch_delay;
        cost->fetch_helpers = work->fetch_helpers;
        cost->fetch_excess = work->excess;
        cost->read_bytes = work->read;
        if (!cost->samples)
            cost->samples = work->samples;
    }
    if (work && work->made) {
        uint64_t had = wait->t + cost->wait;
        uint64_t from = work->made > wait->t ? work->made : wait->t;
        cost->transfer = had > from ? had - from : 0;
    }
    if (work && work->collated) {
        cost->collate = work->collate;
        cost->collate_cpu = work->collate_cpu;
        cost->collate_delay = work->collate_delay;
        cost->collate_helpers = work->collate_helpers;
    }
    if (!work && cost->worker < 0 && cost->samples && batches->sum.samples > 0)
        add_share(&batches->sum, cost);
}

/* --- dispatch="sample": workers take runs of samples in the order of batches --- */

typedef struct shared_run {
    uint64_t t;
    uint32_t epoch, work;
} shared_run;

static int by_epoch(const void *a, const void *b)
{
    const shared_run *x = a, *y = b;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    return (x->t > y->t) - (x->t < y->t);
}

static void add_run(wait_record *wait, const work_record *work)
{
    mh_batch_cost *cost = &wait->cost;
    if (!wait->made) {
        wait->made = 1;
        cost->fetch = cost->fetch_cpu = cost->collate = cost->collate_cpu = 0;
        cost->transfer = cost->order < cost->wait ? cost->order : cost->wait;
    }
    cost->fetch += work->fetch;
    if (work->no_cpu || cost->fetch_cpu == MH_NOT_MEASURED)
        cost->fetch_cpu = MH_NOT_MEASURED;
    else
        cost->fetch_cpu += work->fetch_cpu;
    cost->fetch_delay += work->fetch_delay;
    cost->fetch_helpers += work->fetch_helpers;
    cost->fetch_excess += work->excess;
    cost->read_bytes += work->read;
    cost->collate += work->collate;
    cost->collate_cpu += work->collate_cpu;
    cost->collate_delay += work->collate_delay;
    cost->collate_helpers += work->collate_helpers;
}

/* One epoch's runs to its batches, by position. Where there are fewer samples than were delivered,
 * or more than can have been on their way, somebody fetched twice or passed over some: then no
 * run's position is known. */
static void give_runs(mh_batches *batches, const mh_loader_seen *seen, size_t first, size_t end,
                      const shared_run *runs, size_t count)
{
    double delivered = 0, made = 0, position = 0;
    double ahead = (double)seen->workers * seen->prefetch * seen->batch_size;
    for (size_t at = first; at < end; at++)
        delivered += ((const wait_record *)mh_records_at(&batches->waits, at))->cost.samples;
    for (size_t at = 0; at < count; at++)
        made += ((const work_record *)mh_records_at(&batches->works, runs[at].work))->samples;
    if (made < delivered || made > delivered + ahead)
        return;
    wait_record *wait = mh_records_at(&batches->waits, first);
    double ends = wait->cost.samples; /* where the samples of that batch do */
    for (size_t at = 0; at < count; at++) {
        const work_record *work = mh_records_at(&batches->works, runs[at].work);
        double middle = position + work->samples / 2.0;
        position += work->samples;
        while (middle >= ends) {
            if (++first == end)
                return;
            wait = mh_records_at(&batches->waits, first);
            ends += wait->cost.samples;
        }
        add_run(wait, work);
    }
}

/* Finds out which batch each run was of. Not where batches come as they are ready: nobody tells
 * which one a wait was for. */
static mh_status give_all_runs(mh_batches *batches, const mh_loader_seen *seen, mh_error *err)
{
    size_t count = 0, from = 0, waits = batches->waits.count;
    if (!seen->by_sample || seen->workers <= 0 || seen->in_order == 0)
        return MH_OK;
    shared_run *runs = mh_calloc(batches->works.count + 1, sizeof *runs);
    if (!runs)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu runs", batches->works.count);
    for (size_t at = 0; at < batches->works.count; at++) {
        const work_record *work = mh_records_at(&batches->works, at);
        if (work->fetched && work->key.loader == seen->loader && work->key.worker >= 0)
            runs[count++] = (shared_run){work->t, work->key.epoch, (uint32_t)at};
    }
    qsort(runs, count, sizeof *runs, by_epoch);
    for (size_t first = 0, end; first < waits; first = end) {
        uint32_t epoch = ((const wait_record *)mh_records_at(&batches->waits, first))->key.epoch;
        for (end = first + 1; end < waits; end++)
            if (((const wait_record *)mh_records_at(&batches->waits, end))->key.epoch != epoch)
                break;
        while (from < count && runs[from].epoch < epoch)
            from++;
        size_t to = from;
        while (to < count && runs[to].epoch == epoch)
            to++;
        give_runs(batches, seen, first, end, runs + from, to - from);
        from = to;
    }
    mh_free(runs);
    return MH_OK;
}

/* Makes the records an array of costs where they lie: a run of millions of batches is not kept
 * twice. The array is the run's then. 0: no memory. */
static int costs_take(mh_batches *batches, mh_run *run)
{
    mh_records *waits = &batches->waits;
    size_t count = waits->count;
    int good = 1;
    for (size_t at = 0; at < count; at++) {
        wait_record *wait = mh_records_at(waits, at);
        add_work(batches, wait);
        good = good && mh_run_tell(run, wait->t, &wait->cost);
        memmove(waits->items + at * sizeof wait->cost, &wait->cost, sizeof wait->cost);
    }
    void *shrunk = mh_realloc(waits->items, count, sizeof(mh_batch_cost)); /* NULL: left as it is */
    run->batches = shrunk ? shrunk : (mh_batch_cost *)(void *)waits->items;
    run->facts.batches = run->batches;
    run->facts.batch_count = count;
    waits->items = NULL;
    mh_records_deinit(waits);
    return good;
}

static void settings_facts(const mh_loader_seen *seen, mh_facts *facts)
{
    facts->workers = seen->workers;
    facts->prefetch = seen->prefetch;
    facts->batch_size = seen->batch_size;
    facts->in_order = seen->in_order;
    facts->by_sample = seen->by_sample;
    facts->iterable = seen->iterable;
    memcpy(facts->dataset, seen->dataset, sizeof facts->dataset);
    memcpy(facts->place, seen->place, sizeof facts->place);
    facts->persistent = seen->persistent;
    facts->pin_memory = seen->pin_memory;
    facts->cpus = seen->cpus;
    facts->setup_ns = seen->setup_ns;
    facts->setup_order_ns = seen->setup_order_ns;
    facts->between_ns = seen->between_ns;
    facts->batch_bytes = seen->batch_bytes;
    facts->batch_texts = seen->batch_texts;
    facts->native = seen->native;
    memcpy(facts->start, seen->start, sizeof facts->start);
    memcpy(facts->kind, seen->kind, sizeof facts->kind);
}

/* In its first batch a worker imports, opens files and fills caches: that is its start. */
static int add_excess(void *argument, uint32_t number, uint64_t ns)
{
    mh_batches *batches = argument;
    work_record *work = mh_records_at(&batches->works, number);
    if (work->key.nth == 0)
        return 0;
    work->excess += ns;
    return 1;
}

static void add_to_sum(mh_work_sum *sum, const work_record *work)
{
    sum->samples += work->samples;
    sum->fetch += mh_ns(work->fetch);
    sum->fetch_cpu += mh_ns(work->fetch_cpu);
    sum->fetch_delay += mh_ns(work->fetch_delay);
    sum->fetch_helpers += mh_ns(work->fetch_helpers);
    sum->read += mh_ns(work->read);
    sum->collate += mh_ns(work->collate);
    sum->collate_cpu += mh_ns(work->collate_cpu);
    sum->collate_delay += mh_ns(work->collate_delay);
    sum->collate_helpers += mh_ns(work->collate_helpers);
    sum->no_cpu |= work->no_cpu;
}

/* Samples and probes of the loader's workers. */
static mh_status works_facts(mh_batches *batches, uint32_t loader, mh_facts *facts, mh_error *err)
{
    uint64_t all = 0, fetch_ns = 0, sampled_ns = 0;
    size_t kept = 0;
    for (size_t at = 0; at < batches->works.count; at++) {
        const work_record *work = mh_records_at(&batches->works, at);
        if (work->key.loader != loader)
            continue;
        all += work->samples;
        fetch_ns += work->fetch;
        if (facts->workers > 0)
            add_to_sum(&batches->sum, work);
        facts->probes += work->probes;
        facts->probes_native += work->native;
    }
    for (size_t at = 0; at < batches->samples.count; at++) {
        mh_sample_time sample = batches->samples.items[at];
        const work_record *work = mh_records_at(&batches->works, sample.work);
        if (work->key.loader != loader)
            continue;
        sampled_ns += sample.ns;
        batches->samples.items[kept++] = sample;
    }
    batches->samples.count = kept;
    return mh_samples_facts(&batches->samples, all,
                            fetch_ns > sampled_ns ? fetch_ns - sampled_ns : 0, facts, add_excess,
                            batches, err);
}

mh_status mh_batches_facts(mh_batches *batches, mh_run *run, uint64_t *steady, mh_error *err)
{
    const mh_loader_seen *seen = loader_choose(batches, run);
    if (!seen)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a loader's settings");
    settings_facts(seen, &run->facts);
    run->facts.run_ns = batches->last_t > batches->first_t ? batches->last_t - batches->first_t : 0;
    MH_TRY(works_facts(batches, seen->loader, &run->facts, err));
    size_t count = waits_keep(&batches->waits, seen->loader);
    if (!count)
        return MH_OK;
    const wait_record *first = mh_records_at(&batches->waits, 0);
    *steady = first->t + first->cost.wait;
    run->setup_s = (double)(seen->first_setup_ns + first->cost.wait) / 1e9;
    run->loader = seen->loader;
    MH_TRY(give_all_runs(batches, seen, err));
    if (!costs_take(batches, run))
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu batches", count);
    uint64_t *waits = run->sorted_waits = mh_calloc(count, sizeof *waits);
    if (!waits)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu waits", count);
    for (size_t at = 0; at < count; at++) {
        mh_batch_cost *cost = &run->batches[at];
        cost->first = at == 0 || cost->epoch != cost[-1].epoch;
        run->facts.epochs += cost->first;
        if (at)
            waits[at - 1] = cost->wait;
    }
    run->waits = mh_waits_of(waits, count - 1);
    return MH_OK;
}
