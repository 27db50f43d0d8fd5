/* report.h - a run judged, and told: as JSON, as a trace, as a table
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MILLHEAD_REPORT_H
#define MILLHEAD_REPORT_H

#include <millhead/diagnose.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The verdict on a run's facts (mh_verdict_make), with warnings of what its files tell: bad lines,
 * an end that is missing, other loaders. *out and errors: as mh_verdict_make. One thread at a time
 * per run.
 */
MH_API MH_MUST_CHECK mh_status mh_run_judge(mh_verdict *out, const mh_run *run, mh_error *err);

/* A diagnosis as one JSON object on one line, without newline; the keys are those of
 * `millhead doctor --json`. On failure *out is untouched. The caller frees it with mh_text_free.
 * Errors: MH_ERR_INVALID, MH_ERR_NOMEM. Any thread. */
MH_API MH_MUST_CHECK mh_status mh_diagnosis_json(char **out, const mh_verdict *verdict,
                                                 const mh_facts *facts, const mh_wait_stats *waits,
                                                 uint64_t bad_lines, double setup_s, mh_error *err);
MH_API void mh_text_free(char *text); /* NULL is allowed */

/* "inside", "outside" or "log"; never NULL, any value accepted. Any thread. */
MH_API const char *mh_vantage_name(mh_vantage vantage);

/* Writes the events of a run directory, events file or log in the Trace Event Format of Chromium,
 * which Perfetto reads too: a row per worker, rows of the consumer, counters for memory and CPUs.
 * Memory does not grow with the run. *out_events, when not NULL, is how many were written. On
 * failure no file is left. Progress and errors: as mh_run_read; MH_ERR_IO for the output. */
MH_API MH_MUST_CHECK mh_status mh_export_trace(const char *path, const char *out_path,
                                               uint64_t *out_events,
                                               int (*progress)(void *, uint64_t, uint64_t),
                                               void *progress_arg, mh_error *err);

/* Writes a line per epoch and one for the whole run as comma separated values, under a line of
 * names. Errors: MH_ERR_IO. */
MH_API MH_MUST_CHECK mh_status mh_export_csv(const mh_run *run, const char *out_path,
                                             mh_error *err);

#ifdef __cplusplus
}
#endif
#endif
