/* json_copy.c - every line of standard input, read as JSON and written again; "bad" where it is not
 * exactly one value. For test_json.py.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/json.h"
#include "base/jsonout.h"

#include <stdlib.h>

static void copy_line(const char *line, size_t size)
{
    mh_json json;
    mh_json_token token;
    mh_jsonout out;
    mh_jsonout_init(&out, NULL);
    mh_json_init(&json, line, size);
    while (mh_json_next(&json, &token) > MH_JSON_END)
        mh_jsonout_copy(&out, &token);
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
