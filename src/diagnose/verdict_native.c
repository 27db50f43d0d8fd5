/* verdict_native.c - what a loop over the native loader waited for
 * SPDX-License-Identifier: Apache-2.0
 *
 * Its threads are not workers that make one batch each, so nothing is replayed. Three rates bound
 * what it can give, whatever else happens:
 *
 *     threads / CPU time of a sample
 *     reads in flight / time that the reads of a sample take
 *     bytes that storage gives in a second / bytes of a sample
 *
 * The lowest one is the cause, and raising it wins at most as much as the others leave, or as the
 * loop waited. map= runs between them and the loop. docs/native.md tells users.
 */
#include "base/units.h"
#include "diagnose/judging.h"

#include <math.h>

#define IN_FLIGHT_MOST 1024
#define CACHE_WINS 1.1 /* times as much: it takes a disk */
#define HEADROOM 1.2   /* more than is just enough: what a bound says is never quite reached */

/* Samples a second. INFINITY: no bound. */
typedef struct bounds {
    double cpu, reads, bandwidth;
    double wanted; /* by a loop that never waits */
} bounds;

static double rate(double per_second, double ns)
{
    return ns > 0 ? per_second * 1e9 / ns : INFINITY;
}

/* Samples a second that the loop took. */
static double rate_now(const mh_inquiry *inquiry)
{
    double batch = inquiry->facts->batch_size > 0 ? inquiry->facts->batch_size : 1;
    return rate(inquiry->sums.batches * batch, inquiry->steady_ns);
}

/* What a probe of the disk saw it give. That it is busy says nothing of what it could give. */
static double bandwidth_of(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    const mh_native_sum *native = &facts->native;
    double probed = facts->storage.sequential_per_s;
    if (probed <= 0 || facts->storage.network || !native->reads || !native->bytes)
        return INFINITY;
    return fmax(probed * (double)native->samples / (double)native->bytes, rate_now(inquiry));
}

static bounds bounds_of(const mh_inquiry *inquiry)
{
    const mh_native_sum *native = &inquiry->facts->native;
    double samples = (double)native->samples;
    double batch = inquiry->facts->batch_size > 0 ? inquiry->facts->batch_size : 1;
    return (bounds){
        .cpu = rate(native->threads > 0 ? native->threads : 1, (double)native->cpu_ns / samples),
        .reads = rate(native->in_flight, (double)native->latency_ns / samples),
        .bandwidth = bandwidth_of(inquiry),
        .wanted = rate(inquiry->sums.batches * batch, inquiry->sums.step),
    };
}

/* Where nothing was waited for: it could always have been faster, and nobody would notice. */
static double waited_gain(const mh_inquiry *inquiry)
{
    return mh_gain(inquiry->steady_ns, inquiry->steady_ns - inquiry->sums.wait);
}

int mh_native_waits(const mh_inquiry *inquiry)
{
    return inquiry->facts->native.samples > 0 && !mh_too_short(inquiry) &&
           waited_gain(inquiry) >= MH_GAIN_MATTERS;
}

/* What is won where these are the bounds. */
static double bounded(const mh_inquiry *inquiry, double a, double b, double c)
{
    double most = waited_gain(inquiry);
    double then = fmin(a, fmin(b, c));
    double gain = then / rate_now(inquiry);
    return gain < 1 ? 1 : gain > most ? most : gain;
}

/* --- what the waiting was for --- */

/* Of what all batches took, that of those that are not the first of their epoch. */
static double steady_part(const mh_inquiry *inquiry, uint64_t ns)
{
    return (double)ns * inquiry->sums.batches / (double)inquiry->facts->batch_count;
}

void mh_native_share(mh_inquiry *inquiry)
{
    const mh_native_sum *native = &inquiry->facts->native;
    mh_stage_shares *stages = &inquiry->out->stages;
    double waited = inquiry->sums.wait;
    double pin = steady_part(inquiry, native->pin_ns), map = steady_part(inquiry, native->map_ns);
    double read = (double)native->wait_read_ns, decode = (double)native->wait_decode_ns;
    double place = (double)native->wait_place_ns, sum = read + decode + place + pin + map;
    if (!native->samples || inquiry->steady_ns <= 0)
        return;
    double scale = (sum > waited ? waited / sum : 1) / inquiry->steady_ns;
    inquiry->out->native = (mh_native_shares){.wait_read = read * scale,
                                              .wait_decode = decode * scale,
                                              .wait_place = place * scale,
                                              .wait_pin = pin * scale,
                                              .wait_map = map * scale};
    stages->wait_cpu = stages->wait_run = stages->wait_blocked = 0;
    stages->wait_collate = stages->wait_transfer = stages->wait_order = 0;
    stages->wait_other = (waited / inquiry->steady_ns) - sum * scale;
}

/* The function is what the loop waits for most. */
static int map_holds_up(const mh_inquiry *inquiry)
{
    const mh_native_shares *native = &inquiry->out->native;
    return native->wait_map >
           native->wait_read + native->wait_decode + native->wait_place + native->wait_pin;
}

static void say_map(mh_inquiry *inquiry)
{
    mh_verdict *out = inquiry->out;
    double map = steady_part(inquiry, inquiry->facts->native.map_ns);
    out->cause = MH_CAUSE_MAIN;
    mh_evidence(out, "map= takes %s of each batch, in the loop's own thread",
                MH_NS_TEXT(map / inquiry->sums.batches));
    out->fix_settings.cost = 0.5;
    out->predicted_gain = mh_gain(inquiry->steady_ns, inquiry->steady_ns - map / 2);
    mh_say_fix(out, "make the function given as map= cheaper, or run it on single samples in "
                    "worker processes: millhead.open(data).map(fn) in a DataLoader");
}

/* --- bounds --- */

static void say_bandwidth(mh_inquiry *inquiry, const bounds *found)
{
    mh_verdict *out = inquiry->out;
    const mh_native_sum *native = &inquiry->facts->native;
    out->cause = MH_CAUSE_DISK;
    mh_evidence(out, "a sample takes %s from storage, which gives at most %.3g samples per second",
                MH_BYTES((double)native->bytes / (double)native->samples), found->bandwidth);
    out->fix_settings.cost = 0.5;
    out->predicted_gain = bounded(inquiry, 2 * found->bandwidth, found->cpu, found->reads);
    mh_say_fix(out, "read fewer bytes (smaller samples, a codec, shuffle=\"blocks\" where chunks "
                    "are read again), or copy the data to a faster disk: millhead stage");
}

static int larger(int now, double times, int most)
{
    double wanted = ceil(now * times);
    return wanted > most ? most : (int)wanted;
}

/* What a cache would win from the second epoch on, when nothing is fetched any more. 1: there is
 * one, or the data is not behind a URL. */
static double gain_of_cache(const mh_inquiry *inquiry, const bounds *found)
{
    const mh_native_sum *native = &inquiry->facts->native;
    if (!native->requests || native->cache_hits + native->cache_misses)
        return 1;
    return bounded(inquiry, found->cpu, INFINITY, INFINITY);
}

static void say_cache(mh_inquiry *inquiry, double gain)
{
    mh_verdict *out = inquiry->out;
    out->fix_settings.cache = 1;
    out->predicted_gain = gain;
    mh_say_fix(out,
               "cache=\"DIR:SIZE\" on a local disk: from the second epoch on nothing that fits "
               "is fetched, which wins %.2gx",
               gain);
}

static void say_reads(mh_inquiry *inquiry, const bounds *found)
{
    mh_verdict *out = inquiry->out;
    const mh_native_sum *native = &inquiry->facts->native;
    int more = larger(native->in_flight, HEADROOM * found->wanted / found->reads, IN_FLIGHT_MOST);
    const double cached = gain_of_cache(inquiry, found);
    out->cause = MH_CAUSE_LATENCY;
    mh_evidence(
        out, "a read takes %s: %d in flight give at most %.3g samples per second",
        MH_NS_TEXT((double)native->latency_ns / (double)(native->reads ? native->reads : 1)),
        native->in_flight, found->reads);
    if (more <= native->in_flight && cached > 1) {
        say_cache(inquiry, cached);
        return;
    }
    if (more <= native->in_flight) {
        mh_say_fix(out, "bring the data nearer, or into larger chunks: %d reads are in flight",
                   native->in_flight);
        return;
    }
    out->fix_settings.in_flight = more;
    out->predicted_gain =
        bounded(inquiry, found->reads * more / native->in_flight, found->cpu, found->bandwidth);
    if (cached > out->predicted_gain * CACHE_WINS) {
        out->fix_settings.in_flight = -1;
        say_cache(inquiry, cached);
        return;
    }
    mh_say_fix(out, "in_flight=%d (now %d), so that more reads wait side by side%s", more,
               native->in_flight,
               cached > 1 ? "; cache=\"DIR:SIZE\" fetches nothing from the second epoch on" : "");
}

static void say_cpu(mh_inquiry *inquiry, const bounds *found)
{
    mh_verdict *out = inquiry->out;
    const mh_native_sum *native = &inquiry->facts->native;
    int threads = native->threads, cpus = inquiry->facts->cpus;
    int more = larger(threads > 0 ? threads : 1, HEADROOM * found->wanted / found->cpu,
                      cpus > 0 ? cpus : threads);
    out->cause = MH_CAUSE_CPU;
    mh_evidence(out, "a sample takes %s of CPU time: %d thread%s at most %.3g samples per second",
                MH_NS_TEXT((double)native->cpu_ns / (double)native->samples), threads,
                threads == 1 ? " makes" : "s make", found->cpu);
    if (more <= threads) {
        out->fix_settings.cost = 0.5;
        out->predicted_gain = bounded(inquiry, 2 * found->cpu, found->reads, found->bandwidth);
        mh_say_fix(out, "make samples cheaper: smaller, or stored in a form that decodes faster");
        return;
    }
    out->fix_settings.threads = more;
    out->predicted_gain = bounded(inquiry, found->cpu * more / (threads > 0 ? threads : 1),
                                  found->reads, found->bandwidth);
    mh_say_fix(out, "threads=%d (now %d)", more, threads);
}

/* Neither reading nor computing is too slow on average. */
static void say_bursts(mh_inquiry *inquiry, int computing)
{
    mh_verdict *out = inquiry->out;
    out->cause = computing ? MH_CAUSE_CPU : MH_CAUSE_LATENCY;
    mh_say_fix(out,
               "raise prefetch=, or memory= where it was set: %s fast enough on average, but not "
               "where many samples at once need it, as at the beginning of an epoch",
               computing ? "threads decode" : "samples are read");
}

/* Whether threads hold the loop up, not reads. What the waiting was for says it best. */
static int threads_hold_up(const mh_inquiry *inquiry, const bounds *found)
{
    const mh_native_shares *native = &inquiry->out->native;
    if (!inquiry->facts->native.reads ||
        native->wait_decode + native->wait_place > native->wait_read)
        return 1;
    return found->cpu < fmin(found->reads, found->bandwidth);
}

static void say_cached(mh_inquiry *inquiry)
{
    const mh_native_sum *native = &inquiry->facts->native;
    const uint64_t reads = native->cache_hits + native->cache_misses;
    if (reads)
        mh_evidence(inquiry->out, "the cache answered %llu of %llu reads (%s, each checked)%s",
                    (unsigned long long)native->cache_hits, (unsigned long long)reads,
                    MH_BYTES((double)native->cache_bytes),
                    native->cache_evicted ? " and removed others for want of room" : "");
}

void mh_native_judge(mh_inquiry *inquiry)
{
    const bounds found = bounds_of(inquiry);
    const int computing = threads_hold_up(inquiry, &found);
    mh_say_waiting(inquiry);
    mh_evidence(inquiry->out, "a loop that never waits would use %.3g samples per second",
                found.wanted);
    say_cached(inquiry);
    if (map_holds_up(inquiry))
        say_map(inquiry);
    else if (computing && found.cpu < found.wanted)
        say_cpu(inquiry, &found);
    else if (!computing && found.bandwidth < fmin(found.wanted, found.reads))
        say_bandwidth(inquiry, &found);
    else if (!computing && found.reads < found.wanted)
        say_reads(inquiry, &found);
    else
        say_bursts(inquiry, computing);
}
