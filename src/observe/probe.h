/* probe.h - the parts of a probe
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_OBSERVE_PROBE_H
#define MH_OBSERVE_PROBE_H

#include <millhead/probe.h>
#include <stdbool.h>

/* A file to read from. */
typedef struct mh_probe_file {
    int fd;
    uint64_t bytes; /* whole pages of it that are used */
    bool in_memory; /* tmpfs: there is no storage behind it */
} mh_probe_file;

#define MH_PROBE_PIECE ((size_t)1 << 20) /* of a sequential read */
#define MH_PROBE_PAGE ((size_t)4096)     /* of a random one */

/* Makes or finds the file of a probe, and says which in out->file and out->network. `buffer` has
 * MH_PROBE_PIECE bytes; writing stops after `seconds`. */
MH_MUST_CHECK mh_status mh_probe_file_open(mh_probe_file *file, mh_probe *out,
                                           const mh_probe_options *options, void *buffer,
                                           double seconds, mh_error *err);

/* Reads from the http(s) address that is the path for `seconds`: adds the tiers "network
 * sequential" and "network random", and says what was read in out->file, bytes and network.
 * Progress is told from `done` on. */
MH_MUST_CHECK mh_status mh_probe_url(mh_probe *out, const mh_probe_options *options, double seconds,
                                     double done, mh_error *err);

/* Reads from the URL that is the path with more and more requests under way, as loaders do: adds
 * the tier "network requests" and sets out->in_flight; with `all` the two of mh_probe_url before
 * it. */
MH_MUST_CHECK mh_status mh_probe_requests(mh_probe *out, const mh_probe_options *options, bool all,
                                          double seconds, double done, mh_error *err);

/* A new tier with nothing measured yet. */
mh_probe_tier *mh_probe_add_tier(mh_probe *out, const char *name);

/* Copies to the first device for `seconds`, if there is one. Never fails: the tier says why not. */
void mh_probe_device(mh_probe_tier *tier, double seconds);

#endif
