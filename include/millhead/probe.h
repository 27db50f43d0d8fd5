/* probe.h - what this machine gives: memory, page cache, storage, network, the way to a device
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_PROBE_H
#define MILLHEAD_PROBE_H

#include <millhead/error.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MH_PROBE_TIERS 6

/* One place data comes from. */
typedef struct mh_probe_tier {
    char name[24];     /* "memory copy", "page cache", "disk sequential", "disk random", "host to
                          device"; "network ..." in place of disk on a network mount and
                          for a URL */
    double mb_per_s;   /* 10^6 bytes a second; negative: not measured */
    double latency_us; /* of one request, mean; negative: not measured */
    char how[200];     /* what was done, or why nothing could be */
} mh_probe_tier;

typedef struct mh_probe_options {
    size_t struct_size; /* set by mh_probe_options_init */
    const char *path;   /* a directory, a file, or a URL */
    uint64_t bytes;     /* how much of a file is used, at most */
    double seconds;     /* for all of it, about */
    int read_only;      /* 1: write nothing, read a file that is there */
    /* Told, when not NULL, what is measured and the share done, now and then; a non-zero answer
     * stops with MH_ERR_CLOSED. */
    int (*progress)(void *, const char *what, double share);
    void *progress_arg;
    const char *storage; /* of a URL: "endpoint_url=...", as of a dataset; or NULL */
} mh_probe_options;

typedef struct mh_probe {
    mh_probe_tier tiers[MH_PROBE_TIERS];
    size_t tier_count;
    char file[512];    /* what was read: a file, "a temporary file in DIRECTORY", or where redirects
                          of a URL led, without user, password and query */
    uint64_t bytes;    /* of it were used */
    char network[200]; /* "nfs4 at /data" where the path lies on such a mount, "https at HOST" for
                          a URL; else empty */
    uint32_t in_flight; /* of a URL: the requests at a time beyond which more won nothing; 0: not
                           measured */
} mh_probe;

/* Fills *options with defaults: the current directory, 256 MiB, 8 seconds. Any thread. */
MH_API void mh_probe_options_init_sized(mh_probe_options *options, size_t struct_size);
static inline void mh_probe_options_init(mh_probe_options *options)
{
    mh_probe_options_init_sized(options, sizeof *options);
}

/* Whether a path would be read as a URL: SCHEME://... Any thread. */
MH_API int mh_probe_is_url(const char *path);

/* Measures. In a directory it writes a temporary file that has no name, so that nothing stays
 * behind whatever happens; where it may not write, or with read_only, it reads the largest of the
 * files found there. A file is only read. Reads of storage pass by the page cache (O_DIRECT), or
 * drop it first. Of the file behind a URL ranges are read, large ones in order and small ones
 * anywhere, over one connection, then parts with 1 to 256 requests at a time; where the server
 * gives no ranges, the file from its start, at most `bytes` of it. On failure *out is untouched.
 * Errors: MH_ERR_NOT_FOUND (no such path, or no file to read), MH_ERR_IO (not readable; with
 * sys_errno ENOSPC: not enough room, both figures in the message), MH_ERR_TIMEOUT (a server that
 * is silent for 10 seconds), MH_ERR_UNSUPPORTED (a URL that no source reads; with sys_errno ENOPKG:
 * libcurl is not installed, ELIBACC: libmillhead-net.so is not, ENOSYS: the library was built
 * without libcurl), MH_ERR_INVALID, MH_ERR_NOMEM, MH_ERR_CLOSED. One thread at a time. */
MH_API MH_MUST_CHECK mh_status mh_probe_run(mh_probe *out, const mh_probe_options *options,
                                            mh_error *err);

/* Reads a file that holds what `millhead probe --json` printed; keys it does not know are passed
 * over. On failure *out is untouched. Errors: MH_ERR_NOT_FOUND, MH_ERR_IO, MH_ERR_CORRUPT (it
 * holds something else), MH_ERR_INVALID. Any thread. */
MH_API MH_MUST_CHECK mh_status mh_probe_read(mh_probe *out, const char *path, mh_error *err);

/* The first tier with that in its name ("sequential"); NULL: none. The probe's memory. */
MH_API const mh_probe_tier *mh_probe_tier_find(const mh_probe *probe, const char *part);

#ifdef __cplusplus
}
#endif
#endif
