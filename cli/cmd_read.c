/* cmd_read.c - millhead read: read an epoch of data: how fast, and its hash
 * SPDX-License-Identifier: Apache-2.0
 */
#include "data.h"
#include "hash.h"
#include "interrupts.h"
#include "progress.h"
#include "waits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define WHERE "read"
#define LOOK_NS UINT64_C(100000000) /* how often signals and the terminal are looked after */

typedef struct read_request {
    const char **paths; /* ended by NULL */
    mh_cli_data data;
    mh_cli_maybe shuffle;
    const char *on_error;
    int threads, prefetch, in_flight; /* -1, 0, 0: the library's default */
    bool drop_last, uneven, hash, json, help;
    mh_loader_options options;
} read_request;

/* What one epoch was like. */
typedef struct read_result {
    uint64_t samples, batches, bytes;
    double seconds;
    mh_waits waits;
    mh_loader_stats stats;
    mh_hash *hash; /* NULL: not asked for */
} read_result;

static void print_help(void)
{
    (void)printf(
        "usage: millhead read PATH... [OPTIONS]\n"
        "\n"
        "Reads one epoch as a training loop would, and says how fast it came. Several paths\n"
        "are one dataset: .npy files are a field each, .npz files one for each array.\n"
        "synthetic:count=1000,shape=16x16 is data that is computed (docs/native.md).\n"
        "\n"
        "options:\n"
        "  --batch-size N     samples per batch (default 1)\n"
        "%s"
        "  --shuffle [KIND]   read in random order; blocks: chunk by chunk, mixed; torch: the\n"
        "                     order of torch's DistributedSampler\n"
        "  --seed N           seed of the order (default 0)\n"
        "  --epoch N          which epoch (default 0)\n"
        "  --rank N           of --world: read this rank's share (default 0)\n"
        "  --world N          ranks (default 1)\n"
        "  --start POSITION   samples of the epoch that are done already, of all ranks\n"
        "  --drop-last        only full batches\n"
        "  --uneven           repeat nothing where ranks do not divide the samples\n"
        "  --limit-batches N  stop after N batches\n"
        "  --threads N        reading threads; 0: only the loop's own (default: as plan cpus)\n"
        "  --prefetch N       batches ahead (default 2)\n"
        "  --in-flight N      reads under way at a time (default 16)\n"
        "  --simulate LINK    a slow link: latency=30ms,bandwidth=100MB/s,errors=0.1%%, any of "
        "them\n"
        "  --memory SIZE      limit for batches and chunks (default: a quarter of what is\n"
        "                     available)\n"
        "  --on-error WHAT    for broken samples: raise (default), skip, or replace by another\n"
        "  --hash             hash what was read (docs/native.md)\n"
        "  --json             one JSON object: samples, batches, bytes_read (of the samples\n"
        "                     delivered), seconds, samples_per_s, wait_ms (p50, p99, max),\n"
        "                     stages (read, decode, place), units, cache, requests,\n"
        "                     skipped, replaced,\n"
        "                     slots_peak, peak_rss_bytes, batches_copied_out; with --hash\n"
        "                     stream_xxh3, samples_xxh3\n"
        "  --help             this text\n",
        mh_cli_data_help);
}

static bool take_on_error(read_request *request)
{
    static const char *const names[MH_ON_ERROR_KINDS] = {[MH_ON_ERROR_RAISE] = "raise",
                                                         [MH_ON_ERROR_SKIP] = "skip",
                                                         [MH_ON_ERROR_REPLACE] = "replace"};
    for (int kind = 0; request->on_error && kind < MH_ON_ERROR_KINDS; kind++)
        if (strcmp(request->on_error, names[kind]) == 0) {
            request->options.on_error = (mh_on_error)kind;
            return true;
        }
    return !request->on_error;
}

static int check(read_request *request)
{
    mh_loader_options *options = &request->options;
    const int bad = mh_cli_take_shuffle(&options->shuffle, &request->shuffle, WHERE);
    if (bad)
        return bad;
    if (!take_on_error(request))
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "give raise, skip or replace", "--on-error is '%s'",
                           request->on_error);
    if (request->hash && !mh_hash_built())
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "install libxxhash-dev and build it again",
                           "this build has no --hash: it was made without xxhash");
    options->drop_last = request->drop_last;
    options->uneven = request->uneven;
    options->threads = request->threads;
    options->prefetch = (uint32_t)request->prefetch;
    options->in_flight = (uint32_t)request->in_flight;
    return MH_CLI_OK;
}

static int parse(read_request *request, int argc, char **argv)
{
    mh_loader_options *options = &request->options;
    const mh_cli_option table[] = {
        {"--batch-size", MH_CLI_WHOLE, &options->batch_size, 1},
        MH_CLI_DATA_ROWS(&request->data),
        {"--shuffle", MH_CLI_MAYBE, &request->shuffle, 0},
        {"--seed", MH_CLI_WHOLE, &options->seed, 0},
        {"--epoch", MH_CLI_WHOLE, &options->epoch, 0},
        {"--rank", MH_CLI_WHOLE, &options->rank, 0},
        {"--world", MH_CLI_WHOLE, &options->world, 1},
        {"--start", MH_CLI_WHOLE, &options->start, 0},
        {"--drop-last", MH_CLI_FLAG, &request->drop_last, 0},
        {"--uneven", MH_CLI_FLAG, &request->uneven, 0},
        {"--limit-batches", MH_CLI_WHOLE, &options->limit_batches, 1},
        {"--threads", MH_CLI_COUNT, &request->threads, 0},
        {"--prefetch", MH_CLI_COUNT, &request->prefetch, 1},
        {"--in-flight", MH_CLI_COUNT, &request->in_flight, 1},
        {"--simulate", MH_CLI_TEXT, &options->simulate, 0},
        {"--on-error", MH_CLI_TEXT, &request->on_error, 0},
        {"--memory", MH_CLI_SIZE, &options->memory_bytes, 1},
        {"--hash", MH_CLI_FLAG, &request->hash, 0},
        {"--json", MH_CLI_FLAG, &request->json, 0},
        {"--help", MH_CLI_FLAG, &request->help, 0},
    };
    mh_loader_options_init(options);
    mh_cli_data_init(&request->data);
    request->shuffle.choices = mh_cli_shuffles;
    request->threads = -1;
    int bad = mh_cli_read(table, sizeof table / sizeof *table, request->paths, (size_t)argc, argc,
                          argv, WHERE);
    return bad || request->help ? bad : check(request);
}

/* --- reading --- */

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void add_batch(read_result *result, const mh_batch *batch)
{
    const mh_array *array;
    result->batches++;
    result->samples += mh_batch_samples(batch);
    for (size_t at = 0; (array = mh_batch_array(batch, at)); at++)
        result->bytes += array->bytes;
    if (result->hash)
        mh_hash_add(result->hash, batch);
}

/* Samples that will come, about: for the progress. */
static double samples_due(const mh_loader_options *options, uint64_t count)
{
    double due = (double)(count - options->start) / (double)options->world;
    double most = (double)options->limit_batches * (double)options->batch_size;
    return options->limit_batches && most < due ? most : due;
}

/* Until the epoch ends (MH_END), something fails, or a signal comes (MH_ERR_TIMEOUT). */
static mh_status read_epoch(read_result *result, mh_loader *loader,
                            const mh_loader_options *options, uint64_t count, mh_progress *progress,
                            mh_error *err)
{
    double due = samples_due(options, count);
    uint64_t shown = 0;
    for (;;) {
        mh_batch *batch = NULL;
        mh_status status;
        uint64_t began = now_ns();
        do
            status = mh_loader_next_within(loader, LOOK_NS, &batch, err);
        while (status == MH_ERR_TIMEOUT && !mh_cli_interrupted());
        if (status != MH_OK)
            return status;
        uint64_t now = now_ns();
        mh_waits_add(&result->waits, now - began);
        add_batch(result, batch);
        mh_batch_unref(batch);
        if (mh_cli_interrupted())
            return MH_ERR_TIMEOUT;
        if (now - shown > LOOK_NS) {
            mh_progress_show(progress, (double)result->samples / due);
            shown = now;
        }
    }
}

static int fail_open(const read_request *request, mh_status status, const mh_error *err)
{
    if (status == MH_ERR_INVALID)
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "see millhead read --help", "%s", err->message);
    if (status == MH_ERR_NOMEM) /* what was allowed is configuration, what there is is not */
        return mh_cli_fail(request->options.memory_bytes ? MH_CLI_USAGE : MH_CLI_FAILED, WHERE,
                           "give a smaller --batch-size or more --memory", "%s", err->message);
    return mh_cli_fail(MH_CLI_FAILED, WHERE, mh_cli_data_remedy(status, err), "%s", err->message);
}

static int run_epoch(read_result *result, const read_request *request, mh_dataset *data)
{
    mh_loader *loader = NULL;
    mh_error err;
    mh_progress progress;
    uint64_t epoch, position, began = now_ns();
    mh_status status = mh_loader_open(&loader, data, &request->options, &err);
    if (status != MH_OK)
        return fail_open(request, status, &err);
    mh_progress_begin(&progress, "reading", request->paths[0]);
    status = read_epoch(result, loader, &request->options, mh_dataset_count(data), &progress, &err);
    mh_progress_end(&progress);
    result->seconds = (double)(now_ns() - began) / 1e9;
    mh_loader_stats_init(&result->stats);
    mh_loader_stats_read(loader, &result->stats);
    mh_loader_position(loader, &epoch, &position);
    mh_loader_close(loader);
    if (status == MH_END)
        return MH_CLI_OK;
    if (mh_cli_interrupted())
        return mh_cli_fail(MH_CLI_INTERRUPTED, WHERE, "run it again, or go on with --start",
                           "interrupted at position %" PRIu64, position);
    return mh_cli_fail(MH_CLI_FAILED, WHERE, mh_cli_data_remedy(status, &err), "%s", err.message);
}

/* --- printing --- */

/* Not ru_maxrss alone: that remembers the program that started this one. */
static uint64_t peak_rss_bytes(void)
{
    char line[256];
    unsigned long long kib = 0;
    struct rusage usage;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && !kib && fgets(line, sizeof line, file))
        if (strncmp(line, "VmHWM:", strlen("VmHWM:")) == 0)
            kib = strtoull(line + strlen("VmHWM:"), NULL, 10);
    if (file)
        (void)fclose(file);
    if (!kib && getrusage(RUSAGE_SELF, &usage) == 0)
        kib = (unsigned long long)usage.ru_maxrss;
    return kib * 1024;
}

static double per_second(const read_result *result)
{
    return result->seconds > 0 ? (double)result->samples / result->seconds : 0;
}

static void print_stage(const char *name, uint64_t count, uint64_t ns)
{
    (void)printf("\"%s\": {\"count\": %" PRIu64 ", \"mean_us\": %.3f, \"total_s\": %.6f}", name,
                 count, count ? (double)ns / 1e3 / (double)count : 0.0, (double)ns / 1e9);
}

static void print_stages(const mh_loader_stats *stats)
{
    (void)printf(", \"stages\": {");
    print_stage("read", stats->reads_now + stats->reads_waited, stats->read_ns);
    (void)printf(", ");
    print_stage("decode", stats->units_decoded, stats->decode_ns);
    (void)printf(", ");
    print_stage("place", stats->placed, stats->place_ns);
    (void)printf("}, \"units\": {\"fetched\": %" PRIu64 ", \"decoded\": %" PRIu64
                 ", \"refetched\": %" PRIu64 ", \"resident_peak\": %" PRIu64 "}",
                 stats->units_fetched, stats->units_decoded, stats->units_refetched,
                 stats->units_bytes_peak);
}

static void print_storage(const mh_loader_stats *stats)
{
    (void)printf(", \"cache\": {\"hits\": %" PRIu64 ", \"misses\": %" PRIu64 ", \"bytes\": %" PRIu64
                 ", \"written\": %" PRIu64 ", \"evicted\": %" PRIu64 ", \"corrupt\": %" PRIu64 "}",
                 stats->cache_hits, stats->cache_misses, stats->cache_bytes,
                 stats->cache_written_bytes, stats->cache_evicted_bytes, stats->cache_corrupt);
    (void)printf(", \"requests\": {\"count\": %" PRIu64 ", \"retried\": %" PRIu64
                 ", \"hedged\": %" PRIu64 ", \"in_flight_peak\": %" PRIu64 "}",
                 stats->requests, stats->requests_retried, stats->requests_hedged,
                 stats->requests_peak);
}

static void print_json(const read_result *result)
{
    (void)printf("{\"samples\": %" PRIu64 ", \"batches\": %" PRIu64 ", \"bytes_read\": %" PRIu64,
                 result->samples, result->batches, result->bytes);
    (void)printf(", \"seconds\": %.6f, \"samples_per_s\": %.1f", result->seconds,
                 per_second(result));
    (void)printf(", \"wait_ms\": {\"p50\": %.6f, \"p99\": %.6f, \"max\": %.6f}",
                 mh_waits_ms(&result->waits, 0.5), mh_waits_ms(&result->waits, 0.99),
                 (double)result->waits.most / 1e6);
    print_stages(&result->stats);
    print_storage(&result->stats);
    (void)printf(", \"skipped\": %" PRIu64 ", \"replaced\": %" PRIu64, result->stats.skipped,
                 result->stats.replaced);
    (void)printf(", \"slots_peak\": %" PRIu64 ", \"peak_rss_bytes\": %" PRIu64
                 ", \"batches_copied_out\": %" PRIu64,
                 result->stats.slots_peak, peak_rss_bytes(), result->stats.batches_copied_out);
    if (result->hash)
        (void)printf(", \"stream_xxh3\": \"%016" PRIx64 "\", \"samples_xxh3\": \"%016" PRIx64 "\"",
                     mh_hash_stream(result->hash), mh_hash_samples(result->hash));
    (void)printf("}\n");
}

static void print_text(const read_result *result)
{
    char read[MH_CLI_BYTES], peak[MH_CLI_BYTES];
    char took[MH_CLI_TIME], half[MH_CLI_TIME], high[MH_CLI_TIME], most[MH_CLI_TIME];
    (void)printf("%" PRIu64 " samples in %" PRIu64 " batches, %s, in %s: %.0f samples/s\n",
                 result->samples, result->batches, mh_cli_bytes(read, result->bytes),
                 mh_cli_time(took, result->seconds), per_second(result));
    (void)printf("wait for a batch: median %s, p99 %s, longest %s\n",
                 mh_cli_time(half, mh_waits_ms(&result->waits, 0.5) / 1e3),
                 mh_cli_time(high, mh_waits_ms(&result->waits, 0.99) / 1e3),
                 mh_cli_time(most, (double)result->waits.most / 1e9));
    (void)printf("at most %" PRIu64 " batches ahead, %" PRIu64
                 " copied out of them to save memory, peak memory %s\n",
                 result->stats.slots_peak, result->stats.batches_copied_out,
                 mh_cli_bytes(peak, peak_rss_bytes()));
    if (result->hash)
        (void)printf("stream_xxh3  %016" PRIx64 "\nsamples_xxh3 %016" PRIx64 "\n",
                     mh_hash_stream(result->hash), mh_hash_samples(result->hash));
}

static int run(const read_request *request)
{
    mh_dataset *data = NULL;
    read_result result = {0};
    int code = mh_cli_open_data(&data, request->paths, &request->data, WHERE);
    if (code == MH_CLI_OK && request->hash && !(result.hash = mh_hash_new()))
        code = mh_cli_fail(MH_CLI_FAILED, WHERE, "free some memory", "out of memory");
    mh_cli_heed_signals();
    if (code == MH_CLI_OK)
        code = run_epoch(&result, request, data);
    if (code == MH_CLI_OK && request->json)
        print_json(&result);
    else if (code == MH_CLI_OK)
        print_text(&result);
    mh_hash_free(result.hash);
    mh_dataset_unref(data);
    return code;
}

int mh_cmd_read(int argc, char **argv)
{
    read_request request = {.paths = calloc((size_t)argc + 1, sizeof *request.paths)};
    if (!request.paths)
        return mh_cli_fail(MH_CLI_FAILED, WHERE, "free some memory", "out of memory");
    int code = parse(&request, argc, argv);
    if (code == MH_CLI_OK && request.help)
        print_help();
    else if (code == MH_CLI_OK)
        code = run(&request);
    free(request.paths);
    return code;
}
