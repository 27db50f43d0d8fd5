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
        "usage: millhead probe [PATH] [OPTIONS]\n"
        "\n"
        "How fast data comes here: memory, the page cache, the disk or network mount of PATH\n"
        "in sequence and at random, and the way to a device. In a directory (default: this\n"
        "one) a temporary file without a name is written, so that nothing stays behind; where\n"
        "that is not allowed the largest file in it is read. A file is only read.\n"
        "\n"
        "options:\n"
        "  --size SIZE   how much of a file is used, at most (default 256MiB)\n"
        "  --seconds S   how long it may take, about (default 8)\n"
        "  --read-only   write nothing in a directory either\n"
        "  --json        one JSON object: path, file, bytes, network (null: a local path),\n"
        "                tiers (name, mb_per_s, latency_us, how; null: not measured)\n"
        "  --help        this text\n");
}

static int show_progress(void *progress, const char *what, double share)
{
    (void)what;
    mh_progress_show(progress, share);
    return 0;
}

static const char *remedy(mh_status status, const mh_error *err)
{
    if (err->sys_errno == ENOSPC)
        return "free some, give a smaller --size, or a file to read";
    if (err->sys_errno == ENOENT)
        return "give a path that is there";
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

static void print_json(const mh_probe *probe, const char *path)
{
    (void)printf("{\"path\": ");
    mh_cli_print_quoted(path);
    (void)printf(", \"file\": ");
    mh_cli_print_quoted(probe->file);
    (void)printf(", \"bytes\": %" PRIu64 ", \"network\": ", probe->bytes);
    if (*probe->network)
        mh_cli_print_quoted(probe->network);
    else
        (void)printf("null");
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

static void print_table(const mh_probe *probe)
{
    char bytes[MH_CLI_BYTES];
    (void)printf("%-20s %10s %12s   %s\n", "tier", "MB/s", "latency us", "how");
    for (size_t at = 0; at < probe->tier_count; at++) {
        const mh_probe_tier *tier = &probe->tiers[at];
        if (tier->mb_per_s < 0)
            (void)printf("%-20s %10s %12s   %s\n", tier->name, "-", "-", tier->how);
        else
            (void)printf("%-20s %10.1f %12.2f   %s\n", tier->name, tier->mb_per_s, tier->latency_us,
                         tier->how);
    }
    (void)printf("\nRead: %s, %s.\n", probe->file, mh_cli_bytes(bytes, probe->bytes));
    if (*probe->network)
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
    if (strstr(options.path, "://"))
        return mh_cli_fail(MH_CLI_USAGE, WHERE, "mount it, or copy a file of it, and give the path",
                           "'%s' is a URL, and there is no HTTP client in this build",
                           options.path);
    options.read_only = read_only;
    options.progress = show_progress;
    options.progress_arg = &progress;
    mh_progress_begin(&progress, "probing", options.path);
    mh_status status = mh_probe_run(&probe, &options, &err);
    mh_progress_end(&progress);
    if (status != MH_OK)
        return mh_cli_fail(status == MH_ERR_INVALID ? MH_CLI_USAGE : MH_CLI_FAILED, WHERE,
                           remedy(status, &err), "%s", err.message);
    if (json)
        print_json(&probe, options.path);
    else
        print_table(&probe);
    return MH_CLI_OK;
}
