/* plan_and_judge.c - how many workers a run should have, and what a run has waited for
 * SPDX-License-Identifier: Apache-2.0
 *
 *     plan_and_judge PATH [GPUS]
 *
 * PATH is the directory of a run, an events file, or a log of Earthmover's.
 */
#include <millhead/millhead.h>
#include <stdio.h>
#include <stdlib.h>

/* Every call that can fail takes an mh_error last and writes one line for people into it. */
static int complain(const mh_error *err)
{
    (void)fprintf(stderr, "plan_and_judge: %s\n", err->message);
    return EXIT_FAILURE;
}

/* Plans are pure: options in, numbers out. What is left 0 is found on this machine. */
static int plan(int gpus)
{
    mh_plan_cpus_options options;
    mh_plan_cpus found;
    mh_error err;
    mh_plan_cpus_options_init(&options); /* first of all: it sets the defaults and the size */
    options.gpus = gpus;
    if (mh_plan_cpus_make(&found, &options, &err) != MH_OK)
        return complain(&err);
    (void)printf("workers: %d (%d CPUs, %d of them for training)\n", found.total, found.cpus,
                 found.reserved);
    return EXIT_SUCCESS;
}

static void print_verdict(const mh_verdict *verdict)
{
    (void)printf("cause: %s\n", mh_cause_name(verdict->cause));
    for (size_t at = 0; at < verdict->evidence_count; at++)
        (void)printf("  %s\n", verdict->evidence[at]);
    (void)printf("fix: %s\n", verdict->fix);
    (void)printf("gain: %.2f times as fast\n", verdict->predicted_gain);
}

/* A run that was read owns its facts; it is closed when nothing of them is needed any more. */
static int judge(const char *path)
{
    mh_run *run = NULL;
    mh_verdict verdict;
    mh_error err;
    if (mh_run_read(&run, path, NULL, NULL, &err) != MH_OK)
        return complain(&err);
    mh_verdict_init(&verdict);
    mh_status status = mh_run_judge(&verdict, run, &err);
    mh_run_close(run);
    if (status != MH_OK)
        return complain(&err);
    print_verdict(&verdict);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) {
        (void)fprintf(stderr, "usage: plan_and_judge PATH [GPUS]\n");
        return 2;
    }
    int failed = plan(argc == 3 ? atoi(argv[2]) : 0);
    return failed ? failed : judge(argv[1]);
}
