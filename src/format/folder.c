/* folder.c - files in folders: a class for each folder, or none; pictures, or any bytes
 * SPDX-License-Identifier: Apache-2.0
 *
 * Sample, file, object and unit have the same number, that of the file in the index, which is
 * ImageFolder's order. A sample is decoded straight from its file's bytes into its place.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "format/format.h"
#include "format/kept_index.h"
#include "format/picture_files.h"
#include "format/remote_listing.h"

#include <stdio.h>
#include <string.h>

enum { IMAGE, LABEL, BYTES, INDEX, KEY }; /* tags */

typedef struct folder_data {
    char *root; /* as it was given */
    mh_kept_index *kept;
    mh_image_pipeline *pipeline;
    const mh_image_plan *plan;
    int reads; /* some field is made of the files' bytes */
    int decodes;
} folder_data;

static int folder_probe(const mh_candidate *candidate)
{
    const bool local = candidate->source == &mh_source_file;
    return candidate->directory &&
           (local ||
            mh_remote_listing_is_folder(candidate->source, candidate->options, candidate->path));
}

/* --- names --- */

/* The path from the root on. */
static void key_of(const mh_index *index, uint64_t file, char *out, size_t room)
{
    const char *path = mh_index_path(index, index->files[file].directory);
    (void)snprintf(out, room, "%s%s%s", path, *path ? "/" : "", mh_index_file_name(index, file));
}

static void folder_describe(const void *context, uint32_t number, mh_object *out, char *name)
{
    const folder_data *own = context;
    const mh_index *index = &own->kept->index;
    const char *path = mh_index_path(index, index->files[number].directory);
    (void)snprintf(name, MH_NAME_MOST, "%s/%s%s%s", own->root, path, *path ? "/" : "",
                   mh_index_file_name(index, number));
    *out = (mh_object){
        .name = name, .size = index->files[number].size, .version = index->files[number].version};
}

/* The file is not as the index says: the next to open the folder looks again. */
static void folder_changed(const void *context)
{
    mh_kept_index_forget(((const folder_data *)context)->kept);
}

/* --- opening --- */

/* Listed anew each time: that tells what has changed. */
static mh_status open_remote(mh_dataset *dataset, folder_data *own, mh_error *err)
{
    uint8_t *made = NULL;
    uint64_t size = 0;
    const mh_source_options options = mh_dataset_source_options(dataset, 1);
    if (!dataset->source->list)
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "%s: folders behind %s cannot be listed: list the files in a .csv",
                       own->root, dataset->source->name);
    if (dataset->options.index)
        return mh_fail(err, MH_ERR_INVALID, "index= is for folders on disks: %s is listed anew",
                       own->root);
    MH_TRY(mh_remote_listing_make(&made, &size, dataset->source, &options, own->root, err));
    return mh_kept_index_of(&own->kept, made, size, err);
}

/* Without a format that was named, all others have said that the folder is not theirs. */
static mh_status open_index(mh_dataset *dataset, folder_data *own, const char *path, mh_error *err)
{
    if (dataset->source != &mh_source_file)
        return open_remote(dataset, own, err);
    own->kept = dataset->known;
    dataset->known = NULL;
    if (own->kept)
        return MH_OK;
    return mh_kept_index_open(&own->kept, path, dataset->options.index, !dataset->options.format,
                              err);
}

static mh_status copy_root(folder_data *own, const char *path, mh_error *err)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    own->root = mh_calloc(length + 1, 1);
    if (!own->root)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %s", path);
    memcpy(own->root, path, length);
    if (strcmp(own->root, "/") == 0)
        own->root[0] = '\0'; /* names have a slash behind it */
    return MH_OK;
}

static mh_status parse_pipeline(mh_dataset *dataset, folder_data *own, mh_error *err)
{
    static const char *const names[] = {"image"};
    mh_image_profile profile;
    MH_TRY(mh_image_profile_read(&profile, dataset->options.profile, err));
    MH_TRY(mh_image_pipeline_parse(&own->pipeline, dataset->options.pipeline, profile, err));
    MH_TRY(mh_image_pipeline_check(own->pipeline, names, 1, err));
    own->plan = mh_image_pipeline_plan(own->pipeline, "image");
    return MH_OK;
}

/* Of a ragged picture, lengths are those of the largest, once it is known to be wanted. */
static mh_status add_image(mh_dataset *dataset, const folder_data *own, mh_error *err)
{
    mh_field image = {0};
    mh_image_plan_field(own->plan, &image);
    for (uint32_t i = 0; i < image.dims; i++)
        if (image.shape[i] < 0)
            image.shape[i] = 0;
    return mh_dataset_add_field(dataset, "image", IMAGE, &image, err);
}

/* Pictures come as `image`, other files as `bytes`; pictures' own bytes where they are named. */
static mh_status add_fields(mh_dataset *dataset, const folder_data *own, mh_error *err)
{
    const mh_index *index = &own->kept->index;
    int pictures = index->flags & MH_INDEX_PICTURES || dataset->options.pipeline;
    mh_field text = {.dtype = {1, 8}, .dims = 1, .ragged = 1}, number = {.dtype = {0, 64}};
    if (pictures)
        MH_TRY(add_image(dataset, own, err));
    for (uint32_t i = 0; i < index->file_count; i++)
        if ((int64_t)index->files[i].size > text.shape[0])
            text.shape[0] = (int64_t)index->files[i].size;
    MH_TRY(mh_dataset_add_field(dataset, "bytes", pictures ? BYTES | MH_TAG_ON_REQUEST : BYTES,
                                &text, err));
    text.shape[0] = MH_NAME_MOST;
    MH_TRY(mh_dataset_add_field(dataset, "_key", KEY | MH_TAG_ON_REQUEST, &text, err));
    MH_TRY(mh_dataset_add_field(dataset, "_index", INDEX | MH_TAG_ON_REQUEST, &number, err));
    return index->flags & MH_INDEX_BY_CLASS
               ? mh_dataset_add_field(dataset, "label", LABEL, &number, err)
               : MH_OK;
}

static mh_status folder_open(mh_dataset *dataset, const char *const *paths, size_t count,
                             mh_error *err)
{
    folder_data *own = mh_calloc(1, sizeof *own);
    if (!own)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for a dataset");
    dataset->own = own;
    if (count != 1)
        return mh_fail(err, MH_ERR_INVALID,
                       "%zu paths: a folder cannot be combined with others, give one", count);
    MH_TRY(copy_root(own, paths[0], err));
    MH_TRY(parse_pipeline(dataset, own, err));
    MH_TRY(open_index(dataset, own, paths[0], err));
    const mh_index *index = &own->kept->index;
    if (index->file_count == 0)
        return mh_fail(err, MH_ERR_INVALID, "%s holds no files", paths[0]);
    dataset->count = index->file_count;
    dataset->fingerprint = index->contents;
    dataset->objects = (mh_objects){.count = index->file_count,
                                    .describe = folder_describe,
                                    .changed = folder_changed,
                                    .context = own};
    return add_fields(dataset, own, err);
}

/* --- after the choice of fields --- */

typedef struct header_look {
    const mh_dataset *dataset;
    uint8_t *buffer;
    uint64_t room;
} header_look;

static mh_status read_header(void *context, const mh_index *index, uint32_t file,
                             mh_index_picture *out, mh_error *err)
{
    header_look *look = context;
    char name[MH_NAME_MOST];
    mh_picture found;
    (void)index;
    const mh_object object = mh_object_at(&look->dataset->objects, file, name);
    MH_TRY(
        mh_picture_file_look(look->dataset, object.name, &found, &look->buffer, &look->room, err));
    *out = (mh_index_picture){.height = found.height,
                              .width = found.width,
                              .kind = (uint8_t)found.kind,
                              .channels = found.channels,
                              .bits = found.bits,
                              .palette = found.palette,
                              .progressive = found.progressive,
                              .orientation = found.orientation};
    return MH_OK;
}

static mh_picture picture_at(const mh_index *index, uint64_t file)
{
    const mh_index_picture *kept = &index->pictures[file];
    return (mh_picture){.kind = (mh_picture_kind)kept->kind,
                        .width = kept->width,
                        .height = kept->height,
                        .channels = kept->channels,
                        .bits = kept->bits,
                        .palette = kept->palette,
                        .progressive = kept->progressive,
                        .orientation = kept->orientation};
}

static mh_status measure_images(mh_dataset *dataset, folder_data *own, mh_field *field,
                                mh_error *err)
{
    header_look look = {.dataset = dataset};
    mh_status status = mh_kept_index_add_headers(own->kept, read_header, &look, err);
    mh_free(look.buffer);
    MH_TRY(status);
    const mh_index *index = &own->kept->index;
    field->bytes = 0;
    for (uint32_t i = 0; i < index->file_count; i++) {
        int64_t shape[MH_DIMS_MOST];
        const mh_picture picture = picture_at(index, i);
        mh_picture_shape(own->plan, &picture, field->dims, shape);
        mh_picture_widen(field, shape);
    }
    return MH_OK;
}

static void measure_keys(const mh_index *index, mh_field *field)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < index->file_count; i++) {
        uint64_t length = strlen(mh_index_path(index, index->files[i].directory)) + 1 +
                          strlen(mh_index_file_name(index, i));
        longest = length > longest ? length : longest;
    }
    field->shape[0] = (int64_t)longest;
    field->bytes = longest;
}

static mh_status folder_finish(mh_dataset *dataset, mh_error *err)
{
    folder_data *own = dataset->own;
    for (size_t i = 0; i < dataset->field_count; i++) {
        mh_field *field = &dataset->fields[i];
        uint32_t tag = dataset->tags[i];
        own->decodes |= tag == IMAGE;
        own->reads |= tag == IMAGE || tag == BYTES;
        if (tag == IMAGE)
            dataset->fingerprint ^= mh_image_plan_fingerprint(own->plan);
        if (tag == IMAGE && field->ragged)
            MH_TRY(measure_images(dataset, own, field, err));
        if (tag == KEY)
            measure_keys(&own->kept->index, field);
    }
    dataset->by_units = 1;
    dataset->units_most = own->reads ? 1 : 0;
    dataset->unit_count = own->reads ? dataset->count : 0;
    const mh_index *index = &own->kept->index;
    for (uint32_t i = 0; own->reads && i < index->file_count; i++)
        if (index->files[i].size > dataset->unit_bytes_most)
            dataset->unit_bytes_most = index->files[i].size;
    return MH_OK;
}

static void folder_close(mh_dataset *dataset)
{
    folder_data *own = dataset->own;
    if (!own)
        return;
    mh_image_pipeline_free(own->pipeline);
    mh_kept_index_close(own->kept);
    mh_free(own->root);
    mh_free(own);
}

/* --- units --- */

static uint32_t folder_units_of(const mh_dataset *dataset, uint64_t sample, uint64_t *ids)
{
    const folder_data *own = dataset->own;
    if (own->reads)
        ids[0] = sample;
    return own->reads ? 1 : 0;
}

/* A file that could not be asked for its size is tried all the same: that tells why. */
static mh_unit folder_unit(const mh_dataset *dataset, uint64_t id)
{
    const mh_index_file *file = &((const folder_data *)dataset->own)->kept->index.files[id];
    return (mh_unit){.object = (uint32_t)id, .size = file->version ? file->size : 1, .whole = 1};
}

/* --- samples --- */

static mh_status folder_room_new(const mh_dataset *dataset, void **out, mh_error *err)
{
    const folder_data *own = dataset->own;
    mh_image_room *room = NULL;
    if (own->decodes)
        MH_TRY(mh_image_room_new(&room, err));
    *out = room;
    return MH_OK;
}

static void folder_room_free(void *room)
{
    mh_image_room_free(room);
}

static void folder_measure(const mh_dataset *dataset, uint32_t tag, uint64_t sample, int64_t *shape)
{
    const folder_data *own = dataset->own;
    const mh_index *index = &own->kept->index;
    if (tag == IMAGE) {
        mh_field field;
        const mh_picture picture = picture_at(index, sample);
        mh_image_plan_field(own->plan, &field);
        mh_picture_shape(own->plan, &picture, field.dims, shape);
    } else if (tag == BYTES) {
        shape[0] = (int64_t)index->files[sample].size;
    } else {
        char key[MH_NAME_MOST];
        key_of(index, sample, key, sizeof key);
        shape[0] = (int64_t)strlen(key);
    }
}

static mh_status place_image(const mh_dataset *dataset, const mh_placing *placing, size_t field,
                             mh_error *err)
{
    const folder_data *own = dataset->own;
    const mh_field *about = &dataset->fields[field];
    int64_t shape[MH_DIMS_MOST];
    mh_image_draws draws;
    uint64_t bytes = about->bytes;
    if (about->ragged) {
        folder_measure(dataset, IMAGE, placing->sample, shape);
        bytes = mh_picture_bytes(about, shape);
    }
    mh_image_draws_begin(&draws, placing->seed, placing->epoch, placing->position);
    const mh_image_job job = {.bytes = placing->units[0].data,
                              .size = placing->units[0].size,
                              .draws = &draws,
                              .into = placing->into[field],
                              .into_bytes = bytes};
    return mh_image_run(own->plan, placing->room, &job, err);
}

static mh_status place_field(const mh_dataset *dataset, const mh_placing *placing, size_t field,
                             mh_error *err)
{
    const folder_data *own = dataset->own;
    const mh_index *index = &own->kept->index;
    uint8_t *into = placing->into[field];
    int64_t number = (int64_t)placing->sample;
    char key[MH_NAME_MOST];
    switch (dataset->tags[field]) {
    case IMAGE:
        return place_image(dataset, placing, field, err);
    case LABEL:
        number = index->directories[index->files[placing->sample].directory].class_number;
        memcpy(into, &number, sizeof number);
        return MH_OK;
    case BYTES:
        if (placing->units[0].size)
            memcpy(into, placing->units[0].data, placing->units[0].size);
        return MH_OK;
    case INDEX:
        memcpy(into, &number, sizeof number);
        return MH_OK;
    default:
        key_of(index, placing->sample, key, sizeof key);
        memcpy(into, key, strlen(key));
        return MH_OK;
    }
}

static mh_status folder_place(const mh_dataset *dataset, const mh_placing *placing, mh_error *err)
{
    for (size_t i = 0; i < dataset->field_count; i++) {
        mh_status status = place_field(dataset, placing, i, err);
        if (status == MH_OK)
            continue;
        char name[MH_NAME_MOST];
        mh_error_prefix(err, "%s",
                        mh_object_at(&dataset->objects, (uint32_t)placing->sample, name).name);
        return status;
    }
    return MH_OK;
}

/* --- looking --- */

static const char *folder_class(const mh_dataset *dataset, uint64_t at)
{
    const mh_index *index = &((const folder_data *)dataset->own)->kept->index;
    return at < index->class_count ? mh_index_class(index, (uint32_t)at) : NULL;
}

static const char *folder_index(const mh_dataset *dataset, const char **out_state)
{
    static const char *const states[] = {
        [MH_INDEX_USED] = "used", [MH_INDEX_WRITTEN] = "written", [MH_INDEX_UNKEPT] = "not kept"};
    const mh_kept_index *kept = ((const folder_data *)dataset->own)->kept;
    *out_state = states[kept->state];
    return kept->path;
}

const mh_format mh_format_folder = {
    .name = "folder",
    .what = "files in folders, a class for each folder: pictures (JPEG, PNG), or any bytes",
    .suffixes = "",
    .takes = MH_TAKES_PIPELINE | MH_TAKES_INDEX,
    .probe = folder_probe,
    .open = folder_open,
    .finish = folder_finish,
    .close = folder_close,
    .room_new = folder_room_new,
    .room_free = folder_room_free,
    .units_of = folder_units_of,
    .unit = folder_unit,
    .place = folder_place,
    .measure = folder_measure,
    .class_name = folder_class,
    .index_file = folder_index,
};
