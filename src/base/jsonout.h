/* jsonout.h - writing JSON: one call per key or value; commas, quotes and escapes come by
 * themselves
 * SPDX-License-Identifier: Apache-2.0
 *
 * Into a growing text, or through it into a file. A failure is remembered: write on, ask once at
 * the end. One thread at a time.
 */
#ifndef MH_BASE_JSONOUT_H
#define MH_BASE_JSONOUT_H

#include "base/json.h"
#include <millhead/error.h>
#include <stdio.h>

typedef struct mh_jsonout {
    char *text; /* NUL-terminated after mh_jsonout_finish */
    size_t length;
    size_t room;
    FILE *file; /* NULL: everything stays in `text` */
    bool comma; /* the next key or value needs one */
    bool html;  /* set after init: strings hold nothing that a page could take for markup */
    mh_status failed;
    int sys_errno;
} mh_jsonout;

/* `file` stays the caller's; NULL: none. */
void mh_jsonout_init(mh_jsonout *out, FILE *file);

void mh_jsonout_object(mh_jsonout *out);
void mh_jsonout_object_end(mh_jsonout *out);
void mh_jsonout_array(mh_jsonout *out);
void mh_jsonout_array_end(mh_jsonout *out);
void mh_jsonout_key(mh_jsonout *out, const char *key);
void mh_jsonout_string(mh_jsonout *out, const char *text); /* bytes that are no UTF-8 become '?' */
void mh_jsonout_int(mh_jsonout *out, int64_t value);
void mh_jsonout_uint(mh_jsonout *out, uint64_t value);
void mh_jsonout_double(mh_jsonout *out, double value); /* shortest that reads back; or null */
void mh_jsonout_thousandths(mh_jsonout *out, uint64_t value); /* 1234567 as 1234.567 */
void mh_jsonout_bool(mh_jsonout *out, bool value);
void mh_jsonout_null(mh_jsonout *out);
void mh_jsonout_token(mh_jsonout *out, const mh_json_token *token); /* a string as it was read */
void mh_jsonout_copy(mh_jsonout *out, const mh_json_token *token);  /* whatever was read, again */
void mh_jsonout_newline(mh_jsonout *out); /* between members, after their comma */

/* Ends the text or passes the rest to the file. MH_ERR_NOMEM or MH_ERR_IO if anything failed. */
MH_MUST_CHECK mh_status mh_jsonout_finish(mh_jsonout *out, mh_error *err);

/* Frees the text; one that was taken out was set to NULL. */
void mh_jsonout_deinit(mh_jsonout *out);

#endif
