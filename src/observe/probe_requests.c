/* probe_requests.c - how fast a URL answers when several requests are under way, as loaders make
 * them SPDX-License-Identifier: Apache-2.0
 */
#include "observe/probe.h"

#include "base/alloc.h"
#include "base/error.h"
#include "source/redact.h"
#include "source/source.h"
#include "sys/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define IN_FLIGHT_MOST 256u
#define LARGE_BYTES (UINT64_C(8) << 20) /* what stores advise for one request */
#define PART_BYTES (UINT64_C(64) << 10) /* a chunk or a picture */
#define LOOK_NS 50000000u               /* how often progress is told */
#define ENOUGH 0.9                      /* of the best rate: more requests win nothing */

static const uint32_t levels[] = {1, 4, 16, 64, IN_FLIGHT_MOST};
enum { LEVELS = sizeof levels / sizeof *levels };

/* A request under way. */
typedef struct slot {
    uint64_t began;
    bool busy;
} slot;

typedef struct asking {
    const mh_probe_options *options;
    const mh_source_type *type;
    mh_object object;
    uint8_t *bytes; /* a piece for each slot */
    uint64_t piece, random, next;
    double done; /* share of the whole probe */
    const char *what;
    pthread_mutex_t lock;
    pthread_cond_t over;
    /* under the lock */
    slot slots[IN_FLIGHT_MOST];
    uint32_t busy;
    uint64_t came, answers, latency_ns;
    mh_error err; /* MH_OK: none */
} asking;

typedef struct rate {
    double bytes_per_s, latency_ns;
    uint64_t answers;
} rate;

static void answered(void *context, void *tag, uint64_t got, const mh_error *err)
{
    asking *a = context;
    slot *mine = tag;
    pthread_mutex_lock(&a->lock);
    if (err && a->err.code == MH_OK)
        a->err = *err;
    if (!err) {
        a->came += got;
        a->answers++;
        a->latency_ns += mh_clock_ns() - mine->began;
    }
    mine->busy = false;
    a->busy--;
    pthread_cond_signal(&a->over);
    pthread_mutex_unlock(&a->lock);
}

static uint64_t next_offset(asking *a, bool anywhere)
{
    const uint64_t pieces = a->object.size / a->piece;
    if (anywhere) {
        a->random = a->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        a->next = a->random >> 33;
    }
    return a->next++ % pieces * a->piece;
}

static mh_status ask_for_one(asking *a, mh_source *source, bool anywhere, mh_error *err)
{
    uint32_t free = 0;
    pthread_mutex_lock(&a->lock);
    while (a->slots[free].busy)
        free++;
    a->slots[free] = (slot){.busy = true, .began = mh_clock_ns()};
    a->busy++;
    pthread_mutex_unlock(&a->lock);
    const mh_read read = {.offset = next_offset(a, anywhere),
                          .size = a->piece,
                          .into = a->bytes + free * a->piece,
                          .tag = &a->slots[free]};
    const mh_status status = mh_source_submit(source, &read, 1, answered, a, err);
    if (status == MH_OK)
        return MH_OK;
    pthread_mutex_lock(&a->lock);
    a->slots[free].busy = false;
    a->busy--;
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* Until fewer than `most` requests are under way, or it is time to tell progress. */
static bool wait_for_room(asking *a, uint32_t most)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&a->lock);
    if (a->busy >= most)
        (void)pthread_cond_timedwait(&a->over, &a->lock, &until);
    const bool room = a->busy < most;
    pthread_mutex_unlock(&a->lock);
    return room;
}

/* Keeps `in_flight` requests under way for so long, and waits for the last ones. */
static mh_status keep_asking(asking *a, mh_source *source, uint32_t in_flight, bool anywhere,
                             double seconds, mh_error *err)
{
    const uint64_t began = mh_clock_ns(), ends = began + (uint64_t)(seconds * 1e9);
    const mh_probe_options *o = a->options;
    mh_status status = MH_OK;
    while (status == MH_OK && a->err.code == MH_OK && (mh_clock_ns() < ends || !a->answers)) {
        if (wait_for_room(a, in_flight))
            status = ask_for_one(a, source, anywhere, err);
        const double share = a->done + (double)(mh_clock_ns() - began) * 1e-9 / o->seconds;
        if (status == MH_OK && o->progress && o->progress(o->progress_arg, a->what, share))
            status = mh_fail(err, MH_ERR_CLOSED, "stopped");
    }
    while (!wait_for_room(a, 1))
        continue;
    a->done += seconds / o->seconds;
    if (status == MH_OK && a->err.code != MH_OK) {
        *err = a->err;
        status = err->code;
    }
    return status;
}

static mh_status measure(rate *out, asking *a, uint32_t in_flight, uint64_t piece, bool anywhere,
                         double seconds, mh_error *err)
{
    mh_source *source = NULL;
    const mh_objects objects = {.count = 1, .list = &a->object};
    const mh_source_options options = {.in_flight = in_flight, .storage = a->options->storage};
    a->piece = piece < a->object.size ? piece : a->object.size;
    a->came = a->answers = a->latency_ns = a->next = 0;
    a->bytes = mh_calloc(in_flight, a->piece);
    if (!a->bytes)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to read into");
    mh_status status = mh_source_open(&source, a->type, &objects, &options, err);
    const uint64_t began = mh_clock_ns();
    if (status == MH_OK)
        status = keep_asking(a, source, in_flight, anywhere, seconds, err);
    mh_source_close(source);
    const double took = (double)(mh_clock_ns() - began) * 1e-9;
    mh_free(a->bytes);
    if (status == MH_OK)
        *out = (rate){.bytes_per_s = (double)a->came / took,
                      .latency_ns = (double)a->latency_ns / (double)a->answers,
                      .answers = a->answers};
    return status;
}

static mh_status one_at_a_time(mh_probe *out, asking *a, bool random, double seconds, mh_error *err)
{
    rate found;
    const uint64_t piece = random ? MH_PROBE_PAGE : LARGE_BYTES;
    mh_probe_tier *tier = mh_probe_add_tier(out, random ? "network random" : "network sequential");
    a->what = tier->name;
    MH_TRY(measure(&found, a, 1, piece, random, seconds, err));
    tier->mb_per_s = found.bytes_per_s / 1e6;
    tier->latency_us = found.latency_ns / 1e3;
    (void)snprintf(tier->how, sizeof tier->how, "%llu reads of %llu KiB, %s, one at a time",
                   (unsigned long long)found.answers, (unsigned long long)(a->piece >> 10),
                   random ? "anywhere" : "one after the other");
    return MH_OK;
}

static mh_status side_by_side(mh_probe *out, asking *a, double seconds, mh_error *err)
{
    rate found[LEVELS];
    size_t best = 0, enough = 0, used = 0;
    mh_probe_tier *tier = mh_probe_add_tier(out, "network requests");
    a->what = tier->name;
    for (size_t i = 0; i < LEVELS; i++) {
        MH_TRY(measure(&found[i], a, levels[i], PART_BYTES, true, seconds / LEVELS, err));
        best = found[i].bytes_per_s > found[best].bytes_per_s ? i : best;
    }
    while (found[enough].bytes_per_s < ENOUGH * found[best].bytes_per_s)
        enough++;
    out->in_flight = levels[enough];
    tier->mb_per_s = found[enough].bytes_per_s / 1e6;
    tier->latency_us = found[enough].latency_ns / 1e3;
    used = (size_t)snprintf(tier->how, sizeof tier->how, "%llu KiB, %u at a time; MB/s with",
                            (unsigned long long)(a->piece >> 10), levels[enough]);
    for (size_t i = 0; i < LEVELS; i++)
        used += (size_t)snprintf(tier->how + used, sizeof tier->how - used, "%s %u: %.3g",
                                 i ? "," : "", levels[i], found[i].bytes_per_s / 1e6);
    return MH_OK;
}

static mh_status begin(asking *a, mh_error *err)
{
    const mh_source_options options = {.in_flight = 1, .storage = a->options->storage};
    MH_TRY(mh_source_of(&a->type, a->options->path, err));
    mh_status status = a->type->stat(&a->object, &options, err);
    (void)mh_source_rest();
    if (status == MH_OK && (a->object.size == 0 || a->object.size == MH_SIZE_UNKNOWN))
        status = mh_fail(err, MH_ERR_NOT_FOUND, "%s is empty", "the object");
    return status;
}

/* Of an address that the http probe has not looked at. */
static mh_status probe_all(mh_probe *out, asking *a, double seconds, mh_error *err)
{
    const char *path = a->options->path;
    mh_redact_url(out->file, sizeof out->file, path);
    (void)snprintf(out->network, sizeof out->network, "%.*s", (int)strcspn(path, ":"), path);
    out->bytes = a->object.size;
    MH_TRY(one_at_a_time(out, a, false, seconds * 0.3, err));
    MH_TRY(one_at_a_time(out, a, true, seconds * 0.2, err));
    return side_by_side(out, a, seconds * 0.5, err);
}

mh_status mh_probe_requests(mh_probe *out, const mh_probe_options *options, bool all,
                            double seconds, double done, mh_error *err)
{
    mh_error own;
    asking *a = mh_calloc(1, sizeof *a);
    if (!a)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a probe");
    if (!err)
        err = &own;
    *a = (asking){.options = options, .object = {.name = options->path}, .done = done, .random = 1};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->over, NULL);
    mh_status status = begin(a, err);
    if (status == MH_OK)
        status = all ? probe_all(out, a, seconds, err) : side_by_side(out, a, seconds, err);
    pthread_cond_destroy(&a->over);
    pthread_mutex_destroy(&a->lock);
    mh_free(a);
    return status;
}
