/* link.c - a simulated link from its text
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/error.h"
#include "source/simulated.h"

#include <stdlib.h>
#include <string.h>

#define PART_MOST 64

typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit times[] = {{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {NULL, 0}};
static const unit rates[] = {{"GB/s", 1e9}, {"MB/s", 1e6}, {"kB/s", 1e3}, {"B/s", 1}, {NULL, 0}};
static const unit shares[] = {{"%", 0.01}, {"", 1}, {NULL, 0}};

/* A number and one of the units; 0 when it is anything else. */
static int measured(const char *text, const unit *units, double most, double *out)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || !(number >= 0))
        return 0;
    for (; units->name; units++)
        if (strcmp(end, units->name) == 0) {
            *out = number * units->factor;
            return *out <= most;
        }
    return 0;
}

static mh_status take_part(mh_link *link, const char *part, mh_error *err)
{
    double value;
    const char *equals = strchr(part, '=');
    size_t key = equals ? (size_t)(equals - part) : 0;
    if (key == 7 && !memcmp(part, "latency", 7) && measured(equals + 1, times, 1e12, &value)) {
        link->latency_ns = (uint64_t)value;
        return MH_OK;
    }
    if (key == 9 && !memcmp(part, "bandwidth", 9) && measured(equals + 1, rates, 1e13, &value) &&
        value >= 1) {
        link->bytes_per_second = (uint64_t)value;
        return MH_OK;
    }
    if (key == 6 && !memcmp(part, "errors", 6) && measured(equals + 1, shares, 1, &value)) {
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
    while (*text) {
        char part[PART_MOST];
        size_t length = strcspn(text, ",");
        if (length >= sizeof part)
            return mh_fail(err, MH_ERR_INVALID, "a part of a link has over %d characters",
                           PART_MOST - 1);
        memcpy(part, text, length);
        part[length] = '\0';
        MH_TRY(take_part(&link, part, err));
        text += length + (text[length] == ',');
    }
    *out = link;
    return MH_OK;
}
