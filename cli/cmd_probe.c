/* cmd_probe.c - millhead probe: what this machine gives
 * SPDX-License-Identifier: Apache-2.0
 */
#include "options.h"
#include "progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WHERE "probe"

static void print_help(void)
{
    (void)printf(
        "usage: millhead probe [PATH|URL] [OPTIONS]\n"
        "\n"
        "Measures how fast data comes: memory, the page cache, the disk or network mount of\n"
        "PATH in sequence and at random, and the copy to a device. In a directory (default: this\n"
        "one) it writes a temporary file without a name, so that nothing stays behind; where\n"
        "that is not allowed it reads the largest file there. A file is only read. From a URL\n"
        "(http, https, s3) it reads large and small ranges, then with more and more requests\n"
        "at a time, which shows what in_flight= should be. URLs need libcurl.\n"
        "\n"
        "options:\n"
        "  --size SIZE   use at most this much of a file (default 256MiB)\n"
        "  --seconds S   take about this long (default 8)\n"
        "  --read-only   write nothing in a directory either\n"
        "  --storage KEY=VALUE,...   for a URL: endpoint_url, profile, region, anon=true\n"
        "  --json        one JSON object: path, file, bytes, network (null: a local path),\n"
        "                in_flight (of a URL), tiers (name, mb_per_s, latency_us, how; null:\n"
        "                not measured); doctor and plan whatif take it as --probe FILE\n"
        "  --help        this text\n");
}

static int show_progress(void *progress, const char *what, double share)
{
    (void)what;
    mh_progress_show(progress, share);
    return 0;
}

static const char *url_remedy(mh_status status, const mh_error *err)
{
    if (err->sys_errno == ENOPKG)
        return "install the package libcurl4";
    if (err->sys_errno == ELIBACC)
        return "install millhead again, all of it";
    if (err->sys_errno == ENOSYS)
        return "install libcurl4-openssl-dev and build it again, or mount it and give the path";
    switch (status) {
    case MH_ERR_INVALID:
        return "see millhead probe --help";
    case MH_ERR_UNSUPPORTED:
        return "give an https address of the same file, or mount it and give the path";
    case MH_ERR_NOT_FOUND:
        return "give the address of a file that is there";
    default:
        return "check the address, and that this machine reaches it";
    }
}

/* The command line is wrong, and not what it points to. */
static bool is_usage(mh_status status, const mh_error *err)
{
    return status == MH_ERR_INVALID || (status == MH_ERR_UNSUPPORTED && err->sys_errno == 0);
}

static const char *remedy(mh_status status, const mh_error *err)
{
    if (err->sys_errno == ENOSPC)
        return "free some, give a smaller --size, or a file to read";
    if (err->sys_errno == ENOENT)
        return "check the path";
    switch (status) {
    case MH_ERR_INVALID:
        return "see millhead probe --help";
    case MH_ERR_NOT_FOUND:
        return "give a directory to write in, or a larger file";
    case MH_ERR_NOMEM:
        return "free some memory";
    default:
        return "give a path that you may read";
    }
}

static void print_real(const char *key, double value)
{
    if (value < 0)
        (void)printf("\"%s\": null, ", key);
    else
        (void)printf("\"%s\": %.6g, ", key, value);
}

/* Of an address only what is no secret. */
static const char *shown_path(const mh_probe *probe, const char *path)
{
    return mh_probe_is_url(path) ? probe->file : path;
}

static void print_json(const mh_probe *probe, const char *path)
{
    (void)printf("{\"path\": ");
    mh_cli_print_quoted(shown_path(probe, path));
    (void)printf(", \"file\": ");
    mh_cli_print_quoted(probe->file);
    (void)printf(", \"bytes\": %" PRIu64 ", \"network\": ", probe->bytes);
    if (*probe->network)
        mh_cli_print_quoted(probe->network);
    else
        (void)printf("null");
    if (probe->in_flight)
        (void)printf(", \"in_flight\": %" PRIu32, probe->in_flight);
    (void)printf(", \"tiers\": [");
    for (size_t at = 0; at < probe->tier_count; at++) {
        const mh_probe_tier *tier = &probe->tiers[at];
        (void)printf("%s{\"name\": \"%s\", ", at ? ", " : "", tier->name);
        print_real("mb_per_s", tier->mb_per_s);
        print_real("latency_us", tier->latency_us);
        (void)printf("\"how\": ");
        mh_cli_print_quoted(tier->how);
        (void)printf("}");
    }
    (void)printf("]}\n");
}

/* A number right-aligned, or a dash for what was not measured. */
static void print_cell(int width, int decimals, double value)
{
    if (value < 0)
        (void)printf(" %*s", width, "-");
    else
        (void)printf(" %*.*f", width, decimals, value);
}

static void print_table(const mh_probe *probe, bool url)
{
    char bytes[MH_CLI_BYTES];
    (void)printf("%-20s %10s %12s   %s\n", "tier", "MB/s", "latency us", "how");
    for (size_t at = 0; at < probe->tier_count; at++) {
        const mh_probe_tier *tier = &probe->tiers[at];
        (void)printf("%-20s", tier->name);
        print_cell(10, 1, tier->mb_per_s);
        print_cell(12, 2, tier->latency_us);
        (void)printf("   %s\n", tier->how);
    }
    (void)printf("\nRead: %s, %s.\n", probe->file, mh_cli_bytes(bytes, probe->bytes));
    if (url)
        (void)printf("It comes over a network (%s): copy what is read more than once to a local "
                     "disk.\n",
                     probe->network);
    if (probe->in_flight)
        (void)printf("More than %" PRIu32 " requests at a time win nothing: in_flight=%" PRIu32
                     ".\n",
                     probe->in_flight, probe->in_flight);
    if (!url && *probe->network)
        (void)printf("It lies on a network mount (%s): copy what is read more than once to a local "
                     "disk.\n",
                     probe->network);
}

int mh_cmd_probe(int argc, char **argv)
{
    mh_probe_options options;
    mh_probe probe;
    mh_error err;
    bool read_only = false, json = false, help = false;
    mh_progress progress;
    mh_probe_options_init(&options);
    const mh_cli_option table[] = {
        {"--size", MH_CLI_SIZE, &options.bytes, 0},
        {"--seconds", MH_CLI_SECONDS, &options.seconds, 0},
        {"--read-only", MH_CLI_FLAG, &read_only, 0},
        {"--storage", MH_CLI_TEXT, &options.storage, 0},
        {"--json", MH_CLI_FLAG, &json, 0},
        {"--help", MH_CLI_FLAG, &help, 0},
    };
    int bad = mh_cli_read(table, sizeof table / sizeof *table, &options.path, 1, argc, argv, WHERE);
    if (bad)
        return bad;
    if (help) {
        print_help();
        return MH_CLI_OK;
    }
    bool url = mh_probe_is_url(options.path);
    options.read_only = read_only;
    options.progress = show_progress;
    options.progress_arg = &progress;
    mh_progress_begin(&progress, "probing", url ? MH_CLI_SOME_URL : options.path);
    mh_status status = mh_probe_run(&probe, &options, &err);
    mh_progress_end(&progress);
    if (status != MH_OK)
        return mh_cli_fail(is_usage(status, &err) ? MH_CLI_USAGE : MH_CLI_FAILED, WHERE,
                           url ? url_remedy(status, &err) : remedy(status, &err), "%s",
                           err.message);
    if (json)
        print_json(&probe, options.path);
    else
        print_table(&probe, url);
    return MH_CLI_OK;
}
