/* link.c - a simulated link from its text
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "base/parts.h"
#include "source/simulated.h"

#include <string.h>

static const mh_amount_unit rates[] = {
    {"GB/s", 1e9}, {"MB/s", 1e6}, {"kB/s", 1e3}, {"B/s", 1}, {NULL, 0}};

static mh_status take_part(void *context, char *part, mh_error *err)
{
    mh_link *link = context;
    double value;
    const char *equals = strchr(part, '=');
    size_t key = equals ? (size_t)(equals - part) : 0;
    if (key == 7 && !memcmp(part, "latency", 7) &&
        mh_amount_read(equals + 1, mh_times, 1e12, &value)) {
        link->latency_ns = (uint64_t)value;
        return MH_OK;
    }
    if (key == 9 && !memcmp(part, "bandwidth", 9) &&
        mh_amount_read(equals + 1, rates, 1e13, &value) && value >= 1) {
        link->bytes_per_second = (uint64_t)value;
        return MH_OK;
    }
    if (key == 6 && !memcmp(part, "errors", 6) &&
        mh_amount_read(equals + 1, mh_shares, 1, &value)) {
        link->error_rate = value;
        return MH_OK;
    }
    return mh_fail(err, MH_ERR_INVALID,
                   "'%s' is not part of a link: write latency=30ms,bandwidth=100MB/s,errors=0.1%%",
                   part);
}

mh_status mh_link_parse(mh_link *out, const char *text, mh_error *err)
{
    mh_link link = {0};
    MH_TRY(mh_parts_read(text, "a link", take_part, &link, err));
    *out = link;
    return MH_OK;
}
