/* json_view.c - JSON text looked into by key, without a tree in memory
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/json_view.h"

#include "base/error.h"

#include <string.h>

static void view_init(mh_json *json, mh_json_view view)
{
    mh_json_init(json, view.text, view.size);
    json->python_numbers = true;
}

mh_status mh_json_view_of(mh_json_view *out, const char *data, size_t size, const char *what,
                          mh_error *err)
{
    mh_json json;
    mh_json_token token;
    mh_json_kind kind;
    view_init(&json, (mh_json_view){data, size});
    while ((kind = mh_json_next(&json, &token)) > MH_JSON_END)
        continue;
    if (kind == MH_JSON_ERROR)
        return mh_fail(err, MH_ERR_CORRUPT, "%s at byte %zu: %s", what, json.at, json.problem);
    if (!mh_json_only_blanks(data + json.at, size - json.at))
        return mh_fail(err, MH_ERR_CORRUPT, "%s at byte %zu: more than one value", what, json.at);
    *out = (mh_json_view){data, size};
    return MH_OK;
}

mh_json_kind mh_json_view_kind(mh_json_view view)
{
    mh_json json;
    mh_json_token token;
    if (!view.text)
        return MH_JSON_ERROR;
    view_init(&json, view);
    return mh_json_next(&json, &token);
}

bool mh_json_walk_init(mh_json_walk *walk, mh_json_view view)
{
    mh_json_token token;
    if (!view.text)
        return false;
    view_init(&walk->json, view);
    mh_json_kind kind = mh_json_next(&walk->json, &token);
    walk->object = kind == MH_JSON_OBJECT;
    return walk->object || kind == MH_JSON_ARRAY;
}

bool mh_json_walk_next(mh_json_walk *walk, mh_json_token *key, mh_json_view *value)
{
    mh_json *json = &walk->json;
    mh_json_token token;
    if (walk->object) {
        if (mh_json_next(json, &token) != MH_JSON_KEY)
            return false;
        if (key)
            *key = token;
    }
    mh_json_kind kind = mh_json_next(json, &token);
    if (kind <= MH_JSON_END || kind == MH_JSON_ARRAY_END)
        return false;
    /* Where the token began: brackets and words are behind us, texts know their place. */
    const char *begin = json->data + json->at - 1;
    if (kind == MH_JSON_STRING)
        begin = token.text - 1;
    else if (kind == MH_JSON_NUMBER_VALUE)
        begin = token.text;
    else if (kind == MH_JSON_FALSE)
        begin = json->data + json->at - strlen("false");
    else if (kind == MH_JSON_NULL || kind == MH_JSON_TRUE)
        begin = json->data + json->at - strlen("null");
    if (!mh_json_skip(json, &token))
        return false;
    *value = (mh_json_view){begin, (size_t)(json->data + json->at - begin)};
    return true;
}

static bool key_is(const mh_json_token *key, const char *text)
{
    char resolved[256];
    if (!key->escaped)
        return mh_json_is(key, text);
    return mh_json_text(key, resolved, sizeof resolved) == strlen(text) &&
           strcmp(resolved, text) == 0;
}

mh_json_view mh_json_member(mh_json_view object, const char *key)
{
    mh_json_view found = {NULL, 0}, value;
    mh_json_walk walk;
    mh_json_token token;
    if (!mh_json_walk_init(&walk, object) || !walk.object)
        return found;
    while (mh_json_walk_next(&walk, &token, &value))
        if (key_is(&token, key))
            found = value;
    return found;
}

/* --- scalars --- */

static bool scalar(mh_json_view view, mh_json_kind kind, mh_json_token *out)
{
    mh_json json;
    if (!view.text)
        return false;
    view_init(&json, view);
    return mh_json_next(&json, out) == kind;
}

bool mh_json_view_text(mh_json_view view, char *out, size_t room)
{
    mh_json_token token;
    if (!scalar(view, MH_JSON_STRING, &token))
        return false;
    /* Every byte of the text as it stands makes at most one byte; where it fits, nothing is cut. */
    if (token.length < room)
        return mh_json_text(&token, out, room) == strlen(out);
    return token.escaped && mh_json_text(&token, out, room) == strlen(out) &&
           strlen(out) + 4 < room;
}

bool mh_json_view_int64(mh_json_view view, int64_t *out)
{
    mh_json_token token;
    return scalar(view, MH_JSON_NUMBER_VALUE, &token) && mh_json_int64(&token, out);
}

bool mh_json_view_double(mh_json_view view, double *out)
{
    mh_json_token token;
    return scalar(view, MH_JSON_NUMBER_VALUE, &token) && mh_json_double(&token, out);
}

bool mh_json_view_bool(mh_json_view view, bool *out)
{
    mh_json_kind kind = mh_json_view_kind(view);
    *out = kind == MH_JSON_TRUE;
    return kind == MH_JSON_TRUE || kind == MH_JSON_FALSE;
}

bool mh_json_view_is(mh_json_view view, const char *text)
{
    mh_json_token token;
    return scalar(view, MH_JSON_STRING, &token) && key_is(&token, text);
}

int mh_json_view_int64s(mh_json_view view, int64_t least, int64_t *out, int most)
{
    mh_json_walk walk;
    mh_json_view value;
    int count = 0;
    if (!mh_json_walk_init(&walk, view) || walk.object)
        return -1;
    while (mh_json_walk_next(&walk, NULL, &value)) {
        if (count == most || !mh_json_view_int64(value, &out[count]) || out[count] < least)
            return -1;
        count++;
    }
    return count;
}
