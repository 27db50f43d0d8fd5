/* units.h - durations and sizes as people read them: a unit, three digits
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MH_BASE_UNITS_H
#define MH_BASE_UNITS_H

typedef struct mh_unit_text {
    char text[24];
} mh_unit_text;

/* "83.1 ms", "42 s", "12.5 min", "3.2 h"; "22.6 GB". By value, so that a line of printf may hold
 * several. Any thread. */
mh_unit_text mh_seconds_text(double seconds);
mh_unit_text mh_bytes_text(double bytes);

/* For printf's %s, within one expression. */
#define MH_SECONDS(seconds) (mh_seconds_text(seconds).text)
#define MH_NS_TEXT(ns) (mh_seconds_text((ns) / 1e9).text)
#define MH_BYTES(bytes) (mh_bytes_text(bytes).text)

#endif
