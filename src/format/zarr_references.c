/* zarr_references.c - kerchunk reference files: a JSON text that says where each key's bytes lie
 * SPDX-License-Identifier: Apache-2.0
 *
 * {"version": 1, "templates": {"u": "s3://bucket/x.nc"},
 *  "refs": {".zgroup": "{…}", "t/0.0": ["{{u}}", 8192, 4096], "t/0.1": "base64:AAAA"}}
 *
 * Version 0 is the refs alone. A value is a text (the bytes themselves), an object of JSON (a
 * document), [url] or [url, offset, size].
 */
#include "base/alloc.h"
#include "base/error.h"
#include "base/json_view.h"
#include "format/zarr_store.h"

#include <stdlib.h>
#include <string.h>

#define URL_BYTES_MOST ((size_t)1 << 28) /* templates may make them longer than the file */

typedef struct reading {
    mh_zarr_places *places;
    mh_json_view templates;
    size_t used, room; /* of places->memory */
    char **urls;
    uint32_t url_count, url_room;
    size_t url_bytes;
    const char *last_url; /* as written, of the reference before: most have the same */
    size_t last_length;
    uint32_t last_object;
} reading;

/* Memory of `size` bytes that stays; the text of the file bounds how much is taken in all. */
static uint8_t *take(reading *r, size_t size)
{
    if (size > r->room - r->used)
        return NULL;
    uint8_t *memory = r->places->memory + r->used;
    r->used += size;
    return memory;
}

static mh_status fail_room(mh_error *err)
{
    return mh_fail(err, MH_ERR_CORRUPT, "references: texts longer than the file itself");
}

/* --- addresses --- */

/* Resolves {{name}} into `out`; false: unknown template, or too long. */
static bool expand(mh_json_view templates, const char *text, char *out, size_t room)
{
    size_t used = 0;
    while (*text) {
        const char *end = strncmp(text, "{{", 2) == 0 ? strstr(text, "}}") : NULL;
        if (!end) {
            if (used + 1 >= room)
                return false;
            out[used++] = *text++;
            continue;
        }
        char name[128];
        size_t length = (size_t)(end - text) - 2;
        if (length >= sizeof name)
            return false;
        memcpy(name, text + 2, length);
        name[length] = '\0';
        if (!mh_json_view_text(mh_json_member(templates, name), out + used, room - used))
            return false;
        used += strlen(out + used);
        text = end + 2;
    }
    out[used] = '\0';
    return true;
}

static mh_status add_url(reading *r, const char *url, uint32_t *out, mh_error *err)
{
    for (uint32_t i = r->url_count; i-- > 0 && r->url_count - i < 64;)
        if (strcmp(r->urls[i], url) == 0) {
            *out = i;
            return MH_OK;
        }
    if (r->url_count == r->url_room) {
        uint32_t room = r->url_room ? 2 * r->url_room : 16;
        char **urls = mh_realloc((void *)r->urls, room, sizeof *urls);
        if (!urls)
            return mh_fail(err, MH_ERR_NOMEM, "no memory for references");
        r->urls = urls;
        r->url_room = room;
    }
    size_t length = strlen(url) + 1;
    r->url_bytes += length;
    if (r->url_bytes > URL_BYTES_MOST)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "references: addresses of more than 256 MiB");
    char *copy = mh_calloc(length, 1);
    if (!copy)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for references");
    r->urls[r->url_count] = memcpy(copy, url, length);
    *out = r->url_count++;
    return MH_OK;
}

static mh_status object_of(reading *r, mh_json_view url, uint32_t *out, mh_error *err)
{
    char text[MH_NAME_MOST], whole[MH_NAME_MOST];
    if (r->last_url && r->last_length == url.size && memcmp(r->last_url, url.text, url.size) == 0) {
        *out = r->last_object;
        return MH_OK;
    }
    if (!mh_json_view_text(url, text, sizeof text) ||
        !expand(r->templates, text, whole, sizeof whole))
        return mh_fail(err, MH_ERR_CORRUPT, "references: not an address: %.*s",
                       (int)(url.size < 80 ? url.size : 80), url.text);
    MH_TRY(add_url(r, whole, out, err));
    r->last_url = url.text;
    r->last_length = url.size;
    r->last_object = *out;
    return MH_OK;
}

/* [url] or [url, offset, size] */
static mh_status read_range(reading *r, mh_json_view value, mh_zarr_place *place, mh_error *err)
{
    mh_json_walk walk;
    mh_json_view parts[3];
    int64_t numbers[2] = {0, 0};
    int count = 0;
    (void)mh_json_walk_init(&walk, value);
    while (count < 3 && mh_json_walk_next(&walk, NULL, &parts[count]))
        count++;
    if ((count != 1 && count != 3) || (count == 3 && (!mh_json_view_int64(parts[1], &numbers[0]) ||
                                                      !mh_json_view_int64(parts[2], &numbers[1]) ||
                                                      numbers[0] < 0 || numbers[1] < 0)))
        return mh_fail(err, MH_ERR_CORRUPT, "references: %s is not [url, offset, size]",
                       place->key);
    place->whole = count == 1;
    place->offset = (uint64_t)numbers[0];
    place->size = (uint64_t)numbers[1];
    return object_of(r, parts[0], &place->object, err);
}

/* --- bytes in the file itself --- */

static size_t base64_decode(const char *text, uint8_t *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t word = 0;
    int bits = 0;
    size_t used = 0;
    for (; *text && *text != '='; text++) {
        const char *at = strchr(digits, *text);
        if (!at)
            return SIZE_MAX;
        word = word << 6 | (uint32_t)(at - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out[used++] = (uint8_t)(word >> bits);
        }
    }
    return used;
}

/* A text stands for its characters as bytes: kerchunk writes those above ASCII as base64. */
static mh_status read_inline(reading *r, mh_json_view value, mh_zarr_place *place, mh_error *err)
{
    static const char prefix[] = "base64:";
    size_t room = value.size + 1;
    char *text = (char *)take(r, room);
    if (!text)
        return fail_room(err);
    place->bytes = (uint8_t *)text;
    if (mh_json_view_kind(value) == MH_JSON_OBJECT) {
        memcpy(text, value.text, value.size);
        place->size = value.size;
        return MH_OK;
    }
    if (!mh_json_view_text(value, text, room))
        return mh_fail(err, MH_ERR_CORRUPT, "references: %s is not a text or a range", place->key);
    place->size = strlen(text);
    if (strncmp(text, prefix, sizeof prefix - 1) != 0)
        return MH_OK;
    place->size = base64_decode(text + sizeof prefix - 1, (uint8_t *)text);
    if (place->size == SIZE_MAX)
        return mh_fail(err, MH_ERR_CORRUPT, "references: %s is not base64", place->key);
    text[place->size] = '\0';
    return MH_OK;
}

/* --- all --- */

static mh_status read_refs(reading *r, mh_json_view refs, mh_error *err)
{
    mh_json_walk walk;
    mh_json_token key;
    mh_json_view value;
    size_t count = 0;
    (void)mh_json_walk_init(&walk, refs);
    while (mh_json_walk_next(&walk, &key, &value))
        count++;
    r->places->list = mh_calloc(count ? count : 1, sizeof *r->places->list);
    if (!r->places->list)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for %zu references", count);
    (void)mh_json_walk_init(&walk, refs);
    while (mh_json_walk_next(&walk, &key, &value)) {
        mh_zarr_place *place = &r->places->list[r->places->count++];
        char *text = (char *)take(r, key.length + 1);
        if (!text)
            return fail_room(err);
        (void)mh_json_text(&key, text, key.length + 1);
        *place = (mh_zarr_place){.key = text};
        if (mh_json_view_kind(value) == MH_JSON_ARRAY)
            MH_TRY(read_range(r, value, place, err));
        else
            MH_TRY(read_inline(r, value, place, err));
    }
    return MH_OK;
}

mh_status mh_zarr_places_references(mh_zarr_places *out, const char *text, size_t size,
                                    char ***urls, uint32_t *url_count, mh_error *err)
{
    mh_json_view root = {NULL, 0};
    *out = (mh_zarr_places){0};
    MH_TRY(mh_json_view_of(&root, text, size, "references", err));
    if (mh_json_view_kind(root) != MH_JSON_OBJECT)
        return mh_fail(err, MH_ERR_CORRUPT, "references: not an object of JSON");
    mh_json_view refs = mh_json_member(root, "refs");
    if (mh_json_member(root, "gen").text &&
        mh_json_view_kind(mh_json_member(root, "gen")) == MH_JSON_ARRAY &&
        mh_json_member(root, "gen").size > 2)
        return mh_fail(err, MH_ERR_UNSUPPORTED, "references made by \"gen\": write them out");
    /* Keys and bytes are not longer here than in the file, but for a NUL each. */
    reading r = {
        .places = out, .templates = mh_json_member(root, "templates"), .room = 2 * size + 1};
    out->memory = mh_calloc(r.room, 1);
    if (!out->memory)
        return mh_fail(err, MH_ERR_NOMEM, "no memory for references");
    mh_status status = read_refs(&r, mh_json_view_kind(refs) == MH_JSON_OBJECT ? refs : root, err);
    *urls = r.urls;
    *url_count = r.url_count;
    if (status == MH_OK)
        mh_zarr_places_sort(out);
    return status;
}
