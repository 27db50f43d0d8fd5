/* cmd_list.c - millhead list: what this build can read
 * SPDX-License-Identifier: Apache-2.0
 */
#include "options.h"

#include <stdio.h>
#include <string.h>

typedef int list_kinds(size_t at, mh_kind *out);

static void print_help(void)
{
    (void)printf(
        "usage: millhead list [--json]\n"
        "\n"
        "Lists what this build can read: formats, sources and codecs, and the ops of a\n"
        "pipeline.\n"
        "\n"
        "options:\n"
        "  --json    one JSON object: formats (name, suffixes, what), sources (name,\n"
        "            arguments, what), codecs (name, suffixes, what), ops (name, arguments,\n"
        "            what)\n"
        "  --help    this text\n");
}

/* [".npy", ".tar"] of ".npy .tar". */
static void print_suffixes(const char *suffixes)
{
    (void)printf("[");
    for (size_t length; (length = strcspn(suffixes, " ")) > 0;) {
        (void)printf("\"%.*s\"", (int)length, suffixes);
        suffixes += length;
        if (*suffixes && *++suffixes)
            (void)printf(", ");
    }
    (void)printf("]");
}

/* Ops: their arguments are one text. */
static void print_ops_json(void)
{
    mh_kind kind;
    (void)printf("\"ops\": [");
    for (size_t at = 0; mh_op_list(at, &kind); at++) {
        (void)printf("%s{\"name\": \"%s\", \"arguments\": ", at ? ", " : "", kind.name);
        mh_cli_print_quoted(kind.suffixes);
        (void)printf(", \"what\": ");
        mh_cli_print_quoted(kind.what);
        (void)printf("}");
    }
    (void)printf("]");
}

static void print_kinds_json(const char *key, const char *detail, list_kinds *list)
{
    mh_kind kind;
    (void)printf("\"%s\": [", key);
    for (size_t at = 0; list(at, &kind); at++) {
        (void)printf("%s{\"name\": \"%s\", \"%s\": ", at ? ", " : "", kind.name, detail);
        print_suffixes(kind.suffixes);
        (void)printf(", \"what\": ");
        mh_cli_print_quoted(kind.what);
        (void)printf("}");
    }
    (void)printf("], ");
}

static void print_kinds(const char *title, list_kinds *list)
{
    mh_kind kind;
    (void)printf("%s:\n", title);
    for (size_t at = 0; list(at, &kind); at++)
        (void)printf("  %-18s %-22s %s\n", kind.name, kind.suffixes, kind.what);
}

static void print_ops(void)
{
    mh_kind kind;
    (void)printf("ops of a pipeline (\"image: decode | random_resized_crop 224 | flip\"):\n");
    for (size_t at = 0; mh_op_list(at, &kind); at++)
        (void)printf("  %s %s\n      %s\n", kind.name, kind.suffixes, kind.what);
}

int mh_cmd_list(int argc, char **argv)
{
    bool json = false, help = false;
    const mh_cli_option table[] = {
        {"--json", MH_CLI_FLAG, &json, 0},
        {"--help", MH_CLI_FLAG, &help, 0},
    };
    int bad = mh_cli_read(table, sizeof table / sizeof *table, NULL, 0, argc, argv, "list");
    if (bad)
        return bad;
    if (help) {
        print_help();
    } else if (json) {
        (void)printf("{");
        print_kinds_json("formats", "suffixes", mh_format_list);
        print_kinds_json("sources", "arguments", mh_source_list);
        print_kinds_json("codecs", "suffixes", mh_codec_list);
        print_ops_json();
        (void)printf("}\n");
    } else {
        print_kinds("formats", mh_format_list);
        print_kinds("sources", mh_source_list);
        print_kinds("codecs", mh_codec_list);
        print_ops();
    }
    return MH_CLI_OK;
}
