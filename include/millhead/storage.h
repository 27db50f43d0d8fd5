/* storage.h - data near and far: caches on local disk, copies of data sets
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_STORAGE_H
#define MILLHEAD_STORAGE_H

#include <millhead/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- the directory of a cache (cache="DIR:50GB") --- */

typedef enum mh_cache_job {
    MH_CACHE_COUNT,  /* look at sizes only */
    MH_CACHE_VERIFY, /* read all, remove what is corrupt */
    MH_CACHE_PRUNE,  /* remove the data sets opened longest ago until `limit` holds */
    MH_CACHE_CLEAR,  /* remove all entries */
    MH_CACHE_JOBS
} mh_cache_job;

typedef struct mh_cache_totals {
    size_t struct_size;
    uint64_t entries, bytes;   /* that are there now */
    uint64_t corrupt, removed; /* entries */
    uint64_t spaces;           /* data sets */
} mh_cache_totals;

MH_API void mh_cache_totals_init_sized(mh_cache_totals *totals, size_t size);
static inline void mh_cache_totals_init(mh_cache_totals *totals)
{
    mh_cache_totals_init_sized(totals, sizeof *totals);
}

/* Does a job over a cache, which processes may go on using: what they use is not removed. `each`
 * is called with every data set (its name without secrets, entries, bytes); or NULL. Errors:
 * MH_ERR_NOT_FOUND, MH_ERR_INVALID (not yours, on a network file system), MH_ERR_IO. Any thread. */
typedef void mh_cache_each(void *argument, const char *name, uint64_t entries, uint64_t bytes);
MH_API MH_MUST_CHECK mh_status mh_cache_tend(const char *directory, mh_cache_job job,
                                             uint64_t limit, mh_cache_each *each, void *argument,
                                             mh_cache_totals *out, mh_error *err);

/* --- a copy on local disk --- */

typedef struct mh_stage_options {
    size_t struct_size;
    const char *storage; /* of URLs: "endpoint_url=...,..."; or NULL */
    uint32_t in_flight;  /* reads at a time; 0: 16 */
    /* Called now and then with the share that is there, from 0 to 1; other than 0 stops it with
     * MH_ERR_CLOSED. Or NULL. */
    int (*progress)(void *argument, double share);
    void *progress_arg;
} mh_stage_options;

MH_API void mh_stage_options_init_sized(mh_stage_options *options, size_t size);
static inline void mh_stage_options_init(mh_stage_options *options)
{
    mh_stage_options_init_sized(options, sizeof *options);
}

typedef struct mh_stage_report {
    size_t struct_size;
    uint64_t files, bytes;         /* of the data */
    uint64_t copied, copied_bytes; /* this time */
    uint64_t skipped;              /* files that were there */
} mh_stage_report;

MH_API void mh_stage_report_init_sized(mh_stage_report *report, size_t size);
static inline void mh_stage_report_init(mh_stage_report *report)
{
    mh_stage_report_init_sized(report, sizeof *report);
}

/* Copies a file or what lies below a directory or prefix into the directory `to`, which is made.
 * Files that are there in the same version stay; one that is not whole never has its name. One
 * process of a machine copies at a time, others wait and then find all of it. Errors name the file:
 * MH_ERR_NOT_FOUND, MH_ERR_IO (also: no space, with both figures), MH_ERR_INVALID (names that lead
 * out of `to`), MH_ERR_NOMEM, MH_ERR_CLOSED. */
MH_API MH_MUST_CHECK mh_status mh_stage(const char *from, const char *to,
                                        const mh_stage_options *options, mh_stage_report *out,
                                        mh_error *err);

#ifdef __cplusplus
}
#endif
#endif
