/* coordinate.c - a range of a coordinate's values as a range of indices
 * SPDX-License-Identifier: Apache-2.0
 */
#include "array/coordinate.h"

#include "base/error.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- dates --- */

/* Before 1582-10-15 the standard calendar is the Julian one; the proleptic one goes on backwards.
 */
static bool is_julian(bool proleptic, long year, int month, int day)
{
    return !proleptic &&
           (year < 1582 || (year == 1582 && (month < 10 || (month == 10 && day < 15))));
}

/* Days from 1970-01-01: of a year that begins in March, so that the day that comes every four years
 * is its last. */
static double days_of(bool proleptic, long year, int month, int day)
{
    const long shifted = month > 2 ? year : year - 1;
    const long era = (shifted >= 0 ? shifted : shifted - 399) / 400;
    const long of_era = shifted - era * 400,
               of_year = (153L * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    if (is_julian(proleptic, year, month, day)) /* eras of 400 years, each fourth a leap year */
        return (double)(era * 146100 + of_era * 365 + of_era / 4 + of_year - 719470);
    return (double)(era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468);
}

/* One digit or two: "1900-1-1 00:00:0.0" is usual too. */
static bool small_number(const char **text, int least, int most, int *out)
{
    const char *t = *text;
    if (*t < '0' || *t > '9')
        return false;
    *out = *t++ - '0';
    if (*t >= '0' && *t <= '9')
        *out = *out * 10 + *t++ - '0';
    *text = t;
    return *out >= least && *out <= most;
}

/* A date's seconds since 1970, and those of what follows its year, month, day, minute or second. */
typedef struct date_span {
    double begin, end;
} date_span;

static bool read_time(const char **text, double day, date_span *out)
{
    int hour, minute = 0, second = 0;
    double length = 3600;
    if (!small_number(text, 0, 23, &hour))
        return false;
    if (**text == ':') {
        *text += 1;
        length = 60;
        if (!small_number(text, 0, 59, &minute))
            return false;
        if (**text == ':') {
            *text += 1;
            length = 1;
            if (!small_number(text, 0, 60, &second))
                return false;
            if (strncmp(*text, ".0", 2) == 0)
                *text += 1 + strspn(*text + 1, "0");
        }
    }
    out->begin = day * 86400 + hour * 3600 + minute * 60 + second;
    out->end = out->begin + length;
    return true;
}

static bool read_date(const char *text, bool proleptic, date_span *out)
{
    char *after;
    const char *t;
    int month = 1, day = 1;
    if (*text < '0' || *text > '9')
        return false;
    const long year = strtol(text, &after, 10);
    t = after;
    if (after == text || year > 9999)
        return false;
    *out = (date_span){days_of(proleptic, year, 1, 1) * 86400,
                       days_of(proleptic, year + 1, 1, 1) * 86400};
    if (*t == '\0')
        return true;
    if (*t++ != '-' || !small_number(&t, 1, 12, &month))
        return false;
    *out = (date_span){days_of(proleptic, year, month, 1) * 86400,
                       days_of(proleptic, year + month / 12, month % 12 + 1, 1) * 86400};
    if (*t == '\0')
        return true;
    if (*t++ != '-' || !small_number(&t, 1, 31, &day))
        return false;
    const double number = days_of(proleptic, year, month, day);
    *out = (date_span){number * 86400, (number + 1) * 86400};
    if ((*t == 'T' || *t == ' ') && t[1]) {
        t++;
        if (!read_time(&t, number, out))
            return false;
    }
    return *t == '\0' || strcmp(t, "Z") == 0 || strcmp(t, " UTC") == 0;
}

static bool is_proleptic(const char *calendar)
{
    return calendar && strcmp(calendar, "proleptic_gregorian") == 0;
}

bool mh_coordinate_units(const char *units, const char *calendar, double *seconds, double *since)
{
    static const struct {
        const char *name;
        double seconds;
    } known[] = {{"second", 1},         {"sec", 1},          {"minute", 60}, {"min", 60},
                 {"hour", 3600},        {"hr", 3600},        {"day", 86400}, {"millisecond", 1e-3},
                 {"microsecond", 1e-6}, {"nanosecond", 1e-9}};
    const char *word = strstr(units, " since ");
    date_span date;
    if (!word || !read_date(word + 7, is_proleptic(calendar), &date))
        return false;
    size_t length = (size_t)(word - units);
    length -= length > 1 && units[length - 1] == 's' ? 1 : 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == length && strncmp(known[i].name, units, length) == 0) {
            *seconds = known[i].seconds;
            *since = date.begin;
            return true;
        }
    return false;
}

/* --- limits --- */

typedef struct limits {
    double low, high;
    bool high_is_beyond; /* the range ends before `high` */
} limits;

static mh_status date_limits(const mh_coordinate *coordinate, const char *dim, const char *low,
                             const char *high, limits *out, mh_error *err)
{
    const char *calendar = coordinate->calendar;
    double seconds, since;
    date_span date;
    if (calendar && strcmp(calendar, "standard") != 0 && strcmp(calendar, "gregorian") != 0 &&
        !is_proleptic(calendar))
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "%s is in the calendar %s: select it by index (%s=0:100)", dim, calendar,
                       dim);
    if (!mh_coordinate_units(coordinate->units, calendar, &seconds, &since))
        return mh_fail(err, MH_ERR_UNSUPPORTED,
                       "%s has units '%s', which have no dates here: select it by index (%s=0:100)",
                       dim, coordinate->units, dim);
    if (*low) {
        if (!read_date(low, is_proleptic(calendar), &date))
            return mh_fail(err, MH_ERR_INVALID, "'%s' is not a date for %s: write 2001-02-03", low,
                           dim);
        out->low = (date.begin - since) / seconds;
    }
    if (*high) {
        if (!read_date(high, is_proleptic(calendar), &date))
            return mh_fail(err, MH_ERR_INVALID, "'%s' is not a date for %s: write 2001-02-03", high,
                           dim);
        out->high = (date.end - since) / seconds;
        out->high_is_beyond = true;
    }
    return MH_OK;
}

static mh_status number_limit(const char *text, const char *dim, double *out, mh_error *err)
{
    char *end;
    if (!*text)
        return MH_OK;
    *out = strtod(text, &end);
    if (*end || *out != *out)
        return mh_fail(err, MH_ERR_INVALID, "'%s' is not a number for %s", text, dim);
    return MH_OK;
}

/* --- the range --- */

mh_status mh_coordinate_range(const mh_coordinate *coordinate, const char *dim, const char *low,
                              const char *high, uint64_t *begin, uint64_t *end, mh_error *err)
{
    const double *values = coordinate->values;
    const uint64_t count = coordinate->count;
    limits wanted = {.low = -HUGE_VAL, .high = HUGE_VAL};
    if (coordinate->units && strstr(coordinate->units, " since ")) {
        MH_TRY(date_limits(coordinate, dim, low, high, &wanted, err));
    } else {
        MH_TRY(number_limit(low, dim, &wanted.low, err));
        MH_TRY(number_limit(high, dim, &wanted.high, err));
    }
    const bool falls = count > 1 && values[count - 1] < values[0];
    uint64_t first = count, last = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double value = values[i];
        if (i > 0 && !(falls ? value < values[i - 1] : value > values[i - 1]))
            return mh_fail(err, MH_ERR_INVALID,
                           "the coordinate %s does not rise or fall at %llu: select it by index",
                           dim, (unsigned long long)i);
        if (!(value >= wanted.low) ||
            !(wanted.high_is_beyond ? value < wanted.high : value <= wanted.high))
            continue;
        first = first == count ? i : first;
        last = i;
    }
    if (first == count)
        return mh_fail(err, MH_ERR_INVALID, "no value of %s is from %s to %s", dim,
                       *low ? low : "its begin", *high ? high : "its end");
    *begin = first;
    *end = last + 1;
    return MH_OK;
}
