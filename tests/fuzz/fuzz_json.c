/* fuzz_json.c - fuzz target: what is read as JSON can be written, and reads as the same again
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/json.h"
#include "base/jsonout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What holds for every answer, whatever the input. */
static void require(int truth)
{
    if (!truth)
        abort();
}

static void copy_number(mh_jsonout *out, const mh_json_token *token)
{
    int64_t whole;
    uint64_t natural;
    double real;
    require(mh_json_double(token, &real) && !isnan(real));
    if (mh_json_int64(token, &whole)) {
        require((double)whole == real);
        mh_jsonout_int(out, whole);
    } else if (mh_json_uint64(token, &natural)) {
        require((double)natural == real);
        mh_jsonout_uint(out, natural);
    } else {
        mh_jsonout_double(out, real);
    }
}

static void copy_token(mh_jsonout *out, const mh_json_token *token)
{
    char text[256];
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
        require(mh_json_text(token, text, sizeof text) < sizeof text);
        mh_jsonout_key(out, text);
        break;
    case MH_JSON_STRING:
        require(mh_json_text(token, text, sizeof text) < sizeof text);
        mh_jsonout_string(out, text);
        break;
    case MH_JSON_NUMBER_VALUE:
        copy_number(out, token);
        break;
    default:
        mh_jsonout_null(out);
    }
}

/* 1 when `data` begins with a value; it is then in `out`. */
static int copy(mh_jsonout *out, const char *data, size_t size)
{
    mh_json json;
    mh_json_token token;
    mh_jsonout_init(out, NULL);
    mh_json_init(&json, data, size);
    while (mh_json_next(&json, &token) > MH_JSON_END) {
        require(json.at <= size);
        copy_token(out, &token);
    }
    require(json.at <= size && (json.problem != NULL) == (token.kind == MH_JSON_ERROR));
    if (token.kind == MH_JSON_END)
        require(mh_jsonout_finish(out, NULL) == MH_OK);
    return token.kind == MH_JSON_END;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mh_jsonout once, twice;
    if (copy(&once, (const char *)data, size)) {
        require(copy(&twice, once.text, once.length));
        require(strcmp(once.text, twice.text) == 0);
        mh_jsonout_deinit(&twice);
    }
    mh_jsonout_deinit(&once);
    return 0;
}
