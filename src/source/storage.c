/* storage.c - how remote data is reached, from its text
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/storage.h"

#include "base/error.h"
#include "base/json.h"

#include <stddef.h>
#include <string.h>

#define KEY_ROOM 32
#define KNOWN "endpoint_url, region, profile, anon, key, secret, token, style, link_local, ca_file"

typedef struct text_option {
    const char *name;
    size_t offset, room;
} text_option;

#define TEXT(name)                                                                                 \
    {                                                                                              \
#name, offsetof(mh_storage, name), sizeof((mh_storage *)0)->name                           \
    }

static const text_option texts[] = {
    TEXT(endpoint_url), TEXT(region), TEXT(profile), TEXT(key),
    TEXT(secret),       TEXT(token),  TEXT(ca_file),
};

static mh_status fail_value(mh_error *err, const char *key, const char *wanted)
{
    return mh_fail(err, MH_ERR_INVALID, "storage option %s must be %s", key, wanted);
}

static mh_status set_flag(bool *out, const char *key, const char *value, mh_error *err)
{
    bool yes = strcmp(value, "true") == 0 || strcmp(value, "True") == 0 || strcmp(value, "1") == 0;
    bool no = strcmp(value, "false") == 0 || strcmp(value, "False") == 0 || strcmp(value, "0") == 0;
    if (!yes && !no)
        return fail_value(err, key, "true or false");
    *out = yes;
    return MH_OK;
}

static mh_status set(mh_storage *out, const char *key, const char *value, mh_error *err)
{
    size_t length = strlen(value);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i].name, key) == 0) {
            if (length >= texts[i].room)
                return fail_value(err, key, "shorter");
            for (size_t at = 0; at < length; at++)
                if ((unsigned char)value[at] < 0x20 || value[at] == 0x7f)
                    return fail_value(err, key, "free of control characters");
            memcpy((char *)out + texts[i].offset, value, length + 1);
            return MH_OK;
        }
    if (strcmp(key, "anon") == 0)
        return set_flag(&out->anon, key, value, err);
    if (strcmp(key, "link_local") == 0)
        return set_flag(&out->link_local, key, value, err);
    if (strcmp(key, "style") == 0) {
        out->path_style = strcmp(value, "path") == 0;
        out->virtual_host = strcmp(value, "virtual") == 0;
        return out->path_style || out->virtual_host ? MH_OK
                                                    : fail_value(err, key, "path or virtual");
    }
    return mh_fail(err, MH_ERR_INVALID, "unknown storage option '%.31s': there are " KNOWN, key);
}

static mh_status read_pairs(mh_storage *out, const char *text, mh_error *err)
{
    while (*text) {
        char key[KEY_ROOM], value[MH_STORAGE_TOKEN_ROOM];
        size_t part = strcspn(text, ","), name = strcspn(text, "=,");
        if (name == part)
            return mh_fail(err, MH_ERR_INVALID,
                           "storage options are written KEY=VALUE,KEY=VALUE: there are " KNOWN);
        size_t kept = name < KEY_ROOM ? name : KEY_ROOM - 1, length = part - name - 1;
        memcpy(key, text, kept);
        key[kept] = '\0';
        if (length >= sizeof value)
            return fail_value(err, key, "shorter");
        memcpy(value, text + name + 1, length);
        value[length] = '\0';
        mh_status status = set(out, key, value, err);
        explicit_bzero(value, sizeof value);
        MH_TRY(status);
        text += part + (text[part] == ',');
    }
    return MH_OK;
}

static mh_status read_value(mh_storage *out, mh_json *json, const char *key, mh_error *err)
{
    mh_json_token token;
    char value[MH_STORAGE_TOKEN_ROOM];
    mh_status status;
    switch (mh_json_next(json, &token)) {
    case MH_JSON_TRUE:
    case MH_JSON_FALSE:
        return set(out, key, token.kind == MH_JSON_TRUE ? "true" : "false", err);
    case MH_JSON_NULL:
        return MH_OK;
    case MH_JSON_STRING:
        if (token.length >= sizeof value)
            return fail_value(err, key, "shorter");
        (void)mh_json_text(&token, value, sizeof value);
        status = set(out, key, value, err);
        explicit_bzero(value, sizeof value);
        return status;
    default:
        return fail_value(err, key, "a text");
    }
}

static mh_status read_json(mh_storage *out, const char *text, mh_error *err)
{
    mh_json json;
    mh_json_token token;
    char key[KEY_ROOM];
    mh_json_init(&json, text, strlen(text));
    mh_json_kind kind = mh_json_next(&json, &token);
    while (kind == MH_JSON_OBJECT && (mh_json_next(&json, &token)) == MH_JSON_KEY) {
        (void)mh_json_text(&token, key, sizeof key);
        MH_TRY(read_value(out, &json, key, err));
    }
    return token.kind == MH_JSON_OBJECT_END
               ? MH_OK
               : mh_fail(err, MH_ERR_INVALID, "storage options are not a JSON object");
}

mh_status mh_storage_read(mh_storage *out, const char *text, mh_error *err)
{
    mh_status status = MH_OK;
    *out = (mh_storage){0};
    if (text && *text)
        status = *text == '{' ? read_json(out, text, err) : read_pairs(out, text, err);
    if (status == MH_OK && *out->key && !*out->secret)
        status = mh_fail(err, MH_ERR_INVALID, "storage option key needs secret, too");
    if (status != MH_OK)
        mh_storage_wipe(out);
    return status;
}

void mh_storage_wipe(mh_storage *storage)
{
    explicit_bzero(storage, sizeof *storage);
}
