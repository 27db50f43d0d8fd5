/* choice.h - which samples of a dataset an epoch is made of: all, a subset, or draws by weight
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_ORDER_CHOICE_H
#define MH_ORDER_CHOICE_H

#include <millhead/error.h>
#include <stdbool.h>

/* Read-only between init and deinit: any number of threads. */
typedef struct mh_choice {
    uint64_t count;    /* samples of an epoch */
    uint64_t *numbers; /* the dataset's numbers of a subset's samples; NULL: all samples */
    double *sums;      /* of the weights up to each sample; NULL: each sample once */
    uint64_t drawer;   /* whose draws choose among weights */
} mh_choice;

/* `subset`: numbers below dataset_count; NULL: all. `weights`: one for each sample of the subset,
 * not all 0; an epoch is as many draws as there are samples, with replacement. NULL: no draws. Both
 * are copied. End it with mh_choice_deinit; *out is all zero on failure. Errors: MH_ERR_INVALID
 * (with the number or weight), MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_choice_init(mh_choice *out, uint64_t dataset_count,
                                       const uint64_t *subset, uint64_t subset_count,
                                       const double *weights, uint64_t weight_count, mh_error *err);

/* All zero is allowed. */
void mh_choice_deinit(mh_choice *choice);

static inline bool mh_choice_draws(const mh_choice *choice)
{
    return choice->sums != NULL;
}

/* What is at `place` is sample number `place`. */
static inline bool mh_choice_is_all(const mh_choice *choice)
{
    return !choice->numbers && !choice->sums;
}

/* The dataset's number of what is at `place` of an epoch, which is below the count. Where weights
 * choose it follows from seed, epoch, place and `draw`: 0, or others for what stands in for it. */
uint64_t mh_choice_at(const mh_choice *choice, uint64_t seed, uint64_t epoch, uint64_t place,
                      uint32_t draw);

#endif
