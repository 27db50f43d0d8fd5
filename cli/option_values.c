/* option_values.c - what options take besides whole numbers: sizes, seconds, shapes, large numbers
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number that begins with a digit; strtod alone would take blanks, signs, "inf" and "0x". */
static bool decimal(double *out, const char *text, char **end)
{
    if (*text < '0' || *text > '9' || strspn(text, "0123456789.") == 0 || text[1] == 'x' ||
        text[1] == 'X')
        return false;
    *out = strtod(text, end);
    return isfinite(*out);
}

int mh_cli_whole(uint64_t *out, const char *text, int least, const char *option, const char *where)
{
    char todo[64], *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9' || value < (unsigned)least) {
        (void)snprintf(todo, sizeof todo, "give a whole number from %d on", least);
        return mh_cli_fail(MH_CLI_USAGE, where, todo, "%s is '%s'", option, text);
    }
    *out = value;
    return MH_CLI_OK;
}

int mh_cli_size(uint64_t *out, const char *text, int least, const char *option, const char *where)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {
        {"", 1},         {"B", 1},        {"kB", 1e3},     {"KB", 1e3},
        {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"KiB", 0x1p10},
        {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
    };
    char *end;
    double number;
    if (decimal(&number, text, &end))
        for (size_t at = 0; at < sizeof units / sizeof *units; at++)
            if (strcmp(end, units[at].name) == 0 && number * units[at].bytes >= least &&
                number * units[at].bytes < 0x1p62) {
                *out = (uint64_t)(number * units[at].bytes);
                return MH_CLI_OK;
            }
    return mh_cli_fail(MH_CLI_USAGE, where, "give bytes, or a size like 512MB or 4GiB",
                       "%s is '%s'", option, text);
}

int mh_cli_seconds(double *out, const char *text, const char *option, const char *where)
{
    char *end;
    double seconds;
    if (!decimal(&seconds, text, &end) || *end || seconds <= 0 || seconds > MH_PLAN_MOST)
        return mh_cli_fail(MH_CLI_USAGE, where, "give seconds above 0, like 0.1", "%s is '%s'",
                           option, text);
    *out = seconds;
    return MH_CLI_OK;
}

int mh_cli_shape(uint64_t *out, size_t most, size_t *count, const char *text, const char *option,
                 const char *where)
{
    char todo[96], *end;
    const char *at = text;
    for (*count = 0; *count < most; at = end + 1) {
        errno = 0;
        unsigned long long size = strtoull(at, &end, 10);
        if (errno || *at < '0' || *at > '9' || size == 0 || (*end && *end != 'x'))
            break;
        out[(*count)++] = size;
        if (!*end)
            return MH_CLI_OK;
    }
    (void)snprintf(todo, sizeof todo, "give sizes above 0 like 64x64, at most %zu of them", most);
    return mh_cli_fail(MH_CLI_USAGE, where, todo, "%s is '%s'", option, text);
}

const char *mh_cli_bytes(char out[MH_CLI_BYTES], uint64_t bytes)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes / 1e3;
    size_t unit = 0;
    for (; value >= 999.95 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1e3;
    if (bytes < 1000)
        (void)snprintf(out, MH_CLI_BYTES, "%u B", (unsigned)bytes);
    else
        (void)snprintf(out, MH_CLI_BYTES, "%.1f %s", value, units[unit]);
    return out;
}

const char *mh_cli_time(char out[MH_CLI_TIME], double seconds)
{
    static const struct {
        double size;
        const char *name;
    } units[] = {{3600, "h"}, {60, "min"}, {1, "s"}, {1e-3, "ms"}, {1e-6, "us"}};
    size_t at = 0, last = sizeof units / sizeof *units - 1;
    while (at < last && seconds < units[at].size * (units[at].size > 1 ? 2 : 0.9995))
        at++;
    double value = seconds / units[at].size;
    (void)snprintf(out, MH_CLI_TIME, value >= 99.95 ? "%.0f %s" : "%.3g %s", value, units[at].name);
    return out;
}

void mh_cli_print_quoted(const char *text)
{
    (void)putchar('"');
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\')
            (void)printf("\\%c", byte);
        else if (byte < 0x20 || byte == 0x7f)
            (void)printf("\\u%04x", byte);
        else
            (void)putchar(byte);
    }
    (void)putchar('"');
}
