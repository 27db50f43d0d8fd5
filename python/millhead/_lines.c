/* _lines.c - events as lines of JSON, kept until they are written together
 * SPDX-License-Identifier: Apache-2.0
 */
#include "_module.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void mh_lines_add(mh_lines *lines, const char *format, ...)
{
    for (;;) {
        va_list arguments;
        va_start(arguments, format);
        size_t left = lines->room - lines->used;
        int size =
            vsnprintf(lines->text ? lines->text + lines->used : NULL, left, format, arguments);
        va_end(arguments);
        if (size >= 0 && (size_t)size < left) {
            lines->used += (size_t)size;
            return;
        }
        size_t room = 2 * lines->room + 1024;
        char *text = size < 0 ? NULL : realloc(lines->text, room);
        if (!text)
            return;
        lines->text = text;
        lines->room = room;
    }
}

void mh_lines_begin(mh_lines *lines, const char *event, mh_reading began, mh_reading ended)
{
    mh_lines_add(lines, "{\"event\":\"%s\",\"t\":%" PRIu64 ",\"ns\":%" PRIu64 ",\"cpu\":%" PRIu64,
                 event, began.now, ended.now - began.now, ended.cpu - began.cpu);
    if (began.delay >= 0 && ended.delay >= began.delay)
        mh_lines_add(lines, ",\"delay\":%" PRId64, ended.delay - began.delay);
}

PyObject *mh_lines_take(mh_lines *lines)
{
    PyObject *bytes = PyBytes_FromStringAndSize(lines->text, (Py_ssize_t)lines->used);
    lines->used = 0;
    return bytes;
}

void mh_lines_free(mh_lines *lines)
{
    free(lines->text);
    *lines = (mh_lines){0};
}
