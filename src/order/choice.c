/* choice.c - all samples, a subset, or draws by weight
 * SPDX-License-Identifier: Apache-2.0
 */
#include "order/choice.h"

#include "base/alloc.h"
#include "base/draws.h"
#include "base/error.h"

#include <math.h>

static mh_status take_subset(mh_choice *self, uint64_t dataset_count, const uint64_t *subset,
                             uint64_t count, mh_error *err)
{
    if (count == 0)
        return mh_fail(err, MH_ERR_INVALID, "the subset has no samples");
    self->numbers = mh_calloc(count, sizeof *self->numbers);
    if (!self->numbers)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a subset of %llu samples",
                       (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        if (subset[i] >= dataset_count)
            return mh_fail(err, MH_ERR_INVALID, "the subset has number %llu, and there are %llu",
                           (unsigned long long)subset[i], (unsigned long long)dataset_count);
        self->numbers[i] = subset[i];
    }
    self->count = count;
    return MH_OK;
}

static mh_status take_weights(mh_choice *self, const double *weights, uint64_t count, mh_error *err)
{
    double sum = 0;
    if (count != self->count)
        return mh_fail(err, MH_ERR_INVALID, "%llu weights for %llu samples",
                       (unsigned long long)count, (unsigned long long)self->count);
    self->sums = mh_calloc(count, sizeof *self->sums);
    if (!self->sums)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %llu weights", (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        if (!isfinite(weights[i]) || weights[i] < 0)
            return mh_fail(err, MH_ERR_INVALID, "weight %llu is %g", (unsigned long long)i,
                           weights[i]);
        self->sums[i] = sum += weights[i];
    }
    if (!isfinite(sum) || !(sum > 0))
        return mh_fail(err, MH_ERR_INVALID, "the weights add up to %g", sum);
    self->drawer = mh_drawer_name("weights", 0);
    return MH_OK;
}

mh_status mh_choice_init(mh_choice *out, uint64_t dataset_count, const uint64_t *subset,
                         uint64_t subset_count, const double *weights, uint64_t weight_count,
                         mh_error *err)
{
    *out = (mh_choice){.count = dataset_count};
    mh_status status = MH_OK;
    if (subset)
        status = take_subset(out, dataset_count, subset, subset_count, err);
    if (status == MH_OK && weights)
        status = take_weights(out, weights, weight_count, err);
    if (status != MH_OK)
        mh_choice_deinit(out);
    return status;
}

void mh_choice_deinit(mh_choice *self)
{
    mh_free(self->numbers);
    mh_free(self->sums);
    *self = (mh_choice){0};
}

/* The first place whose sum is above `drawn`. The total never is where rounding reached it: then
 * the last place that has any weight. */
static uint64_t place_of(const mh_choice *self, double drawn)
{
    const double total = self->sums[self->count - 1];
    uint64_t low = 0, high = self->count - 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (self->sums[middle] > drawn || self->sums[middle] == total)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

uint64_t mh_choice_at(const mh_choice *self, uint64_t seed, uint64_t epoch, uint64_t place,
                      uint32_t draw)
{
    if (self->sums) {
        const mh_drawer drawer = mh_drawer_of(seed, epoch, place, self->drawer);
        place = place_of(self, mh_draw_unit(&drawer, draw) * self->sums[self->count - 1]);
    }
    return self->numbers ? self->numbers[place] : place;
}
