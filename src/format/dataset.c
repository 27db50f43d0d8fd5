/* dataset.c - opening a dataset: which format, which fields, what it is known by
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/alloc.h"
#include "base/braces.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/struct_size.h"
#include "format/format.h"
#include "format/kept_index.h"
#include "format/synthetic.h"
#include "format/tokens_text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATHS_MOST (1u << 20)

/* Whatever else is a folder comes before plain folders. */
const mh_format *const mh_formats[] = {&mh_format_npy,
                                       &mh_format_tokens,
                                       &mh_format_synthetic,
                                       &mh_format_zarr,
                                       &mh_format_manifest,
                                       &mh_format_folder,
                                       NULL};

void mh_dataset_options_init_sized(mh_dataset_options *options, size_t size)
{
    const mh_dataset_options defaults = {.struct_size = size};
    mh_sized_write(options, size, &defaults, sizeof defaults);
}

/* --- what formats fill --- */

static char *copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = mh_calloc(bytes, 1);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

mh_status mh_dataset_add_object(mh_dataset *dataset, const char *name, uint32_t *out_number,
                                mh_error *err)
{
    mh_objects *objects = &dataset->objects;
    char *copy = copy_text(name);
    mh_object object = {.name = copy};
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    mh_object *list = mh_realloc(objects->list, objects->count + 1u, sizeof *list);
    if (list)
        objects->list = list;
    if (!list || !copy) {
        mh_free(copy);
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %s", name);
    }
    mh_status status = dataset->source->stat(&object, &options, err);
    list[objects->count] = object; /* freed with the dataset, whatever the status */
    *out_number = objects->count++;
    return status;
}

static mh_status field_bytes(mh_field *field, const char *name, mh_error *err)
{
    uint64_t bytes = field->dtype.bits / 8;
    for (uint32_t i = 0; i < field->dims; i++)
        if (field->shape[i] < 0 || __builtin_mul_overflow(bytes, (uint64_t)field->shape[i], &bytes))
            return mh_fail(err, MH_ERR_INVALID, "a sample's %s is too large", name);
    field->bytes = bytes;
    return MH_OK;
}

mh_status mh_dataset_add_field(mh_dataset *dataset, const char *name, uint32_t tag, mh_field *field,
                               mh_error *err)
{
    size_t count = dataset->field_count;
    for (size_t i = 0; i < count; i++)
        if (strcmp(dataset->fields[i].name, name) == 0)
            return mh_fail(err, MH_ERR_INVALID, "two fields are called %s", name);
    MH_TRY(field_bytes(field, name, err));
    mh_field *fields = mh_realloc(dataset->fields, count + 1, sizeof *fields);
    if (fields)
        dataset->fields = fields;
    uint32_t *tags = mh_realloc(dataset->tags, count + 1, sizeof *tags);
    if (tags)
        dataset->tags = tags;
    field->name = copy_text(name);
    if (!fields || !tags || !field->name) {
        mh_free((char *)field->name);
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the field %s", name);
    }
    fields[count] = *field;
    tags[count] = tag;
    dataset->field_count++;
    return MH_OK;
}

/* --- fields: sorted, and those that are wanted --- */

static void swap_fields(mh_dataset *dataset, size_t a, size_t b)
{
    mh_field field = dataset->fields[a];
    uint32_t tag = dataset->tags[a];
    dataset->fields[a] = dataset->fields[b];
    dataset->tags[a] = dataset->tags[b];
    dataset->fields[b] = field;
    dataset->tags[b] = tag;
}

static void sort_fields(mh_dataset *dataset)
{
    for (size_t i = 1; i < dataset->field_count; i++)
        for (size_t k = i;
             k > 0 && strcmp(dataset->fields[k - 1].name, dataset->fields[k].name) > 0; k--)
            swap_fields(dataset, k - 1, k);
}

static int wanted(const mh_dataset_options *options, const char *name, uint32_t tag)
{
    if (!options->fields)
        return !(tag & MH_TAG_ON_REQUEST);
    for (size_t i = 0; i < options->field_count; i++)
        if (strcmp(options->fields[i], name) == 0)
            return 1;
    return 0;
}

static mh_status fail_unknown_field(const mh_dataset *dataset, const char *name, mh_error *err)
{
    mh_nearest nearest = mh_nearest_to(name, strlen(name));
    char known[256] = "", hint[96];
    size_t used = 0;
    for (size_t i = 0; i < dataset->field_count; i++) {
        mh_nearest_offer(&nearest, dataset->fields[i].name);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                     dataset->fields[i].name);
    }
    return mh_fail(err, MH_ERR_INVALID, "unknown field '%s': there are %s%s", name, known,
                   mh_nearest_hint(&nearest, hint, sizeof hint));
}

static mh_status choose_fields(mh_dataset *dataset, const mh_dataset_options *options,
                               mh_error *err)
{
    size_t kept = 0;
    sort_fields(dataset);
    if (dataset->fields_chosen)
        return dataset->field_count
                   ? MH_OK
                   : mh_fail(err, MH_ERR_INVALID, "no field is left: name at least one");
    for (size_t i = 0; options->fields && i < options->field_count; i++) {
        size_t at = 0;
        while (at < dataset->field_count &&
               strcmp(dataset->fields[at].name, options->fields[i]) != 0)
            at++;
        if (at == dataset->field_count)
            return fail_unknown_field(dataset, options->fields[i], err);
    }
    for (size_t at = 0; at < dataset->field_count; at++)
        if (wanted(options, dataset->fields[at].name, dataset->tags[at]))
            swap_fields(dataset, at, kept++);
    for (size_t at = 0; at < kept; at++)
        dataset->tags[at] &= ~MH_TAG_ON_REQUEST;
    for (size_t at = kept; at < dataset->field_count; at++)
        mh_free((char *)dataset->fields[at].name);
    dataset->field_count = kept;
    return kept ? MH_OK : mh_fail(err, MH_ERR_INVALID, "no field is left: name at least one");
}

/* --- which format --- */

static mh_status format_named(const mh_format **out, const char *name, mh_error *err)
{
    for (const mh_format *const *format = mh_formats; *format; format++)
        if (strcmp((*format)->name, name) == 0) {
            *out = *format;
            return MH_OK;
        }
    return mh_fail(err, MH_ERR_INVALID, "unknown format '%s': see millhead list", name);
}

/* A folder; of a URL, what is not an object may still be a prefix, of which many servers say that
 * it must not be read. Then *err says what they said. */
static mh_status look_at(mh_candidate *candidate, uint8_t *head, size_t room, mh_error *err)
{
    struct stat about;
    uint64_t got = 0;
    const char *path = candidate->path;
    bool is_file = candidate->source == &mh_source_file;
    if (is_file && stat(path, &about) == 0 && S_ISDIR(about.st_mode)) {
        candidate->directory = 1;
        return MH_OK;
    }
    mh_object object = {.name = path};
    mh_status status = candidate->source->stat(&object, candidate->options, err);
    candidate->directory = !is_file && (status == MH_ERR_NOT_FOUND ||
                                        (status == MH_ERR_IO && err->sys_errno == EACCES));
    if (status != MH_OK)
        return candidate->directory ? MH_OK : status;
    MH_TRY(candidate->source->get(path, candidate->options, room, head, &got, err));
    candidate->head = head;
    candidate->head_size = (size_t)got;
    return got ? MH_OK : mh_fail(err, MH_ERR_CORRUPT, "%s is empty", path);
}

/* A folder that was opened before, and is as it was. */
static bool is_known_folder(mh_dataset *dataset, const char *path)
{
    if (dataset->source == &mh_source_file)
        dataset->known = mh_kept_index_find_plain(path, dataset->options.index);
    return dataset->known;
}

static mh_status find_format(const mh_format **out, mh_dataset *dataset, const char *path,
                             mh_error *err)
{
    uint8_t head[64];
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    mh_candidate candidate = {.path = path, .source = dataset->source, .options = &options};
    if (dataset->options.format)
        return format_named(out, dataset->options.format, err);
    if (strncmp(path, MH_SYNTHETIC_PREFIX, strlen(MH_SYNTHETIC_PREFIX)) == 0) {
        *out = &mh_format_synthetic;
        return MH_OK;
    }
    if (strncmp(path, MH_TOKENS_PREFIX, strlen(MH_TOKENS_PREFIX)) == 0) {
        *out = &mh_format_tokens;
        return MH_OK;
    }
    if (is_known_folder(dataset, path)) {
        *out = &mh_format_folder;
        return MH_OK;
    }
    MH_TRY(look_at(&candidate, head, sizeof head, err));
    for (const mh_format *const *format = mh_formats; *format; format++)
        if ((*format)->probe(&candidate)) {
            *out = *format;
            return MH_OK;
        }
    if (candidate.directory && dataset->source != &mh_source_file)
        return err->code; /* as its source said it */
    /* a page of links shows a folder, too */
    candidate.directory = dataset->source != &mh_source_file;
    if (candidate.directory && mh_format_zarr.probe(&candidate)) {
        *out = &mh_format_zarr;
        return MH_OK;
    }
    return mh_fail(err, MH_ERR_UNSUPPORTED, "%s has none of the formats known: see millhead list",
                   path);
}

/* --- options --- */

/* Where the texts of the options stand, and what a format must take for each. */
static const struct {
    size_t offset;
    const char *name;
    int takes; /* 0: every format does */
} texts[] = {
    {offsetof(mh_dataset_options, format), "format", 0},
    {offsetof(mh_dataset_options, pipeline), "pipeline", MH_TAKES_PIPELINE},
    {offsetof(mh_dataset_options, profile), "profile", MH_TAKES_PIPELINE},
    {offsetof(mh_dataset_options, window), "window", MH_TAKES_WINDOW},
    {offsetof(mh_dataset_options, stride), "stride", MH_TAKES_WINDOW},
    {offsetof(mh_dataset_options, select), "select", MH_TAKES_WINDOW},
    {offsetof(mh_dataset_options, target), "target", MH_TAKES_WINDOW},
    {offsetof(mh_dataset_options, decode), "decode", MH_TAKES_WINDOW},
    {offsetof(mh_dataset_options, index), "index", MH_TAKES_INDEX},
    {offsetof(mh_dataset_options, storage), "storage", 0},
    {offsetof(mh_dataset_options, cache), "cache", 0},
    {offsetof(mh_dataset_options, join), "join", MH_TAKES_JOIN},
    {offsetof(mh_dataset_options, cache_check), "cache_check", 0},
};
enum { TEXT_COUNT = sizeof texts / sizeof *texts };

static const char **text_at(mh_dataset_options *options, size_t number)
{
    return (const char **)(void *)((char *)options + texts[number].offset);
}

static mh_status copy_options(mh_dataset *dataset, mh_dataset_options *given, mh_error *err)
{
    for (size_t i = 0; i < TEXT_COUNT; i++) {
        const char *text = *text_at(given, i);
        char *copy = text ? copy_text(text) : NULL;
        if (text && !copy)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for a dataset's options");
        *text_at(&dataset->options, i) = copy;
    }
    return MH_OK;
}

static bool checks_each(const mh_dataset *dataset)
{
    const char *check = dataset->options.cache_check;
    return check && strcmp(check, "each") == 0;
}

static mh_status check_options(mh_dataset *dataset, mh_error *err)
{
    const char *check = dataset->options.cache_check;
    if (check && strcmp(check, "open") != 0 && !checks_each(dataset))
        return mh_fail(err, MH_ERR_INVALID, "cache_check is open or each, not '%.50s'", check);
    for (size_t i = 0; i < TEXT_COUNT; i++)
        if (*text_at(&dataset->options, i) && (texts[i].takes & ~dataset->format->takes))
            return mh_fail(err, MH_ERR_INVALID, "data of the format %s takes no %s",
                           dataset->format->name, texts[i].name);
    return MH_OK;
}

mh_source_options mh_dataset_source_options(const mh_dataset *dataset, uint32_t in_flight)
{
    return (mh_source_options){.in_flight = in_flight,
                               .storage = dataset->options.storage,
                               .cache = dataset->options.cache,
                               .cache_check_each = checks_each(dataset),
                               .stamp = dataset->stamp};
}

mh_status mh_dataset_get(const mh_dataset *dataset, const char *name, uint64_t most, uint8_t **out,
                         uint64_t *size, mh_error *err)
{
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    mh_object object = {.name = name};
    MH_TRY(dataset->source->stat(&object, &options, err));
    if (object.size > most)
        return mh_fail(err, MH_ERR_CORRUPT, "%s has %llu bytes, and %llu at most can be right",
                       name, (unsigned long long)object.size, (unsigned long long)most);
    uint8_t *bytes = mh_calloc(object.size + 1, 1);
    if (!bytes)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the %llu bytes of %s",
                       (unsigned long long)object.size, name);
    mh_status status = dataset->source->get(name, &options, object.size, bytes, size, err);
    if (status != MH_OK) {
        mh_free(bytes);
        return status;
    }
    *out = bytes;
    return MH_OK;
}

/* --- the whole --- */

static uint64_t mixed(uint64_t state, uint64_t value)
{
    state = (state ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return state ^ (state >> 29);
}

static uint64_t fingerprint_of(const mh_dataset *dataset)
{
    uint64_t state = mixed(dataset->fingerprint + 1, dataset->count); /* the format's, or 0 */
    for (uint32_t i = 0; dataset->objects.list && i < dataset->objects.count; i++) {
        state = mixed(state, dataset->objects.list[i].size);
        state = mixed(state, dataset->objects.list[i].version);
    }
    for (uint32_t d = 0; d < dataset->cells.dims; d++) { /* positions depend on blocks */
        const mh_cells_dim *dim = &dataset->cells.dim[d];
        state = mixed(mixed(mixed(state, dim->start), dim->stride), dim->cell);
    }
    for (size_t i = 0; i < dataset->field_count; i++) {
        const mh_field *field = &dataset->fields[i];
        for (const char *c = field->name; *c; c++)
            state = mixed(state, (uint8_t)*c);
        state = mixed(state, (uint64_t)field->dtype.code << 8 | field->dtype.bits);
        state = mixed(state, field->bytes);
    }
    return state;
}

static mh_status open_parts(mh_dataset *dataset, const char *const *paths, size_t count,
                            mh_dataset_options *options, mh_error *err)
{
    MH_TRY(copy_options(dataset, options, err));
    const size_t prefix = strlen(MH_TOKENS_PREFIX);
    const char *first = strncmp(paths[0], MH_TOKENS_PREFIX, prefix) ? paths[0] : paths[0] + prefix;
    MH_TRY(mh_source_of(&dataset->source, first, err));
    MH_TRY(find_format(&dataset->format, dataset, paths[0], err));
    MH_TRY(check_options(dataset, err));
    dataset->options.fields = options->fields;
    dataset->options.field_count = options->field_count;
    mh_status status = dataset->format->open(dataset, paths, count, err);
    dataset->options.fields = NULL; /* they are the caller's */
    dataset->options.field_count = 0;
    MH_TRY(status);
    MH_TRY(choose_fields(dataset, options, err));
    if (dataset->format->finish)
        MH_TRY(dataset->format->finish(dataset, err));
    dataset->fingerprint = fingerprint_of(dataset);
    return MH_OK;
}

/* A file that is called so is meant itself. */
static bool is_pattern(const char *path)
{
    return mh_braces_has(path) && access(path, F_OK) != 0;
}

static mh_status expand_paths(char ***list, size_t *count, const char *const *paths, size_t given,
                              mh_error *err)
{
    for (size_t i = 0; i < given; i++)
        if (is_pattern(paths[i]))
            MH_TRY(mh_braces_expand(list, count, paths[i], PATHS_MOST, err));
        else
            MH_TRY(mh_braces_add(list, count, paths[i], err));
    return MH_OK;
}

static mh_status open_expanded(mh_dataset *dataset, const char *const *paths, size_t count,
                               mh_dataset_options *options, mh_error *err)
{
    char **list = NULL;
    size_t expanded = 0;
    mh_status status = expand_paths(&list, &expanded, paths, count, err);
    if (status == MH_OK)
        status = open_parts(dataset, (const char *const *)list, expanded, options, err);
    mh_braces_free(list, expanded);
    return status;
}

mh_status mh_dataset_open(mh_dataset **out, const char *const *paths, size_t count,
                          const mh_dataset_options *given, mh_error *err)
{
    mh_error own;
    mh_dataset_options options;
    if (!err)
        err = &own; /* opening looks into it */
    mh_dataset_options_init(&options);
    if (given)
        MH_TRY(MH_SIZED_TAKE(&options, given, mh_dataset_options, field_count, err));
    if (count == 0 || !paths)
        return mh_fail(err, MH_ERR_INVALID, "no path to open");
    mh_dataset *dataset = mh_calloc(1, sizeof *dataset);
    if (!dataset)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a dataset");
    atomic_init(&dataset->refs, 1);
    mh_status status = open_expanded(dataset, paths, count, &options, err);
    dataset->stamp = mh_source_rest();
    if (status != MH_OK) {
        mh_dataset_unref(dataset);
        return status;
    }
    *out = dataset;
    return MH_OK;
}

mh_dataset *mh_dataset_ref(mh_dataset *dataset)
{
    atomic_fetch_add_explicit(&dataset->refs, 1, memory_order_relaxed);
    return dataset;
}

void mh_dataset_unref(mh_dataset *dataset)
{
    if (!dataset || atomic_fetch_sub_explicit(&dataset->refs, 1, memory_order_acq_rel) != 1)
        return;
    mh_dataset_source_close(dataset);
    void *room = atomic_load(&dataset->spare_room);
    if (room)
        dataset->format->room_free(room);
    if (dataset->format && dataset->format->close)
        dataset->format->close(dataset);
    mh_kept_index_close(dataset->known);
    for (uint32_t i = 0; dataset->objects.list && i < dataset->objects.count; i++)
        mh_free((char *)dataset->objects.list[i].name);
    for (size_t i = 0; i < TEXT_COUNT; i++)
        mh_free((char *)*text_at(&dataset->options, i));
    for (size_t i = 0; i < dataset->field_count; i++)
        mh_free((char *)dataset->fields[i].name);
    mh_free(dataset->objects.list);
    mh_free(dataset->fields);
    mh_free(dataset->tags);
    mh_free(dataset);
}

/* --- looking --- */

uint64_t mh_dataset_count(const mh_dataset *dataset)
{
    return dataset->count;
}

const mh_field *mh_dataset_fields(const mh_dataset *dataset, size_t *out_count)
{
    *out_count = dataset->field_count;
    return dataset->fields;
}

const char *mh_dataset_format(const mh_dataset *dataset)
{
    return dataset->format->name;
}

uint64_t mh_dataset_files(const mh_dataset *dataset, uint64_t *out_bytes)
{
    char name[MH_NAME_MOST];
    *out_bytes = 0;
    for (uint32_t i = 0; i < dataset->objects.count; i++) {
        uint64_t bytes = mh_object_at(&dataset->objects, i, name).size;
        *out_bytes += bytes == MH_SIZE_UNKNOWN ? 0 : bytes;
    }
    return dataset->objects.count;
}

const char *mh_dataset_class(const mh_dataset *dataset, uint64_t at)
{
    return dataset->format->class_name ? dataset->format->class_name(dataset, at) : NULL;
}

const char *mh_dataset_index(const mh_dataset *dataset, const char **out_state)
{
    return dataset->format->index_file ? dataset->format->index_file(dataset, out_state) : NULL;
}

const char *mh_dataset_file(const mh_dataset *dataset, size_t at, uint64_t *out_bytes)
{
    if (at >= dataset->objects.count || !dataset->objects.list)
        return NULL;
    *out_bytes = dataset->objects.list[at].size;
    return dataset->objects.list[at].name;
}

int mh_dataset_storage(const mh_dataset *dataset, size_t field, mh_field_storage *out)
{
    if (!dataset->format->storage || field >= dataset->field_count)
        return 0;
    return dataset->format->storage(dataset, dataset->tags[field], out);
}

mh_status mh_dataset_costs(const mh_dataset *dataset, mh_dataset_cost *out, mh_error *err)
{
    if (!dataset->format->costs)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "data of the format %s has no chunks",
                       dataset->format->name);
    return dataset->format->costs(dataset, out, err);
}

uint64_t mh_dataset_fingerprint(const mh_dataset *dataset)
{
    return dataset->fingerprint;
}
