/* window_text.c - which windows are wanted, as people write it
 * SPDX-License-Identifier: Apache-2.0
 */
#include "array/window_text.h"

#include "array/coordinate.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/parts.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    mh_window_dim *dims;
    uint32_t count;
    uint32_t seen; /* dimensions that this text has named, as bits */
    mh_coordinate_lookup *lookup;
    void *context;
} reading;

/* --- one part: a dimension and what is said of it --- */

static mh_status fail_unknown(const reading *self, const char *name, mh_error *err)
{
    mh_nearest nearest = mh_nearest_to(name, strlen(name));
    char known[256] = "";
    size_t used = 0;
    for (uint32_t d = 0; d < self->count; d++) {
        mh_nearest_offer(&nearest, self->dims[d].name);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", d ? ", " : "",
                                     self->dims[d].name);
    }
    if (nearest.best)
        return mh_fail(err, MH_ERR_INVALID, "unknown dimension '%s': did you mean '%s'?", name,
                       nearest.best);
    return mh_fail(err, MH_ERR_INVALID, "unknown dimension '%s': there are %s", name,
                   self->count ? known : "none");
}

/* Cuts "dim=value" in two. */
static mh_status take_dim(reading *self, char *part, const char *example, mh_window_dim **out,
                          char **out_value, mh_error *err)
{
    char *equals = strchr(part, '=');
    if (!equals || equals == part)
        return mh_fail(err, MH_ERR_INVALID, "'%s' is not of the form %s", part, example);
    *equals = '\0';
    for (uint32_t d = 0; d < self->count; d++) {
        if (strcmp(self->dims[d].name, part) != 0)
            continue;
        if (self->seen & 1u << d)
            return mh_fail(err, MH_ERR_INVALID, "the dimension %s is named twice", part);
        self->seen |= 1u << d;
        *out = &self->dims[d];
        *out_value = equals + 1;
        return MH_OK;
    }
    return fail_unknown(self, part, err);
}

static bool whole(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    if (*text < '0' || *text > '9')
        return false;
    *out = strtoull(text, &end, 10);
    return !*end && !errno && *out <= INT64_MAX;
}

static mh_status take_window(void *context, char *part, mh_error *err)
{
    mh_window_dim *dim = NULL;
    char *value = NULL;
    MH_TRY(take_dim(context, part, "time=4", &dim, &value, err));
    if (!whole(value, &dim->window) || dim->window == 0)
        return mh_fail(err, MH_ERR_INVALID, "the window %s=%s is not a number from 1 on", dim->name,
                       value);
    return MH_OK;
}

static mh_status take_stride(void *context, char *part, mh_error *err)
{
    mh_window_dim *dim = NULL;
    char *value = NULL;
    MH_TRY(take_dim(context, part, "time=1", &dim, &value, err));
    if (!whole(value, &dim->stride) || dim->stride == 0)
        return mh_fail(err, MH_ERR_INVALID, "the stride %s=%s is not a number from 1 on", dim->name,
                       value);
    return MH_OK;
}

static mh_status take_target(void *context, char *part, mh_error *err)
{
    mh_window_dim *dim = NULL;
    char *value = NULL;
    uint64_t steps;
    MH_TRY(take_dim(context, part, "time=+6", &dim, &value, err));
    if (!whole(value + (*value == '+' || *value == '-'), &steps))
        return mh_fail(err, MH_ERR_INVALID, "the target %s=%s is not a number of steps, as +6",
                       dim->name, value);
    dim->target = *value == '-' ? -(int64_t)steps : (int64_t)steps;
    return MH_OK;
}

/* --- select --- */

/* As Python's slices: either end may be left out or count from the end. */
static mh_status take_end(const mh_window_dim *dim, const char *text, uint64_t *out, mh_error *err)
{
    uint64_t number;
    if (!*text)
        return MH_OK;
    const bool from_end = *text == '-';
    if (!whole(text + from_end, &number))
        return mh_fail(err, MH_ERR_INVALID, "'%s' is not an index along %s", text, dim->name);
    if (number > dim->length)
        return mh_fail(err, MH_ERR_INVALID, "the index %s is beyond the %llu of %s", text,
                       (unsigned long long)dim->length, dim->name);
    *out = from_end ? dim->length - number : number;
    return MH_OK;
}

static mh_status select_by_index(mh_window_dim *dim, char *value, char *colon, mh_error *err)
{
    *colon = '\0';
    MH_TRY(take_end(dim, value, &dim->begin, err));
    MH_TRY(take_end(dim, colon + 1, &dim->end, err));
    if (dim->begin >= dim->end)
        return mh_fail(err, MH_ERR_INVALID, "select %s=%s:%s is empty", dim->name, value,
                       colon + 1);
    return MH_OK;
}

static mh_status select_by_coordinate(const reading *self, mh_window_dim *dim, char *value,
                                      char *dots, mh_error *err)
{
    mh_coordinate coordinate = {0};
    *dots = '\0';
    if (!self->lookup)
        return mh_fail(err, MH_ERR_INVALID, "%s has no coordinate: select it by index (%s=0:100)",
                       dim->name, dim->name);
    mh_status status = self->lookup(self->context, dim->name, &coordinate, err);
    if (status == MH_ERR_NOT_FOUND)
        return mh_fail(err, MH_ERR_INVALID, "%s has no coordinate: select it by index (%s=0:100)",
                       dim->name, dim->name);
    MH_TRY(status);
    if (coordinate.count != dim->length)
        return mh_fail(err, MH_ERR_INVALID, "the coordinate %s has %llu values, the arrays %llu",
                       dim->name, (unsigned long long)coordinate.count,
                       (unsigned long long)dim->length);
    return mh_coordinate_range(&coordinate, dim->name, value, dots + 2, &dim->begin, &dim->end,
                               err);
}

static mh_status take_select(void *context, char *part, mh_error *err)
{
    mh_window_dim *dim = NULL;
    char *value = NULL;
    MH_TRY(take_dim(context, part, "time=0:100", &dim, &value, err));
    char *dots = strstr(value, "..");
    if (dots)
        return select_by_coordinate(context, dim, value, dots, err);
    char *colon = strchr(value, ':');
    if (colon)
        return select_by_index(dim, value, colon, err);
    return mh_fail(err, MH_ERR_INVALID,
                   "select %s=%s is not a range: write 0:100 (indices) or 10..20 (coordinates)",
                   dim->name, value);
}

/* --- the whole --- */

static mh_status count_windows(mh_window_dim *dim, bool has_window, mh_error *err)
{
    const uint64_t selected = dim->end - dim->begin;
    if (!has_window)
        dim->window = selected;
    if (!dim->stride)
        dim->stride = dim->window ? dim->window : 1;
    dim->first = dim->begin;
    dim->count = 0;
    if (dim->window > selected)
        return mh_fail(err, MH_ERR_INVALID, "the window %s=%llu is larger than the %llu %s",
                       dim->name, (unsigned long long)dim->window, (unsigned long long)selected,
                       selected < dim->length ? "that are selected" : "of the array");
    if (selected == 0)
        return MH_OK;
    const uint64_t back = dim->target < 0 ? (uint64_t)-dim->target : 0;
    const uint64_t ahead = dim->target > 0 ? (uint64_t)dim->target : 0;
    const uint64_t room = selected - dim->window;
    const uint64_t skipped = back / dim->stride + (back % dim->stride != 0);
    if (ahead > room || skipped > (room - ahead) / dim->stride)
        return mh_fail(err, MH_ERR_INVALID, "the target %s=%+lld leaves no window of %llu",
                       dim->name, (long long)dim->target, (unsigned long long)selected);
    dim->first = dim->begin + skipped * dim->stride;
    dim->count = (room - ahead) / dim->stride + 1 - skipped;
    return MH_OK;
}

static mh_status read_text(reading *self, const char *text, const char *what,
                           mh_status (*take)(void *, char *, mh_error *), mh_error *err)
{
    self->seen = 0;
    return text ? mh_parts_read(text, what, take, self, err) : MH_OK;
}

mh_status mh_window_dims_read(mh_window_dim *dims, uint32_t count, const mh_window_texts *texts,
                              mh_coordinate_lookup *lookup, void *context, int *out_has_target,
                              mh_error *err)
{
    reading self = {.dims = dims, .count = count, .lookup = lookup, .context = context};
    for (uint32_t d = 0; d < count; d++)
        dims[d] =
            (mh_window_dim){.name = dims[d].name, .length = dims[d].length, .end = dims[d].length};
    MH_TRY(read_text(&self, texts->select, "select", take_select, err));
    MH_TRY(read_text(&self, texts->stride, "a stride", take_stride, err));
    MH_TRY(read_text(&self, texts->target, "a target", take_target, err));
    *out_has_target = self.seen != 0;
    MH_TRY(read_text(&self, texts->window, "a window", take_window, err));
    for (uint32_t d = 0; d < count; d++)
        MH_TRY(count_windows(&dims[d], self.seen & 1u << d, err));
    return MH_OK;
}
