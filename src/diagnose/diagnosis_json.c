/* diagnosis_json.c - a run judged, and the diagnosis as JSON
 * SPDX-License-Identifier: Apache-2.0
 */
#include <millhead/report.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/jsonout.h"
#include "base/struct_size.h"
#include "base/units.h"
#include "diagnose/run_reader.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static void warn(mh_verdict *verdict, const char *format, ...) MH_PRINTF(2, 3);

static void warn(mh_verdict *verdict, const char *format, ...)
{
    va_list arguments;
    if (verdict->warning_count == MH_VERDICT_LINES)
        return;
    va_start(arguments, format);
    (void)vsnprintf(verdict->warnings[verdict->warning_count++], MH_VERDICT_LINE, format,
                    arguments);
    va_end(arguments);
}

/* What the run's files say about themselves. */
static void warn_of_files(mh_verdict *out, const mh_run *run)
{
    if (run->bad_lines)
        warn(out,
             "%" PRIu64 " line%s not exactly one JSON object (the first: line %" PRIu64
             "); what they hold was read as far as possible",
             run->bad_lines, run->bad_lines == 1 ? " is" : "s are", run->first_bad);
    if (run->cut)
        warn(out, "the log has no end: the run still goes on, or it was cut off");
    if (run->other_loaders)
        warn(out,
             "the run has several loaders: this verdict is about the one that costs most%s%s%s%s; "
             "%zu other%s took %s",
             run->facts.dataset[0] ? ", over " : "", run->facts.dataset,
             run->facts.place[0] ? ", iterated at " : "", run->facts.place, run->other_loaders,
             run->other_loaders == 1 ? "" : "s", MH_NS_TEXT((double)run->other_loaders_ns));
    if (run->facts.remade && out->cause != MH_CAUSE_STARTUP)
        warn(out,
             "%" PRIu64 " loaders look alike and were iterated once each: if the program makes a "
             "new one for every epoch, make it once, with persistent_workers=True",
             run->facts.remade + 1);
}

mh_status mh_run_judge(mh_verdict *out, const mh_run *run, mh_error *err)
{
    mh_verdict verdict;
    if (!out || !run)
        return mh_fail(err, MH_ERR_INVALID, "a verdict needs a run and a place for its result");
    MH_TRY(mh_sized_check(out, MH_FIRST_SIZE(mh_verdict, warning_count), "mh_verdict", err));
    mh_verdict_init(&verdict);
    MH_TRY(mh_verdict_make(&verdict, &run->facts, err));
    warn_of_files(&verdict, run);
    mh_sized_write(out, out->struct_size, &verdict, sizeof verdict);
    return MH_OK;
}

const char *mh_vantage_name(mh_vantage vantage)
{
    static const char *const names[] = {"inside", "outside", "log"};
    return (unsigned)vantage < sizeof names / sizeof *names ? names[vantage] : "inside";
}

static void put_real(mh_jsonout *out, const char *key, double value)
{
    mh_jsonout_key(out, key);
    mh_jsonout_double(out, value);
}

static void put_lines(mh_jsonout *out, const char *key, const char lines[][MH_VERDICT_LINE],
                      size_t count)
{
    mh_jsonout_key(out, key);
    mh_jsonout_array(out);
    for (size_t at = 0; at < count; at++)
        mh_jsonout_string(out, lines[at]);
    mh_jsonout_array_end(out);
}

static void put_stages(mh_jsonout *out, const mh_verdict *verdict, bool native)
{
    const mh_stage_shares *stages = &verdict->stages;
    mh_jsonout_key(out, "stages");
    mh_jsonout_object(out);
    put_real(out, "train", stages->train);
    put_real(out, "main", stages->main);
    put_real(out, "wait_cpu", stages->wait_cpu);
    put_real(out, "wait_run", stages->wait_run);
    put_real(out, "wait_blocked", stages->wait_blocked);
    put_real(out, "wait_collate", stages->wait_collate);
    put_real(out, "wait_order", stages->wait_order);
    put_real(out, "wait_transfer", stages->wait_transfer);
    put_real(out, "wait_other", stages->wait_other);
    if (native) {
        put_real(out, "wait_read", verdict->native.wait_read);
        put_real(out, "wait_decode", verdict->native.wait_decode);
        put_real(out, "wait_place", verdict->native.wait_place);
        put_real(out, "wait_pin", verdict->native.wait_pin);
        put_real(out, "wait_map", verdict->native.wait_map);
    }
    mh_jsonout_object_end(out);
}

static void put_others(mh_jsonout *out, const mh_verdict *verdict)
{
    mh_jsonout_key(out, "others");
    mh_jsonout_array(out);
    for (size_t at = 0; at < verdict->other_count; at++) {
        mh_jsonout_object(out);
        mh_jsonout_key(out, "cause");
        mh_jsonout_string(out, mh_cause_name(verdict->others[at].cause));
        put_real(out, "gain", verdict->others[at].gain);
        mh_jsonout_object_end(out);
    }
    mh_jsonout_array_end(out);
}

/* Where the time of each stage goes. */
static void put_hot(mh_jsonout *out, const mh_facts *facts)
{
    mh_jsonout_key(out, "hot");
    mh_jsonout_array(out);
    for (size_t at = 0; at < facts->hot_count && at < MH_HOT_MOST; at++) {
        const mh_hot *hot = &facts->hot[at];
        mh_jsonout_object(out);
        mh_jsonout_key(out, "stage");
        mh_jsonout_string(out, hot->stage);
        mh_jsonout_key(out, "function");
        mh_jsonout_string(out, hot->function);
        put_real(out, "share", hot->share);
        mh_jsonout_key(out, "place");
        mh_jsonout_string(out, hot->place);
        mh_jsonout_key(out, "code");
        mh_jsonout_string(out, hot->code);
        mh_jsonout_object_end(out);
    }
    mh_jsonout_array_end(out);
}

static void put_waits(mh_jsonout *out, const mh_wait_stats *waits)
{
    mh_jsonout_key(out, "waits");
    mh_jsonout_uint(out, waits->count);
    mh_jsonout_key(out, "wait_s");
    mh_jsonout_object(out);
    put_real(out, "mean", waits->mean);
    put_real(out, "p50", waits->p50);
    put_real(out, "p99", waits->p99);
    put_real(out, "max", waits->max);
    mh_jsonout_object_end(out);
}

/* What the fix changes, by the names of the DataLoader's arguments; `loader` is the class to take,
 * as in the configurations of `millhead bench`. Empty: the fix is not a setting. */
static void put_fix_settings(mh_jsonout *out, const mh_fix *fix)
{
    mh_jsonout_key(out, "fix_settings");
    mh_jsonout_object(out);
    if (fix->millhead == 1) {
        mh_jsonout_key(out, "loader");
        mh_jsonout_string(out, "millhead");
    }
    if (fix->workers >= 0) {
        mh_jsonout_key(out, "num_workers");
        mh_jsonout_int(out, fix->workers);
    }
    if (fix->prefetch >= 0) {
        mh_jsonout_key(out, "prefetch_factor");
        mh_jsonout_int(out, fix->prefetch);
    }
    if (fix->threads >= 0) {
        mh_jsonout_key(out, "threads");
        mh_jsonout_int(out, fix->threads);
    }
    if (fix->in_flight >= 0) {
        mh_jsonout_key(out, "in_flight");
        mh_jsonout_int(out, fix->in_flight);
    }
    if (fix->cache) {
        mh_jsonout_key(out, "cache");
        mh_jsonout_bool(out, true);
    }
    if (fix->in_order >= 0) {
        mh_jsonout_key(out, "in_order");
        mh_jsonout_bool(out, fix->in_order != 0);
    }
    if (fix->persistent >= 0) {
        mh_jsonout_key(out, "persistent_workers");
        mh_jsonout_bool(out, fix->persistent != 0);
    }
    mh_jsonout_object_end(out);
}

/* -1 is null. */
static void put_setting(mh_jsonout *out, const char *key, int value)
{
    mh_jsonout_key(out, key);
    if (value < 0)
        mh_jsonout_null(out);
    else
        mh_jsonout_int(out, value);
}

static void put_loader(mh_jsonout *out, const mh_facts *facts)
{
    mh_jsonout_key(out, "loader");
    mh_jsonout_object(out);
    mh_jsonout_key(out, "kind");
    mh_jsonout_string(out, facts->kind);
    mh_jsonout_key(out, "dataset");
    mh_jsonout_string(out, facts->dataset);
    mh_jsonout_key(out, "place");
    mh_jsonout_string(out, facts->place);
    put_setting(out, "workers", facts->workers);
    put_setting(out, "prefetch", facts->prefetch);
    put_setting(out, "batch_size", facts->batch_size);
    put_setting(out, "cpus", facts->cpus);
    mh_jsonout_object_end(out);
    mh_jsonout_key(out, "batches");
    mh_jsonout_uint(out, facts->batch_count);
    mh_jsonout_key(out, "epochs");
    mh_jsonout_uint(out, facts->epochs);
    put_real(out, "run_s", (double)facts->run_ns / 1e9);
}

static mh_status diagnosis_json(char **out, const mh_verdict *verdict, const mh_facts *facts,
                                const mh_wait_stats *waits, uint64_t bad_lines, double setup_s,
                                mh_error *err)
{
    mh_jsonout json;
    mh_jsonout_init(&json, NULL);
    mh_jsonout_object(&json);
    mh_jsonout_key(&json, "cause");
    mh_jsonout_string(&json, mh_cause_name(verdict->cause));
    put_lines(&json, "evidence", verdict->evidence, verdict->evidence_count);
    mh_jsonout_key(&json, "fix");
    mh_jsonout_string(&json, verdict->fix);
    put_fix_settings(&json, &verdict->fix_settings);
    put_real(&json, "fix_cost", verdict->fix_settings.cost);
    put_real(&json, "predicted_gain", verdict->predicted_gain);
    put_real(&json, "possible_gain", verdict->possible_gain);
    put_others(&json, verdict);
    put_real(&json, "device_wait_share", verdict->device_wait_share);
    put_real(&json, "idle_device_s", verdict->idle_device_s);
    put_real(&json, "epoch_start_share", verdict->epoch_start_share);
    put_real(&json, "epoch_start_s", verdict->epoch_start_s);
    put_stages(&json, verdict, facts->native.samples > 0);
    put_hot(&json, facts);
    put_waits(&json, waits);
    mh_jsonout_key(&json, "bad_lines");
    mh_jsonout_uint(&json, bad_lines);
    put_real(&json, "setup_s", setup_s);
    put_loader(&json, facts);
    put_lines(&json, "warnings", verdict->warnings, verdict->warning_count);
    mh_jsonout_key(&json, "vantage");
    mh_jsonout_string(&json, mh_vantage_name(facts->vantage));
    mh_jsonout_object_end(&json);
    mh_status status = mh_jsonout_finish(&json, err);
    if (status == MH_OK) {
        *out = json.text;
        json.text = NULL;
    }
    mh_jsonout_deinit(&json);
    return status;
}

mh_status mh_diagnosis_json(char **out, const mh_verdict *verdict, const mh_facts *facts,
                            const mh_wait_stats *waits, uint64_t bad_lines, double setup_s,
                            mh_error *err)
{
    mh_verdict whole;
    mh_facts known; /* without batches and ranks: no word is said of them */
    if (!out || !verdict || !facts || !waits)
        return mh_fail(err, MH_ERR_INVALID, "a diagnosis needs a verdict, facts and waits");
    MH_TRY(MH_SIZED_TAKE(&whole, verdict, mh_verdict, warning_count, err));
    MH_TRY(MH_SIZED_TAKE(&known, facts, mh_facts, rank_stride, err));
    return diagnosis_json(out, &whole, &known, waits, bad_lines, setup_s, err);
}

void mh_text_free(char *text)
{
    mh_free(text);
}
