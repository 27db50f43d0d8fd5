/* simulated.h - a slow link in front of any source: latency, bandwidth, errors
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_SOURCE_SIMULATED_H
#define MH_SOURCE_SIMULATED_H

#include "source/source.h"

typedef struct mh_link {
    uint64_t latency_ns;       /* from a read's begin to its first byte */
    uint64_t bytes_per_second; /* of one read; 0: no limit */
    double error_rate;         /* share of reads that fail, from 0 to 1 */
} mh_link;

/* "latency=30ms,bandwidth=100MB/s,errors=0.1%", each part optional. Pure. Errors: MH_ERR_INVALID
 * with the part that is wrong. */
MH_MUST_CHECK mh_status mh_link_parse(mh_link *out, const char *text, mh_error *err);

/* A source that gives what `inner` gives, later: at most in_flight reads at a time, each taking
 * latency + size / bandwidth. Which reads fail follows from object and offset alone. Takes `inner`
 * over; on failure it stays the caller's. MH_ERR_NOMEM. */
MH_MUST_CHECK mh_status mh_source_simulate(mh_source **out, mh_source *inner, const mh_link *link,
                                           uint32_t in_flight, mh_error *err);

#endif
