/* steps_text.c - what is to become of the values of each array, as people write it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "array/steps_text.h"

#include "base/error.h"
#include "base/nearest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEP_MOST 128 /* bytes of one step */

enum { NORMALIZE, NAN_VALUE, CAST, STEPS };

static const char *const step_names[STEPS] = {"normalize", "nan", "cast"};

/* A stretch of the text, without blanks at its ends. */
typedef struct stretch {
    const char *at;
    size_t length;
} stretch;

static stretch trimmed(const char *at, size_t length)
{
    while (length && (*at == ' ' || *at == '\t' || *at == '\n'))
        at++, length--;
    while (length && strchr(" \t\n", at[length - 1]))
        length--;
    return (stretch){at, length};
}

/* Takes what stands before the next `end`, or all there is; false: nothing is left. */
static bool take_until(stretch *rest, char end, stretch *out)
{
    if (!rest->at)
        return false;
    const char *found = rest->length ? memchr(rest->at, end, rest->length) : NULL;
    const size_t length = found ? (size_t)(found - rest->at) : rest->length;
    *out = trimmed(rest->at, length);
    *rest = found ? (stretch){found + 1, rest->length - length - 1} : (stretch){NULL, 0};
    return true;
}

/* --- one step --- */

static mh_status read_number(const char *text, const char *step, double *out, mh_error *err)
{
    char *end;
    *out = strtod(text, &end);
    if (!*text || *end || !isfinite(*out))
        return mh_fail(err, MH_ERR_INVALID, "%s takes a number, not '%s'", step, text);
    return MH_OK;
}

static mh_status read_normalize(mh_decoding *decoding, char *words, mh_error *err)
{
    bool has_mean = false, has_std = false;
    char *rest = NULL;
    for (char *word = strtok_r(words, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest))
        if (strncmp(word, "mean=", 5) == 0) {
            MH_TRY(read_number(word + 5, "normalize mean=", &decoding->mean, err));
            has_mean = true;
        } else if (strncmp(word, "std=", 4) == 0) {
            MH_TRY(read_number(word + 4, "normalize std=", &decoding->std, err));
            has_std = true;
        } else {
            return mh_fail(err, MH_ERR_INVALID, "normalize takes mean=M std=S, not '%s'", word);
        }
    if (!has_mean || !has_std)
        return mh_fail(err, MH_ERR_INVALID, "normalize needs mean=M and std=S");
    if (decoding->std == 0)
        return mh_fail(err, MH_ERR_INVALID, "normalize with a std of 0 divides by it");
    decoding->normalise = true;
    return MH_OK;
}

static mh_status read_cast(mh_decoding *decoding, const char *word, mh_error *err)
{
    static const struct {
        const char *name;
        mh_dtype dtype;
    } types[] = {{"f16", {2, 16}}, {"f32", {2, 32}}, {"f64", {2, 64}}, {"i8", {0, 8}},
                 {"i16", {0, 16}}, {"i32", {0, 32}}, {"i64", {0, 64}}, {"u8", {1, 8}},
                 {"u16", {1, 16}}, {"u32", {1, 32}}, {"u64", {1, 64}}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(word, types[i].name) == 0) {
            decoding->cast = types[i].dtype;
            return MH_OK;
        }
    return mh_fail(err, MH_ERR_INVALID,
                   "cast takes f16, f32, f64, i8 to i64 or u8 to u64, not '%s'", word);
}

static mh_status fail_step(const char *name, mh_error *err)
{
    char hint[64];
    mh_nearest nearest = mh_nearest_to(name, strlen(name));
    for (int i = 0; i < STEPS; i++)
        mh_nearest_offer(&nearest, step_names[i]);
    return mh_fail(err, MH_ERR_INVALID,
                   "arrays have no step '%s'%s: there are normalize, nan, cast", name,
                   mh_nearest_hint(&nearest, hint, sizeof hint));
}

/* *last: the step before, -1 for none. */
static mh_status read_step(mh_decoding *decoding, stretch step, int *last, mh_error *err)
{
    char text[STEP_MOST];
    int kind = 0;
    if (step.length == 0 || step.length >= sizeof text)
        return mh_fail(err, MH_ERR_INVALID, "a step of the pipeline is %s",
                       step.length ? "too long" : "missing");
    memcpy(text, step.at, step.length);
    text[step.length] = '\0';
    char *words = text + strcspn(text, " \t\n");
    if (*words)
        *words++ = '\0';
    words += strspn(words, " \t\n");
    while (kind < STEPS && strcmp(text, step_names[kind]) != 0)
        kind++;
    if (kind == STEPS)
        return fail_step(text, err);
    if (kind <= *last)
        return mh_fail(err, MH_ERR_INVALID,
                       "%s stands after %s: steps of arrays go in the order "
                       "normalize, nan, cast, each once",
                       text, step_names[*last]);
    *last = kind;
    if (kind == NORMALIZE)
        return read_normalize(decoding, words, err);
    if (kind == CAST)
        return read_cast(decoding, words, err);
    decoding->fill_nan = true;
    return read_number(words, "nan", &decoding->nan_value, err);
}

/* --- the whole --- */

static mh_status set_steps(mh_variable *variable, const mh_decoding *steps, mh_error *err)
{
    mh_decoding *own = &variable->decoding;
    if (own->normalise || own->fill_nan || own->cast.bits)
        return mh_fail(err, MH_ERR_INVALID, "the pipeline says twice what to do with %s",
                       variable->name);
    own->normalise = steps->normalise;
    own->mean = steps->mean;
    own->std = steps->std;
    own->fill_nan = steps->fill_nan;
    own->nan_value = steps->nan_value;
    own->cast = steps->cast;
    return MH_OK;
}

static mh_status set_named(mh_variable *variables, size_t count, stretch name,
                           const mh_decoding *steps, mh_error *err)
{
    char hint[192];
    mh_nearest nearest = mh_nearest_to(name.at, name.length);
    for (size_t i = 0; i < count; i++) {
        if (strlen(variables[i].name) == name.length &&
            memcmp(variables[i].name, name.at, name.length) == 0) {
            do
                MH_TRY(set_steps(&variables[i], steps, err));
            while (++i < count && variables[i].goes_on);
            return MH_OK;
        }
        mh_nearest_offer(&nearest, variables[i].name);
    }
    return mh_fail(err, MH_ERR_INVALID, "the pipeline names '%.*s', which is not a field%s",
                   (int)(name.length < 80 ? name.length : 80), name.at,
                   mh_nearest_hint(&nearest, hint, sizeof hint));
}

/* "u10,v10: normalize ... | cast f16" */
static mh_status read_part(mh_variable *variables, size_t count, stretch part, mh_error *err)
{
    mh_decoding steps = {0};
    stretch names = {NULL, 0}, step, name;
    int last = -1;
    const char *colon = part.length ? memchr(part.at, ':', part.length) : NULL;
    if (colon) {
        const size_t length = (size_t)(colon - part.at);
        names = (stretch){part.at, length};
        part = (stretch){colon + 1, part.length - length - 1};
    }
    while (take_until(&part, '|', &step))
        MH_TRY(read_step(&steps, step, &last, err));
    for (size_t i = 0; !names.at && i < count; i++)
        MH_TRY(set_steps(&variables[i], &steps, err));
    while (take_until(&names, ',', &name))
        MH_TRY(set_named(variables, count, name, &steps, err));
    return MH_OK;
}

mh_status mh_array_steps_read(mh_variable *variables, size_t count, const char *text, mh_error *err)
{
    stretch rest = {text, strlen(text)}, part;
    while (take_until(&rest, ';', &part))
        MH_TRY(read_part(variables, count, part, err));
    return MH_OK;
}
