/* earthmover.c - events of Earthmover's dataloader-demo: what its batches cost
 * SPDX-License-Identifier: Apache-2.0
 *
 * The log has training steps and, in spite of the name "get-batch", of single samples by the
 * pid of their worker. Events are in the order of printing, so everything is sorted by time first.
 */
#include "diagnose/run_reader.h"

#include "base/alloc.h"
#include "base/error.h"
#include <stdio.h>
#include <stdlib.h>

/* A batch as a process fetched it. */
typedef struct fetched {
    uint64_t begin, ns, excess;
    uint64_t end; /* of its last sample; without workers */
    uint32_t samples;
    int32_t worker;
} fetched;

void mh_earth_init(mh_earth *earth)
{
    *earth = (mh_earth){.setup_start = MH_NOT_MEASURED,
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
    mh_free(earth->gets);
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

static int get_add(mh_earth *earth, const mh_log_event *event)
{
    void *items = earth->gets;
    uint64_t ns = mh_log_or(event->ns, 0), end = (uint64_t)event->t;
    if (!mh_array_reserve(&items, &earth->get_room, earth->get_count, sizeof *earth->gets))
        return 0;
    earth->gets = items;
    earth->gets[earth->get_count++] = (mh_earth_get){
        .begin = ns < end ? end - ns : 0,
        .ns = ns,
        .pid = (uint32_t)mh_log_or(event->pid, 0),
    };
    return 1;
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
        return get_add(earth, event);
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

/* --- samples by process, batches of them --- */

static int by_process(const void *a, const void *b)
{
    const mh_earth_get *x = a, *y = b;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int by_begin(const void *a, const void *b)
{
    const fetched *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* How many of the sorted gets from `at` on are of one process. */
static size_t of_one_process(const mh_earth *earth, size_t at)
{
    size_t next = at;
    while (next < earth->get_count && earth->gets[next].pid == earth->gets[at].pid)
        next++;
    return next - at;
}

static size_t greatest_divisor(size_t a, size_t b)
{
    while (b) {
        size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Whether the nth training step lies over the sample. */
static bool overlaps(const walk *w, size_t nth, const mh_earth_get *get)
{
    return get->begin < w->starts[nth] + w->batches[nth].step &&
           get->begin + get->ns > w->starts[nth];
}

/* Without the start of the run: a loop that never trains while it fetches has no workers, and
 * between two of its steps lies one batch. Workers fetch whole batches, so the numbers of their
 * samples have the batch size as a divisor. */
static void settings_guess(mh_earth *earth, const walk *w)
{
    size_t processes = 0, divisor = 0, step = 0, between = 0;
    bool apart = true;
    for (size_t at = 0, count; at < earth->get_count; at += count, processes++) {
        count = of_one_process(earth, at);
        divisor = greatest_divisor(count, divisor);
    }
    for (size_t at = 0; at < earth->get_count && processes == 1; at++) {
        while (step < w->count && w->starts[step] + w->batches[step].step <= earth->gets[at].begin)
            step++;
        apart &= step == w->count || !overlaps(w, step, &earth->gets[at]);
        between += step == 1;
    }
    if (!processes || !w->count)
        return;
    bool alone = processes == 1 && apart;
    earth->workers = alone ? 0 : (int)processes;
    earth->batch_size = (int)(alone ? between : divisor);
}

/* Cuts every process's samples into batches; *out is to be freed. */
static mh_status make_batches(const mh_earth *earth, fetched **out, size_t *count,
                              mh_samples *samples, mh_error *err)
{
    size_t size = (size_t)earth->batch_size, process = 0;
    fetched *made = mh_calloc(earth->get_count + 1, sizeof *made);
    bool good = made != NULL;
    for (size_t at = 0, many; good && at < earth->get_count; at += many, process++) {
        many = of_one_process(earth, at);
        for (size_t nth = 0; good && nth < many; nth++) {
            const mh_earth_get *get = &earth->gets[at + nth];
            if (nth % size == 0)
                made[(*count)++] = (fetched){
                    .begin = get->begin,
                    .worker = earth->workers > 0 ? (int32_t)process : -1,
                };
            made[*count - 1].ns += get->ns;
            made[*count - 1].samples++;
            good = mh_samples_add(samples, get->ns, (uint32_t)*count - 1);
        }
    }
    *out = made;
    return good ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory for %zu samples", earth->get_count);
}

static int add_excess(void *argument, uint32_t work, uint64_t ns)
{
    ((fetched *)argument)[work].excess += ns;
    return 1;
}

/* Which fetched batch was delivered when is not in the log. Loaders hand out orders in turn, so the
 * nth delivered in an epoch is taken for the nth begun in it. */
static void walk_fetched(walk *w, const fetched *made, size_t count)
{
    for (size_t at = 0, next = 0; at < w->count; at++, next++) {
        mh_batch_cost *cost = &w->batches[at];
        /* a wait of 0: the beginning is not known */
        uint64_t epoch_begin = cost->first && cost->wait ? w->starts[at] - cost->wait : 0;
        while (next < count && made[next].begin < epoch_begin)
            next++;
        if (next == count)
            return;
        cost->fetch = made[next].ns;
        cost->fetch_excess = made[next].excess;
        cost->samples = made[next].samples;
        cost->worker = made[next].worker;
    }
}

/* Without workers a batch is what was fetched between two steps. Where lines of it are lost, or
 * there are too many, its wait is all that is known. *out is to be freed. */
static mh_status batches_between_steps(const mh_earth *earth, const walk *w, fetched **out,
                                       mh_samples *samples, mh_error *err)
{
    fetched *made = mh_calloc(w->count + 1, sizeof *made);
    bool good = made != NULL;
    for (size_t at = 0, step = 0; good && at < earth->get_count; at++) {
        const mh_earth_get *get = &earth->gets[at];
        if (at && get->pid != get[-1].pid) /* another run in the same log */
            step = 0;
        while (step < w->count && w->starts[step] <= get->begin)
            step++;
        made[step].ns += get->ns;
        made[step].end = get->begin + get->ns;
        made[step].samples++;
        good = mh_samples_add(samples, get->ns, (uint32_t)step);
    }
    *out = made;
    return good ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory for %zu samples", earth->get_count);
}

static void walk_between_steps(const mh_earth *earth, walk *w, const fetched *made)
{
    for (size_t at = 0; at < w->count; at++) {
        mh_batch_cost *cost = &w->batches[at];
        cost->samples = made[at].samples;
        if ((int64_t)made[at].samples != earth->batch_size)
            continue;
        cost->fetch = made[at].ns;
        cost->fetch_excess = made[at].excess;
        cost->collate = w->starts[at] > made[at].end ? w->starts[at] - made[at].end : 0;
    }
}

static mh_status gets_facts(mh_earth *earth, walk *w, mh_facts *facts, mh_error *err)
{
    fetched *made = NULL;
    mh_samples samples = {0};
    size_t count = 0;
    if (!earth->get_count)
        return MH_OK;
    qsort(earth->gets, earth->get_count, sizeof *earth->gets, by_process);
    if (earth->workers < 0)
        settings_guess(earth, w);
    if (earth->batch_size <= 0)
        return MH_OK;
    bool alone = earth->workers == 0;
    mh_status status = alone ? batches_between_steps(earth, w, &made, &samples, err)
                             : make_batches(earth, &made, &count, &samples, err);
    if (status == MH_OK)
        status = mh_samples_facts(&samples, samples.count, 0, facts, add_excess, made, err);
    if (status == MH_OK && alone) {
        walk_between_steps(earth, w, made);
    } else if (status == MH_OK) {
        qsort(made, count, sizeof *made, by_begin);
        walk_fetched(w, made, count);
    }
    mh_free(samples.items);
    mh_free(made);
    return status;
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
    if (earth->workers >= 0) /* with workers the demo always uses forkserver */
        (void)snprintf(facts->start, sizeof facts->start, "%s",
                       earth->workers ? "forkserver" : "none");
    (void)snprintf(facts->kind, sizeof facts->kind, "earthmover");
}

mh_status mh_earth_facts(mh_earth *earth, mh_run *run, mh_error *err)
{
    size_t most = earth->mark_count;
    walk w = {.last_end = MH_NOT_MEASURED, .epoch_start = MH_NOT_MEASURED};
    run->batches = w.batches = mh_calloc(most + 1, sizeof *w.batches);
    w.starts = mh_calloc(most + 1, sizeof *w.starts);
    w.waits = mh_calloc(most + 1, sizeof *w.waits);
    mh_status status = MH_OK;
    if (w.batches && w.starts && w.waits) {
        if (most)
            qsort(earth->marks, most, sizeof *earth->marks, by_time);
        walk_marks(&w, earth);
        status = gets_facts(earth, &w, &run->facts, err);
        bool told = true;
        for (size_t at = 0; at < w.count; at++) {
            run->facts.epochs += w.batches[at].first;
            told = told && mh_run_tell(run, w.starts[at] - w.batches[at].wait, &w.batches[at]);
        }
        if (!told && status == MH_OK)
            status = mh_fail(err, MH_ERR_NOMEM, "no memory for %zu batches", w.count);
        run->facts.batches = run->batches;
        run->facts.batch_count = w.count;
        run->waits = mh_waits_of(w.waits, w.wait_count);
    } else {
        status = mh_fail(err, MH_ERR_NOMEM, "no memory for %zu batches", most);
    }
    settings_facts(earth, &run->facts);
    run->setup_s = (double)run->facts.setup_ns / 1e9;
    run->cut = !earth->ended;
    run->sorted_waits = w.waits;
    mh_free(w.starts);
    return status;
}
