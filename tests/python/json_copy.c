/* json_copy.c - every line of standard input, read as JSON and written again; "bad" where it is not
 * exactly one value. For test_json.py.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/json.h"
#include "base/jsonout.h"

#include <stdlib.h>

static char text[1 << 20];

static void copy_number(mh_jsonout *out, const mh_json_token *token)
{
    int64_t whole;
    uint64_t natural;
    double real;
    if (mh_json_int64(token, &whole))
        mh_jsonout_int(out, whole);
    else if (mh_json_uint64(token, &natural))
        mh_jsonout_uint(out, natural);
    else if (mh_json_double(token, &real))
        mh_jsonout_double(out, real);
}

static void copy_token(mh_jsonout *out, const mh_json_token *token)
{
    switch (token->kind) {
    case MH_JSON_OBJECT:
        mh_jsonout_object(out);
        break;
    case MH_JSON_OBJECT_END:
        mh_jsonout_object_end(out);
        break;
    case MH_JSON_ARRAY:
        mh_jsonout_array(out);
        break;
    case MH_JSON_ARRAY_END:
        mh_jsonout_array_end(out);
        break;
    case MH_JSON_KEY:
        (void)mh_json_text(token, text, sizeof text);
        mh_jsonout_key(out, text);
        break;
    case MH_JSON_STRING:
        (void)mh_json_text(token, text, sizeof text);
        mh_jsonout_string(out, text);
        break;
    case MH_JSON_NUMBER_VALUE:
        copy_number(out, token);
        break;
    case MH_JSON_TRUE:
    case MH_JSON_FALSE:
        mh_jsonout_bool(out, token->kind == MH_JSON_TRUE);
        break;
    default:
        mh_jsonout_null(out);
    }
}

static void copy_line(const char *line, size_t size)
{
    mh_json json;
    mh_json_token token;
    mh_jsonout out;
    mh_jsonout_init(&out, NULL);
    mh_json_init(&json, line, size);
    while (mh_json_next(&json, &token) > MH_JSON_END)
        copy_token(&out, &token);
    int good = token.kind == MH_JSON_END && mh_json_only_blanks(line + json.at, size - json.at) &&
               mh_jsonout_finish(&out, NULL) == MH_OK;
    (void)puts(good ? out.text : "bad");
    mh_jsonout_deinit(&out);
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    for (ssize_t size; (size = getline(&line, &room, stdin)) >= 0;)
        copy_line(line, (size_t)size);
    free(line);
    return 0;
}
