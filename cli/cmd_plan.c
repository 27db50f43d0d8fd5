/* cmd_plan.c - millhead plan: picks the subject
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan.h"
#include "suggest.h"

#include <stdio.h>
#include <string.h>

typedef struct plan_subject {
    const char *name;
    const char *usage;
    const char *summary;
    int (*run)(int argc, char **argv);
} plan_subject;

/* The one list of subjects: it drives --help and the hint after an unknown one. */
static const plan_subject subjects[] = {
    {"cpus", "[--cpus N] [--gpus G] [--ranks R]", "loader workers for these CPUs and GPUs",
     mh_plan_cmd_cpus},
    {"memory", "--batch-bytes SIZE [--workers N] [--prefetch P] [--ranks R]",
     "memory that prefetched batches take, against what there is", mh_plan_cmd_memory},
    {"threads", "[--mode MODE] [--threads N] [--workers N] [--ranks R] [--cpus N]",
     "loader workers x streaming threads x ranks, against the CPUs", mh_plan_cmd_threads},
    {"chunks", "STORE --window SIZES [--shuffle KIND], or --sample SHAPE",
     "chunks and bytes a sample takes from a chunked array", mh_plan_cmd_chunks},
    {"whatif", "RUN [--gpus N] [--step S] [--workers N] [--prefetch P] [--batch-size N]",
     "what a measured run would need with other settings", mh_plan_cmd_whatif},
};

#define SUBJECT_COUNT (sizeof subjects / sizeof *subjects)

static void print_help(void)
{
    (void)printf("usage: millhead plan SUBJECT [OPTIONS] [--json]\n"
                 "\n"
                 "Answers \"how many?\" before anything runs.\n"
                 "\n"
                 "subjects:\n");
    for (size_t at = 0; at < SUBJECT_COUNT; at++)
        (void)printf("  %s %s\n      %s\n", subjects[at].name, subjects[at].usage,
                     subjects[at].summary);
    (void)printf("\n"
                 "options:\n"
                 "  --json  one JSON object\n"
                 "  --help  this text; millhead plan SUBJECT --help for a subject's own\n");
}

/* "known: a, b; see millhead plan --help". */
static const char *subject_hint(void)
{
    static char hint[128];
    size_t used = (size_t)snprintf(hint, sizeof hint, "known:");
    for (size_t at = 0; at < SUBJECT_COUNT && used < sizeof hint; at++)
        used += (size_t)snprintf(hint + used, sizeof hint - used, "%s %s", at ? "," : "",
                                 subjects[at].name);
    if (used < sizeof hint)
        (void)snprintf(hint + used, sizeof hint - used, "; see millhead plan --help");
    return hint;
}

/* Options may come before the subject: its place is the first argument that is one's name. */
static const plan_subject *find_subject(int argc, char **argv, int *place)
{
    for (*place = 1; *place < argc; ++*place)
        for (size_t at = 0; at < SUBJECT_COUNT; at++)
            if (strcmp(argv[*place], subjects[at].name) == 0)
                return &subjects[at];
    return NULL;
}

int mh_cmd_plan(int argc, char **argv)
{
    int place;
    const plan_subject *subject = find_subject(argc, argv, &place);
    if (subject) {
        char *name = argv[place];
        memmove(argv + 2, argv + 1, (size_t)(place - 1) * sizeof *argv);
        argv[1] = name;
        return subject->run(argc - 1, argv + 1);
    }
    for (int at = 1; at < argc; at++)
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
            print_help();
            return MH_CLI_OK;
        }
    if (argc > 1 && *argv[1] != '-') {
        const char *names[SUBJECT_COUNT];
        for (size_t at = 0; at < SUBJECT_COUNT; at++)
            names[at] = subjects[at].name;
        return mh_cli_fail(MH_CLI_USAGE, "plan",
                           mh_cli_did_you_mean(argv[1], names, SUBJECT_COUNT, subject_hint()),
                           "unknown subject '%s'", argv[1]);
    }
    return mh_cli_fail(MH_CLI_USAGE, "plan", subject_hint(), "nothing to plan");
}
