/* manifest.c - files that a table lists: CSV or JSON lines with a column of paths
 * SPDX-License-Identifier: Apache-2.0
 *
 * A row is a sample. One column, or several that the pipeline names, hold paths of files, which are
 * pictures or any bytes; the others are values: numbers, texts, lists of numbers. Paths are from
 * the manifest's folder on. Object and unit number row * files + file.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "format/format.h"
#include "format/listing.h"
#include "format/manifest_table.h"
#include "format/picture_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANIFEST_MOST (UINT64_C(8) << 30) /* bytes */
#define FILES_MOST MH_IMAGE_FIELDS_MOST

/* Names of the column of paths, in the order they are tried. */
static const char *const path_names[] = {"image",    "path",     "file",      "file_name",
                                         "filename", "filepath", "file_path", "image_path",
                                         "img",      "img_path", NULL};

typedef enum field_kind { VALUE, LABEL, PICTURE, BYTES, KEY, INDEX } field_kind;

typedef struct manifest_field {
    field_kind kind;
    const mh_column *column;
    const mh_image_plan *plan; /* of a picture */
    uint32_t file;             /* of a picture or bytes: among a row's */
} manifest_field;

typedef struct manifest_data {
    char *name;
    size_t folder_bytes; /* of the name: up to its last slash, with it */
    mh_table table;
    mh_image_pipeline *pipeline;
    const mh_column *files[FILES_MOST]; /* columns of paths */
    uint32_t file_count;
    manifest_field *fields; /* by tag */
    uint32_t field_count;
    mh_object *objects;   /* size and version; names are in the columns */
    mh_picture *pictures; /* of each object, where some picture is ragged */
    uint64_t *classes;    /* a row for each class; sorted by name */
    uint64_t class_count;
    uint32_t reads; /* of a row's files: all, or none where only values are wanted */
    int decodes;
} manifest_data;

static int ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), bytes = strlen(end);
    return length >= bytes && strcmp(text + length - bytes, end) == 0;
}

static int manifest_probe(const mh_candidate *candidate)
{
    return !candidate->directory &&
           (ends_with(candidate->path, ".csv") || ends_with(candidate->path, ".jsonl"));
}

/* --- names --- */

static const char *path_at(const manifest_data *own, uint32_t object)
{
    uint64_t bytes;
    return mh_column_text(own->files[object % own->file_count], object / own->file_count, &bytes);
}

static void manifest_describe(const void *context, uint32_t number, mh_object *out, char *name)
{
    const manifest_data *own = context;
    const char *path = path_at(own, number);
    int folder = *path == '/' ? 0 : (int)own->folder_bytes;
    (void)snprintf(name, MH_NAME_MOST, "%.*s%s", folder, own->name, path);
    *out = (mh_object){
        .name = name, .size = own->objects[number].size, .version = own->objects[number].version};
}

/* --- which columns are what --- */

static mh_status fail_paths(const manifest_data *own, mh_error *err)
{
    char tried[256] = "", known[200] = "";
    for (size_t i = 0, used = 0; path_names[i] && used < sizeof tried; i++)
        used += (size_t)snprintf(tried + used, sizeof tried - used, "%s%s", i ? ", " : "",
                                 path_names[i]);
    for (size_t i = 0, used = 0; i < own->table.column_count && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 own->table.columns[i].name);
    return mh_fail(err, MH_ERR_INVALID, "%s has no column of paths: it has %s; name one of them %s",
                   own->name, known, tried);
}

static const mh_column *path_column(const manifest_data *own)
{
    for (size_t i = 0; path_names[i]; i++) {
        const mh_column *column = mh_table_column(&own->table, path_names[i]);
        if (column && column->kind == MH_CELL_TEXT)
            return column;
    }
    return NULL;
}

/* The number of the column among those of files. */
static uint32_t add_file(manifest_data *own, const mh_column *column)
{
    for (uint32_t i = 0; i < own->file_count; i++)
        if (own->files[i] == column)
            return i;
    own->files[own->file_count] = column;
    return own->file_count++;
}

static int is_file(const manifest_data *own, const mh_column *column)
{
    for (uint32_t i = 0; i < own->file_count; i++)
        if (own->files[i] == column)
            return 1;
    return 0;
}

static mh_status add_field(mh_dataset *dataset, const char *name, manifest_field about,
                           mh_field *field, int on_request, mh_error *err)
{
    manifest_data *own = dataset->own;
    uint32_t tag = own->field_count | (on_request ? MH_TAG_ON_REQUEST : 0);
    own->fields[own->field_count++] = about;
    return mh_dataset_add_field(dataset, name, tag, field, err);
}

static mh_status add_picture(mh_dataset *dataset, const char *name, const mh_column *column,
                             mh_error *err)
{
    manifest_data *own = dataset->own;
    mh_field field = {0};
    const mh_image_plan *plan = mh_image_pipeline_plan(own->pipeline, name);
    mh_image_plan_field(plan, &field);
    for (uint32_t i = 0; i < field.dims; i++)
        if (field.shape[i] < 0)
            field.shape[i] = 0;
    return add_field(dataset, name, (manifest_field){PICTURE, column, plan, add_file(own, column)},
                     &field, 0, err);
}

/* Pictures that the pipeline names are columns of that name; `image` may be called otherwise. */
static mh_status add_pictures(mh_dataset *dataset, const mh_column *paths, mh_error *err)
{
    manifest_data *own = dataset->own;
    const char *name, *names[FILES_MOST + 1] = {"image"};
    size_t known = 1;
    for (size_t i = 0; (name = mh_image_pipeline_field(own->pipeline, i)); i++) {
        const mh_column *column = mh_table_column(&own->table, name);
        if (column && column->kind == MH_CELL_TEXT && known <= FILES_MOST)
            names[known++] = name;
    }
    MH_TRY(mh_image_pipeline_check(own->pipeline, names, known, err));
    MH_TRY(add_picture(dataset, "image", paths, err));
    for (size_t i = 1; i < known; i++) {
        const mh_column *column = mh_table_column(&own->table, names[i]);
        if (strcmp(names[i], "image") != 0)
            MH_TRY(add_picture(dataset, names[i], column, err));
    }
    return MH_OK;
}

static mh_status add_column(mh_dataset *dataset, const mh_column *column, mh_error *err)
{
    mh_field field = {.dtype = {0, 64}};
    if (column->kind == MH_CELL_TEXT)
        field = (mh_field){
            .dtype = {1, 8}, .dims = 1, .ragged = 1, .shape = {(int64_t)column->longest}};
    else if (column->kind == MH_CELL_LIST)
        field = (mh_field){.dtype = {column->whole_lists ? 0 : 2, 64},
                           .dims = column->dims,
                           .ragged = 1,
                           .shape = {(int64_t)column->longest_list, (int64_t)column->inner}};
    else if (column->kind == MH_CELL_REAL)
        field.dtype.code = 2;
    return add_field(dataset, column->name, (manifest_field){.kind = VALUE, .column = column},
                     &field, 0, err);
}

/* --- classes: labels that are texts --- */

static int by_text(const void *a, const void *b, void *context)
{
    const mh_column *column = context;
    const uint64_t *left = a, *right = b;
    uint64_t bytes;
    return strcmp(mh_column_text(column, *left, &bytes), mh_column_text(column, *right, &bytes));
}

static mh_status add_label(mh_dataset *dataset, const mh_column *column, mh_error *err)
{
    manifest_data *own = dataset->own;
    mh_field field = {.dtype = {0, 64}};
    uint64_t rows = own->table.rows;
    own->classes = mh_calloc(rows + 1, sizeof *own->classes);
    if (!own->classes)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the classes of %s", own->name);
    for (uint64_t i = 0; i < rows; i++)
        own->classes[i] = i;
    qsort_r(own->classes, rows, sizeof *own->classes, by_text, (void *)column);
    for (uint64_t i = 0; i < rows; i++)
        if (i == 0 ||
            by_text(&own->classes[i], &own->classes[own->class_count - 1], (void *)column) != 0)
            own->classes[own->class_count++] = own->classes[i];
    return add_field(dataset, "label", (manifest_field){.kind = LABEL, .column = column}, &field, 0,
                     err);
}

static int64_t label_of(const manifest_data *own, const mh_column *column, uint64_t row)
{
    const uint64_t *found = NULL;
    uint64_t low = 0, high = own->class_count;
    while (low < high && !found) {
        uint64_t middle = low + (high - low) / 2;
        int order = by_text(&row, &own->classes[middle], (void *)column);
        if (order == 0)
            found = &own->classes[middle];
        else if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return found ? found - own->classes : -1;
}

/* --- opening --- */

static mh_status add_fields(mh_dataset *dataset, mh_error *err)
{
    manifest_data *own = dataset->own;
    const mh_column *paths = path_column(own);
    mh_field text = {.dtype = {1, 8}, .dims = 1, .ragged = 1}, number = {.dtype = {0, 64}};
    uint64_t bytes;
    if (!paths)
        return fail_paths(own, err);
    own->fields = mh_calloc(own->table.column_count + FILES_MOST + 4u, sizeof *own->fields);
    if (!own->fields)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the fields of %s", own->name);
    if (dataset->options.pipeline || mh_listing_is_picture(mh_column_text(paths, 0, &bytes)))
        MH_TRY(add_pictures(dataset, paths, err));
    else
        MH_TRY(add_field(dataset, "bytes",
                         (manifest_field){.kind = BYTES, .file = add_file(own, paths)}, &text, 0,
                         err));
    text.shape[0] = (int64_t)paths->longest;
    MH_TRY(
        add_field(dataset, "_key", (manifest_field){.kind = KEY, .column = paths}, &text, 1, err));
    MH_TRY(add_field(dataset, "_index", (manifest_field){.kind = INDEX}, &number, 1, err));
    for (uint32_t i = 0; i < own->table.column_count; i++) {
        const mh_column *column = &own->table.columns[i];
        if (is_file(own, column))
            continue;
        if (column->kind == MH_CELL_TEXT && strcmp(column->name, "label") == 0)
            MH_TRY(add_label(dataset, column, err));
        else
            MH_TRY(add_column(dataset, column, err));
    }
    return MH_OK;
}

/* A missing file is an error only when it is due, so that it can be skipped. */
static mh_status look_at_files(mh_dataset *dataset, mh_error *err)
{
    manifest_data *own = dataset->own;
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    uint64_t count = own->table.rows * own->file_count;
    char name[MH_NAME_MOST];
    if (count >= UINT32_MAX)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "%s names too many files", own->name);
    own->objects = mh_calloc(count + 1, sizeof *own->objects);
    if (!own->objects)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the files of %s", own->name);
    dataset->objects =
        (mh_objects){.count = (uint32_t)count, .describe = manifest_describe, .context = own};
    for (uint32_t i = 0; i < count; i++) {
        mh_error ignored;
        mh_object object = mh_object_at(&dataset->objects, i, name);
        if (dataset->source->stat(&object, &options, &ignored) == MH_OK) {
            own->objects[i].size = object.size;
            own->objects[i].version = object.version;
        }
        if (own->objects[i].size > dataset->unit_bytes_most)
            dataset->unit_bytes_most = own->objects[i].size;
    }
    return MH_OK;
}

static mh_status read_table(mh_dataset *dataset, manifest_data *own, mh_error *err)
{
    uint8_t *text = NULL;
    uint64_t size = 0;
    MH_TRY(mh_dataset_get(dataset, own->name, MANIFEST_MOST, &text, &size, err));
    mh_status status = mh_table_read(&own->table, own->name, (const char *)text, size,
                                     ends_with(own->name, ".jsonl"), err);
    mh_free(text);
    MH_TRY(status);
    if (own->table.rows == 0)
        return mh_fail(err, MH_ERR_INVALID, "%s has no rows", own->name);
    dataset->count = own->table.rows;
    return MH_OK;
}

static mh_status manifest_open(mh_dataset *dataset, const char *const *paths, size_t count,
                               mh_error *err)
{
    manifest_data *own = mh_calloc(1, sizeof *own);
    mh_image_profile profile;
    if (!own)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a dataset");
    dataset->own = own;
    if (count != 1)
        return mh_fail(err, MH_ERR_INVALID,
                       "%zu paths: a manifest cannot be combined with others, give one", count);
    size_t bytes = strlen(paths[0]) + 1;
    own->name = mh_calloc(bytes, 1);
    if (!own->name)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a dataset");
    memcpy(own->name, paths[0], bytes);
    const char *slash = strrchr(own->name, '/');
    own->folder_bytes = slash ? (size_t)(slash - own->name) + 1 : 0;
    MH_TRY(mh_image_profile_read(&profile, dataset->options.profile, err));
    MH_TRY(mh_image_pipeline_parse(&own->pipeline, dataset->options.pipeline, profile, err));
    MH_TRY(read_table(dataset, own, err));
    MH_TRY(add_fields(dataset, err));
    return look_at_files(dataset, err);
}

/* --- after the choice of fields --- */

static mh_status look_at_pictures(mh_dataset *dataset, manifest_data *own, mh_error *err)
{
    uint8_t *buffer = NULL;
    uint64_t room = 0;
    char name[MH_NAME_MOST];
    mh_status status = MH_OK;
    if (own->pictures)
        return MH_OK;
    own->pictures = mh_calloc(dataset->objects.count + 1u, sizeof *own->pictures);
    if (!own->pictures)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for the pictures of %s", own->name);
    for (uint32_t i = 0; i < dataset->objects.count && status == MH_OK; i++)
        status = mh_picture_file_look(dataset, mh_object_at(&dataset->objects, i, name).name,
                                      &own->pictures[i], &buffer, &room, err);
    mh_free(buffer);
    return status;
}

static void manifest_measure(const mh_dataset *dataset, uint32_t tag, uint64_t sample,
                             int64_t *shape)
{
    const manifest_data *own = dataset->own;
    const manifest_field *about = &own->fields[tag];
    const mh_column *column = about->column;
    uint64_t object = sample * own->file_count + about->file, bytes;
    mh_field field;
    switch (about->kind) {
    case PICTURE:
        mh_image_plan_field(about->plan, &field);
        mh_picture_shape(about->plan, &own->pictures[object], field.dims, shape);
        return;
    case BYTES:
        shape[0] = (int64_t)own->objects[object].size;
        return;
    default:
        break;
    }
    if (column->kind == MH_CELL_TEXT) {
        (void)mh_column_text(column, sample, &bytes);
        shape[0] = (int64_t)bytes;
        return;
    }
    uint64_t numbers = column->begin[sample + 1] - column->begin[sample];
    shape[0] = (int64_t)numbers;
    if (column->dims == 2) {
        shape[0] = (int64_t)(column->inner ? numbers / column->inner : 0);
        shape[1] = (int64_t)column->inner;
    }
}

static mh_status measure_all(mh_dataset *dataset, size_t at, mh_error *err)
{
    manifest_data *own = dataset->own;
    if (own->fields[dataset->tags[at]].kind == PICTURE)
        MH_TRY(look_at_pictures(dataset, own, err));
    dataset->fields[at].bytes = 0;
    for (uint64_t row = 0; row < dataset->count; row++) {
        int64_t shape[MH_DIMS_MOST];
        manifest_measure(dataset, dataset->tags[at], row, shape);
        mh_picture_widen(&dataset->fields[at], shape);
    }
    return MH_OK;
}

static mh_status manifest_finish(mh_dataset *dataset, mh_error *err)
{
    manifest_data *own = dataset->own;
    for (size_t i = 0; i < dataset->field_count; i++) {
        const manifest_field *about = &own->fields[dataset->tags[i]];
        own->decodes |= about->kind == PICTURE;
        if (about->kind == PICTURE || about->kind == BYTES)
            own->reads = own->file_count;
        if (about->kind == PICTURE)
            dataset->fingerprint ^= mh_image_plan_fingerprint(about->plan);
        if (dataset->fields[i].ragged)
            MH_TRY(measure_all(dataset, i, err));
    }
    for (uint32_t i = 0; i < dataset->objects.count; i++)
        dataset->fingerprint =
            (dataset->fingerprint ^ own->objects[i].version) * UINT64_C(0x9E3779B97F4A7C15);
    dataset->by_units = 1;
    dataset->units_most = own->reads;
    dataset->unit_count = own->reads ? dataset->objects.count : 0;
    return MH_OK;
}

static void manifest_close(mh_dataset *dataset)
{
    manifest_data *own = dataset->own;
    if (!own)
        return;
    mh_image_pipeline_free(own->pipeline);
    mh_table_free(&own->table);
    mh_free(own->name);
    mh_free(own->fields);
    mh_free(own->objects);
    mh_free(own->pictures);
    mh_free(own->classes);
    mh_free(own);
}

/* --- units --- */

static uint32_t manifest_units_of(const mh_dataset *dataset, uint64_t sample, uint64_t *ids)
{
    const manifest_data *own = dataset->own;
    for (uint32_t i = 0; i < own->reads; i++)
        ids[i] = sample * own->file_count + i;
    return own->reads;
}

static mh_unit manifest_unit(const mh_dataset *dataset, uint64_t id)
{
    const mh_object *object = &((const manifest_data *)dataset->own)->objects[id];
    return (mh_unit){.object = (uint32_t)id,
                     .size = object->version ? object->size : 1,
                     .whole = 1,
                     .may_be_missing = 1};
}

/* --- samples --- */

static mh_status manifest_room_new(const mh_dataset *dataset, void **out, mh_error *err)
{
    const manifest_data *own = dataset->own;
    mh_image_room *room = NULL;
    if (own->decodes)
        MH_TRY(mh_image_room_new(&room, err));
    *out = room;
    return MH_OK;
}

static void manifest_room_free(void *room)
{
    mh_image_room_free(room);
}

static mh_status place_picture(const mh_dataset *dataset, const mh_placing *placing, size_t field,
                               mh_image_draws *draws, mh_error *err)
{
    const manifest_data *own = dataset->own;
    const manifest_field *about = &own->fields[dataset->tags[field]];
    int64_t shape[MH_DIMS_MOST];
    uint64_t bytes = dataset->fields[field].bytes;
    if (dataset->fields[field].ragged) {
        manifest_measure(dataset, dataset->tags[field], placing->sample, shape);
        bytes = mh_picture_bytes(&dataset->fields[field], shape);
    }
    const mh_image_job job = {.bytes = placing->units[about->file].data,
                              .size = placing->units[about->file].size,
                              .draws = draws,
                              .into = placing->into[field],
                              .into_bytes = bytes};
    return mh_image_run(about->plan, placing->room, &job, err);
}

static void place_value(const mh_column *column, uint64_t row, uint8_t *into)
{
    if (column->kind == MH_CELL_TEXT) {
        uint64_t bytes;
        const char *text = mh_column_text(column, row, &bytes);
        memcpy(into, text, bytes);
        return;
    }
    uint64_t first = column->begin ? column->begin[row] : row;
    uint64_t count = column->begin ? column->begin[row + 1] - first : 1;
    const void *numbers = column->whole ? (const void *)(column->whole + first)
                                        : (const void *)(column->real + first);
    memcpy(into, numbers, count * sizeof(int64_t));
}

static mh_status place_field(const mh_dataset *dataset, const mh_placing *placing, size_t field,
                             mh_image_draws *draws, mh_error *err)
{
    const manifest_data *own = dataset->own;
    const manifest_field *about = &own->fields[dataset->tags[field]];
    uint8_t *into = placing->into[field];
    int64_t number = (int64_t)placing->sample;
    switch (about->kind) {
    case PICTURE:
        return place_picture(dataset, placing, field, draws, err);
    case BYTES:
        if (placing->units[about->file].size)
            memcpy(into, placing->units[about->file].data, placing->units[about->file].size);
        return MH_OK;
    case LABEL:
        number = label_of(own, about->column, placing->sample);
        memcpy(into, &number, sizeof number);
        return MH_OK;
    case INDEX:
        memcpy(into, &number, sizeof number);
        return MH_OK;
    default:
        place_value(about->column, placing->sample, into);
        return MH_OK;
    }
}

/* "train.csv line 12: photos/a.jpg: " before what is wrong with it. */
static mh_status place_failed(const mh_dataset *dataset, uint64_t row, uint32_t file,
                              mh_status status, mh_error *err)
{
    const manifest_data *own = dataset->own;
    mh_error_prefix(err, "%s line %u: %s", own->name, own->table.lines[row],
                    path_at(own, (uint32_t)(row * own->file_count + file)));
    return status;
}

static mh_status manifest_place(const mh_dataset *dataset, const mh_placing *placing, mh_error *err)
{
    const manifest_data *own = dataset->own;
    mh_image_draws draws;
    mh_image_draws_begin(&draws, placing->seed, placing->epoch, placing->position);
    for (uint32_t i = 0; i < own->reads; i++)
        if (!placing->units[i].data)
            return place_failed(dataset, placing->sample, i,
                                mh_fail(err, MH_ERR_NOT_FOUND, "there is no such file"), err);
    for (size_t i = 0; i < dataset->field_count; i++) {
        mh_status status = place_field(dataset, placing, i, &draws, err);
        if (status != MH_OK)
            return place_failed(dataset, placing->sample, own->fields[dataset->tags[i]].file,
                                status, err);
    }
    return MH_OK;
}

static const char *manifest_class(const mh_dataset *dataset, uint64_t at)
{
    const manifest_data *own = dataset->own;
    uint64_t bytes;
    if (at >= own->class_count)
        return NULL;
    return mh_column_text(mh_table_column(&own->table, "label"), own->classes[at], &bytes);
}

const mh_format mh_format_manifest = {
    .name = "manifest",
    .what = "files that a table lists: a column of paths (pictures or any bytes), others as fields",
    .suffixes = ".csv .jsonl",
    .takes = MH_TAKES_PIPELINE,
    .probe = manifest_probe,
    .open = manifest_open,
    .finish = manifest_finish,
    .close = manifest_close,
    .room_new = manifest_room_new,
    .room_free = manifest_room_free,
    .units_of = manifest_units_of,
    .unit = manifest_unit,
    .place = manifest_place,
    .measure = manifest_measure,
    .class_name = manifest_class,
};
