/* parts.c - texts of parts with commas between them, and amounts with units
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/parts.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define PART_MOST 64

const mh_amount_unit mh_times[] = {{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {NULL, 0}};
const mh_amount_unit mh_shares[] = {{"%", 0.01}, {"", 1}, {NULL, 0}};

bool mh_amount_read(const char *text, const mh_amount_unit *units, double most, double *out)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || !(number >= 0))
        return false;
    for (; units->name; units++)
        if (strcmp(end, units->name) == 0) {
            *out = number * units->factor;
            return *out <= most;
        }
    return false;
}

mh_status mh_parts_read(const char *text, const char *what,
                        mh_status (*take)(void *context, char *part, mh_error *err), void *context,
                        mh_error *err)
{
    while (*text) {
        char part[PART_MOST];
        size_t length = strcspn(text, ",");
        if (length >= sizeof part)
            return mh_fail(err, MH_ERR_INVALID, "a part of %s has over %d characters", what,
                           PART_MOST - 1);
        memcpy(part, text, length);
        part[length] = '\0';
        MH_TRY(take(context, part, err));
        text += length + (text[length] == ',');
    }
    return MH_OK;
}
