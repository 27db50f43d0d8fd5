/* log.c - lines of a log turned into events
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics/log.h"

#include "base/alloc.h"
#include "base/error.h"
#include "sys/file.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES ((size_t)1 << 20)
#define NAME_SLOTS 256u /* twice the names and more */
#define NS_PER_S 1e9

/* --- names: a hash table filled when a log is opened --- */

typedef enum field_type { FIELD_WHOLE, FIELD_REAL, FIELD_TEXT } field_type;

typedef struct field {
    const char *name;
    size_t length; /* of the name */
    size_t offset;
    field_type type;
} field;

static const field fields[] = {
#define X(key) {#key, sizeof #key - 1, offsetof(mh_log_event, key), FIELD_WHOLE},
    MH_LOG_WHOLE_LIST(X)
#undef X
#define X(key) {#key, sizeof #key - 1, offsetof(mh_log_event, key), FIELD_REAL},
        MH_LOG_REAL_LIST(X)
#undef X
#define X(key) {#key, sizeof #key - 1, offsetof(mh_log_event, key), FIELD_TEXT},
            MH_LOG_TEXT_LIST(X)
#undef X
                {"unix", sizeof "unix" - 1, offsetof(mh_log_event, time),
                 FIELD_REAL}, /* the header's; "unix" is a macro */
    /* in the `locals` of Earthmover's "run start" */
    {"num_workers", sizeof "num_workers" - 1, offsetof(mh_log_event, workers), FIELD_WHOLE},
    {"prefetch_factor", sizeof "prefetch_factor" - 1, offsetof(mh_log_event, prefetch),
     FIELD_WHOLE},
    {"persistent_workers", sizeof "persistent_workers" - 1, offsetof(mh_log_event, persistent),
     FIELD_WHOLE},
    {"multiprocessing_context", sizeof "multiprocessing_context" - 1, offsetof(mh_log_event, start),
     FIELD_TEXT},
};

static const char *const kind_names[] = {
#define X(kind, name) name,
    MH_LOG_KIND_LIST(X)
#undef X
};

/* Number + 1 of a name; 0: free. Collisions go to the next place. */
typedef struct names {
    uint8_t slot[NAME_SLOTS];
} names;

_Static_assert(sizeof fields / sizeof *fields < NAME_SLOTS / 2, "the table stays half empty");

struct mh_log {
    /* set at open */
    mh_log_fn event;
    void *argument;
    names field_names, kinds;
    /* the line being gathered */
    char *partial;
    size_t partial_length, partial_room;
    bool too_long; /* what is left of it is passed over */
    mh_log_counts counts;
};

static size_t name_hash(const char *text, size_t length)
{
    return (length * 31 + (unsigned char)text[0] * 7 + (unsigned char)text[length - 1] +
            (unsigned char)text[length / 2] * 3) %
           NAME_SLOTS;
}

static void names_add(names *table, const char *name, size_t number)
{
    size_t at = name_hash(name, strlen(name));
    while (table->slot[at])
        at = (at + 1) % NAME_SLOTS;
    table->slot[at] = (uint8_t)(number + 1);
}

/* The field of this name; NULL: none. */
static const field *field_of(const names *table, const mh_json_token *key)
{
    if (key->length == 0 || key->escaped)
        return NULL;
    for (size_t at = name_hash(key->text, key->length); table->slot[at];
         at = (at + 1) % NAME_SLOTS) {
        const field *found = &fields[table->slot[at] - 1];
        if (key->length == found->length && memcmp(key->text, found->name, key->length) == 0)
            return found;
    }
    return NULL;
}

static mh_log_kind kind_of(const names *table, const mh_json_token *name)
{
    if (name->length == 0 || name->escaped)
        return MH_LOG_OTHER;
    for (size_t at = name_hash(name->text, name->length); table->slot[at];
         at = (at + 1) % NAME_SLOTS) {
        mh_log_kind kind = (mh_log_kind)(table->slot[at] - 1);
        if (mh_json_is(name, kind_names[kind]))
            return kind;
    }
    return MH_LOG_OTHER;
}

/* --- one object --- */

static const mh_log_event nothing = {.is = MH_LOG_OTHER,
#define X(name) .name = MH_LOG_NONE,
                                     MH_LOG_WHOLE_LIST(X)
#undef X
#define X(name) .name = NAN,
                                         MH_LOG_REAL_LIST(X)
#undef X
};

/* To the nearest whole number; MH_LOG_NONE where there is none. */
static int64_t whole_of(double value)
{
    if (!(value > -9e18 && value < 9e18))
        return MH_LOG_NONE;
    return (int64_t)(value + (value < 0 ? -0.5 : 0.5));
}

/* A value of the wrong type counts as not there. */
static void field_set(mh_log_event *event, const field *to, const mh_json_token *value)
{
    void *place = (char *)event + to->offset;
    double real;
    switch (to->type) {
    case FIELD_WHOLE:
        if (value->kind == MH_JSON_TRUE || value->kind == MH_JSON_FALSE)
            *(int64_t *)place = value->kind == MH_JSON_TRUE;
        else if (!mh_json_int64(value, place) && mh_json_double(value, &real))
            *(int64_t *)place = whole_of(real);
        break;
    case FIELD_REAL:
        (void)mh_json_double(value, place);
        break;
    case FIELD_TEXT:
        if (value->kind == MH_JSON_STRING)
            *(mh_json_token *)place = *value;
        break;
    }
}

/* Reads the members of the object just begun. Those of `locals` count as the event's own. */
static bool event_read(const mh_log *log, mh_log_event *event, mh_json *json)
{
    mh_json_token key, value;
    unsigned outside = json->depth - 1;
    while (mh_json_next(json, &key) == MH_JSON_KEY || key.kind == MH_JSON_OBJECT_END) {
        if (key.kind == MH_JSON_OBJECT_END) {
            if (json->depth == outside)
                return true;
            continue; /* the end of `locals` */
        }
        if (mh_json_next(json, &value) == MH_JSON_ERROR)
            return false;
        if (value.kind == MH_JSON_OBJECT && mh_json_is(&key, "locals") &&
            json->depth == outside + 2)
            continue;
        if (value.kind >= MH_JSON_OBJECT && !mh_json_skip(json, &value))
            return false;
        const field *found = field_of(&log->field_names, &key);
        if (found)
            field_set(event, found, &value);
    }
    return false;
}

static mh_status log_place(mh_log *log, mh_status status, mh_error *err)
{
    if (err)
        mh_error_prefix(err, "line %" PRIu64, log->counts.lines);
    return status;
}

static mh_status version_check(const mh_log_event *event, mh_error *err)
{
    char schema[64];
    if (event->is != MH_LOG_HEADER)
        return MH_OK;
    (void)mh_json_text(&event->schema, schema, sizeof schema);
    if (schema[0] && strcmp(schema, "millhead-events") != 0)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "events of schema '%s', not millhead-events",
                       schema);
    if (event->version <= MH_LOG_VERSION)
        return MH_OK;
    return mh_fail(err, MH_ERR_UNSUPPORTED,
                   "events of version %" PRId64 ", this millhead reads up to version %d",
                   event->version, MH_LOG_VERSION);
}

/* Tells an event whose object has been read. */
static mh_status event_tell(mh_log *log, mh_log_event *event, mh_error *err)
{
    event->is = kind_of(&log->kinds, &event->event);
    if (event->is == MH_LOG_OTHER)
        return MH_OK;
    if (event->t == MH_LOG_NONE)
        event->t = whole_of(event->time * NS_PER_S);
    if (event->ns == MH_LOG_NONE)
        event->ns = whole_of(event->duration * NS_PER_S);
    log->counts.events++;
    mh_status status = version_check(event, err);
    if (status == MH_OK)
        status = log->event(log->argument, event, err);
    return status == MH_OK ? MH_OK : log_place(log, status, err);
}

/* --- one line --- */

/* Every object in the line, wherever it begins. A try that fails goes on at the next brace: each
 * byte is tried at most once per level that is open there. */
static mh_status line_read(mh_log *log, const char *line, size_t size, mh_error *err)
{
    size_t objects = 0, at = 0;
    bool clean = true; /* nothing but blanks beside the objects */
    if (log->counts.lines++ == 0 && size >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0)
        at = 3; /* the mark some editors put at the beginning of a file */
    while (at < size) {
        const char *brace = memchr(line + at, '{', size - at);
        size_t begin = brace ? (size_t)(brace - line) : size;
        clean &= mh_json_only_blanks(line + at, begin - at);
        at = begin;
        if (!brace)
            break;
        mh_json json;
        mh_json_token token;
        mh_log_event event = nothing;
        mh_json_init(&json, line + begin, size - begin);
        (void)mh_json_next(&json, &token);
        if (!event_read(log, &event, &json)) {
            clean = false;
            at++;
            continue;
        }
        objects++;
        at += json.at;
        MH_TRY(event_tell(log, &event, err));
    }
    if (clean && objects == 1)
        return MH_OK;
    if (log->counts.bad_lines++ == 0)
        log->counts.first_bad = log->counts.lines;
    return MH_OK;
}

/* --- lines out of pieces --- */

mh_status mh_log_open(mh_log **out, mh_log_fn event, void *argument, mh_error *err)
{
    mh_log *log = mh_calloc(1, sizeof *log);
    if (!log)
        return mh_fail(err, MH_ERR_NOMEM, "no memory to read a log");
    log->event = event;
    log->argument = argument;
    for (size_t at = 0; at < sizeof fields / sizeof *fields; at++)
        names_add(&log->field_names, fields[at].name, at);
    for (size_t at = 1; at < MH_LOG_KINDS; at++)
        names_add(&log->kinds, kind_names[at], at);
    *out = log;
    return MH_OK;
}

void mh_log_close(mh_log *log)
{
    if (!log)
        return;
    mh_free(log->partial);
    mh_free(log);
}

const mh_log_counts *mh_log_counted(const mh_log *log)
{
    return &log->counts;
}

/* Keeps the beginning of a line whose end has not come. */
static mh_status partial_add(mh_log *log, const char *bytes, size_t size, mh_error *err)
{
    if (log->too_long || size > MH_LOG_LINE_BYTES - log->partial_length) {
        log->too_long = true;
        log->partial_length = 0;
        return MH_OK;
    }
    size_t needed = log->partial_length + size;
    if (needed > log->partial_room) {
        char *grown = mh_realloc(log->partial, needed, 2);
        if (!grown)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for a line of %zu bytes", needed);
        log->partial = grown;
        log->partial_room = needed * 2;
    }
    memcpy(log->partial + log->partial_length, bytes, size);
    log->partial_length = needed;
    return MH_OK;
}

/* The end of the line that partial_add has kept so far. */
static mh_status partial_end(mh_log *log, mh_error *err)
{
    mh_status status = MH_OK;
    if (log->too_long) {
        log->counts.lines++;
        if (log->counts.bad_lines++ == 0)
            log->counts.first_bad = log->counts.lines;
    } else {
        status = line_read(log, log->partial, log->partial_length, err);
    }
    log->partial_length = 0;
    log->too_long = false;
    return status;
}

mh_status mh_log_feed(mh_log *log, const char *bytes, size_t size, mh_error *err)
{
    const char *at = bytes, *end = bytes + size;
    log->counts.bytes += size;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        if (!newline)
            return partial_add(log, at, length, err);
        if (log->partial_length || log->too_long) {
            MH_TRY(partial_add(log, at, length, err));
            MH_TRY(partial_end(log, err));
        } else {
            MH_TRY(line_read(log, at, length, err));
        }
        at = newline + 1;
    }
    return MH_OK;
}

mh_status mh_log_finish(mh_log *log, mh_error *err)
{
    return log->partial_length || log->too_long ? partial_end(log, err) : MH_OK;
}

/* --- a file --- */

static mh_status file_feed(mh_log *log, int fd, char *buffer, mh_log_progress progress,
                           void *progress_argument, mh_error *err)
{
    struct stat about;
    uint64_t all = fstat(fd, &about) == 0 && about.st_size > 0 ? (uint64_t)about.st_size : 0;
    for (;;) {
        ssize_t got = read(fd, buffer, READ_BYTES);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mh_fail_sys(err, MH_ERR_IO, errno, "cannot read at byte %" PRIu64,
                               log->counts.bytes);
        if (got == 0)
            return mh_log_finish(log, err);
        MH_TRY(mh_log_feed(log, buffer, (size_t)got, err));
        if (progress && progress(progress_argument, log->counts.bytes, all))
            return mh_fail(err, MH_ERR_CLOSED, "stopped at byte %" PRIu64, log->counts.bytes);
    }
}

/* A pipe has an end, as in `doctor <(zcat LOG)`; a device may give bytes for ever, or none. */
static mh_status file_open(int *out, const char *path, mh_error *err)
{
    struct stat about;
    int fd = mh_file_open(path);
    if (fd < 0)
        return mh_fail_sys(err, errno == ENOENT ? MH_ERR_NOT_FOUND : MH_ERR_IO, errno,
                           "cannot open %s", path);
    if (fstat(fd, &about) == 0 && (S_ISCHR(about.st_mode) || S_ISBLK(about.st_mode))) {
        (void)close(fd);
        return mh_fail(err, MH_ERR_NOT_FOUND, "%s is a device, not a log", path);
    }
    *out = fd;
    return MH_OK;
}

mh_status mh_log_read_file(const char *path, mh_log_fn event, void *argument,
                           mh_log_progress progress, void *progress_argument,
                           mh_log_counts *out_counts, mh_error *err)
{
    mh_log *log = NULL;
    int fd = -1;
    MH_TRY(file_open(&fd, path, err));
    char *buffer = mh_calloc(READ_BYTES, 1);
    mh_status status = buffer ? mh_log_open(&log, event, argument, err)
                              : mh_fail(err, MH_ERR_NOMEM, "no memory to read %s", path);
    if (status == MH_OK && log) {
        status = file_feed(log, fd, buffer, progress, progress_argument, err);
        if (status != MH_OK && err)
            mh_error_prefix(err, "%s", path);
        *out_counts = log->counts;
    }
    mh_log_close(log);
    mh_free(buffer);
    (void)close(fd);
    return status;
}
