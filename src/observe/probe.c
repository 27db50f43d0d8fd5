/* probe.c - measuring memory, the page cache and storage
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/probe.h"

#include "base/error.h"
#include "base/struct_size.h"
#include "source/http.h"
#include "sys/clock.h"
#include "sys/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)64 << 20) /* more than caches hold */
#define LINE_BYTES 64
#define CHASES 200000
#define LOOK_NS 50000000u /* how often progress is told */

/* Shares of the time. */
#define TIME_WRITING 0.3
#define TIME_READING 0.15
#define TIME_MEMORY 0.05
#define TIME_DEVICE 0.1
#define TIME_URL (1 - TIME_MEMORY - TIME_DEVICE)

typedef struct probing {
    const mh_probe_options *options;
    mh_probe *out;
    mh_probe_file file;
    uint8_t *buffer; /* of MH_PROBE_PIECE bytes, on a page's boundary */
    double done;     /* share of the whole */
    uint64_t random;
} probing;

void mh_probe_options_init_sized(mh_probe_options *options, size_t struct_size)
{
    const mh_probe_options defaults = {
        .path = ".",
        .bytes = UINT64_C(256) << 20,
        .seconds = 8,
    };
    mh_sized_write(options, struct_size, &defaults, sizeof defaults);
}

int mh_probe_is_url(const char *path)
{
    return mh_http_is_url(path);
}

mh_probe_tier *mh_probe_add_tier(mh_probe *out, const char *name)
{
    mh_probe_tier *tier = &out->tiers[out->tier_count++];
    *tier = (mh_probe_tier){.mb_per_s = -1, .latency_us = -1};
    (void)snprintf(tier->name, sizeof tier->name, "%s", name);
    return tier;
}

static mh_status tell(const probing *probe, const char *what, double share, mh_error *err)
{
    const mh_probe_options *options = probe->options;
    if (options->progress && options->progress(options->progress_arg, what, share))
        return mh_fail(err, MH_ERR_CLOSED, "stopped");
    return MH_OK;
}

static uint64_t next_random(probing *probe)
{
    probe->random ^= probe->random << 13;
    probe->random ^= probe->random >> 7;
    probe->random ^= probe->random << 17;
    return probe->random;
}

/* --- memory --- */

/* One cycle through all lines, each of which holds the number of the next (Sattolo's shuffle): no
 * line can be asked for before the one before it has come. */
static void link_lines(probing *probe, uint8_t *memory, size_t lines)
{
    for (size_t at = 0; at < lines; at++)
        *(uint64_t *)(void *)(memory + at * LINE_BYTES) = at;
    for (size_t at = lines - 1; at > 0; at--) {
        uint64_t *one = (uint64_t *)(void *)(memory + at * LINE_BYTES);
        uint64_t *other =
            (uint64_t *)(void *)(memory + next_random(probe) % (uint64_t)at * LINE_BYTES);
        uint64_t kept = *one;
        *one = *other;
        *other = kept;
    }
}

static double chase_lines(const uint8_t *memory)
{
    uint64_t began = mh_clock_ns(), at = 0;
    for (int step = 0; step < CHASES; step++)
        at = *(const uint64_t *)(const void *)(memory + at * LINE_BYTES);
    __asm__ volatile("" : : "r"(at) : "memory"); /* it is wanted, and now */
    return (double)(mh_clock_ns() - began) / CHASES / 1e3;
}

static mh_status measure_memory(probing *probe, double seconds, mh_error *err)
{
    mh_memory_room room;
    size_t bytes = COPY_BYTES;
    mh_probe_tier *tier = mh_probe_add_tier(probe->out, "memory copy");
    MH_TRY(tell(probe, "memory", probe->done, err));
    mh_memory_room_read(&room, "");
    if (room.available_bytes / 4 < 2 * bytes)
        bytes = (size_t)(room.available_bytes / 8) / MH_PROBE_PIECE * MH_PROBE_PIECE;
    uint8_t *memory = bytes ? mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0)
                            : MAP_FAILED;
    if (memory == MAP_FAILED)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to measure memory with");
    link_lines(probe, memory, bytes / LINE_BYTES);
    memcpy(memory + bytes, memory, bytes); /* the host of a virtual machine gives its pages now */
    uint64_t copied = 0, began = mh_clock_ns(), now;
    do {
        memcpy(memory + bytes, memory, bytes);
        __asm__ volatile("" : : "r"(memory) : "memory"); /* every copy is made */
        copied += bytes;
        now = mh_clock_ns();
    } while ((double)(now - began) < seconds * 1e9);
    tier->mb_per_s = (double)copied * 1e3 / (double)(now - began);
    tier->latency_us = chase_lines(memory);
    (void)munmap(memory, 2 * bytes);
    (void)snprintf(tier->how, sizeof tier->how,
                   "one thread copies %zu MiB; latency: one line after the other", bytes >> 20);
    return MH_OK;
}

/* --- the file --- */

typedef enum access_kind { CACHED, DIRECT, DROPPED } access_kind;

typedef struct reading {
    size_t piece;
    bool random;
    access_kind kind;
    double seconds;
    const char *what;
} reading;

typedef struct read_sum {
    uint64_t bytes, requests, ns;
} read_sum;

static void drop_cache(const probing *probe)
{
    (void)posix_fadvise(probe->file.fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* Reads pieces one after the other, or anywhere, until the time is over. */
static mh_status read_pieces(read_sum *sum, probing *probe, const reading *how, mh_error *err)
{
    uint64_t pieces = probe->file.bytes / how->piece, began = mh_clock_ns(), told = began;
    *sum = (read_sum){0};
    if (pieces == 0)
        return mh_fail(err, MH_ERR_NOT_FOUND, "%s is too small to read from", probe->out->file);
    if (how->kind == DROPPED)
        drop_cache(probe);
    do {
        uint64_t piece = how->random ? next_random(probe) % pieces : sum->requests % pieces;
        if (how->kind == DROPPED && !how->random && sum->requests && piece == 0)
            drop_cache(probe);
        ssize_t got = pread(probe->file.fd, probe->buffer, how->piece, (off_t)(piece * how->piece));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return mh_fail_sys(err, MH_ERR_IO, got ? errno : EIO, "cannot read %s",
                               probe->out->file);
        sum->bytes += (uint64_t)got;
        sum->requests++;
        uint64_t now = mh_clock_ns();
        sum->ns = now - began;
        if (now - told > LOOK_NS) {
            told = now;
            double share = (double)sum->ns * 1e-9 / probe->options->seconds;
            MH_TRY(tell(probe, how->what, probe->done + share, err));
        }
    } while ((double)sum->ns < how->seconds * 1e9 || !sum->requests);
    return MH_OK;
}

static bool set_direct(const probing *probe, bool on)
{
    int flags = fcntl(probe->file.fd, F_GETFL);
    return flags >= 0 &&
           fcntl(probe->file.fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/* Storage itself: by O_DIRECT where the file system has it. */
static mh_status read_storage(read_sum *sum, probing *probe, reading *how, mh_error *err)
{
    how->kind = DIRECT;
    if (set_direct(probe, true)) {
        mh_error refused = {0};
        mh_status status = read_pieces(sum, probe, how, &refused);
        (void)set_direct(probe, false);
        if (status == MH_OK || refused.sys_errno != EINVAL) {
            if (err)
                *err = refused;
            return status;
        }
    }
    how->kind = DROPPED;
    return read_pieces(sum, probe, how, err);
}

static void fill_tier(mh_probe_tier *tier, const read_sum *sum, const reading *how)
{
    static const char *const kinds[] = {"from the page cache", "past the page cache (O_DIRECT)",
                                        "after the page cache was dropped (no O_DIRECT here)"};
    double seconds = (double)(sum->ns ? sum->ns : 1) * 1e-9;
    tier->mb_per_s = (double)sum->bytes / seconds / 1e6;
    tier->latency_us = seconds * 1e6 / (double)sum->requests;
    (void)snprintf(tier->how, sizeof tier->how, "%llu reads of %zu KiB, %s, %s",
                   (unsigned long long)sum->requests, how->piece >> 10,
                   how->random ? "anywhere" : "one after the other", kinds[how->kind]);
}

/* Bandwidth by large pieces, latency by pages. */
static mh_status measure_cache(probing *probe, double seconds, mh_error *err)
{
    mh_probe_tier *tier = mh_probe_add_tier(probe->out, "page cache");
    size_t piece = probe->file.bytes < MH_PROBE_PIECE ? MH_PROBE_PAGE : MH_PROBE_PIECE;
    reading large = {.piece = piece, .kind = CACHED, .what = "page cache"};
    reading small = {.piece = MH_PROBE_PAGE, .random = true, .kind = CACHED, .what = "page cache"};
    read_sum warm, sum, pages;
    uint64_t whole = probe->file.bytes;
    large.seconds = seconds / 2; /* a first pass brings it in; only what came is read again */
    MH_TRY(read_pieces(&warm, probe, &large, err));
    if (warm.bytes < whole)
        probe->file.bytes = warm.bytes / piece * piece;
    large.seconds = small.seconds = seconds / 4;
    mh_status status = read_pieces(&sum, probe, &large, err);
    if (status == MH_OK)
        status = read_pieces(&pages, probe, &small, err);
    probe->file.bytes = whole;
    if (status != MH_OK)
        return status;
    fill_tier(tier, &sum, &large);
    tier->latency_us = (double)pages.ns / 1e3 / (double)pages.requests;
    size_t used = strlen(tier->how);
    (void)snprintf(tier->how + used, sizeof tier->how - used, "; latency: pages anywhere");
    return MH_OK;
}

static mh_status measure_storage(probing *probe, bool random, double seconds, mh_error *err)
{
    char name[24];
    size_t piece = random || probe->file.bytes < MH_PROBE_PIECE ? MH_PROBE_PAGE : MH_PROBE_PIECE;
    (void)snprintf(name, sizeof name, "%s %s", *probe->out->network ? "network" : "disk",
                   random ? "random" : "sequential");
    mh_probe_tier *tier = mh_probe_add_tier(probe->out, name);
    if (probe->file.in_memory) {
        (void)snprintf(tier->how, sizeof tier->how,
                       "not measured: the path lies in memory (tmpfs), give one on a disk");
        return MH_OK;
    }
    reading how = {.piece = piece, .random = random, .seconds = seconds, .what = tier->name};
    read_sum sum;
    MH_TRY(read_storage(&sum, probe, &how, err));
    fill_tier(tier, &sum, &how);
    return MH_OK;
}

static mh_status measure_file(probing *probe, mh_error *err)
{
    double seconds = probe->options->seconds;
    probe->done = TIME_WRITING + TIME_MEMORY;
    MH_TRY(measure_storage(probe, false, seconds * TIME_READING, err));
    probe->done += TIME_READING;
    MH_TRY(measure_storage(probe, true, seconds * TIME_READING, err));
    probe->done += TIME_READING;
    return measure_cache(probe, seconds * TIME_READING, err);
}

/* Near before far: memory, page cache, storage. Reading brings files into the page cache, so it
 * was measured last. */
static void put_in_order(mh_probe *out)
{
    mh_probe_tier cache = out->tiers[3];
    out->tiers[3] = out->tiers[2];
    out->tiers[2] = out->tiers[1];
    out->tiers[1] = cache;
}

static mh_status measure_path(probing *probe, mh_error *err)
{
    double seconds = probe->options->seconds;
    MH_TRY(mh_probe_file_open(&probe->file, probe->out, probe->options, probe->buffer,
                              seconds * TIME_WRITING, err));
    probe->done = TIME_WRITING;
    mh_status status = measure_memory(probe, seconds * TIME_MEMORY, err);
    if (status == MH_OK)
        status = measure_file(probe, err);
    (void)close(probe->file.fd);
    if (status == MH_OK)
        put_in_order(probe->out);
    return status;
}

/* What loaders do is measured wherever the server gives ranges. */
static mh_status measure_far(mh_probe *far, const mh_probe_options *options, double seconds,
                             mh_error *err)
{
    const char *path = options->path;
    if (strncasecmp(path, "http://", 7) != 0 && strncasecmp(path, "https://", 8) != 0)
        return mh_probe_requests(far, options, true, seconds, 0, err);
    MH_TRY(mh_probe_url(far, options, seconds / 2, 0, err));
    if (far->tiers[far->tier_count - 1].mb_per_s < 0) /* no ranges */
        return MH_OK;
    return mh_probe_requests(far, options, false, seconds / 2, TIME_URL / 2, err);
}

/* The network first: an address that is wrong is told at once. */
static mh_status measure_url(probing *probe, mh_error *err)
{
    double seconds = probe->options->seconds;
    mh_probe far = {0};
    MH_TRY(measure_far(&far, probe->options, seconds * TIME_URL, err));
    probe->done = TIME_URL;
    *probe->out = far;
    probe->out->tier_count = 0;
    MH_TRY(measure_memory(probe, seconds * TIME_MEMORY, err));
    for (size_t at = 0; at < far.tier_count; at++)
        probe->out->tiers[probe->out->tier_count++] = far.tiers[at];
    return MH_OK;
}

static mh_status measure(probing *probe, mh_error *err)
{
    const mh_probe_options *options = probe->options;
    MH_TRY(mh_http_is_url(options->path) ? measure_url(probe, err) : measure_path(probe, err));
    mh_probe_device(&probe->out->tiers[probe->out->tier_count++], options->seconds * TIME_DEVICE);
    return MH_OK;
}

mh_status mh_probe_run(mh_probe *out, const mh_probe_options *given, mh_error *err)
{
    mh_probe_options taken, *options = &taken;
    if (!out || !given)
        return mh_fail(err, MH_ERR_INVALID, "a probe needs options and a place for its result");
    MH_TRY(MH_SIZED_TAKE(options, given, mh_probe_options, progress_arg, err));
    if (!options->path)
        return mh_fail(err, MH_ERR_INVALID, "a probe needs a path");
    if (options->bytes < MH_PROBE_PIECE || options->bytes > INT64_MAX)
        return mh_fail(err, MH_ERR_INVALID, "a size of %llu bytes, must be 1 MiB or more",
                       (unsigned long long)options->bytes);
    if (!(options->seconds > 0 && options->seconds <= 3600))
        return mh_fail(err, MH_ERR_INVALID, "%g seconds, must be above 0 and at most 3600",
                       options->seconds);
    mh_probe found = {0};
    probing probe = {.options = options, .out = &found, .random = UINT64_C(88172645463325252)};
    void *buffer =
        mmap(NULL, MH_PROBE_PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to read into");
    probe.buffer = buffer;
    mh_status status = measure(&probe, err);
    (void)munmap(buffer, MH_PROBE_PIECE);
    if (status == MH_OK)
        *out = found;
    return status;
}
