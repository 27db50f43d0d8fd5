/* fuzz_window_text.c - fuzz target: whatever the texts about windows say, windows lie in the array
 * SPDX-License-Identifier: Apache-2.0
 *
 * The lines of the input are window, stride, select and target, and the units of the coordinate
 * `time`, which come from files.
 */
#include "array/window_text.h"

#include <stdlib.h>
#include <string.h>

#define LINES 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int truth)
{
    if (!truth)
        abort();
}

/* Cuts the text into lines; those that are missing are empty. */
static void cut(char *text, const char **lines)
{
    static const char nothing[] = "";
    for (int i = 0; i < LINES; i++) {
        lines[i] = text ? text : nothing;
        text = text ? strchr(text, '\n') : NULL;
        if (text)
            *text++ = '\0';
    }
}

static mh_status look_up(void *context, const char *dim, mh_coordinate *out, mh_error *err)
{
    static const double values[] = {-3, -1, 0, 24, 25, 1e6};
    (void)err;
    if (strcmp(dim, "time") != 0)
        return MH_ERR_NOT_FOUND;
    *out = (mh_coordinate){.values = values, .count = 6, .units = context};
    return MH_OK;
}

static void check(const mh_window_dim *dim)
{
    require(dim->begin <= dim->end && dim->end <= dim->length);
    require(dim->stride >= 1);
    if (dim->count == 0)
        return;
    const uint64_t last = dim->first + (dim->count - 1) * dim->stride;
    require(dim->window >= 1 && dim->first >= dim->begin);
    require(last + dim->window <= dim->end);
    require((int64_t)dim->first + dim->target >= 0);
    require((int64_t)(last + dim->window) + dim->target <= (int64_t)dim->length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mh_window_dim dims[] = {{.name = "time", .length = 6}, {.name = "lat", .length = 1000}};
    const char *lines[LINES];
    int has_target;
    mh_error err = {0};
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    cut(text, lines);
    const mh_window_texts texts = {lines[0], lines[1], lines[2], lines[3]};
    char *units = *lines[4] ? (char *)lines[4] : NULL;
    mh_status status = mh_window_dims_read(dims, 2, &texts, look_up, units, &has_target, &err);
    free(text);
    require(status == MH_OK ||
            ((status == MH_ERR_INVALID || status == MH_ERR_UNSUPPORTED) && err.message[0] != '\0'));
    for (int d = 0; status == MH_OK && d < 2; d++)
        check(&dims[d]);
    return 0;
}
