/* probe_url.c - how fast a file behind an http(s) address comes, in large pieces and in small ones
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/probe.h"

#include "base/error.h"
#include "source/http.h"
#include "sys/clock.h"
#include <stdio.h>
#include <string.h>

#define LARGE_BYTES (UINT64_C(8) << 20) /* what stores advise for one request */
#define SMALL_BYTES ((uint64_t)MH_PROBE_PAGE)
#define LOOK_NS 50000000u /* how often progress is told */
#define TIME_LARGE 0.6    /* share of the time */

typedef struct reading {
    mh_probe *out;
    const mh_probe_options *options;
    mh_http *http;
    double done;    /* share of the whole probe */
    uint64_t bytes; /* of the file that are used */
    uint64_t connected_ns;
    uint64_t random;
    /* of the pass under way */
    const char *what;
    uint64_t began, told, ends; /* ns */
    uint64_t came;              /* before the request under way */
} reading;

/* A pass over the file: the bytes, and the requests that were answered to their end. */
typedef struct pass {
    uint64_t bytes, ns, requests, requests_ns;
} pass;

static mh_http_wish listen(void *argument, uint64_t came)
{
    reading *r = argument;
    const mh_probe_options *options = r->options;
    uint64_t now = mh_clock_ns();
    if (options->progress && now - r->told > LOOK_NS) {
        r->told = now;
        double share = r->done + (double)(now - r->began) * 1e-9 / options->seconds;
        if (options->progress(options->progress_arg, r->what, share))
            return MH_HTTP_STOP;
    }
    /* Something must come, however long that takes. */
    return now >= r->ends && r->came + came > 0 ? MH_HTTP_ENOUGH : MH_HTTP_ON;
}

/* Reads pieces one after the other, or anywhere, until the time is over. */
static mh_status read_pieces(pass *sum, reading *r, uint64_t piece, bool random, double seconds,
                             mh_error *err)
{
    uint64_t pieces = r->bytes / piece, next = 0;
    *sum = (pass){0};
    r->came = 0;
    r->began = r->told = mh_clock_ns();
    r->ends = r->began + (uint64_t)(seconds * 1e9);
    do {
        mh_http_answer answer;
        if (random) {
            r->random = r->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            next = (r->random >> 33) % pieces;
        }
        mh_http_request request = {next * piece, piece, listen, r};
        uint64_t asked = mh_clock_ns();
        MH_TRY(mh_http_get(r->http, &request, &answer, err));
        uint64_t now = mh_clock_ns();
        if (r->came + answer.came == 0)
            return mh_fail(err, MH_ERR_IO, "%.300s: the answer is empty", mh_http_shown(r->http));
        if (answer.came >= piece) {
            sum->requests++;
            sum->requests_ns += now - asked;
        }
        sum->bytes = r->came += answer.came;
        sum->ns = now - r->began;
        next = (next + 1) % pieces;
    } while (r->began + sum->ns < r->ends);
    r->done += (double)sum->ns * 1e-9 / r->options->seconds;
    return MH_OK;
}

static void fill_tier(mh_probe_tier *tier, const pass *sum)
{
    double seconds = (double)(sum->ns ? sum->ns : 1) * 1e-9;
    tier->mb_per_s = (double)sum->bytes / seconds / 1e6;
    if (sum->requests)
        tier->latency_us = (double)sum->requests_ns / 1e3 / (double)sum->requests;
}

static void say_piece(char out[32], uint64_t bytes)
{
    if (bytes >= 1 << 20)
        (void)snprintf(out, 32, "%.3g MiB", (double)bytes / (1 << 20));
    else if (bytes >= 1 << 10)
        (void)snprintf(out, 32, "%.3g KiB", (double)bytes / (1 << 10));
    else
        (void)snprintf(out, 32, "%llu bytes", (unsigned long long)bytes);
}

static mh_status measure_ranges(reading *r, bool random, double seconds, mh_error *err)
{
    mh_probe_tier *tier =
        mh_probe_add_tier(r->out, random ? "network random" : "network sequential");
    uint64_t piece = random ? SMALL_BYTES : LARGE_BYTES;
    char size[32], reads[32];
    pass sum;
    if (piece > r->bytes)
        piece = r->bytes;
    r->what = tier->name;
    MH_TRY(read_pieces(&sum, r, piece, random, seconds, err));
    fill_tier(tier, &sum);
    say_piece(size, piece);
    (void)snprintf(reads, sizeof reads, "%llu reads", (unsigned long long)sum.requests);
    (void)snprintf(tier->how, sizeof tier->how,
                   "%s of %s, %s, over one connection (made in %.3g ms)",
                   sum.requests ? reads : "less than a read", size,
                   piece == r->bytes ? "the whole file"
                   : random          ? "anywhere"
                                     : "one after the other",
                   (double)r->connected_ns / 1e6);
    return MH_OK;
}

/* Without ranges there is only the file from its start, of which so much is taken. */
static mh_status measure_whole(reading *r, double seconds, mh_error *err)
{
    mh_probe_tier *tier = mh_probe_add_tier(r->out, "network sequential");
    mh_http_answer answer;
    mh_http_request request = {0, r->options->bytes, listen, r};
    r->what = tier->name;
    r->began = r->told = mh_clock_ns();
    r->ends = r->began + (uint64_t)(seconds * 1e9);
    MH_TRY(mh_http_get(r->http, &request, &answer, err));
    pass sum = {.bytes = answer.came, .ns = mh_clock_ns() - r->began};
    if (answer.came == 0)
        return mh_fail(err, MH_ERR_NOT_FOUND, "%.300s is empty", mh_http_shown(r->http));
    fill_tier(tier, &sum);
    (void)snprintf(tier->how, sizeof tier->how,
                   "the file from its start: the server gives no ranges (connected in %.3g ms)",
                   (double)answer.connected_ns / 1e6);
    r->out->bytes = answer.came;
    tier = mh_probe_add_tier(r->out, "network random");
    (void)snprintf(tier->how, sizeof tier->how,
                   "not measured: the server gives no ranges, every read is of the whole file");
    return MH_OK;
}

/* "https at example.org:8443" */
static void name_network(mh_probe *out)
{
    const char *host = strstr(out->file, "://");
    if (host)
        (void)snprintf(out->network, sizeof out->network, "%.*s at %.*s", (int)(host - out->file),
                       out->file, (int)strcspn(host + 3, "/"), host + 3);
}

/* What kind of server it is, by a first small piece. */
static mh_status measure(reading *r, double seconds, mh_error *err)
{
    mh_http_answer first;
    mh_http_request request = {0, SMALL_BYTES, listen, r};
    r->what = "connecting";
    r->began = r->told = mh_clock_ns();
    r->ends = UINT64_MAX;
    MH_TRY(mh_http_get(r->http, &request, &first, err));
    (void)snprintf(r->out->file, sizeof r->out->file, "%.500s", mh_http_shown(r->http));
    name_network(r->out);
    r->connected_ns = first.connected_ns;
    if (!first.ranged || !first.total)
        return measure_whole(r, seconds * TIME_LARGE, err);
    r->bytes = first.total < r->options->bytes ? first.total : r->options->bytes;
    r->out->bytes = r->bytes;
    MH_TRY(measure_ranges(r, false, seconds * TIME_LARGE, err));
    return measure_ranges(r, true, seconds * (1 - TIME_LARGE), err);
}

mh_status mh_probe_url(mh_probe *out, const mh_probe_options *options, double seconds, double done,
                       mh_error *err)
{
    reading r = {.out = out, .options = options, .done = done, .random = 1};
    MH_TRY(mh_http_open(&r.http, options->path, err));
    mh_status status = measure(&r, seconds, err);
    mh_http_close(r.http);
    return status;
}
