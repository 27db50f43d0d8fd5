/* synthetic_text.c - synthetic data from its text
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "base/parts.h"
#include "format/synthetic.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MOST (UINT64_C(1) << 40)
#define CHUNK_MOST (UINT64_C(1) << 24)
#define SPAN_MOST 64
#define BURN_MOST 1e10 /* ns */

static bool whole(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    if (*text < '0' || *text > '9')
        return false;
    *out = strtoull(text, &end, 10);
    return !*end && !errno && *out >= least && *out <= most;
}

static bool take_shape(mh_field *field, const char *text)
{
    const long long longest = 1LL << 40;
    for (field->dims = 0; field->dims < MH_DIMS_MOST; text++) {
        char *end;
        if (*text < '0' || *text > '9')
            return false;
        long long length = strtoll(text, &end, 10);
        if (length < 1 || length > longest)
            return false;
        field->shape[field->dims++] = length;
        if (!*end)
            return true;
        if (*end != 'x')
            return false;
        text = end;
    }
    return false;
}

static bool take_dtype(mh_dtype *out, const char *name)
{
    static const struct {
        const char *name;
        mh_dtype dtype;
    } known[] = {{"uint8", {1, 8}},   {"int16", {0, 16}},   {"int32", {0, 32}},
                 {"int64", {0, 64}},  {"float16", {2, 16}}, {"float32", {2, 32}},
                 {"float64", {2, 64}}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i].dtype;
            return true;
        }
    return false;
}

static bool take_value(mh_synthetic *out, const char *key, const char *value)
{
    uint64_t number;
    double amount;
    if (strcmp(key, "count") == 0)
        return whole(value, 0, COUNT_MOST, &out->count);
    if (strcmp(key, "shape") == 0)
        return take_shape(&out->x, value);
    if (strcmp(key, "dtype") == 0)
        return take_dtype(&out->x.dtype, value);
    if (strcmp(key, "chunk") == 0)
        return whole(value, 1, CHUNK_MOST, &out->chunk);
    if (strcmp(key, "seed") == 0)
        return whole(value, 0, UINT64_MAX, &out->seed);
    if (strcmp(key, "span") == 0 && whole(value, 1, SPAN_MOST, &number)) {
        out->span = (uint32_t)number;
        return true;
    }
    if (strcmp(key, "burn") == 0 && mh_amount_read(value, mh_times, BURN_MOST, &amount)) {
        out->burn_ns = (uint64_t)amount;
        return true;
    }
    return strcmp(key, "broken") == 0 && mh_amount_read(value, mh_shares, 1, &out->broken);
}

static mh_status take_part(void *context, char *part, mh_error *err)
{
    mh_synthetic *out = context;
    char *equals = strchr(part, '=');
    if (strcmp(part, "ragged") == 0) {
        out->x.ragged = 1;
        return MH_OK;
    }
    if (equals) {
        *equals = '\0';
        if (take_value(out, part, equals + 1))
            return MH_OK;
        *equals = '=';
    }
    return mh_fail(err, MH_ERR_INVALID,
                   "'%s' is not part of synthetic data: write count=1000,shape=16x16,dtype=float32,"
                   "chunk=8,span=2,ragged,burn=100us,broken=1%%,seed=3",
                   part);
}

mh_status mh_synthetic_parse(mh_synthetic *out, const char *text, mh_error *err)
{
    mh_synthetic made = {.count = UINT64_MAX,
                         .x = {.dtype = {1, 8}, .dims = 1, .shape = {64}},
                         .chunk = 1,
                         .span = 1};
    MH_TRY(mh_parts_read(text, "synthetic data", take_part, &made, err));
    if (made.count == UINT64_MAX)
        return mh_fail(err, MH_ERR_INVALID, "synthetic data needs count=, its number of samples");
    *out = made;
    return MH_OK;
}
