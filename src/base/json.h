/* json.h - a strict pull parser for JSON text, pure: no file, no allocation, no recursion
 * SPDX-License-Identifier: Apache-2.0
 *
 * The caller asks for one token after the other:
 *
 *     mh_json json;
 *     mh_json_token token;
 *     mh_json_init(&json, text, size);
 *     while (mh_json_next(&json, &token) > MH_JSON_END) ...
 *
 * Exactly RFC 8259: no comments, no trailing commas, no NaN (but see python_numbers), strings of
 * valid UTF-8 without single surrogates. Two limits: values nest at most MH_JSON_DEPTH deep and a
 * number has at most MH_JSON_NUMBER characters. Reading stops behind the first whole value, where
 * json.at points: what follows is the caller's business, such as the next of several objects glued
 * together.
 */
#ifndef MH_BASE_JSON_H
#define MH_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MH_JSON_DEPTH 64   /* a bit each */
#define MH_JSON_NUMBER 800 /* every digit that can matter to a double, and more */

typedef enum mh_json_kind {
    MH_JSON_ERROR, /* json.problem says what, json.at where; stays so */
    MH_JSON_END,   /* the value is over */
    MH_JSON_NULL,
    MH_JSON_FALSE,
    MH_JSON_TRUE,
    MH_JSON_NUMBER_VALUE,
    MH_JSON_STRING,
    MH_JSON_KEY, /* of an object; its value is next */
    MH_JSON_OBJECT,
    MH_JSON_OBJECT_END,
    MH_JSON_ARRAY,
    MH_JSON_ARRAY_END,
} mh_json_kind;

/* Points into the text that is parsed. */
typedef struct mh_json_token {
    const char *text; /* of a number all of it, of a string what lies between its quotes */
    size_t length;
    mh_json_kind kind;
    bool escaped; /* a string or key that holds escapes: see mh_json_text */
} mh_json_token;

/* Caller's memory; the fields are to be read only. */
typedef struct mh_json {
    const char *data;
    size_t size;
    size_t at;
    const char *problem; /* NULL: none yet */
    uint64_t objects;    /* bit d: level d is an object, else an array */
    unsigned depth;
    unsigned expect;     /* what may come next */
    bool python_numbers; /* set after init: NaN, Infinity and -Infinity are numbers too */
} mh_json;

/* `data` need not end in NUL and must live as long as the parser and its tokens. */
void mh_json_init(mh_json *json, const char *data, size_t size);

/* The next token, whose kind is also returned. */
mh_json_kind mh_json_next(mh_json *json, mh_json_token *token);

/* Passes over the rest of the array or object that `opened` began; nothing to do for others.
 * False on an error in it. */
bool mh_json_skip(mh_json *json, const mh_json_token *opened);

/* True when nothing but blanks follows. */
bool mh_json_only_blanks(const char *data, size_t size);

/* A number token as another type. The integers: true only where the text is a whole number without
 * fraction and exponent that fits exactly. The double: the nearest one; infinite where the text is
 * too large. */
bool mh_json_int64(const mh_json_token *token, int64_t *out);
bool mh_json_uint64(const mh_json_token *token, uint64_t *out);
bool mh_json_double(const mh_json_token *token, double *out);

/* A string or key with its escapes resolved, into `out` of `room` bytes, NUL at its end; cut where
 * it is longer, never inside a character. Returns its bytes, not counting the NUL. */
size_t mh_json_text(const mh_json_token *token, char *out, size_t room);

/* Bytes of the UTF-8 character above ASCII at `text`, of which `left` bytes may be read; 0: there
 * is none. Not overlong, no surrogate, in range. */
size_t mh_json_utf8_length(const char *text, size_t left);

/* Whether a string or key without escapes is exactly `text`. */
bool mh_json_is(const mh_json_token *token, const char *text);

#endif
