/* page.h - a report of runs: one page for a browser, its pictures as SVG
 * SPDX-License-Identifier: Apache-2.0
 *
 *     mh_page *page = NULL;
 *     mh_page_new(&page, 1, &err);
 *     mh_page_add(page, "run", NULL, NULL, &err);
 *     mh_page_write(page, "report.html", &err);
 *     mh_page_free(page);
 */
#ifndef MILLHEAD_PAGE_H
#define MILLHEAD_PAGE_H

#include <millhead/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A report being made. Opaque. One thread at a time. */
typedef struct mh_page mh_page;

/* An empty report that will hold about `runs` of them: the more, the fewer single events each may
 * show. The caller frees it. Errors: MH_ERR_NOMEM. */
MH_API MH_MUST_CHECK mh_status mh_page_new(mh_page **out, size_t runs, mh_error *err);

/* Adds a run directory, an events file, a log of Earthmover's, or a directory of `millhead bench`
 * with all of its configurations. Memory is bounded but for what mh_run_read needs, which is freed
 * again. Progress as mh_run_read. Errors: as mh_run_read; the report stays as it was. */
MH_API MH_MUST_CHECK mh_status mh_page_add(mh_page *page, const char *path,
                                           int (*progress)(void *, uint64_t, uint64_t),
                                           void *progress_arg, mh_error *err);

/* Writes the page: one file that asks for nothing else. A file that could not be finished is
 * removed. *out_bytes, when not NULL, is its size. Errors: MH_ERR_INVALID (no run was added),
 * MH_ERR_IO, MH_ERR_NOMEM. */
MH_API MH_MUST_CHECK mh_status mh_page_write(const mh_page *page, const char *path,
                                             uint64_t *out_bytes, mh_error *err);

/* Writes every picture as an SVG file into a directory, which is made if it is not there. `each` is
 * called with the path of each. Errors: as mh_page_write. */
MH_API MH_MUST_CHECK mh_status mh_page_write_svg(const mh_page *page, const char *directory,
                                                 void (*each)(void *argument, const char *path),
                                                 void *argument, mh_error *err);

/* The runs as one JSON array on one line: name, path, events, workers, cause, device_wait_share,
 * exact (whether every event is drawn by itself). On failure *out is untouched; freed with
 * mh_text_free. Errors: MH_ERR_NOMEM. */
MH_API MH_MUST_CHECK mh_status mh_page_json(char **out, const mh_page *page, mh_error *err);

MH_API void mh_page_free(mh_page *page); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif
