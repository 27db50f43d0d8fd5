/* cmd_explain.c - millhead explain: what a verdict means, how it is found and what to do
 * SPDX-License-Identifier: Apache-2.0
 */
#include "explain_pages.h"
#include "options.h"
#include "suggest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_PAGES = 64 };

/* After "# cpu-bound: " up to the end of the line. */
static int title_of(const mh_explain_page *page, const char **title)
{
    *title = page->text + strlen("# ") + strlen(page->name) + strlen(": ");
    return (int)strcspn(*title, "\n");
}

static void print_help(void)
{
    (void)printf("usage: millhead explain [CAUSE] [--json]\n"
                 "\n"
                 "Shows the page about a verdict of `millhead doctor`: what it means, how it is\n"
                 "found, what to do. Without CAUSE: all causes, a line each.\n"
                 "\n"
                 "options:\n"
                 "  --json  one JSON object: cause, text; without CAUSE: causes\n"
                 "  --help  this text\n"
                 "\n"
                 "causes:\n");
    for (size_t at = 0; at < mh_explain_page_count; at++) {
        const char *title;
        int length = title_of(&mh_explain_pages[at], &title);
        (void)printf("  %-15s %.*s\n", mh_explain_pages[at].name, length, title);
    }
}

static void print_list(bool json)
{
    const char *title;
    (void)printf(json ? "{\"causes\": [" : "");
    for (size_t at = 0; at < mh_explain_page_count; at++) {
        int length = title_of(&mh_explain_pages[at], &title);
        if (json)
            (void)printf("%s\"%s\"", at ? ", " : "", mh_explain_pages[at].name);
        else
            (void)printf("%-15s %.*s\n", mh_explain_pages[at].name, length, title);
    }
    (void)printf(json ? "]}\n" : "");
}

/* Keeps the text of a link and drops its target, a file that a reader here lacks. */
static void print_text(const char *text)
{
    const char *no_colour = getenv("NO_COLOR");
    bool bold = isatty(STDOUT_FILENO) && !(no_colour && *no_colour), on = false;
    for (const char *at = text; *at; at++) {
        const char *end = *at == '[' ? strchr(at, ']') : NULL;
        const char *close = end && end[1] == '(' ? strchr(end, ')') : NULL;
        if (close) {
            (void)fwrite(at + 1, 1, (size_t)(end - at - 1), stdout);
            at = close;
        } else if (strncmp(at, "**", 2) == 0) {
            on = !on;
            (void)fputs(!bold ? "" : on ? "\033[1m" : "\033[0m", stdout);
            at++;
        } else {
            (void)putchar(*at);
        }
    }
}

static int print_page(const char *cause, bool json)
{
    const char *names[MOST_PAGES];
    for (size_t at = 0; at < mh_explain_page_count && at < MOST_PAGES; at++) {
        const mh_explain_page *page = &mh_explain_pages[at];
        names[at] = page->name;
        if (strcmp(cause, page->name) != 0)
            continue;
        if (json) {
            (void)printf("{\"cause\": \"%s\", \"text\": ", page->name);
            mh_cli_print_quoted(page->text);
            (void)printf("}\n");
        } else {
            print_text(page->text);
        }
        return MH_CLI_OK;
    }
    return mh_cli_fail(MH_CLI_USAGE, "explain",
                       mh_cli_did_you_mean(cause, names, mh_explain_page_count,
                                           "`millhead explain` lists the causes"),
                       "unknown cause '%s'", cause);
}

int mh_cmd_explain(int argc, char **argv)
{
    const char *cause = NULL;
    bool json = false, help = false;
    const mh_cli_option options[] = {
        {"--json", MH_CLI_FLAG, &json, 0},
        {"--help", MH_CLI_FLAG, &help, 0},
    };
    int bad =
        mh_cli_read(options, sizeof options / sizeof *options, &cause, 1, argc, argv, "explain");
    if (bad)
        return bad;
    if (help)
        print_help();
    else if (cause)
        return print_page(cause, json);
    else
        print_list(json);
    return MH_CLI_OK;
}
