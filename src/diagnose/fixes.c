/* fixes.c - what to change, and what the replay says it wins
 * SPDX-License-Identifier: Apache-2.0
 *
 * Settings first: they cost nothing. Only where no setting wins half of what cheaper code would is
 * cheaper code the advice, and then the gain is the one of half the cost.
 */
#include "base/error.h"
#include "diagnose/judging.h"

#include <string.h>

#define HALF 0.5
/* Two settings this close are the same; the smaller is taken. */
#define SAME 1.03
/* Most workers ever advised, and for waiting that needs no CPU on a machine with few: each takes
 * memory for its interpreter and its batches. */
#define WORKERS_MOST 64
#define WORKERS_WAITING 32

typedef struct fix_try {
    double ns;
    int value; /* of the setting that was tried */
} fix_try;

static mh_status try_options(const mh_inquiry *inquiry, const mh_replay_options *options, int value,
                             fix_try *best, mh_error *err)
{
    fix_try tried = {.value = value};
    MH_TRY(mh_inquiry_time(inquiry, options, &tried.ns, err));
    /* tried in growing order: a larger one must be worth it */
    if (tried.ns * SAME < best->ns)
        *best = tried;
    return MH_OK;
}

/* The smallest number of workers, up to `most`, that is as good as any. */
static mh_status best_workers(const mh_inquiry *inquiry, int most, fix_try *best, mh_error *err)
{
    static const int numbers[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, WORKERS_MOST};
    *best = (fix_try){inquiry->base_ns, inquiry->base.workers};
    mh_replay_options options = inquiry->base;
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers && numbers[at] <= most; at++) {
        if (numbers[at] <= inquiry->base.workers)
            continue;
        options.workers = numbers[at];
        MH_TRY(try_options(inquiry, &options, options.workers, best, err));
    }
    if (most <= inquiry->base.workers || most > WORKERS_MOST)
        return MH_OK;
    options.workers = most;
    return try_options(inquiry, &options, most, best, err);
}

static int workers_for_cpu(const mh_inquiry *inquiry)
{
    double left = mh_cpus_left(inquiry->facts);
    if (left <= 0)
        return 8; /* not known: what most machines have */
    return left < WORKERS_MOST ? (int)(left + 0.5) : WORKERS_MOST;
}

static int workers_for_waiting(const mh_inquiry *inquiry)
{
    int cpus = inquiry->facts->cpus;
    if (cpus * 4 >= WORKERS_MOST || inquiry->base.workers * 4 >= WORKERS_MOST)
        return WORKERS_MOST;
    int most = WORKERS_WAITING;
    most = cpus * 4 > most ? cpus * 4 : most;
    return inquiry->base.workers * 4 > most ? inquiry->base.workers * 4 : most;
}

static int collate_waits(const mh_inquiry *inquiry)
{
    return inquiry->sums.costs.collate_blocked > inquiry->sums.costs.collate_cpu;
}

static mh_replay_options at_half(const mh_inquiry *inquiry)
{
    mh_replay_options options = inquiry->base;
    switch (inquiry->loss) {
    case MH_LOSS_FETCH_CPU:
        options.fetch_cpu = HALF;
        break;
    case MH_LOSS_FETCH_BLOCKED:
        options.fetch_blocked = HALF;
        break;
    case MH_LOSS_COLLATE:
        options.collate = HALF;
        break;
    case MH_LOSS_TRANSFER:
        options.transfer = HALF;
        break;
    case MH_LOSS_MAIN:
        options.step_main = HALF;
        break;
    case MH_LOSS_STARTUP:
        options.startup = HALF;
        break;
    case MH_LOSS_TAIL:
    case MH_LOSS_CROWD:
    case MH_LOSS_COUNT:
        break;
    }
    return options;
}

/* The same bytes in less time: no disk gives more than the probe saw it give. Networks serve
 * several readers side by side; a start-up that is shorter reads no faster; and half the reading is
 * fewer bytes. A run that read more has shown that the probe is no limit. */
static double bound_by_storage(const mh_inquiry *inquiry, double gain)
{
    const mh_storage *storage = &inquiry->facts->storage;
    double read = mh_read_per_s(inquiry), gives = storage->sequential_per_s;
    int reads_less = inquiry->loss == MH_LOSS_FETCH_BLOCKED && inquiry->out->fix_settings.cost < 1;
    if (storage->network || reads_less || inquiry->loss == MH_LOSS_STARTUP || !(read > 0) ||
        !(gives > read) || gain <= gives / read)
        return gain;
    mh_evidence(inquiry->out,
                "a gain of %.2f would read %.4g MB/s: the %.4g MB/s of the probe are the limit",
                gain, gain * read / 1e6, gives / 1e6);
    return gives / read;
}

/* Whether what is wrong with fetching is in its CPU time and its waiting alike. */
static int changes_both(const mh_inquiry *inquiry)
{
    return inquiry->slow.worker >= 0 || mh_lock_holds_up(inquiry);
}

/* The gain of a fix is never more than that of having no such loss at all; other workers change
 * more than one loss, but win no more than was waited. */
static void predict(mh_inquiry *inquiry, double then)
{
    double gain = mh_gain(inquiry->base_ns, then);
    double most = inquiry->gain[inquiry->loss];
    int fetch = inquiry->loss == MH_LOSS_FETCH_CPU || inquiry->loss == MH_LOSS_FETCH_BLOCKED;
    if (inquiry->out->fix_settings.workers >= 0 || (fetch && changes_both(inquiry)))
        most = mh_gain(inquiry->measured_ns, inquiry->measured_ns - inquiry->sums.all_wait);
    if (gain > most)
        gain = most;
    gain = bound_by_storage(inquiry, gain);
    inquiry->out->predicted_gain = gain > 1 ? gain : 1;
}

/* Start-up that is mostly the sampler's: it works in the training process, once an epoch. */
static int drawing_is_start(const mh_inquiry *inquiry)
{
    return 2 * mh_ns(inquiry->facts->setup_order_ns) > inquiry->sums.startup;
}

static const char *cheaper(const mh_inquiry *inquiry)
{
    switch (inquiry->out->cause) {
    case MH_CAUSE_CPU:
        return "all it may use is busy: make a sample cheaper (smaller or pre-decoded files, a "
               "faster decoder), or give it more CPUs";
    case MH_CAUSE_PYTHON:
        return "make the Python of __getitem__ cheaper: vectorise it, or move it into native code";
    case MH_CAUSE_DISK:
        return "read less from this disk: fewer or smaller reads, larger files read in one go, a "
               "faster disk, or a copy in memory";
    case MH_CAUSE_LATENCY:
        return "shorten the waiting of __getitem__: fewer round trips per sample, larger requests, "
               "a nearer copy";
    case MH_CAUSE_COLLATE:
        if (strcmp(inquiry->facts->kind, "millhead") == 0)
            return "make collate cheaper: arrays of one shape, no Python loop, no long strings or "
                   "nested objects, which are pickled";
        return "make collate cheaper: arrays of one shape, no Python loop; millhead's DataLoader "
               "writes samples into the batch as they come";
    case MH_CAUSE_MAIN:
        return "move the work between steps out of the training process: into the dataset or "
               "collate_fn, where workers do it";
    case MH_CAUSE_STARTUP:
        if (inquiry->facts->workers == 0 || drawing_is_start(inquiry))
            return "begin sooner: less work in the dataset's __len__ and __iter__, in the sampler "
                   "before its first index, and in what the first sample opens or imports";
        return "start less: fewer workers, a dataset that is quick to copy, imports done before "
               "the start; millhead's template start";
    default:
        return "make it cheaper";
    }
}

static void advise_half(mh_inquiry *inquiry, double then)
{
    mh_verdict *out = inquiry->out;
    out->fix_settings.cost = HALF;
    predict(inquiry, then);
    mh_say_fix(out, "%s; at half the cost the run is %.2f times as fast", cheaper(inquiry),
               out->predicted_gain);
}

static void advise_workers(mh_inquiry *inquiry, const fix_try *found)
{
    mh_verdict *out = inquiry->out;
    int now = inquiry->base.workers;
    out->fix_settings.workers = found->value;
    predict(inquiry, found->ns);
    const char *why =
        now == 0 ? "loading then overlaps with training"
        : out->cause == MH_CAUSE_LATENCY
            ? "more requests are then under way, where the source takes as many at once, "
              "and memory for their batches"
        : inquiry->loss == MH_LOSS_COLLATE && collate_waits(inquiry)
            ? "collate_fn waits more than it works, and then does so side by side"
            : "CPUs are idle";
    mh_say_fix(out, "num_workers=%d (now %d): %s; the run is then %.2f times as fast", found->value,
               now, why, out->predicted_gain);
}

/* Without workers, and none advised: where they would be but for the text they had to pickle, that
 * is what there is to say. */
static mh_status explain_text(mh_inquiry *inquiry, int most_workers, mh_error *err)
{
    mh_verdict *out = inquiry->out;
    mh_inquiry other = *inquiry;
    fix_try workers;
    other.window.batch_texts = 0;
    MH_TRY(best_workers(&other, most_workers, &workers, err));
    if (mh_gain(inquiry->base_ns, workers.ns) < MH_GAIN_MATTERS)
        return MH_OK;
    mh_evidence(out,
                "workers would have to pickle the %.4g MB of text in a batch, which takes %.4g ms "
                "on either side",
                (double)inquiry->facts->batch_texts / 1e6, inquiry->costing.pickling / 1e6);
    mh_say_fix(out,
               "%s, or give tensors or arrays in place of long strings, which workers hand over "
               "without pickling; at half the cost the run is %.2f times as fast",
               cheaper(inquiry), out->predicted_gain);
    return MH_OK;
}

/* One worker's part of the data is slow, and no other can take it over. 1: that is the advice. */
static mh_status fix_slow_worker(mh_inquiry *inquiry, int *advised, mh_error *err)
{
    mh_verdict *out = inquiry->out;
    double spread;
    *advised = 0;
    if (inquiry->slow.worker < 0)
        return MH_OK;
    MH_TRY(mh_slow_worker_spread(inquiry, &spread, err));
    if (mh_gain(inquiry->base_ns, spread) < MH_GAIN_MATTERS)
        return MH_OK;
    *advised = 1;
    predict(inquiry, spread);
    mh_say_fix(out,
               "spread the data of worker %d over all workers (more and smaller shards, dealt out "
               "in turn), or make it like the others'; the run is then %.2f times as fast",
               inquiry->slow.worker, out->predicted_gain);
    return MH_OK;
}

/* What one does behind the lock the others wait for, so all of fetching is shorter by as much. */
static mh_status fix_lock(mh_inquiry *inquiry, mh_error *err)
{
    mh_verdict *out = inquiry->out;
    mh_replay_options options = inquiry->base;
    double half;
    options.fetch_cpu = options.fetch_blocked = HALF;
    MH_TRY(mh_inquiry_time(inquiry, &options, &half, err));
    out->fix_settings.cost = HALF;
    predict(inquiry, half);
    mh_say_fix(out,
               "do less behind the lock that workers share, or give each what it needs for itself "
               "(a file, a connection); more workers win nothing; at half the cost the run is %.2f "
               "times as fast",
               out->predicted_gain);
    return MH_OK;
}

/* More workers, or cheaper work: whichever wins clearly more, workers where it is close. The first
 * worker is worth it whenever it wins anything: without one nothing overlaps. */
static mh_status fix_making(mh_inquiry *inquiry, int most_workers, mh_error *err)
{
    double half;
    fix_try workers;
    if (inquiry->loss != MH_LOSS_COLLATE && mh_lock_holds_up(inquiry))
        return fix_lock(inquiry, err);
    mh_replay_options options = at_half(inquiry);
    MH_TRY(mh_inquiry_time(inquiry, &options, &half, err));
    MH_TRY(best_workers(inquiry, most_workers, &workers, err));
    double saved_half = inquiry->base_ns - half, saved_workers = inquiry->base_ns - workers.ns;
    int first_ones =
        inquiry->base.workers == 0 && mh_gain(inquiry->base_ns, workers.ns) >= MH_GAIN_MATTERS;
    if (first_ones || (saved_workers > 0 && saved_workers >= HALF * saved_half)) {
        advise_workers(inquiry, &workers);
        return MH_OK;
    }
    advise_half(inquiry, half);
    return inquiry->costing.pickling > 0 ? explain_text(inquiry, most_workers, err) : MH_OK;
}

static mh_status fix_half(mh_inquiry *inquiry, mh_error *err)
{
    double half;
    mh_replay_options options = at_half(inquiry);
    MH_TRY(mh_inquiry_time(inquiry, &options, &half, err));
    advise_half(inquiry, half);
    return MH_OK;
}

/* Any loader pickles it. */
static int text_is_most(const mh_facts *facts)
{
    return facts->batch_texts > facts->batch_bytes;
}

static mh_status fix_transfer(mh_inquiry *inquiry, mh_error *err)
{
    MH_TRY(fix_half(inquiry, err));
    mh_verdict *out = inquiry->out;
    if (mh_drawing_is_most(&inquiry->sums.costs)) {
        mh_say_fix(out,
                   "make the sampler cheaper, which no worker helps with: draw the order of an "
                   "epoch in one go, or choose samples inside the dataset; at half the cost the "
                   "run is %.2f times as fast",
                   out->predicted_gain);
    } else if (strcmp(inquiry->facts->kind, "torch") == 0 && !text_is_most(inquiry->facts)) {
        out->fix_settings.millhead = 1;
        mh_say_fix(out,
                   "hand batches over more cheaply: millhead.torch.DataLoader passes them in "
                   "slots of shared memory; at half the cost the run is %.2f times as fast",
                   out->predicted_gain);
    } else {
        mh_say_fix(out,
                   "hand over less: smaller dtypes, no long strings or nested Python objects in a "
                   "batch; at half the cost the run is %.2f times as fast",
                   out->predicted_gain);
    }
    return MH_OK;
}

/* Slow samples can be hidden: by more batches in reserve, by not waiting in order, by workers. */
static mh_status fix_tail(mh_inquiry *inquiry, mh_error *err)
{
    mh_verdict *out = inquiry->out;
    mh_replay_options options = inquiry->base;
    options.clip_excess = 1;
    double clipped;
    MH_TRY(mh_inquiry_time(inquiry, &options, &clipped, err));
    double saved = inquiry->base_ns - clipped;

    fix_try deeper = {inquiry->base_ns, inquiry->base.prefetch};
    fix_try as_ready = {inquiry->base_ns, 1}, workers;
    MH_TRY(best_workers(inquiry, workers_for_waiting(inquiry), &workers, err));
    if (inquiry->base.workers > 0) {
        options = inquiry->base;
        for (int times = 2; times <= 8 && inquiry->base.prefetch <= 16; times *= 2) {
            options.prefetch = inquiry->base.prefetch * times;
            MH_TRY(try_options(inquiry, &options, options.prefetch, &deeper, err));
        }
        options = inquiry->base;
        options.in_order = 0;
        MH_TRY(try_options(inquiry, &options, 0, &as_ready, err));
    }
    double needed = inquiry->base_ns - HALF * saved;
    if (deeper.ns <= needed && deeper.ns <= SAME * as_ready.ns) {
        out->fix_settings.prefetch = deeper.value;
        predict(inquiry, deeper.ns);
        mh_say_fix(out,
                   "prefetch_factor=%d (now %d): batches in reserve cover the slow samples; the "
                   "run is then %.2f times as fast",
                   deeper.value, inquiry->base.prefetch, out->predicted_gain);
    } else if (as_ready.ns <= needed) {
        out->fix_settings.in_order = 0;
        predict(inquiry, as_ready.ns);
        mh_say_fix(
            out, "in_order=False (batches as they are ready)%s; the run is then %.2f times as fast",
            inquiry->facts->by_sample
                ? ""
                : ", or dispatch=\"sample\" of millhead's DataLoader, which keeps the order",
            out->predicted_gain);
    } else if (workers.ns <= needed) {
        advise_workers(inquiry, &workers);
    } else {
        out->fix_settings.cost = 0;
        predict(inquiry, clipped);
        mh_say_fix(out,
                   "find the slow samples and make them like the others (shrink, re-encode, move "
                   "or drop them); the run is then %.2f times as fast",
                   out->predicted_gain);
    }
    return MH_OK;
}

static mh_status fix_startup(mh_inquiry *inquiry, mh_error *err)
{
    mh_verdict *out = inquiry->out;
    const mh_facts *facts = inquiry->facts;
    mh_replay_options options = inquiry->base;
    double half, kept;
    options.free_startup = 1;
    MH_TRY(mh_inquiry_time(inquiry, &options, &kept, err));
    options = at_half(inquiry);
    MH_TRY(mh_inquiry_time(inquiry, &options, &half, err));
    double saved_half = inquiry->base_ns - half;
    if (inquiry->gap_ns > saved_half && inquiry->gap_ns > inquiry->base_ns - kept) {
        predict(inquiry, inquiry->base_ns - inquiry->gap_ns);
        out->fix_settings.millhead = 1;
        mh_say_fix(out,
                   "longer epochs, or prefetch_epoch=True of millhead's DataLoader: the next epoch "
                   "begins before this one ends; the run is then %.2f times as fast",
                   out->predicted_gain);
        return MH_OK;
    }
    if (facts->workers == 0 || facts->persistent != 0 ||
        inquiry->base_ns - kept < HALF * saved_half) {
        advise_half(inquiry, half);
        return MH_OK;
    }
    out->fix_settings.persistent = 1;
    predict(inquiry, kept);
    mh_say_fix(out,
               "persistent_workers=True: workers then start once and not every epoch; the run is "
               "then %.2f times as fast",
               out->predicted_gain);
    return MH_OK;
}

static mh_status fix_crowd(mh_inquiry *inquiry)
{
    mh_verdict *out = inquiry->out;
    out->fix_settings.workers = inquiry->crowd_workers;
    out->predicted_gain = inquiry->gain[MH_LOSS_CROWD];
    mh_say_fix(out,
               "num_workers=%d (now %d): as many as there are CPUs to run them; the run is then "
               "%.2f times as fast",
               inquiry->crowd_workers, inquiry->facts->workers, out->predicted_gain);
    return MH_OK;
}

static void say_nothing_to_fix(mh_inquiry *inquiry)
{
    mh_verdict *out = inquiry->out;
    if (out->cause == MH_CAUSE_DEVICE)
        mh_say_fix(out, "nothing in the loader: it keeps up; a faster step is what would help");
    else if (mh_too_short(inquiry))
        mh_say_fix(
            out,
            "%.0f batches after the first show no pace: measure a run of %d batches or more, "
            "and longer with --seconds where --pid looks",
            inquiry->sums.batches, MH_BATCHES_ENOUGH + 1);
    else if (inquiry->sums.fetch_known * 2 < inquiry->sums.batches)
        mh_say_fix(out, "the loop waits and the workers were not measured: iterate "
                        "millhead.watch(loader), or run millhead doctor -- python train.py");
    else
        mh_say_fix(out, "the loop waits and no measured stage explains it: measure again on a "
                        "quiet machine and for longer; look at the warnings");
}

static mh_status fix_fetching(mh_inquiry *inquiry, mh_error *err)
{
    int advised, waits = inquiry->loss == MH_LOSS_FETCH_BLOCKED;
    MH_TRY(fix_slow_worker(inquiry, &advised, err));
    if (advised)
        return MH_OK;
    if (waits && inquiry->out->cause == MH_CAUSE_LATENCY)
        return fix_making(inquiry, workers_for_waiting(inquiry), err);
    if (waits && inquiry->base.workers > 0)
        return fix_half(inquiry, err); /* a disk */
    return fix_making(inquiry, workers_for_cpu(inquiry), err);
}

mh_status mh_fix_make(mh_inquiry *inquiry, mh_error *err)
{
    switch (inquiry->loss) {
    case MH_LOSS_FETCH_CPU:
    case MH_LOSS_FETCH_BLOCKED:
        return fix_fetching(inquiry, err);
    case MH_LOSS_COLLATE:
        return fix_making(
            inquiry,
            collate_waits(inquiry) ? workers_for_waiting(inquiry) : workers_for_cpu(inquiry), err);
    case MH_LOSS_TRANSFER:
        return fix_transfer(inquiry, err);
    case MH_LOSS_MAIN:
        return fix_half(inquiry, err);
    case MH_LOSS_TAIL:
        return fix_tail(inquiry, err);
    case MH_LOSS_STARTUP:
        return fix_startup(inquiry, err);
    case MH_LOSS_CROWD:
        return fix_crowd(inquiry);
    case MH_LOSS_COUNT:
        break;
    }
    say_nothing_to_fix(inquiry);
    return MH_OK;
}
