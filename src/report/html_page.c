/* html_page.c - the report: runs added, the page written
 * SPDX-License-Identifier: Apache-2.0
 */
#include "report/html_page.h"

#include "base/alloc.h"
#include "base/error.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Single events that the page shows, of workers and of the loop each; about 12 bytes apiece. */
#define SPANS_MOST ((size_t)150000)
#define SPANS_LEAST ((size_t)4000) /* of a run, however many there are */

mh_status mh_page_new(mh_page **out, size_t runs, mh_error *err)
{
    mh_page *page = mh_calloc(1, sizeof *page);
    if (!page)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a report");
    page->spans = SPANS_MOST / (runs ? runs : 1);
    page->spans = page->spans > SPANS_LEAST ? page->spans : SPANS_LEAST;
    *out = page;
    return MH_OK;
}

void mh_page_free(mh_page *page)
{
    if (!page)
        return;
    for (size_t at = 0; at < page->count; at++)
        mh_chapter_free(page->chapters[at]);
    mh_free(page->chapters);
    mh_free(page->compared.items);
    mh_free(page->recommended);
    mh_free(page);
}

/* --- adding --- */

typedef struct adding {
    mh_page *page;
    size_t spans;
    int (*progress)(void *, uint64_t, uint64_t);
    void *progress_argument;
} adding;

static void chapter_rename(mh_page *page, mh_chapter *chapter, const char *name)
{
    for (size_t at = 0; at < page->compared.count; at++)
        if (strcmp(page->compared.items[at].name, chapter->name) == 0)
            (void)snprintf(page->compared.items[at].name, MH_CHAPTER_NAME, "%s", name);
    (void)snprintf(chapter->name, sizeof chapter->name, "%s", name);
}

/* "before/run" and "after/run": of runs whose directories are named alike, the one above as well.
 */
static void names_lengthen(mh_page *page, mh_chapter *chapter)
{
    char plain[MH_CHAPTER_NAME], mine[MH_CHAPTER_NAME], other[MH_CHAPTER_NAME];
    mh_chapter_name(mine, chapter->path, 2);
    (void)snprintf(plain, sizeof plain, "%s", chapter->name);
    for (size_t at = 0; at < page->count; at++) {
        mh_chapter_name(other, page->chapters[at]->path, 1);
        if (strcmp(other, plain) != 0)
            continue;
        mh_chapter_name(other, page->chapters[at]->path, 2);
        if (strcmp(other, mine) == 0)
            continue;
        if (!page->chapters[at]->named && strcmp(page->chapters[at]->name, plain) == 0)
            chapter_rename(page, page->chapters[at], other);
        (void)snprintf(chapter->name, sizeof chapter->name, "%s", mine);
    }
}

/* Two runs of one name: the second gets a number. */
static void name_make_single(const mh_page *page, char *name)
{
    char plain[MH_CHAPTER_NAME - 16];
    unsigned number = 1;
    (void)snprintf(plain, sizeof plain, "%.*s", (int)sizeof plain - 1, name);
    for (size_t at = 0; at < page->count; at++)
        if (strcmp(page->chapters[at]->name, name) == 0) {
            (void)snprintf(name, MH_CHAPTER_NAME, "%s (%u)", plain, ++number);
            at = (size_t)-1; /* the new one may be there too */
        }
}

static mh_status run_add(void *argument, const char *path, const char *name, mh_error *err)
{
    adding *a = argument;
    mh_chapter *chapter = NULL;
    void *items = a->page->chapters;
    if (!mh_array_reserve(&items, &a->page->room, a->page->count, sizeof(mh_chapter *)))
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a run");
    a->page->chapters = items;
    MH_TRY(mh_chapter_read(&chapter, path, a->spans, a->progress, a->progress_argument, err));
    chapter->named = name != NULL;
    if (name)
        (void)snprintf(chapter->name, sizeof chapter->name, "%s", name);
    else
        names_lengthen(a->page, chapter);
    name_make_single(a->page, chapter->name);
    a->page->chapters[a->page->count++] = chapter;
    return MH_OK;
}

/* One run among others, as bench would have measured it. */
static mh_status compared_add(mh_page *page, mh_error *err)
{
    const mh_chapter *chapter = page->chapters[page->count - 1];
    void *items = page->compared.items;
    if (!mh_array_reserve(&items, &page->compared.room, page->compared.count,
                          sizeof *page->compared.items))
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a run");
    page->compared.items = items;
    mh_compared *to = &page->compared.items[page->compared.count++];
    *to = (mh_compared){
        .rate = chapter->rate.mean,
        .rate_std = chapter->rate.std,
        .total = (double)chapter->facts.run_ns / 1e9,
        .total_std = NAN,
        .wait_mean = chapter->waits.mean,
        .wait_p99 = chapter->waits.p99,
    };
    (void)snprintf(to->name, sizeof to->name, "%s", chapter->name);
    (void)snprintf(to->cause, sizeof to->cause, "%s", mh_cause_name(chapter->verdict.cause));
    return MH_OK;
}

/* Takes back what was added since there were so many. */
static void page_shrink(mh_page *page, size_t count, size_t compared)
{
    while (page->count > count)
        mh_chapter_free(page->chapters[--page->count]);
    page->compared.count = compared;
}

static bool is_bench(const char *path)
{
    char file[PATH_MAX];
    if ((size_t)snprintf(file, sizeof file, "%s/bench.json", path) >= sizeof file ||
        access(file, F_OK) != 0)
        return false;
    return (size_t)snprintf(file, sizeof file, "%s/events.jsonl", path) < sizeof file &&
           access(file, F_OK) != 0;
}

mh_status mh_page_add(mh_page *page, const char *path, int (*progress)(void *, uint64_t, uint64_t),
                      void *progress_arg, mh_error *err)
{
    if (!page || !path)
        return mh_fail(err, MH_ERR_INVALID, "a report needs a run");
    adding a = {page, page->spans, progress, progress_arg};
    size_t count = page->count, compared = page->compared.count;
    mh_status status;
    if (is_bench(path)) {
        a.spans = page->spans / 8 > SPANS_LEAST ? page->spans / 8 : SPANS_LEAST;
        status = mh_bench_read(page, path, run_add, &a, err);
        if (status == MH_OK && page->count == count)
            status = mh_fail(err, MH_ERR_CORRUPT, "no configuration in %s has a run", path);
        page->from_bench |= status == MH_OK;
    } else {
        status = run_add(&a, path, NULL, err);
        if (status == MH_OK)
            status = compared_add(page, err);
    }
    if (status != MH_OK)
        page_shrink(page, count, compared);
    return status;
}

/* --- writing --- */

static mh_status page_put(const mh_page *page, FILE *file, mh_error *err)
{
    mh_jsonout json;
    mh_status status = MH_OK;
    if (fwrite(mh_page_head, 1, mh_page_head_size, file) != mh_page_head_size)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write");
    mh_jsonout_init(&json, file);
    json.html = true;
    mh_page_data(&json, page);
    status = mh_jsonout_finish(&json, err);
    mh_jsonout_deinit(&json);
    if (status == MH_OK &&
        (fwrite(mh_page_tail, 1, mh_page_tail_size, file) != mh_page_tail_size || fflush(file)))
        status = mh_fail_sys(err, MH_ERR_IO, errno, "cannot write");
    return status;
}

mh_status mh_page_write(const mh_page *page, const char *path, uint64_t *out_bytes, mh_error *err)
{
    struct stat about;
    if (!page || !path || !page->count)
        return mh_fail(err, MH_ERR_INVALID, "a report needs a run and a file to write");
    FILE *file = fopen(path, "we");
    if (!file)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot write %s", path);
    mh_status status = page_put(page, file, err);
    if (status != MH_OK && err)
        mh_error_prefix(err, "%s", path);
    if (status == MH_OK && out_bytes)
        *out_bytes = fstat(fileno(file), &about) == 0 ? (uint64_t)about.st_size : 0;
    if (fclose(file) != 0 && status == MH_OK)
        status = mh_fail_sys(err, MH_ERR_IO, errno, "cannot write %s", path);
    /* half a page would show nothing; a device or pipe stays */
    if (status != MH_OK && stat(path, &about) == 0 && S_ISREG(about.st_mode))
        (void)unlink(path);
    return status;
}

mh_status mh_page_write_svg(const mh_page *page, const char *directory,
                            void (*each)(void *argument, const char *path), void *argument,
                            mh_error *err)
{
    if (!page || !directory || !page->count)
        return mh_fail(err, MH_ERR_INVALID, "pictures need a run and a directory");
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        return mh_fail_sys(err, MH_ERR_IO, errno, "cannot make the directory %s", directory);
    return mh_page_pictures(page, directory, each, argument, err);
}

mh_status mh_page_json(char **out, const mh_page *page, mh_error *err)
{
    mh_jsonout json;
    mh_jsonout_init(&json, NULL);
    mh_jsonout_array(&json);
    for (size_t at = 0; at < page->count; at++) {
        const mh_chapter *chapter = page->chapters[at];
        mh_jsonout_object(&json);
        mh_jsonout_key(&json, "name");
        mh_jsonout_string(&json, chapter->name);
        mh_jsonout_key(&json, "path");
        mh_jsonout_string(&json, chapter->path);
        mh_jsonout_key(&json, "events");
        mh_jsonout_uint(&json, chapter->events);
        mh_jsonout_key(&json, "workers");
        mh_jsonout_uint(&json, mh_chapter_rows(chapter));
        mh_jsonout_key(&json, "cause");
        mh_jsonout_string(&json, mh_cause_name(chapter->verdict.cause));
        mh_jsonout_key(&json, "device_wait_share");
        mh_jsonout_double(&json, chapter->verdict.device_wait_share);
        mh_jsonout_key(&json, "exact");
        mh_jsonout_bool(&json, chapter->timeline.work.until == UINT64_MAX &&
                                   chapter->timeline.loop.until == UINT64_MAX);
        mh_jsonout_object_end(&json);
    }
    mh_jsonout_array_end(&json);
    mh_status status = mh_jsonout_finish(&json, err);
    if (status == MH_OK) {
        *out = json.text;
        json.text = NULL;
    }
    mh_jsonout_deinit(&json);
    return status;
}
