/* doctor_print.c - a diagnosis for people: the verdict, where the time goes, why, and what to do
 * SPDX-License-Identifier: Apache-2.0
 */
#include "doctor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { NARROWEST = 40, USUAL = 80, WIDEST = 100, NAME_COLUMNS = 30 };

typedef struct paper {
    int width;
    bool colour;
} paper;

static paper paper_of_stdout(void)
{
    struct winsize size;
    paper out = {.width = USUAL, .colour = isatty(STDOUT_FILENO)};
    if (out.colour && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
        out.width = size.ws_col < NARROWEST ? NARROWEST
                    : size.ws_col > WIDEST  ? WIDEST
                                            : size.ws_col;
    const char *plain = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if ((plain && *plain) || (terminal && strcmp(terminal, "dumb") == 0))
        out.colour = false;
    return out;
}

static void print_bold(const paper *page, const char *text)
{
    (void)printf(page->colour ? "\033[1m%s\033[0m" : "%s", text);
}

/* Words on lines of the page's width, the first after `lead`, the others below its text. */
static void print_wrapped(const paper *page, const char *lead, const char *text)
{
    int indent = (int)strlen(lead), column = indent;
    (void)fputs(lead, stdout);
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (column > indent && column + 1 + word > page->width) {
            (void)printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            (void)putchar(' ');
            column++;
        }
        (void)fwrite(text, 1, (size_t)word, stdout);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    (void)putchar('\n');
}

static void print_section(const paper *page, const char *title, const char lines[][MH_VERDICT_LINE],
                          size_t count)
{
    if (!count)
        return;
    (void)putchar('\n');
    print_bold(page, title);
    (void)putchar('\n');
    for (size_t at = 0; at < count; at++)
        print_wrapped(page, "  - ", lines[at]);
}

static void print_stage(const paper *page, const char *name, double share, char mark)
{
    int room = page->width - NAME_COLUMNS - 12;
    int length = (int)(share * room + 0.5);
    if (share < 0.0005)
        return;
    length = length > room ? room : length;
    (void)printf("  %-*s ", NAME_COLUMNS, name);
    for (int at = 0; at < room; at++)
        (void)putchar(at < length ? mark : ' ');
    (void)printf(" %5.1f %%\n", share * 100);
}

static void print_stages(const paper *page, const mh_verdict *verdict)
{
    const mh_stage_shares *stages = &verdict->stages;
    (void)putchar('\n');
    print_bold(page, "where the time goes");
    (void)putchar('\n');
    print_stage(page, "training", stages->train, '=');
    print_stage(page, "the loop's own work", stages->main, '-');
    print_stage(page, "waiting: samples' code", stages->wait_cpu, '#');
    print_stage(page, "waiting: for a CPU", stages->wait_run, '#');
    print_stage(page, "waiting: disk, network, sleep", stages->wait_blocked, '#');
    print_stage(page, "waiting: collate", stages->wait_collate, '#');
    print_stage(page, "waiting: sampler", stages->wait_order, '#');
    print_stage(page, "waiting: transfer", stages->wait_transfer, '#');
    print_stage(page, "waiting: reading", verdict->native.wait_read, '#');
    print_stage(page, "waiting: decoding", verdict->native.wait_decode, '#');
    print_stage(page, "waiting: placing samples", verdict->native.wait_place, '#');
    print_stage(page, "waiting: pinning", verdict->native.wait_pin, '#');
    print_stage(page, "waiting: map=", verdict->native.wait_map, '#');
    print_stage(page, "waiting, cause unknown", stages->wait_other, '#');
}

/* The stage that the verdict is about, as mh_hot names it. */
static const char *stage_of(mh_cause cause)
{
    switch (cause) {
    case MH_CAUSE_COLLATE:
        return "collate";
    case MH_CAUSE_MAIN:
        return "loop";
    case MH_CAUSE_DEVICE:
        return "train";
    default:
        return "fetch";
    }
}

static const char *stage_title(const char *stage)
{
    if (strcmp(stage, "collate") == 0)
        return "inside collate_fn";
    if (strcmp(stage, "loop") == 0)
        return "inside the loop, between steps";
    return strcmp(stage, "train") == 0 ? "inside a training step" : "inside a sample";
}

/* The functions that most of the stage's time goes to, each with the user's line that leads there.
 */
static void print_hot(const paper *page, const mh_facts *facts, mh_cause cause)
{
    enum { MOST = 5, NAME = 44 };
    const char *stage = stage_of(cause);
    const mh_hot *hot = mh_hot_next(facts, stage, NULL);
    if (!hot)
        return;
    (void)putchar('\n');
    print_bold(page, stage_title(stage));
    (void)putchar('\n');
    for (int shown = 0; hot && shown < MOST; shown++, hot = mh_hot_next(facts, stage, hot)) {
        size_t length = strlen(hot->function);
        const char *name = hot->function + (length > NAME ? length - NAME : 0);
        (void)printf("  %3.0f %%  %-*s  %s\n", 100 * hot->share, NAME, name, hot->place);
    }
}

/* Idle time at epoch starts is said beside the rest: nobody must look for it in a timeline. */
static void print_idle(const mh_verdict *verdict, const mh_facts *facts)
{
    char idle[MH_CLI_TIME], starts[MH_CLI_TIME];
    (void)printf("the device is idle %.1f %% of the time%s, %s in all\n",
                 verdict->device_wait_share * 100, facts->other_ns ? " in this loop" : "",
                 mh_cli_time(idle, verdict->idle_device_s));
    if (verdict->epoch_start_share >= 0.02)
        (void)printf("and %.0f %% of the run at epoch starts, %s\n",
                     verdict->epoch_start_share * 100, mh_cli_time(starts, verdict->epoch_start_s));
}

static void print_loader(const paper *page, const mh_facts *facts)
{
    char size[32] = "", place[96] = "", seen[64] = "", workers[80], text[400];
    if (facts->batch_size > 0)
        (void)snprintf(size, sizeof size, ", batch size %d", facts->batch_size);
    if (facts->place[0])
        (void)snprintf(place, sizeof place, ", iterated at %s", facts->place);
    if (facts->batch_count) /* from outside they are not seen */
        (void)snprintf(seen, sizeof seen, "; %zu batches in %" PRIu64 " epoch%s",
                       facts->batch_count, facts->epochs, facts->epochs == 1 ? "" : "s");
    const mh_native_sum *native = &facts->native;
    if (native->samples)
        (void)snprintf(workers, sizeof workers, "%d thread%s, %d reads in flight", native->threads,
                       native->threads == 1 ? "" : "s", native->in_flight);
    else
        (void)snprintf(workers, sizeof workers, "%d worker%s", facts->workers,
                       facts->workers == 1 ? "" : "s");
    (void)snprintf(text, sizeof text, "%s%s%s%s, %s%s%s", facts->kind,
                   facts->dataset[0] ? " of " : "", facts->dataset, size, workers, place, seen);
    print_wrapped(page, "loader: ", text);
}

static void print_numbers(const paper *page, const mh_verdict *verdict, const mh_facts *facts,
                          const mh_wait_stats *waits, double setup_s)
{
    char mean[MH_CLI_TIME], half[MH_CLI_TIME], high[MH_CLI_TIME], most[MH_CLI_TIME];
    char setup[MH_CLI_TIME];
    print_idle(verdict, facts);
    if (waits->count)
        (void)printf("%" PRIu64 " waits: mean %s, median %s, p99 %s, longest %s\n", waits->count,
                     mh_cli_time(mean, waits->mean), mh_cli_time(half, waits->p50),
                     mh_cli_time(high, waits->p99), mh_cli_time(most, waits->max));
    if (setup_s > 0)
        (void)printf("set-up %s\n", mh_cli_time(setup, setup_s));
    if (facts->kind[0] && facts->workers >= 0)
        print_loader(page, facts);
}

/* What a native loader's threads and reads bound is not simulated: it is never exceeded. Where more
 * than the promise is possible, the fix says how much. */
static const char *gain_words(const mh_verdict *verdict)
{
    if (verdict->fix_settings.threads > 0 || verdict->fix_settings.in_flight > 0)
        return "at most";
    return verdict->possible_gain > 1.05 * verdict->predicted_gain ? "expected: at least"
                                                                   : "expected:";
}

static void print_fix(const paper *page, const mh_verdict *verdict)
{
    const mh_fix *settings = &verdict->fix_settings;
    (void)putchar('\n');
    print_bold(page, "what to do");
    (void)putchar('\n');
    print_wrapped(page, "  ", verdict->fix);
    if (verdict->predicted_gain > 1.005)
        (void)printf("  %s %.2f times as fast%s\n", gain_words(verdict), verdict->predicted_gain,
                     settings->cost < 1 && settings->cost > 0 ? " at half the cost" : "");
    for (size_t at = 0; at < verdict->other_count; at++)
        (void)printf("  also: %s (%.2f times)\n", mh_cause_name(verdict->others[at].cause),
                     verdict->others[at].gain);
    (void)printf("  more: millhead explain %s\n", mh_cause_name(verdict->cause));
}

static const char *vantage_line(mh_vantage vantage)
{
    switch (vantage) {
    case MH_VANTAGE_OUTSIDE:
        return "seen from outside: what the kernel reports about the processes";
    case MH_VANTAGE_LOG:
        return "from a log of another tool, which does not say what its workers waited for";
    default:
        return "seen from inside: the loader's own events";
    }
}

static void print_text(const mh_verdict *verdict, const mh_facts *facts, const mh_wait_stats *waits,
                       double setup_s)
{
    paper page = paper_of_stdout();
    print_bold(&page, mh_cause_name(verdict->cause));
    (void)printf("\n\n");
    print_numbers(&page, verdict, facts, waits, setup_s);
    print_stages(&page, verdict);
    print_hot(&page, facts, verdict->cause);
    print_section(&page, "how we know", verdict->evidence, verdict->evidence_count);
    print_fix(&page, verdict);
    print_section(&page, "warnings", verdict->warnings, verdict->warning_count);
    (void)printf("\n%s\n", vantage_line(facts->vantage));
}

void mh_doctor_print(const mh_verdict *verdict, const mh_facts *facts, const mh_wait_stats *waits,
                     uint64_t bad_lines, double setup_s, bool json)
{
    char *text = NULL;
    mh_error err;
    if (!json) {
        print_text(verdict, facts, waits, setup_s);
        return;
    }
    if (mh_diagnosis_json(&text, verdict, facts, waits, bad_lines, setup_s, &err) != MH_OK) {
        (void)mh_cli_fail(MH_CLI_FAILED, "doctor", "free some memory", "%s", err.message);
        return;
    }
    (void)printf("%s\n", text);
    mh_text_free(text);
}
