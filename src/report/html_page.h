/* html_page.h - the report inside: its chapters, and what its parts share
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_REPORT_HTML_PAGE_H
#define MH_REPORT_HTML_PAGE_H

#include "base/jsonout.h"
#include "report/run_chapter.h"
#include <millhead/page.h>

/* A configuration as the comparison shows it. Seconds; NAN: not known. */
typedef struct mh_compared {
    char name[MH_CHAPTER_NAME];
    char cause[24];
    double rate, rate_std; /* samples a second */
    double total, total_std;
    double wait_mean, wait_p99;
} mh_compared;

typedef struct mh_compared_list {
    mh_compared *items;
    size_t count, room;
} mh_compared_list;

struct mh_page {
    size_t spans; /* each run may keep */
    mh_chapter **chapters;
    size_t count, room;
    mh_compared_list compared; /* what bench measured; else one for each chapter */
    bool from_bench;           /* it is: error bars are of repeats */
    char *recommended;         /* bench's, as JSON; NULL: none */
};

/* --- files.c: what lies beside the events --- */

/* A whole file of at most 4 MiB, to be freed; NULL: none such, or no memory. */
char *mh_page_file(const char *directory, const char *name, size_t *size);

/* Writes a JSON text as a value; null where it is none. */
void mh_page_copy(mh_jsonout *out, const char *text, size_t size);

/* Reads bench.json into the comparison. `run` is called with the directory of each configuration
 * that has one, until it fails. MH_ERR_CORRUPT, MH_ERR_NOMEM. */
typedef mh_status (*mh_bench_run_fn)(void *argument, const char *directory, const char *name,
                                     mh_error *err);
MH_MUST_CHECK mh_status mh_bench_read(mh_page *page, const char *directory, mh_bench_run_fn run,
                                      void *argument, mh_error *err);

/* Writes members "parameters", "environment" and "argv" of a run into the object that is open:
 * from run.json, or of Earthmover's log from the `locals` of its first lines. */
void mh_page_settings(mh_jsonout *out, const char *path);

/* Calls `each` for every parameter that is set, as texts. */
typedef void (*mh_setting_fn)(void *argument, const char *key, const char *value);
void mh_page_each_setting(const char *path, mh_setting_fn each, void *argument);

/* --- data.c: the page's data --- */

/* Whether a lane belongs to the run of the chapter. */
bool mh_lane_drawn(const mh_chapter *chapter, const mh_lane *lane);
/* Worker rows of a chapter: as many as there are workers, or as were seen. */
size_t mh_chapter_rows(const mh_chapter *chapter);
void mh_page_data(mh_jsonout *out, const mh_page *page);

/* --- pictures.c --- */

MH_MUST_CHECK mh_status mh_page_pictures(const mh_page *page, const char *directory,
                                         void (*each)(void *argument, const char *path),
                                         void *argument, mh_error *err);

/* --- made from web/ when millhead is built: the page before and after its data --- */

extern const unsigned char mh_page_head[], mh_page_tail[];
extern const size_t mh_page_head_size, mh_page_tail_size;

#endif
