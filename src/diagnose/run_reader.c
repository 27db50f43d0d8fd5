/* run_reader.c - a run directory, an events file or a log of another tool, read into facts
 * SPDX-License-Identifier: Apache-2.0
 */
#include "diagnose/run_reader.h"

#include "base/alloc.h"
#include "base/error.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A run being read. */
typedef struct reading {
    mh_run *run;
    mh_batches batches; /* of the first rank that reports any: the others are added up only */
    mh_usages usages;
    mh_hots hots;
    mh_ranks ranks;
    mh_earth earth;
    bool closely; /* the file being read is that rank's */
    bool ended;   /* it has its last line */
    uint64_t events, lines;
    mh_log_progress progress;
    void *progress_argument;
    uint64_t bytes_before, bytes_all; /* of the files before this one, and of all */
} reading;

/* --- the files of a run --- */

typedef struct run_file {
    char name[NAME_MAX + 1];
    uint32_t rank;
} run_file;

typedef struct run_files {
    run_file *items;
    size_t count, room;
} run_files;

/* events.jsonl is rank 0's, events.rank3.jsonl rank 3's; -1: another file. */
static long rank_of_name(const char *name)
{
    char *end;
    if (strcmp(name, "events.jsonl") == 0)
        return 0;
    if (strncmp(name, "events.rank", 11) != 0 || name[11] < '0' || name[11] > '9')
        return -1;
    long rank = strtol(name + 11, &end, 10);
    return strcmp(end, ".jsonl") == 0 && rank <= INT32_MAX ? rank : -1;
}

static int by_rank(const void *a, const void *b)
{
    const run_file *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static mh_status files_list(run_files *files, const char *path, mh_error *err)
{
    mh_status status = MH_OK;
    DIR *directory = opendir(path);
    if (!directory)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot read the directory %s", path);
    for (struct dirent *entry; status == MH_OK && (entry = readdir(directory));) {
        long rank = rank_of_name(entry->d_name);
        if (rank < 0)
            continue;
        void *items = files->items;
        if (!mh_array_reserve(&items, &files->room, files->count, sizeof *files->items)) {
            status = mh_fail(err, MH_ERR_NOMEM, "no memory for the files of %s", path);
            break;
        }
        files->items = items;
        run_file *file = &files->items[files->count++];
        file->rank = (uint32_t)rank;
        (void)snprintf(file->name, sizeof file->name, "%s", entry->d_name);
    }
    (void)closedir(directory);
    if (status == MH_OK && files->count == 0)
        return mh_fail(err, MH_ERR_NOT_FOUND, "no events.jsonl in the directory %s", path);
    if (status == MH_OK)
        qsort(files->items, files->count, sizeof *files->items, by_rank);
    return status;
}

/* --- reading --- */

static mh_status reading_event(void *argument, const mh_log_event *event, mh_error *err)
{
    reading *r = argument;
    const mh_run_observer *observer = r->run->observer;
    int good = 1;
    r->events++;
    if (observer && r->closely)
        MH_TRY(observer->event(observer->argument, event, err));
    if (event->is >= MH_LOG_RUN_START) {
        good = mh_earth_event(&r->earth, event);
    } else {
        mh_ranks_event(&r->ranks, event);
        if (r->closely) {
            good = mh_batches_event(&r->batches, event) && mh_usages_event(&r->usages, event) &&
                   mh_hots_event(&r->hots, event);
            r->ended |= event->is == MH_LOG_END;
        }
    }
    return good ? MH_OK : mh_fail(err, MH_ERR_NOMEM, "no memory for the events");
}

static int reading_progress(void *argument, uint64_t bytes, uint64_t all)
{
    const reading *r = argument;
    (void)all;
    return r->progress && r->progress(r->progress_argument, r->bytes_before + bytes, r->bytes_all);
}

static mh_status read_file(void *argument, const char *path, uint32_t rank, mh_error *err)
{
    reading *r = argument;
    mh_log_counts counts = {0};
    if (!mh_ranks_begin(&r->ranks, rank))
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a rank");
    r->closely = !r->batches.seen;
    if (r->closely) { /* a rank before it without a batch is forgotten */
        mh_batches_deinit(&r->batches);
        mh_batches_init(&r->batches);
        mh_usages_deinit(&r->usages);
        r->usages = (mh_usages){0};
        mh_hots_deinit(&r->hots);
        if (r->run->observer)
            r->run->observer->forget(r->run->observer->argument);
    }
    mh_status status = mh_log_read_file(path, reading_event, r, reading_progress, r, &counts, err);
    r->bytes_before += counts.bytes;
    r->run->bad_lines += counts.bad_lines;
    if (!r->run->first_bad)
        r->run->first_bad = counts.first_bad;
    r->lines += counts.lines;
    return status;
}

/* Every events file of a directory in the order of ranks, or the one file there is. */
mh_status mh_run_each_file(const char *path, mh_run_file_fn file, void *argument, mh_error *err)
{
    struct stat about;
    run_files files = {0};
    char full[PATH_MAX + NAME_MAX + 2];
    if (strlen(path) >= PATH_MAX)
        return mh_fail(err, MH_ERR_NOT_FOUND, "a path of %zu characters", strlen(path));
    if (stat(path, &about) != 0)
        return mh_fail_sys(err, errno == ENOENT ? MH_ERR_NOT_FOUND : MH_ERR_IO, errno,
                           "cannot open %s", path);
    if (!S_ISDIR(about.st_mode))
        return file(argument, path, 0, err);
    mh_status status = files_list(&files, path, err);
    for (size_t at = 0; at < files.count && status == MH_OK; at++) {
        (void)snprintf(full, sizeof full, "%s/%s", path, files.items[at].name);
        status = file(argument, full, files.items[at].rank, err);
    }
    mh_free(files.items);
    return status;
}

static mh_status add_size(void *argument, const char *path, uint32_t rank, mh_error *err)
{
    uint64_t *bytes = argument;
    struct stat about;
    (void)rank;
    (void)err;
    *bytes += stat(path, &about) == 0 && about.st_size > 0 ? (uint64_t)about.st_size : 0;
    return MH_OK;
}

mh_status mh_run_bytes(const char *path, uint64_t *bytes, mh_error *err)
{
    *bytes = 0;
    return mh_run_each_file(path, add_size, bytes, err);
}

/* --- facts --- */

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* In seconds: the one that so large a share does not exceed (nearest rank). */
static double quantile_s(const uint64_t *sorted, size_t count, double fraction)
{
    double wanted = fraction * (double)count;
    size_t rank = (size_t)wanted;
    rank += (double)rank < wanted;
    return (double)sorted[rank ? rank - 1 : 0] / 1e9;
}

mh_wait_stats mh_waits_of(uint64_t *waits, size_t count)
{
    double total = 0;
    if (!count)
        return (mh_wait_stats){0};
    for (size_t at = 0; at < count; at++)
        total += (double)waits[at];
    qsort(waits, count, sizeof *waits, by_size);
    return (mh_wait_stats){
        .count = count,
        .mean = total / (double)count / 1e9,
        .p50 = quantile_s(waits, count, 0.5),
        .p99 = quantile_s(waits, count, 0.99),
        .max = (double)waits[count - 1] / 1e9,
    };
}

static mh_status reading_facts(reading *r, const char *path, mh_error *err)
{
    mh_run *run = r->run;
    uint64_t steady = 0;
    if (r->bytes_before == 0)
        return mh_fail(err, MH_ERR_CORRUPT, "%s is empty", path);
    if (r->events == 0)
        return mh_fail(err, MH_ERR_CORRUPT,
                       "%s holds no event: %" PRIu64 " line%s, %" PRIu64 " of them no JSON object",
                       path, r->lines, r->lines == 1 ? "" : "s", run->bad_lines);
    if (r->earth.seen && !r->batches.seen) {
        MH_TRY(mh_earth_facts(&r->earth, run, err));
    } else {
        run->cut = !r->ended;
        MH_TRY(mh_batches_facts(&r->batches, run, &steady, err));
        MH_TRY(mh_usages_facts(&r->usages, steady, r->batches.worked_t, &run->facts.usage, err));
        MH_TRY(mh_ranks_facts(&r->ranks, &run->ranks, &run->facts.rank_count, err));
        run->facts.ranks = run->ranks;
        mh_hots_facts(&r->hots, run->loader, &run->facts);
    }
    if (run->facts.batch_count == 0)
        return mh_fail(err, MH_ERR_CORRUPT, "%s has no batch: %" PRIu64 " events of other kinds",
                       path, r->events);
    return MH_OK;
}

mh_status mh_run_read_observed(mh_run **out, const char *path, const mh_run_observer *observer,
                               mh_log_progress progress, void *progress_argument, mh_error *err)
{
    reading r = {.progress = progress, .progress_argument = progress_argument};
    if (!out || !path)
        return mh_fail(err, MH_ERR_INVALID, "a run needs a path and a place for its result");
    r.run = mh_calloc(1, sizeof *r.run);
    if (!r.run)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to read %s", path);
    r.run->observer = observer;
    mh_facts_init(&r.run->facts);
    mh_batches_init(&r.batches);
    mh_earth_init(&r.earth);
    mh_status status = mh_run_bytes(path, &r.bytes_all, err);
    if (status == MH_OK)
        status = mh_run_each_file(path, read_file, &r, err);
    if (status == MH_OK)
        status = reading_facts(&r, path, err);
    mh_batches_deinit(&r.batches);
    mh_earth_deinit(&r.earth);
    mh_usages_deinit(&r.usages);
    mh_hots_deinit(&r.hots);
    mh_free(r.ranks.items);
    r.run->observer = NULL;
    r.run->events = r.events;
    if (status == MH_OK)
        *out = r.run;
    else
        mh_run_close(r.run);
    return status;
}

mh_status mh_run_read(mh_run **out, const char *path, int (*progress)(void *, uint64_t, uint64_t),
                      void *progress_arg, mh_error *err)
{
    return mh_run_read_observed(out, path, NULL, progress, progress_arg, err);
}

int mh_run_tell(const mh_run *run, uint64_t t, const mh_batch_cost *cost)
{
    return !run->observer || run->observer->batch(run->observer->argument, t, cost);
}

void mh_storage_of(mh_storage *out, const mh_probe *probe)
{
    const mh_probe_tier *sequential = mh_probe_tier_find(probe, "sequential");
    const mh_probe_tier *random = mh_probe_tier_find(probe, "random");
    *out = (mh_storage){0};
    if (sequential && sequential->mb_per_s > 0) {
        out->sequential_per_s = sequential->mb_per_s * 1e6;
        out->network = strncmp(sequential->name, "network", 7) == 0;
    }
    if (random && random->mb_per_s > 0)
        out->random_per_s = random->mb_per_s * 1e6;
    if (random && random->latency_us > 0)
        out->random_s = random->latency_us / 1e6;
}

void mh_run_set_probe(mh_run *run, const mh_probe *probe)
{
    mh_storage_of(&run->facts.storage, probe);
}

const mh_facts *mh_run_facts(const mh_run *run)
{
    return &run->facts;
}

mh_wait_stats mh_run_waits(const mh_run *run)
{
    return run->waits;
}

uint64_t mh_run_bad_lines(const mh_run *run)
{
    return run->bad_lines;
}

double mh_run_setup_s(const mh_run *run)
{
    return run->setup_s;
}

void mh_run_close(mh_run *run)
{
    if (!run)
        return;
    mh_free(run->batches);
    mh_free(run->ranks);
    mh_free(run->sorted_waits);
    mh_free(run);
}
