/* verdict_native.c - what a loop over the native loader waited for
 * SPDX-License-Identifier: Apache-2.0
 *
 * Its threads are not workers that make one batch each, so nothing is replayed. Two rates bound
 * what it can give, whatever else happens:
 *
 *     threads / CPU time of a sample
 *     reads in flight / time that the reads of a sample take
 *
 * The lower one is the cause, and raising it wins at most as much as the other leaves, or as the
 * loop waited. docs/native.md tells users.
 */
#include "base/units.h"
#include "diagnose/judging.h"

#include <math.h>

#define IN_FLIGHT_MOST 1024
#define HEADROOM 1.2 /* more than is just enough: what a bound says is never quite reached */

/* Samples a second. INFINITY: no bound. */
typedef struct bounds {
    double cpu, reads;
    double wanted; /* by a loop that never waits */
} bounds;

static double rate(double per_second, double ns)
{
    return ns > 0 ? per_second * 1e9 / ns : INFINITY;
}

static bounds bounds_of(const mh_inquiry *inquiry)
{
    const mh_native_sum *native = &inquiry->facts->native;
    double samples = (double)native->samples;
    double batch = inquiry->facts->batch_size > 0 ? inquiry->facts->batch_size : 1;
    return (bounds){
        .cpu = rate(native->threads > 0 ? native->threads : 1, (double)native->cpu_ns / samples),
        .reads = rate(native->in_flight, (double)native->latency_ns / samples),
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

/* The gain of raising one bound `times`, while the other stays. */
static double bounded(const mh_inquiry *inquiry, double raised, double other)
{
    double most = waited_gain(inquiry);
    double batch = inquiry->facts->batch_size > 0 ? inquiry->facts->batch_size : 1;
    double now = rate(inquiry->sums.batches * batch, inquiry->steady_ns);
    double then = raised < other ? raised : other;
    double gain = then / now;
    return gain < 1 ? 1 : gain > most ? most : gain;
}

static int larger(int now, double times, int most)
{
    double wanted = ceil(now * times);
    return wanted > most ? most : (int)wanted;
}

static void say_reads(mh_inquiry *inquiry, const bounds *found)
{
    mh_verdict *out = inquiry->out;
    const mh_native_sum *native = &inquiry->facts->native;
    int more = larger(native->in_flight, HEADROOM * found->wanted / found->reads, IN_FLIGHT_MOST);
    out->cause = MH_CAUSE_LATENCY;
    mh_evidence(
        out, "a read takes %s: %d in flight give at most %.3g samples per second",
        MH_NS_TEXT((double)native->latency_ns / (double)(native->reads ? native->reads : 1)),
        native->in_flight, found->reads);
    if (more <= native->in_flight) {
        mh_say_fix(out, "bring the data nearer, or into larger chunks: %d reads are in flight",
                   native->in_flight);
        return;
    }
    out->fix_settings.in_flight = more;
    out->predicted_gain = bounded(inquiry, found->reads * more / native->in_flight, found->cpu);
    mh_say_fix(out, "in_flight=%d (now %d), so that more reads wait side by side", more,
               native->in_flight);
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
        out->predicted_gain = bounded(inquiry, 2 * found->cpu, found->reads);
        mh_say_fix(out, "make samples cheaper: smaller, or stored in a form that decodes faster");
        return;
    }
    out->fix_settings.threads = more;
    out->predicted_gain =
        bounded(inquiry, found->cpu * more / (threads > 0 ? threads : 1), found->reads);
    mh_say_fix(out, "threads=%d (now %d)", more, threads);
}

void mh_native_judge(mh_inquiry *inquiry)
{
    const bounds found = bounds_of(inquiry);
    mh_say_waiting(inquiry);
    mh_evidence(inquiry->out, "a loop that never waits would use %.3g samples per second",
                found.wanted);
    if (found.reads < found.wanted && found.reads <= found.cpu)
        say_reads(inquiry, &found);
    else if (found.cpu < found.wanted)
        say_cpu(inquiry, &found);
    else
        mh_say_fix(inquiry->out,
                   "raise prefetch=, or memory= where it was set: neither reading nor "
                   "decoding is too slow on average, so single batches are");
}
