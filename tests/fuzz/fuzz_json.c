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

/* Whichever way a number is read, it is the same one. */
static void check_number(const mh_json_token *token)
{
    int64_t whole;
    uint64_t natural;
    double real;
    require(mh_json_double(token, &real) && !isnan(real));
    if (mh_json_int64(token, &whole))
        require((double)whole == real);
    if (mh_json_uint64(token, &natural))
        require((double)natural == real);
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
        if (token.kind == MH_JSON_NUMBER_VALUE)
            check_number(&token);
        mh_jsonout_copy(out, &token);
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
