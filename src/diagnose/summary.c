/* summary.c - a run as a table: a line per epoch and one for the whole
 * SPDX-License-Identifier: Apache-2.0
 */
#include <millhead/report.h>

#include "base/alloc.h"
#include "base/error.h"
#include "diagnose/run_reader.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

typedef struct totals {
    uint64_t batches, samples;
    uint64_t first_wait; /* of first batches, which are left out of the other waits */
    uint64_t wait, step, fetch, collate;
    mh_wait_stats waits;
} totals;

/* `waits` has room for all. */
static totals totals_of(const mh_batch_cost *batches, size_t count, uint64_t *waits)
{
    totals sum = {.batches = count};
    size_t waited = 0;
    for (size_t at = 0; at < count; at++) {
        const mh_batch_cost *batch = &batches[at];
        sum.samples += batch->samples;
        sum.step += batch->step;
        sum.fetch += batch->fetch == MH_NOT_MEASURED ? 0 : batch->fetch;
        sum.collate += batch->collate == MH_NOT_MEASURED ? 0 : batch->collate;
        if (batch->first) {
            sum.first_wait += batch->wait;
        } else {
            sum.wait += batch->wait;
            waits[waited++] = batch->wait;
        }
    }
    sum.waits = mh_waits_of(waits, waited);
    return sum;
}

/* Without a decimal point of the user's locale. */
static void put_seconds(FILE *file, uint64_t ns)
{
    (void)fprintf(file, ",%" PRIu64 ".%09" PRIu64, ns / 1000000000, ns % 1000000000);
}

static uint64_t nanoseconds(double seconds)
{
    return (uint64_t)(seconds * 1e9 + 0.5);
}

static void put_line(FILE *file, const char *name, const totals *sum)
{
    uint64_t time = sum->first_wait + sum->wait + sum->step;
    uint64_t per_s = time ? nanoseconds((double)sum->samples / (double)time * 1e9) : 0;
    (void)fprintf(file, "%s,%" PRIu64 ",%" PRIu64, name, sum->batches, sum->samples);
    put_seconds(file, sum->first_wait);
    put_seconds(file, sum->wait);
    put_seconds(file, sum->step);
    put_seconds(file, nanoseconds(sum->waits.mean));
    put_seconds(file, nanoseconds(sum->waits.p50));
    put_seconds(file, nanoseconds(sum->waits.p99));
    put_seconds(file, nanoseconds(sum->waits.max));
    put_seconds(file, sum->fetch);
    put_seconds(file, sum->collate);
    put_seconds(file, per_s);
    (void)fputc('\n', file);
}

static void put_table(FILE *file, const mh_facts *facts, uint64_t *waits)
{
    (void)fputs("epoch,batches,samples,first_wait_s,wait_s,step_s,wait_mean_s,wait_p50_s,"
                "wait_p99_s,wait_max_s,fetch_s,collate_s,samples_per_s\n",
                file);
    for (size_t at = 0, next; at < facts->batch_count; at = next) {
        char name[16];
        for (next = at + 1; next < facts->batch_count && !facts->batches[next].first;)
            next++;
        totals sum = totals_of(facts->batches + at, next - at, waits);
        (void)snprintf(name, sizeof name, "%" PRIu32, facts->batches[at].epoch);
        put_line(file, name, &sum);
    }
    totals sum = totals_of(facts->batches, facts->batch_count, waits);
    put_line(file, "all", &sum);
}

mh_status mh_export_csv(const mh_run *run, const char *out_path, mh_error *err)
{
    if (!run || !out_path)
        return mh_fail(err, MH_ERR_INVALID, "a table needs a run and a file to write");
    size_t count = run->facts.batch_count;
    uint64_t *waits = mh_calloc(count ? count : 1, sizeof *waits);
    if (!waits)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu batches", count);
    FILE *file = fopen(out_path, "we");
    int failed = !file, why = errno;
    if (file) {
        put_table(file, &run->facts, waits);
        failed = ferror(file);
        failed |= fclose(file) != 0;
        why = errno;
    }
    mh_free(waits);
    return failed ? mh_fail_sys(err, MH_ERR_IO, why, "cannot write %s", out_path) : MH_OK;
}
