/* run_files.c - what lies beside the events: run.json, bench.json, the parameters in a log
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/error.h"
#include "report/html_page.h"
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MOST ((size_t)4 << 20)
#define HEAD_MOST ((size_t)256 << 10) /* of a log, where its parameters are looked for */

/* At most `most` bytes of a file; NULL: none, or no memory. */
static char *file_read(const char *path, size_t most, bool whole, size_t *size)
{
    FILE *file = fopen(path, "re");
    char *text = file ? mh_calloc(most + 1, 1) : NULL;
    *size = text ? fread(text, 1, most, file) : 0;
    if (text && (ferror(file) || (whole && *size == most))) {
        mh_free(text);
        text = NULL;
    }
    if (file)
        (void)fclose(file);
    return text;
}

char *mh_page_file(const char *directory, const char *name, size_t *size)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, name) >= sizeof path)
        return NULL;
    return file_read(path, FILE_MOST, true, size);
}

/* --- copying JSON --- */

static bool json_valid(const char *text, size_t size)
{
    mh_json json;
    mh_json_token token;
    mh_json_init(&json, text, size);
    while (mh_json_next(&json, &token) > MH_JSON_END)
        ;
    return token.kind == MH_JSON_END && mh_json_only_blanks(text + json.at, size - json.at);
}

/* The value that `first` began, of text known to be valid. */
static void copy_value(mh_jsonout *out, mh_json *json, const mh_json_token *first)
{
    mh_json_token token = *first;
    unsigned outside =
        json->depth - (first->kind == MH_JSON_OBJECT || first->kind == MH_JSON_ARRAY);
    mh_jsonout_copy(out, &token);
    while (json->depth > outside && mh_json_next(json, &token) > MH_JSON_END)
        mh_jsonout_copy(out, &token);
}

void mh_page_copy(mh_jsonout *out, const char *text, size_t size)
{
    mh_json json;
    mh_json_token token;
    if (!json_valid(text, size)) {
        mh_jsonout_null(out);
        return;
    }
    mh_json_init(&json, text, size);
    (void)mh_json_next(&json, &token);
    copy_value(out, &json, &token);
}

/* --- members of objects --- */

/* Goes to the value of a member of the object at the beginning of the text. */
static bool member_find(mh_json *json, const char *text, size_t size, const char *name,
                        mh_json_token *value)
{
    mh_json_token key;
    mh_json_init(json, text, size);
    if (mh_json_next(json, &key) != MH_JSON_OBJECT)
        return false;
    while (mh_json_next(json, &key) == MH_JSON_KEY) {
        (void)mh_json_next(json, value);
        if (mh_json_is(&key, name))
            return true;
        if (!mh_json_skip(json, value))
            return false;
    }
    return false;
}

static void member_copy(mh_jsonout *out, const char *key, const char *text, size_t size)
{
    mh_json json;
    mh_json_token value;
    if (!text || !member_find(&json, text, size, key, &value))
        return;
    mh_jsonout_key(out, key);
    copy_value(out, &json, &value);
}

/* The line of Earthmover's log that tells its parameters: begins at *line. */
static bool locals_line(const char *text, size_t size, const char **line, size_t *length)
{
    for (const char *at = text, *end = text + size; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        mh_json json;
        mh_json_token value;
        *line = at;
        *length = (size_t)((newline ? newline : end) - at);
        if (member_find(&json, at, *length, "event", &value) && mh_json_is(&value, "run start") &&
            member_find(&json, at, *length, "locals", &value) && value.kind == MH_JSON_OBJECT &&
            json_valid(at, *length))
            return true;
        at += *length + 1;
    }
    return false;
}

/* --- the settings of a run --- */

typedef struct settings {
    char *text; /* to be freed */
    const char *object;
    size_t size;
    const char *key; /* of the parameters in it */
} settings;

/* Nothing there: no object. */
static settings settings_read(const char *path)
{
    struct stat about;
    settings found = {.key = "configuration"};
    char directory[PATH_MAX];
    (void)snprintf(directory, sizeof directory, "%s", path);
    if (stat(path, &about) == 0 && !S_ISDIR(about.st_mode)) {
        char *slash = strrchr(directory, '/');
        if (strcmp(slash ? slash + 1 : path, "events.jsonl") == 0) {
            (void)snprintf(slash ? slash : directory, 2, "%s", slash ? "" : ".");
        } else {
            found.text = file_read(path, HEAD_MOST, false, &found.size);
            found.key = "locals";
            if (!found.text || !locals_line(found.text, found.size, &found.object, &found.size))
                found.object = NULL;
            return found;
        }
    }
    found.text = mh_page_file(directory, "run.json", &found.size);
    if (found.text && json_valid(found.text, found.size))
        found.object = found.text;
    return found;
}

void mh_page_settings(mh_jsonout *out, const char *path)
{
    settings found = settings_read(path);
    mh_json json;
    mh_json_token value;
    if (found.object) {
        if (member_find(&json, found.object, found.size, found.key, &value)) {
            mh_jsonout_key(out, "parameters");
            copy_value(out, &json, &value);
        }
        member_copy(out, "environment", found.object, found.size);
        member_copy(out, "argv", found.object, found.size);
    }
    mh_free(found.text);
}

void mh_page_each_setting(const char *path, mh_setting_fn each, void *argument)
{
    settings found = settings_read(path);
    mh_json json;
    mh_json_token key, value;
    bool open = found.object && member_find(&json, found.object, found.size, found.key, &value) &&
                value.kind == MH_JSON_OBJECT;
    unsigned outside = open ? json.depth - 1 : 0;
    while (open && json.depth > outside && mh_json_next(&json, &key) > MH_JSON_END) {
        char name[64], text[96];
        if (key.kind != MH_JSON_KEY) /* the end of an object inside */
            continue;
        (void)mh_json_next(&json, &value);
        (void)mh_json_text(&key, name, sizeof name);
        if (value.kind == MH_JSON_ARRAY)
            open = mh_json_skip(&json, &value);
        if (value.kind >= MH_JSON_OBJECT || value.kind == MH_JSON_NULL)
            continue;
        if (value.kind == MH_JSON_STRING)
            (void)mh_json_text(&value, text, sizeof text);
        else if (value.kind == MH_JSON_NUMBER_VALUE)
            (void)snprintf(text, sizeof text, "%.*s", (int)(value.length < 90 ? value.length : 90),
                           value.text);
        else
            (void)snprintf(text, sizeof text, "%s", value.kind == MH_JSON_TRUE ? "True" : "False");
        each(argument, name, text);
    }
    mh_free(found.text);
}

/* --- bench.json --- */

/* A number, also of a member of an object: mean and std. */
static void number_read(mh_json *json, const mh_json_token *value, double *plain, double *std,
                        double *p99)
{
    mh_json_token key, inner;
    if (value->kind == MH_JSON_NUMBER_VALUE)
        (void)mh_json_double(value, plain);
    if (value->kind != MH_JSON_OBJECT) {
        (void)mh_json_skip(json, value);
        return;
    }
    while (mh_json_next(json, &key) == MH_JSON_KEY) {
        (void)mh_json_next(json, &inner);
        double *to = mh_json_is(&key, "mean")  ? plain
                     : mh_json_is(&key, "std") ? std
                     : mh_json_is(&key, "p99") ? p99
                                               : NULL;
        if (to && inner.kind == MH_JSON_NUMBER_VALUE)
            (void)mh_json_double(&inner, to);
        if (!mh_json_skip(json, &inner))
            return;
    }
}

/* One configuration; `log` gets the directory of its run, as bench wrote it. */
static void config_read(mh_json *json, mh_compared *to, char *log, size_t room)
{
    mh_json_token key, value;
    double unused = NAN;
    *to = (mh_compared){.rate = NAN,
                        .rate_std = NAN,
                        .total = NAN,
                        .total_std = NAN,
                        .wait_mean = NAN,
                        .wait_p99 = NAN};
    log[0] = '\0';
    while (mh_json_next(json, &key) == MH_JSON_KEY) {
        (void)mh_json_next(json, &value);
        if (value.kind == MH_JSON_STRING) {
            if (mh_json_is(&key, "name"))
                (void)mh_json_text(&value, to->name, sizeof to->name);
            else if (mh_json_is(&key, "cause"))
                (void)mh_json_text(&value, to->cause, sizeof to->cause);
            else if (mh_json_is(&key, "log"))
                (void)mh_json_text(&value, log, room);
        } else if (mh_json_is(&key, "samples_per_s")) {
            number_read(json, &value, &to->rate, &to->rate_std, &unused);
        } else if (mh_json_is(&key, "total_s")) {
            number_read(json, &value, &to->total, &unused, &unused);
        } else if (mh_json_is(&key, "total_std_s")) {
            number_read(json, &value, &to->total_std, &unused, &unused);
        } else if (mh_json_is(&key, "wait_s")) {
            number_read(json, &value, &to->wait_mean, &unused, &to->wait_p99);
        } else if (!mh_json_skip(json, &value)) {
            return;
        }
    }
}

static mh_status config_add(mh_page *page, mh_json *json, const char *directory,
                            mh_bench_run_fn run, void *argument, mh_error *err)
{
    char log[PATH_MAX], path[PATH_MAX * 2];
    void *items = page->compared.items;
    if (!mh_array_reserve(&items, &page->compared.room, page->compared.count,
                          sizeof *page->compared.items))
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a configuration");
    page->compared.items = items;
    mh_compared *to = &page->compared.items[page->compared.count++];
    config_read(json, to, log, sizeof log);
    if (!log[0])
        return MH_OK; /* it failed: shown without numbers */
    /* The directory may have been moved: the run lies in it all the same. */
    const char *slash = strrchr(log, '/');
    (void)snprintf(path, sizeof path, "%s/%s", directory, slash ? slash + 1 : log);
    return run(argument, path, to->name, err);
}

mh_status mh_bench_read(mh_page *page, const char *directory, mh_bench_run_fn run, void *argument,
                        mh_error *err)
{
    size_t size = 0;
    char *text = mh_page_file(directory, "bench.json", &size);
    mh_status status = MH_OK;
    mh_json json;
    mh_json_token value;
    if (!text || !json_valid(text, size) || !member_find(&json, text, size, "configs", &value) ||
        value.kind != MH_JSON_ARRAY)
        status = mh_fail(err, MH_ERR_CORRUPT, "%s/bench.json is not what millhead bench writes",
                         directory);
    while (status == MH_OK && mh_json_next(&json, &value) == MH_JSON_OBJECT)
        status = config_add(page, &json, directory, run, argument, err);
    if (status == MH_OK && member_find(&json, text, size, "recommended", &value) &&
        value.kind == MH_JSON_OBJECT && !page->recommended) {
        mh_jsonout out;
        mh_jsonout_init(&out, NULL);
        copy_value(&out, &json, &value);
        status = mh_jsonout_finish(&out, err);
        page->recommended = out.text;
    }
    mh_free(text);
    return status;
}
