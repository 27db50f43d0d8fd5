/* storage.c - how remote data is reached, from its text
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/storage.h"

#include "base/error.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define KEY_ROOM 32
#define VALUE_ROOM MH_STORAGE_TOKEN_ROOM
#define TIMEOUT_S 120.0
#define KNOWN                                                                                      \
    "endpoint_url, region, profile, anon, key, secret, token, style, link_local, ca_file, timeout"

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
    if (strcmp(key, "timeout") == 0) {
        char *end;
        out->timeout_s = strtod(value, &end);
        return end != value && !*end && out->timeout_s >= 0.01 && out->timeout_s <= 86400
                   ? MH_OK
                   : fail_value(err, key, "seconds");
    }
    return mh_fail(err, MH_ERR_INVALID, "unknown storage option '%.31s': there are " KNOWN, key);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A value may have commas and percent signs as %2C and %25. False: it is too long or has a NUL. */
static bool take_value(char out[VALUE_ROOM], const char *text, size_t length)
{
    size_t used = 0;
    for (size_t at = 0; at < length; at++) {
        char c = text[at];
        int high = c == '%' && length - at > 2 ? hex_digit(text[at + 1]) : -1;
        int low = high >= 0 ? hex_digit(text[at + 2]) : -1;
        if (low >= 0) {
            c = (char)(high << 4 | low);
            at += 2;
        }
        if (used == VALUE_ROOM - 1 || c == '\0')
            return false;
        out[used++] = c;
    }
    out[used] = '\0';
    return true;
}

static mh_status read_pairs(mh_storage *out, const char *text, mh_error *err)
{
    while (*text) {
        char key[KEY_ROOM], value[VALUE_ROOM];
        size_t part = strcspn(text, ","), name = strcspn(text, "=,");
        if (name == part)
            return mh_fail(err, MH_ERR_INVALID,
                           "storage options are written KEY=VALUE,KEY=VALUE: there are " KNOWN);
        size_t kept = name < KEY_ROOM ? name : KEY_ROOM - 1;
        memcpy(key, text, kept);
        key[kept] = '\0';
        mh_status status = take_value(value, text + name + 1, part - name - 1)
                               ? set(out, key, value, err)
                               : fail_value(err, key, "shorter");
        explicit_bzero(value, sizeof value);
        MH_TRY(status);
        text += part + (text[part] == ',');
    }
    return MH_OK;
}

mh_status mh_storage_read(mh_storage *out, const char *text, mh_error *err)
{
    mh_status status = MH_OK;
    *out = (mh_storage){.timeout_s = TIMEOUT_S};
    if (text && *text)
        status = read_pairs(out, text, err);
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
