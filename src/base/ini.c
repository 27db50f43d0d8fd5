/* ini.c - files of sections with "key = value" lines
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/ini.h"

#include <string.h>

typedef struct piece {
    const char *text;
    size_t size;
} piece;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static piece trimmed(const char *from, const char *end)
{
    while (from < end && is_blank(*from))
        from++;
    while (end > from && is_blank(end[-1]))
        end--;
    return (piece){from, (size_t)(end - from)};
}

static bool is(piece a, const char *text)
{
    return a.size == strlen(text) && memcmp(a.text, text, a.size) == 0;
}

/* The next line; false at the end. */
static bool next_line(const char **at, const char *end, piece *line)
{
    if (*at >= end)
        return false;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    stop = stop ? stop : end;
    *line = (piece){*at, (size_t)(stop - *at)};
    *at = stop + 1;
    return true;
}

/* "[name]", with a comment behind it perhaps. */
static bool is_header(piece line, piece *name)
{
    if (line.size == 0 || line.text[0] != '[')
        return false;
    const char *close = memchr(line.text, ']', line.size);
    *name = trimmed(line.text + 1, close ? close : line.text + 1);
    return true;
}

bool mh_ini_has(const char *text, size_t size, const char *section)
{
    const char *at = text;
    piece line, name;
    while (next_line(&at, text + size, &line))
        if (is_header(line, &name) && is(name, section))
            return true;
    return false;
}

bool mh_ini_find(const char *text, size_t size, const char *section, const char *key, char *out,
                 size_t room)
{
    const char *at = text;
    piece line, name, value = {NULL, 0};
    bool inside = false;
    while (next_line(&at, text + size, &line)) {
        if (is_header(line, &name)) {
            inside = is(name, section);
            continue;
        }
        const char *equals = line.size ? memchr(line.text, '=', line.size) : NULL;
        if (!inside || !equals || is_blank(line.text[0]) || strchr("#;", line.text[0]))
            continue;
        if (is(trimmed(line.text, equals), key))
            value = trimmed(equals + 1, line.text + line.size);
    }
    if (!value.text || value.size >= room || memchr(value.text, '\0', value.size))
        return false;
    memcpy(out, value.text, value.size);
    out[value.size] = '\0';
    return true;
}
