/* json_view.h - JSON text looked into by key, without a tree in memory
 * SPDX-License-Identifier: Apache-2.0
 *
 * A view is one whole value in the text that somebody else keeps. Finding a member scans the value,
 * which is right for metadata: small, read once, keys in any order.
 */
#ifndef MH_BASE_JSON_VIEW_H
#define MH_BASE_JSON_VIEW_H

#include "base/json.h"

#include <millhead/error.h>

typedef struct mh_json_view {
    const char *text; /* NULL: there is no such value */
    size_t size;
} mh_json_view;

/* Checks that the text is one value and nothing else; numbers may be those of Python (NaN).
 * MH_ERR_CORRUPT says what is wrong and at which byte; `what` names the text. */
MH_MUST_CHECK mh_status mh_json_view_of(mh_json_view *out, const char *data, size_t size,
                                        const char *what, mh_error *err);

/* What begins there: MH_JSON_OBJECT, MH_JSON_ARRAY, a scalar; MH_JSON_ERROR where there is none. */
mh_json_kind mh_json_view_kind(mh_json_view view);

/* The member of an object; of several with the same key the last, as Python has it. No such member,
 * or not an object: a view whose text is NULL. */
mh_json_view mh_json_member(mh_json_view object, const char *key);

/* Goes through an object or an array. The caller's memory. */
typedef struct mh_json_walk {
    mh_json json;
    bool object;
} mh_json_walk;

/* False where the view is neither. */
bool mh_json_walk_init(mh_json_walk *walk, mh_json_view view);
/* The next value, and of an object its key (may be NULL for an array); false: no more. */
bool mh_json_walk_next(mh_json_walk *walk, mh_json_token *key, mh_json_view *value);

/* A scalar as another type: false where it is anything else. The text must fit into `room` with
 * its NUL and hold no NUL itself. */
bool mh_json_view_text(mh_json_view view, char *out, size_t room);
bool mh_json_view_int64(mh_json_view view, int64_t *out);
bool mh_json_view_double(mh_json_view view, double *out);
bool mh_json_view_bool(mh_json_view view, bool *out);
/* Whether the view is exactly this text. */
bool mh_json_view_is(mh_json_view view, const char *text);

/* Whole numbers of an array into out[0 … most - 1]: their count, or -1 where it is anything else,
 * longer, or has a number below `least`. */
int mh_json_view_int64s(mh_json_view view, int64_t least, int64_t *out, int most);

#endif
