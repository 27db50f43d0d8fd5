/* fuzz_verdict.c - fuzz target: a verdict on any facts, with any numbers in them
 * SPDX-License-Identifier: Apache-2.0
 */
#include "../unit/planted.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The next bytes into a field; zeros where there are no more. */
static void take(void *field, size_t length, const uint8_t **data, size_t *size)
{
    size_t taken = length < *size ? length : *size;
    memset(field, 0, length);
    if (taken)
        memcpy(field, *data, taken);
    *data += taken;
    *size -= taken;
}

#define TAKE(field) take(&(field), sizeof(field), &data, &size)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mh_facts facts = {PLANTED_SIZES, .kind = "torch", .start = "fork"};
    int16_t settings[4]; /* small numbers are what a loader has */
    mh_rank_cost ranks[3];
    TAKE(settings);
    facts.workers = settings[0];
    facts.prefetch = settings[1];
    facts.cpus = settings[2];
    facts.in_order = settings[3] & 1;
    facts.persistent = settings[3] >> 1 & 1;
    facts.vantage = (mh_vantage)((settings[3] >> 2 & 3) % 3);
    TAKE(facts.setup_ns);
    TAKE(facts.probes);
    TAKE(facts.probes_native);
    TAKE(facts.samples_slow);
    TAKE(facts.samples_timed);
    TAKE(facts.usage);
    TAKE(ranks);
    for (size_t at = 0; at < 3; at++)
        strcpy(ranks[at].host, "node"); /* or a host called "nan" would look like a number */
    facts.ranks = ranks;
    facts.rank_count = (size_t)(settings[3] >> 4 & 3);

    facts.batch_count = size / sizeof(mh_batch_cost);
    mh_batch_cost *batches = calloc(facts.batch_count + 1, sizeof *batches);
    if (!batches)
        return 0;
    if (facts.batch_count)
        memcpy(batches, data, facts.batch_count * sizeof *batches);
    facts.batches = batches;

    mh_verdict verdict;
    mh_error err;
    mh_verdict_init(&verdict);
    if (mh_verdict_make(&verdict, &facts, &err) != MH_OK)
        abort(); /* whatever the numbers, there is a verdict */
    const char *wrong = planted_wrong_with(&verdict);
    if (wrong) {
        (void)fprintf(stderr, "%s\n", wrong);
        abort();
    }
    free(batches);
    return 0;
}
