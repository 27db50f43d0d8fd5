/* probe_read.c - a probe again, from the JSON that `millhead probe --json` printed
 * SPDX-License-Identifier: Apache-2.0
 */
#include "observe/probe.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"
#include "sys/file.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

/* A number, or null for what was not measured. */
static bool read_figure(const mh_json_token *token, double *out)
{
    *out = -1;
    return token->kind == MH_JSON_NULL ||
           (token->kind == MH_JSON_NUMBER_VALUE && mh_json_double(token, out) && *out >= 0);
}

static void read_string(const mh_json_token *token, char *out, size_t room)
{
    if (token->kind == MH_JSON_STRING)
        (void)mh_json_text(token, out, room);
}

static bool read_tier(mh_json *json, mh_probe_tier *tier)
{
    mh_json_token key, value;
    bool good = true;
    *tier = (mh_probe_tier){.mb_per_s = -1, .latency_us = -1};
    while (good && mh_json_next(json, &key) == MH_JSON_KEY && mh_json_next(json, &value)) {
        if (mh_json_is(&key, "name"))
            read_string(&value, tier->name, sizeof tier->name);
        else if (mh_json_is(&key, "how"))
            read_string(&value, tier->how, sizeof tier->how);
        else if (mh_json_is(&key, "mb_per_s"))
            good = read_figure(&value, &tier->mb_per_s);
        else if (mh_json_is(&key, "latency_us"))
            good = read_figure(&value, &tier->latency_us);
        else
            good = mh_json_skip(json, &value);
    }
    return good && key.kind == MH_JSON_OBJECT_END && *tier->name;
}

static bool read_tiers(mh_json *json, mh_probe *out)
{
    mh_json_token token;
    while (mh_json_next(json, &token) == MH_JSON_OBJECT) {
        mh_probe_tier tier;
        if (!read_tier(json, &tier))
            return false;
        if (out->tier_count < MH_PROBE_TIERS)
            out->tiers[out->tier_count++] = tier;
    }
    return token.kind == MH_JSON_ARRAY_END && out->tier_count > 0;
}

static bool read_in_flight(const mh_json_token *value, mh_probe *out)
{
    uint64_t number;
    if (!mh_json_uint64(value, &number) || number > UINT32_MAX)
        return false;
    out->in_flight = (uint32_t)number;
    return true;
}

static bool read_probe(mh_json *json, mh_probe *out)
{
    mh_json_token key, value;
    bool good = mh_json_next(json, &value) == MH_JSON_OBJECT;
    while (good && mh_json_next(json, &key) == MH_JSON_KEY && mh_json_next(json, &value)) {
        if (mh_json_is(&key, "tiers") && value.kind == MH_JSON_ARRAY)
            good = read_tiers(json, out);
        else if (mh_json_is(&key, "file"))
            read_string(&value, out->file, sizeof out->file);
        else if (mh_json_is(&key, "network"))
            read_string(&value, out->network, sizeof out->network);
        else if (mh_json_is(&key, "in_flight") && value.kind == MH_JSON_NUMBER_VALUE)
            good = read_in_flight(&value, out);
        else if (mh_json_is(&key, "bytes") && value.kind == MH_JSON_NUMBER_VALUE)
            (void)mh_json_uint64(&value, &out->bytes);
        else
            good = mh_json_skip(json, &value);
    }
    return good && key.kind == MH_JSON_OBJECT_END && out->tier_count > 0;
}

mh_status mh_probe_read(mh_probe *out, const char *path, mh_error *err)
{
    mh_probe found = {0};
    mh_json json;
    size_t length;
    if (!out || !path)
        return mh_fail(err, MH_ERR_INVALID, "a probe needs a file and a place for its result");
    if (access(path, R_OK) != 0)
        return mh_fail_sys(err, errno == ENOENT ? MH_ERR_NOT_FOUND : MH_ERR_IO, errno,
                           "cannot read %.300s", path);
    char *text = mh_file_read_text(path, &length);
    if (!text)
        return mh_fail(err, MH_ERR_IO, "cannot read %.300s", path);
    mh_json_init(&json, text, length);
    bool good = read_probe(&json, &found) && mh_json_only_blanks(text + json.at, length - json.at);
    mh_free(text);
    if (!good)
        return mh_fail(err, MH_ERR_CORRUPT, "%.300s is not the output of millhead probe --json",
                       path);
    *out = found;
    return MH_OK;
}

const mh_probe_tier *mh_probe_tier_find(const mh_probe *probe, const char *part)
{
    for (size_t at = 0; at < probe->tier_count; at++)
        if (strstr(probe->tiers[at].name, part))
            return &probe->tiers[at];
    return NULL;
}
