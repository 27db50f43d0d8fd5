/* units.c - durations and sizes as people read them: a unit, three digits
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/units.h"

#include <stddef.h>
#include <stdio.h>

typedef struct unit {
    double least; /* from which on it is used */
    double size;
    const char *name;
} unit;

static mh_unit_text with_unit(double value, const unit *units, size_t count)
{
    mh_unit_text out;
    size_t at = 0;
    while (at + 1 < count && !(value >= units[at].least))
        at++;
    double scaled = value / units[at].size;
    if (scaled >= 99.95)
        (void)snprintf(out.text, sizeof out.text, "%.0f %s", scaled, units[at].name);
    else
        (void)snprintf(out.text, sizeof out.text, "%.3g %s", scaled, units[at].name);
    return out;
}

mh_unit_text mh_seconds_text(double seconds)
{
    static const unit units[] = {{7200, 3600, "h"},     {120, 60, "min"},       {0.9995, 1, "s"},
                                 {9995e-7, 1e-3, "ms"}, {9995e-10, 1e-6, "us"}, {0, 1e-9, "ns"}};
    if (!(seconds > 0))
        return (mh_unit_text){"0 ms"};
    return with_unit(seconds, units, sizeof units / sizeof *units);
}

mh_unit_text mh_bytes_text(double bytes)
{
    static const unit units[] = {{9995e8, 1e12, "TB"},
                                 {9995e5, 1e9, "GB"},
                                 {9995e2, 1e6, "MB"},
                                 {999.5, 1e3, "kB"},
                                 {0, 1, "B"}};
    return with_unit(bytes > 0 ? bytes : 0, units, sizeof units / sizeof *units);
}
