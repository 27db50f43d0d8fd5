/* trace.c - the events of a run in Chromium's Trace Event Format
 * SPDX-License-Identifier: Apache-2.0
 *
 * A JSON array of events, a line each. A process of the trace is a rank, a thread of it one of the
 * rows below; times are microseconds. Nothing is kept but which rows have been named and, for
 * rates, the last look at each process.
 */
#include <millhead/report.h>

#include "base/error.h"
#include "base/jsonout.h"
#include "diagnose/run_reader.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

/* Rows of a rank; a loader's begin at its number times ROWS_PER_LOADER. */
enum {
    ROW_EPOCHS = 1,
    ROW_LOOP = 2,
    ROW_OWN_FETCH = 3, /* without workers, in the loop's own thread */
    ROW_PHASES = 4,
    ROW_WORKERS = 10, /* and on, by worker or pid */
    ROWS_PER_LOADER = 10000,
};

/* A row that has been named. Key: rank, 0, 0, row. */
typedef struct row_record {
    mh_record_key key;
} row_record;

/* The last look at a process or, as pid 0, at the machine. Key: rank, 0, 0, pid. */
typedef struct look_record {
    mh_record_key key;
    uint64_t t, cpu, iowait;
} look_record;

typedef struct trace {
    mh_jsonout json;
    mh_records rows, looks;
    uint32_t rank;
    int64_t base_t;    /* the header's, on the events' clock */
    int64_t base_ns;   /* where it lies on the trace's */
    double first_unix; /* of the first header; NAN: none yet */
    uint64_t events;
    bool no_memory;
    mh_log_progress progress;
    void *progress_argument;
    uint64_t bytes_before, bytes_all; /* of the files before this one, and of all */
} trace;

/* --- parts of an event --- */

static uint64_t trace_time(const trace *t, int64_t at)
{
    int64_t ns = at - t->base_t + t->base_ns;
    return ns > 0 ? (uint64_t)ns : 0;
}

static void put_text(trace *t, const char *key, const char *value)
{
    mh_jsonout_key(&t->json, key);
    mh_jsonout_string(&t->json, value);
}

static void put_whole(trace *t, const char *key, int64_t value)
{
    if (value == MH_LOG_NONE)
        return;
    mh_jsonout_key(&t->json, key);
    mh_jsonout_int(&t->json, value);
}

static void put_micros(trace *t, const char *key, int64_t ns)
{
    if (ns < 0)
        return;
    mh_jsonout_key(&t->json, key);
    mh_jsonout_thousandths(&t->json, (uint64_t)ns);
}

/* {"name": ..., "ph": ..., "pid": ..., "tid": ... and room for more. */
static void event_begin(trace *t, const char *name, const char *phase, uint32_t row)
{
    mh_jsonout_newline(&t->json);
    mh_jsonout_object(&t->json);
    put_text(t, "name", name);
    put_text(t, "ph", phase);
    put_whole(t, "pid", t->rank);
    put_whole(t, "tid", row);
}

static void event_end(trace *t)
{
    mh_jsonout_object_end(&t->json);
    t->events++;
}

static void args_begin(trace *t)
{
    mh_jsonout_key(&t->json, "args");
    mh_jsonout_object(&t->json);
}

static void put_name(trace *t, const char *what, uint32_t row, const char *name)
{
    event_begin(t, what, "M", row);
    args_begin(t);
    put_text(t, "name", name);
    mh_jsonout_object_end(&t->json);
    event_end(t);
    t->events--; /* names are no events of the run's */
}

/* Names the row when it is first seen. */
static void row_use(trace *t, uint32_t row, const char *format, ...) MH_PRINTF(3, 4);

static void row_use(trace *t, uint32_t row, const char *format, ...)
{
    char name[64];
    va_list arguments;
    mh_record_key key = {t->rank, 0, 0, row};
    if (mh_records_find(&t->rows, key))
        return;
    t->no_memory |= mh_records_add(&t->rows, key) == NULL;
    va_start(arguments, format);
    (void)vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    put_name(t, "thread_name", row, name);
}

/* A thing that took time. */
static void put_span(trace *t, const mh_log_event *event, const char *name, uint32_t row,
                     int64_t begin)
{
    event_begin(t, name, "X", row);
    mh_jsonout_key(&t->json, "ts");
    mh_jsonout_thousandths(&t->json, trace_time(t, begin));
    put_micros(t, "dur", event->ns < 0 ? 0 : event->ns);
    args_begin(t);
    put_whole(t, "epoch", event->epoch);
    put_whole(t, "batch", event->batch);
    put_whole(t, "nth", event->nth);
    put_whole(t, "index", event->index != MH_LOG_NONE ? event->index : event->idx);
    put_whole(t, "samples", event->samples);
    put_whole(t, "step", event->step);
    put_whole(t, "read", event->read);
    put_micros(t, "cpu_us", event->cpu);
    put_micros(t, "delay_us", event->delay);
    mh_jsonout_object_end(&t->json);
    event_end(t);
}

static void put_counter(trace *t, int64_t at, const char *name, const char *unit, double value)
{
    event_begin(t, name, "C", 0);
    mh_jsonout_key(&t->json, "ts");
    mh_jsonout_thousandths(&t->json, trace_time(t, at));
    args_begin(t);
    mh_jsonout_key(&t->json, unit);
    mh_jsonout_double(&t->json, value);
    mh_jsonout_object_end(&t->json);
    event_end(t);
}

/* --- our events --- */

static void trace_header(trace *t, const mh_log_event *event)
{
    char host[64], name[128];
    t->rank = (uint32_t)mh_log_or(event->rank, t->rank);
    (void)mh_json_text(&event->host, host, sizeof host);
    (void)snprintf(name, sizeof name, "rank %" PRIu32 "%s%s", t->rank, host[0] ? " on " : "", host);
    put_name(t, "process_name", 0, name);
    if (isnan(t->first_unix))
        t->first_unix = event->time;
    t->base_t = (int64_t)mh_log_or(event->t, 0);
    double apart = (event->time - t->first_unix) * 1e9; /* another host has another clock */
    t->base_ns = fabs(apart) < 9e18 ? (int64_t)apart : 0;
}

static void trace_loop(trace *t, const mh_log_event *event, const char *name)
{
    uint32_t loader = (uint32_t)mh_log_or(event->loader, 0);
    bool epoch = event->is == MH_LOG_EPOCH;
    uint32_t row = loader * ROWS_PER_LOADER + (epoch ? ROW_EPOCHS : ROW_LOOP);
    row_use(t, row, epoch ? "loader %" PRIu32 ": epochs" : "loader %" PRIu32 ": loop", loader);
    put_span(t, event, name, row, event->t);
}

static void trace_work(trace *t, const mh_log_event *event, const char *name)
{
    uint32_t loader = (uint32_t)mh_log_or(event->loader, 0);
    uint32_t row = loader * ROWS_PER_LOADER;
    if (event->worker < 0) {
        row += ROW_OWN_FETCH;
        row_use(t, row, "loader %" PRIu32 ": fetching in the loop", loader);
    } else {
        row += ROW_WORKERS + (uint32_t)event->worker;
        row_use(t, row, "loader %" PRIu32 ": worker %" PRId64, loader, event->worker);
    }
    put_span(t, event, name, row, event->t);
}

static void trace_phase(trace *t, const mh_log_event *event)
{
    char name[64];
    (void)mh_json_text(&event->name, name, sizeof name);
    row_use(t, ROW_PHASES, "phases");
    put_span(t, event, name, ROW_PHASES, event->t);
}

/* CPUs used since the last look at the process; negative: this is the first, or too soon. */
static double cpus_since(trace *t, uint32_t pid, const mh_log_event *event, int64_t counter,
                         int64_t iowait, double *waiting)
{
    mh_record_key key = {t->rank, 0, 0, pid};
    look_record *look = mh_records_find(&t->looks, key);
    uint64_t now = mh_log_or(event->t, 0), cpu = mh_log_or(counter, 0), io = mh_log_or(iowait, 0);
    double cpus = -1;
    if (look && now < look->t + MH_LOOKS_APART_NS)
        return cpus;
    if (look && cpu >= look->cpu) {
        cpus = (double)(cpu - look->cpu) / (double)(now - look->t);
        *waiting = io >= look->iowait ? (double)(io - look->iowait) / (double)(now - look->t) : 0;
    }
    if (!look)
        look = mh_records_add(&t->looks, key);
    if (look) {
        look->t = now;
        look->cpu = cpu;
        look->iowait = io;
    }
    t->no_memory |= look == NULL;
    return cpus;
}

static void trace_usage(trace *t, const mh_log_event *event)
{
    char name[64];
    double waiting;
    int64_t memory = event->pss >= 0 ? event->pss : event->rss;
    uint32_t pid = (uint32_t)mh_log_or(event->pid, 1);
    if (memory >= 0) {
        (void)snprintf(name, sizeof name, "memory of %" PRIu32, pid);
        put_counter(t, event->t, name, "MB", (double)memory / 1e6);
    }
    double cpus = cpus_since(t, pid, event, event->cpu, 0, &waiting);
    if (cpus >= 0) {
        (void)snprintf(name, sizeof name, "CPUs of %" PRIu32, pid);
        put_counter(t, event->t, name, "CPUs", cpus);
    }
}

static void trace_system(trace *t, const mh_log_event *event)
{
    double waiting = 0, cpus = cpus_since(t, 0, event, event->busy, event->iowait, &waiting);
    if (cpus >= 0) {
        put_counter(t, event->t, "CPUs busy", "CPUs", cpus);
        put_counter(t, event->t, "CPUs waiting for I/O", "CPUs", waiting);
    }
    if (event->available >= 0)
        put_counter(t, event->t, "memory available", "MB", (double)event->available / 1e6);
}

static void trace_error(trace *t, const mh_log_event *event)
{
    char what[256];
    (void)mh_json_text(&event->what, what, sizeof what);
    event_begin(t, "error", "i", 0);
    mh_jsonout_key(&t->json, "ts");
    mh_jsonout_thousandths(&t->json, trace_time(t, event->t));
    put_text(t, "s", "p");
    args_begin(t);
    put_text(t, "what", what);
    mh_jsonout_object_end(&t->json);
    event_end(t);
}

/* --- Earthmover's: its ends tell how long it took --- */

static void trace_earth(trace *t, const mh_log_event *event)
{
    uint32_t pid = (uint32_t)mh_log_or(event->pid, 0);
    if (event->ns < 0)
        return;
    if (!t->events) /* there is no header that names it */
        put_name(t, "process_name", 0, "dataloader-demo");
    int64_t begin = event->t - event->ns;
    switch (event->is) {
    case MH_LOG_TRAIN_END:
        row_use(t, ROW_LOOP, "training");
        put_span(t, event, "training", ROW_LOOP, begin);
        break;
    case MH_LOG_GET_END:
        row_use(t, ROW_WORKERS + pid, "samples of process %" PRIu32, pid);
        put_span(t, event, "get-batch", ROW_WORKERS + pid, begin);
        break;
    case MH_LOG_EPOCH_END:
    case MH_LOG_SETUP_END:
        row_use(t, ROW_EPOCHS, "epochs");
        put_span(t, event, event->is == MH_LOG_EPOCH_END ? "epoch" : "setup", ROW_EPOCHS, begin);
        break;
    default:
        break;
    }
}

static void trace_ours(trace *t, const mh_log_event *event)
{
    static const char *const names[MH_LOG_KINDS] = {
#define X(kind, name) [kind] = (name),
        MH_LOG_KIND_LIST(X)
#undef X
    };
    switch (event->is) {
    case MH_LOG_SETUP:
    case MH_LOG_WAIT:
    case MH_LOG_STEP:
    case MH_LOG_ORDER:
    case MH_LOG_EPOCH:
        trace_loop(t, event, names[event->is]);
        break;
    case MH_LOG_FETCH:
    case MH_LOG_SAMPLE:
    case MH_LOG_COLLATE:
        trace_work(t, event, names[event->is]);
        break;
    case MH_LOG_PHASE:
        trace_phase(t, event);
        break;
    case MH_LOG_USAGE:
        trace_usage(t, event);
        break;
    case MH_LOG_SYSTEM:
        trace_system(t, event);
        break;
    case MH_LOG_GPU:
        if (!isnan(event->util))
            put_counter(t, event->t, "GPU", "share", event->util);
        break;
    case MH_LOG_ERROR:
        trace_error(t, event);
        break;
    default:
        trace_earth(t, event);
    }
}

static mh_status trace_event(void *argument, const mh_log_event *event, mh_error *err)
{
    trace *t = argument;
    if (event->is == MH_LOG_HEADER)
        trace_header(t, event);
    else if (event->t >= 0)
        trace_ours(t, event);
    if (t->no_memory)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the rows of the trace");
    if (t->json.failed != MH_OK)
        return mh_jsonout_finish(&t->json, err);
    return MH_OK;
}

static int trace_progress(void *argument, uint64_t bytes, uint64_t all)
{
    const trace *t = argument;
    (void)all; /* of this file */
    return t->progress && t->progress(t->progress_argument, t->bytes_before + bytes, t->bytes_all);
}

static mh_status trace_file(void *argument, const char *path, uint32_t rank, mh_error *err)
{
    trace *t = argument;
    mh_log_counts counts = {0};
    t->rank = rank;
    t->base_t = t->base_ns = 0;
    MH_TRY(mh_log_read_file(path, trace_event, t, trace_progress, t, &counts, err));
    t->bytes_before += counts.bytes;
    if (counts.events == 0)
        return mh_fail(err, MH_ERR_CORRUPT, "%s holds no event", path);
    return MH_OK;
}

mh_status mh_export_trace(const char *path, const char *out_path, uint64_t *out_events,
                          int (*progress)(void *, uint64_t, uint64_t), void *progress_arg,
                          mh_error *err)
{
    trace t = {.rows.size = sizeof(row_record),
               .looks.size = sizeof(look_record),
               .first_unix = NAN,
               .progress = progress,
               .progress_argument = progress_arg};
    struct stat about;
    if (!path || !out_path)
        return mh_fail(err, MH_ERR_INVALID, "a trace needs a run and a file to write");
    MH_TRY(mh_run_bytes(path, &t.bytes_all, err)); /* before anything is written */
    FILE *file = fopen(out_path, "we");
    if (!file)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write %s", out_path);
    mh_jsonout_init(&t.json, file);
    mh_jsonout_array(&t.json);
    mh_status status = mh_run_each_file(path, trace_file, &t, err);
    if (status == MH_OK) {
        t.json.comma = false; /* behind the last event only a newline */
        mh_jsonout_newline(&t.json);
        mh_jsonout_array_end(&t.json);
        t.json.comma = false;
        mh_jsonout_newline(&t.json);
        status = mh_jsonout_finish(&t.json, err);
        if (status != MH_OK && err)
            mh_error_prefix(err, "%s", out_path);
    }
    mh_jsonout_deinit(&t.json);
    mh_records_deinit(&t.rows);
    mh_records_deinit(&t.looks);
    /* Of the name itself: a link, /dev/stdout among them, is not ours to remove. */
    bool regular = lstat(out_path, &about) == 0 && S_ISREG(about.st_mode);
    if (fclose(file) != 0 && status == MH_OK)
        status = mh_fail_sys(err, MH_ERR_IO, errno, "cannot write %s", out_path);
    if (status == MH_OK && out_events)
        *out_events = t.events;
    if (status != MH_OK && regular)
        (void)unlink(out_path); /* half a trace opens nowhere */
    return status;
}
