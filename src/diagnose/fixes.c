/* fixes.c - what to change, and what the replay says it wins
 * SPDX-License-Identifier: Apache-2.0
 *
 * Settings first: they cost nothing. Only where no setting wins half of what cheaper code would is
 * cheaper code the advice, and then the gain is the one of half the cost.
 */
#include "base/error.h"
#include "base/units.h"
#include "diagnose/judging.h"
#include "plan/workers.h"

#include <stdio.h>
#include <string.h>

#define HALF 0.5
/* Two settings of other kinds this close are the same; the first is taken. */
#define SAME 1.03

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

/* As many workers as the run needs, where that is more than it has and wins something. */
static mh_status best_workers(const mh_inquiry *inquiry, fix_try *best, mh_error *err)
{
    fix_try needed;
    *best = (fix_try){inquiry->base_ns, inquiry->base.workers};
    MH_TRY(mh_inquiry_workers(inquiry, &needed.value, &needed.ns, err));
    if (needed.value > best->value && needed.ns * MH_SAME < best->ns)
        *best = needed;
    return MH_OK;
}

static int collate_waits(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    /* on busy CPUs it waits for threads of its own, that wait for a CPU */
    int busy = inquiry->own_cpus + inquiry->other_cpus >= MH_SATURATED * facts->cpus;
    return (!busy || facts->workers > 0) &&
           inquiry->load.costs.collate_blocked > inquiry->load.costs.collate_cpu;
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
    mh_evidence(inquiry->out, "a run %.2f times as fast would read %s/s; the probe measured %s/s",
                gain, MH_BYTES(gain * read), MH_BYTES(gives));
    return gives / read;
}

/* Whether what is wrong with fetching is in its CPU time and its waiting alike. */
static int changes_both(const mh_inquiry *inquiry)
{
    return inquiry->slow.worker >= 0 || mh_lock_is_shared(&inquiry->load);
}

/* The gain of a fix is never more than that of having no such loss at all; other workers change
 * more than one loss, but win no more than was waited. */
static void predict(mh_inquiry *inquiry, double then)
{
    double gain = mh_inquiry_gain(inquiry, then);
    double most = inquiry->gain[inquiry->loss];
    double run = inquiry->measured_ns + mh_ns(inquiry->facts->other_ns);
    int fetch = inquiry->loss == MH_LOSS_FETCH_CPU || inquiry->loss == MH_LOSS_FETCH_BLOCKED;
    if (inquiry->out->fix_settings.workers >= 0 || (fetch && changes_both(inquiry)))
        most = mh_gain(run, run - inquiry->sums.all_wait);
    if (gain > most)
        gain = most;
    gain = mh_gain_of_run(inquiry, bound_by_storage(inquiry, gain));
    inquiry->out->predicted_gain = inquiry->out->possible_gain = gain > 1 ? gain : 1;
}

/* The fix may win as much, where what nobody measured allows it: nothing is promised. */
static void promise_nothing(mh_verdict *out)
{
    out->predicted_gain = 1;
}

/* Start-up that is mostly the sampler's: it works in the training process, once an epoch. */
static int drawing_is_start(const mh_inquiry *inquiry)
{
    return 2 * mh_ns(inquiry->facts->setup_order_ns) > inquiry->sums.startup;
}

/* Cheaper code, in general; where the stack tells more, advise_half says so. */
static const char *cheaper(const mh_inquiry *inquiry)
{
    switch (inquiry->out->cause) {
    case MH_CAUSE_CPU:
        return inquiry->base.workers > 0 && mh_cpus_left(inquiry->facts) <= inquiry->base.workers
                   ? "all CPUs are busy: make a sample cheaper, or give the run more CPUs"
                   : "make a sample cheaper";
    case MH_CAUSE_PYTHON:
        return "make the Python code of __getitem__ cheaper: vectorise it, or move it into native "
               "code";
    case MH_CAUSE_DISK:
        return "read less from this disk: fewer and larger reads, a faster disk, or a copy in "
               "memory";
    case MH_CAUSE_LATENCY:
        return "shorten the waits in __getitem__: fewer round trips per sample, larger requests, a "
               "nearer copy";
    case MH_CAUSE_COLLATE:
        if (strcmp(inquiry->facts->kind, "millhead") == 0)
            return "make collate_fn cheaper: arrays of one shape, no Python loop, no long strings "
                   "or nested objects, which are pickled";
        return "make collate_fn cheaper: arrays of one shape, no Python loop; "
               "millhead.torch.DataLoader writes samples straight into the batch";
    case MH_CAUSE_MAIN:
        return "move the work between steps out of the loop: into the dataset or collate_fn, where "
               "workers do it, or do it less often";
    case MH_CAUSE_STARTUP:
        if (inquiry->facts->workers == 0 || drawing_is_start(inquiry))
            return "begin sooner: less work in the dataset's __len__ and __iter__, in the sampler "
                   "before its first index, and in what the first sample opens or imports";
        return "start less: fewer workers, a dataset that is quick to copy, imports done before "
               "the loader is made";
    default:
        return "make it cheaper";
    }
}

/* Where on the stack the time of the loss was seen; "": it leaves no trace there. */
static const char *stage_of_loss(mh_loss loss)
{
    switch (loss) {
    case MH_LOSS_FETCH_CPU:
    case MH_LOSS_FETCH_BLOCKED:
        return "fetch";
    case MH_LOSS_COLLATE:
        return "collate";
    case MH_LOSS_MAIN:
        return "loop";
    default:
        return "";
    }
}

/* A function below this share is not worth the reader's first look. */
#define HOT_ENOUGH 0.2

/* Several workers of a stream: each may read all of it, and pass over what is not its own. */
static int may_repeat(const mh_inquiry *inquiry)
{
    int fetch = inquiry->loss == MH_LOSS_FETCH_CPU || inquiry->loss == MH_LOSS_FETCH_BLOCKED;
    return fetch && inquiry->facts->iterable && inquiry->base.workers > 1;
}

static void advise_half(mh_inquiry *inquiry, double then)
{
    mh_verdict *out = inquiry->out;
    const mh_hot *hot = mh_hot_next(inquiry->facts, stage_of_loss(inquiry->loss), NULL);
    out->fix_settings.cost = HALF;
    predict(inquiry, then);
    const char *shard = may_repeat(inquiry)
                            ? "see that no worker reads what another one keeps (get_worker_info "
                              "tells which it is), then "
                            : "";
    if (!hot || hot->share < HOT_ENOUGH) {
        mh_say_fix(out, "%s%s", shard, cheaper(inquiry));
        return;
    }
    const char *recipe = mh_recipe_for(hot);
    mh_say_fix(out, "%s%s; %.0f %% of it is %s%s%s%s%s", shard, cheaper(inquiry), 100 * hot->share,
               hot->function, hot->place[0] ? ", called at " : "", hot->place, recipe ? ": " : "",
               recipe ? recipe : "");
}

/* A loop over a generator has no num_workers to set; millhead.prefetch makes its items ahead. */
static int is_generator(const mh_inquiry *inquiry)
{
    return strcmp(inquiry->facts->kind, "iterable") == 0;
}

static const char *why_workers(const mh_inquiry *inquiry)
{
    if (inquiry->base.workers == 0)
        return "loading then overlaps with training";
    if (inquiry->out->cause == MH_CAUSE_LATENCY)
        return "more requests are then under way, if the source answers as many at once";
    if (inquiry->loss == MH_LOSS_COLLATE && collate_waits(inquiry))
        return "collate_fn waits more than it computes, and then does so side by side";
    return "CPUs are idle";
}

/* "; beside that, ...": what is known about the function that most of a sample's time goes to. */
static const char *recipe_beside(const mh_inquiry *inquiry, char text[MH_VERDICT_LINE])
{
    const mh_hot *hot = mh_hot_next(inquiry->facts, stage_of_loss(inquiry->loss), NULL);
    const char *recipe = hot && hot->share >= HOT_ENOUGH ? mh_recipe_for(hot) : NULL;
    *text = 0;
    if (recipe)
        (void)snprintf(text, MH_VERDICT_LINE, "; and %.0f %% of a sample is %s: %s",
                       100 * hot->share, hot->function, recipe);
    return text;
}

static void advise_workers(mh_inquiry *inquiry, const fix_try *found)
{
    char text[MH_VERDICT_LINE];
    mh_verdict *out = inquiry->out;
    out->fix_settings.workers = found->value;
    predict(inquiry, found->ns);
    if (is_generator(inquiry))
        mh_say_fix(
            out,
            "wrap what the loop iterates: for batch in millhead.prefetch(batches, 2%s): a %s "
            "then makes two items ahead of the loop",
            out->cause == MH_CAUSE_PYTHON ? ", mode=\"process\"" : "",
            out->cause == MH_CAUSE_PYTHON ? "process" : "thread");
    else
        mh_say_fix(out, "num_workers=%d (now %d): %s%s", found->value, inquiry->base.workers,
                   why_workers(inquiry), recipe_beside(inquiry, text));
}

/* Waiting that nobody can see into: a server, or a lock that polls, may serve more at once, or not.
 * Sure is only what overlapping with the training wins, by the first worker. */
static mh_status advise_more_waiting(mh_inquiry *inquiry, const fix_try *found, mh_error *err)
{
    mh_verdict *out = inquiry->out;
    mh_replay_options one = inquiry->base;
    double sure;
    advise_workers(inquiry, found);
    double possible = out->predicted_gain;
    promise_nothing(out);
    if (inquiry->base.workers == 0) {
        one.workers = 1;
        MH_TRY(mh_inquiry_time(inquiry, &one, &sure, err));
        predict(inquiry, sure);
        if (possible > MH_GAIN_MATTERS * out->predicted_gain)
            mh_say_fix(out,
                       "num_workers=%d (now 0): loading then overlaps with training; up to %.1f "
                       "times as fast if the source answers as many requests at once",
                       found->value, possible);
    } else {
        mh_say_fix(out,
                   "try num_workers=%d (now %d) and measure: up to %.1f times as fast if the "
                   "source answers as many requests at once, no gain if it does not; else fewer "
                   "and larger requests",
                   found->value, inquiry->base.workers, possible);
    }
    out->possible_gain = possible;
    return MH_OK;
}

/* Without workers, and none advised: where they would be but for the text they had to pickle, that
 * is what there is to say. */
static mh_status explain_text(mh_inquiry *inquiry, mh_error *err)
{
    mh_verdict *out = inquiry->out;
    mh_inquiry other = *inquiry;
    fix_try workers;
    other.window.batch_texts = 0;
    MH_TRY(best_workers(&other, &workers, err));
    if (mh_inquiry_gain(inquiry, workers.ns) < MH_GAIN_MATTERS)
        return MH_OK;
    mh_evidence(out,
                "workers would have to pickle the %s of text and numbers in a batch, which takes "
                "%s on either "
                "side",
                MH_BYTES((double)inquiry->facts->batch_texts),
                MH_NS_TEXT(inquiry->costing.pickling));
    mh_say_fix(out,
               "%s, or return tensors or arrays instead of long strings: workers pass those on "
               "without pickling",
               cheaper(inquiry));
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
    if (mh_inquiry_gain(inquiry, spread) < MH_GAIN_MATTERS)
        return MH_OK;
    *advised = 1;
    predict(inquiry, spread);
    mh_say_fix(out,
               "spread the data of worker %d over all workers (more and smaller shards, dealt out "
               "in turn), or make it like the others'",
               inquiry->slow.worker);
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
    mh_say_fix(
        out, "do less while holding the lock that workers share, or give each worker its own file "
             "or connection; more workers gain nothing");
    return MH_OK;
}

/* More workers, or cheaper work: whichever wins clearly more, workers where it is close. The first
 * worker is worth it whenever it wins anything: without one nothing overlaps. */
static mh_status fix_making(mh_inquiry *inquiry, mh_error *err)
{
    double half;
    fix_try workers;
    if (inquiry->loss != MH_LOSS_COLLATE && mh_lock_is_shared(&inquiry->load))
        return fix_lock(inquiry, err);
    mh_replay_options options = at_half(inquiry);
    MH_TRY(mh_inquiry_time(inquiry, &options, &half, err));
    MH_TRY(best_workers(inquiry, &workers, err));
    double saved_half = inquiry->base_ns - half, saved_workers = inquiry->base_ns - workers.ns;
    int first_ones =
        inquiry->base.workers == 0 && mh_inquiry_gain(inquiry, workers.ns) >= MH_GAIN_MATTERS;
    if (first_ones || (saved_workers > 0 && saved_workers >= HALF * saved_half)) {
        if (inquiry->out->cause == MH_CAUSE_LATENCY)
            return advise_more_waiting(inquiry, &workers, err);
        advise_workers(inquiry, &workers);
        return MH_OK;
    }
    advise_half(inquiry, half);
    return inquiry->costing.pickling > 0 ? explain_text(inquiry, err) : MH_OK;
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
    if (mh_drawing_is_most(&inquiry->load.costs)) {
        mh_say_fix(
            out,
            "make the sampler cheaper (workers do not help): draw the order of an epoch in one "
            "go, or choose samples inside the dataset");
    } else if (strcmp(inquiry->facts->kind, "torch") == 0 && !text_is_most(inquiry->facts)) {
        out->fix_settings.millhead = 1;
        mh_say_fix(out, "use millhead.torch.DataLoader, which passes batches in shared memory");
    } else {
        mh_say_fix(
            out,
            "pass on less: smaller dtypes, no long strings or nested Python objects in a batch");
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
    MH_TRY(best_workers(inquiry, &workers, err));
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
        mh_say_fix(out, "prefetch_factor=%d (now %d): batches in reserve cover the slow samples",
                   deeper.value, inquiry->base.prefetch);
    } else if (as_ready.ns <= needed) {
        out->fix_settings.in_order = 0;
        predict(inquiry, as_ready.ns);
        mh_say_fix(
            out, "in_order=False (batches as they are ready)%s",
            inquiry->facts->by_sample
                ? ""
                : ", or dispatch=\"sample\" of millhead.torch.DataLoader, which keeps the order");
    } else if (workers.ns <= needed) {
        advise_workers(inquiry, &workers);
    } else {
        out->fix_settings.cost = 0;
        predict(inquiry, clipped);
        mh_say_fix(out,
                   "find the slow samples and make them like the others (shrink, re-encode, move "
                   "or drop them)");
    }
    return MH_OK;
}

/* What workers that stay would not do again: in later epochs, first batches that take longer to
 * fetch than others do, as each worker opens its files anew. No more than was waited for them. */
static double opened_again(const mh_inquiry *inquiry)
{
    const mh_facts *facts = inquiry->facts;
    double others = inquiry->sums.batches > 0 ? inquiry->sums.fetch_ns / inquiry->sums.batches : 0;
    double again = 0;
    for (size_t at = 1; at < facts->batch_count; at++) {
        const mh_batch_cost *batch = &facts->batches[at];
        double longer = mh_ns(batch->fetch) - others, wait = mh_ns(batch->wait);
        if (batch->first && batch->fetch != MH_NOT_MEASURED && longer > 0)
            again += longer < wait ? longer : wait;
    }
    return again;
}

static mh_status fix_startup(mh_inquiry *inquiry, mh_error *err)
{
    mh_verdict *out = inquiry->out;
    const mh_facts *facts = inquiry->facts;
    mh_replay_options options = inquiry->base;
    double half, kept, once = mh_gain_of_one_loader(inquiry);
    if (once >= MH_GAIN_STARTUP) {
        out->predicted_gain = out->possible_gain = mh_gain_of_run(inquiry, once);
        mh_say_fix(out,
                   "make the loader once, before the loop over epochs, with "
                   "persistent_workers=True: it is made anew for each of %.0f epochs, and its "
                   "workers start each time",
                   (double)facts->remade + 1);
        return MH_OK;
    }
    options.free_startup = 1;
    MH_TRY(mh_inquiry_time(inquiry, &options, &kept, err));
    kept -= opened_again(inquiry);
    options = at_half(inquiry);
    MH_TRY(mh_inquiry_time(inquiry, &options, &half, err));
    double saved_half = inquiry->base_ns - half, saved_kept = inquiry->base_ns - kept;
    int may_stay = facts->workers > 0 && facts->persistent == 0;
    if (may_stay && saved_kept >= HALF * saved_half && saved_kept >= HALF * inquiry->gap_ns) {
        out->fix_settings.persistent = 1;
        predict(inquiry, kept);
        mh_say_fix(out, "%s",
                   inquiry->sums.batches > 0
                       ? "persistent_workers=True: workers then start once, not in every "
                         "epoch"
                       : "iterate the loader (for batch in loader) in place of "
                         "next(iter(loader)), which starts all workers for one batch; "
                         "or at least persistent_workers=True");
        return MH_OK;
    }
    if (inquiry->gap_ns > saved_half && facts->workers > 0) {
        predict(inquiry, inquiry->base_ns - inquiry->gap_ns);
        out->fix_settings.millhead = 1;
        out->fix_settings.persistent = 1;
        mh_say_fix(out,
                   "millhead.torch.DataLoader(..., persistent_workers=True, prefetch_epoch=True, "
                   "generator=torch.Generator()): the next epoch is loaded before this one ends; "
                   "or longer epochs");
        return MH_OK;
    }
    advise_half(inquiry, half);
    return MH_OK;
}

/* What a pool's threads take from each other cannot be told from what they compute, so nothing is
 * promised where they are the crowd. */
static mh_status fix_crowd(mh_inquiry *inquiry)
{
    mh_verdict *out = inquiry->out;
    const mh_facts *facts = inquiry->facts;
    int fewer = inquiry->crowd_workers > 0     ? inquiry->crowd_workers
                : facts->workers > facts->cpus ? facts->cpus
                                               : facts->workers;
    out->predicted_gain = out->possible_gain =
        mh_gain_of_run(inquiry, inquiry->gain[MH_LOSS_CROWD]);
    if (mh_pools_crowd(inquiry)) {
        char also[96] = "";
        promise_nothing(out);
        if (fewer < facts->workers) {
            out->fix_settings.workers = fewer;
            (void)snprintf(also, sizeof also, "and num_workers=%d (now %d), one for each CPU; ",
                           fewer, facts->workers);
        }
        mh_say_fix(out,
                   "one thread per worker: set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 before "
                   "the program starts; %sthen measure again",
                   also);
        return MH_OK;
    }
    out->fix_settings.workers = fewer;
    mh_say_fix(out, "num_workers=%d (now %d): as many as there are CPUs to run them", fewer,
               facts->workers);
    return MH_OK;
}

static void say_nothing_to_fix(mh_inquiry *inquiry)
{
    mh_verdict *out = inquiry->out;
    if (out->cause == MH_CAUSE_DEVICE)
        mh_say_fix(out, "nothing in the loader: it keeps up; only a faster step would help");
    else if (out->cause == MH_CAUSE_MAIN)
        mh_say_fix(out,
                   "a thread of the program computes in Python (%s) and holds the interpreter's "
                   "lock, which the loop waits for: move it into a process of its own",
                   inquiry->facts->rival_name);
    else if (mh_too_short(inquiry))
        mh_say_fix(
            out,
            "%.0f batches after the first ones are too few: measure a run of %d batches or more, "
            "or longer with --seconds if you use --pid",
            inquiry->sums.batches, MH_BATCHES_ENOUGH + 1);
    else if (inquiry->sums.fetch_known * 2 < inquiry->sums.batches)
        mh_say_fix(out, "the loop waits, and its workers were not measured: iterate "
                        "millhead.watch(loader), or run millhead doctor -- python train.py");
    else
        mh_say_fix(out,
                   "the loop waits, and no measured stage explains it: measure a longer run on a "
                   "quiet machine; see the warnings");
}

static mh_status fix_fetching(mh_inquiry *inquiry, mh_error *err)
{
    int advised, waits = inquiry->loss == MH_LOSS_FETCH_BLOCKED;
    MH_TRY(fix_slow_worker(inquiry, &advised, err));
    if (advised)
        return MH_OK;
    if (waits && inquiry->out->cause != MH_CAUSE_LATENCY && inquiry->base.workers > 0)
        return fix_half(inquiry, err); /* a disk */
    return fix_making(inquiry, err);
}

mh_status mh_fix_make(mh_inquiry *inquiry, mh_error *err)
{
    switch (inquiry->loss) {
    case MH_LOSS_FETCH_CPU:
    case MH_LOSS_FETCH_BLOCKED:
        return fix_fetching(inquiry, err);
    case MH_LOSS_COLLATE:
        return fix_making(inquiry, err);
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
