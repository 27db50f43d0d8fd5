/* event_lines.c - events as lines of JSON, kept until they are written together
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics/event_lines.h"

#include "base/alloc.h"
#include "base/fork.h"

#include <string.h>

/* Lines are due after this long, or when they are this much. */
#define HELD_NS UINT64_C(100000000)
#define HELD_BYTES 16384

/* By hand, not by printf: a batch has some thirty numbers. */
#define NUMBER_ROOM 24

/* Where `size` bytes can be put; NULL: no memory. */
static char *room_for(mh_lines *lines, size_t size)
{
    if (lines->room - lines->used < size) {
        size_t room = 2 * lines->room + size + 1024;
        char *text = mh_realloc(lines->text, room, 1);
        if (!text)
            return NULL;
        lines->text = text;
        lines->room = room;
    }
    return lines->text + lines->used;
}

static void add(mh_lines *lines, const char *text, size_t size)
{
    char *at = room_for(lines, size);
    if (!at) {
        lines->cut = true;
        return;
    }
    memcpy(at, text, size);
    lines->used += size;
}

static void add_number(mh_lines *lines, long long value)
{
    char digits[NUMBER_ROOM];
    char *first = digits + sizeof digits;
    unsigned long long left =
        value < 0 ? 0ULL - (unsigned long long)value : (unsigned long long)value;
    do {
        *--first = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    if (value < 0)
        *--first = '-';
    add(lines, first, (size_t)(digits + sizeof digits - first));
}

void mh_lines_put(mh_lines *lines, const char *key, long long value)
{
    add(lines, ",\"", 2);
    add(lines, key, strlen(key));
    add(lines, "\":", 2);
    add_number(lines, value);
}

/* In a forked child: the parent writes what it held back. */
static void forget_parents(mh_lines *lines)
{
    if (lines->forks != mh_fork_generation())
        lines->used = 0;
    lines->forks = mh_fork_generation();
}

/* -1: not known. A reading's delay may be older than its time: it was no more than could be. */
static int64_t delay_between(mh_reading began, mh_reading ended)
{
    if (began.delay < 0 || ended.delay < began.delay)
        return -1;
    int64_t off_cpu = (int64_t)(ended.now - began.now) - (int64_t)(ended.cpu - began.cpu);
    int64_t delay = ended.delay - began.delay;
    return delay <= off_cpu ? delay : off_cpu > 0 ? off_cpu : 0;
}

void mh_lines_begin_at(mh_lines *lines, const char *event, uint64_t t, uint64_t ns)
{
    static const char head[] = "{\"event\":\"";
    forget_parents(lines);
    lines->begun = lines->used;
    lines->cut = false;
    add(lines, head, sizeof head - 1);
    add(lines, event, strlen(event));
    add(lines, "\"", 1);
    mh_lines_put(lines, "t", (long long)t);
    mh_lines_put(lines, "ns", (long long)ns);
}

void mh_lines_begin(mh_lines *lines, const char *event, mh_reading began, mh_reading ended)
{
    mh_lines_begin_at(lines, event, began.now, ended.now - began.now);
    mh_lines_put(lines, "cpu", (long long)(ended.cpu - began.cpu));
    int64_t delay = delay_between(began, ended);
    if (delay >= 0)
        mh_lines_put(lines, "delay", delay);
}

void mh_lines_end(mh_lines *lines)
{
    add(lines, "}\n", 2);
    if (lines->cut)
        lines->used = lines->begun;
}

void mh_lines_append(mh_lines *lines, const mh_lines *others)
{
    if (others->used)
        add(lines, others->text, others->used);
}

const char *mh_lines_take_text(mh_lines *lines, size_t *out_bytes)
{
    forget_parents(lines);
    *out_bytes = lines->used;
    lines->used = 0;
    return lines->text;
}

bool mh_lines_due(mh_lines *lines, uint64_t now_ns)
{
    if (now_ns - lines->taken < HELD_NS && lines->used < HELD_BYTES)
        return false;
    lines->taken = now_ns;
    return true;
}

void mh_lines_free(mh_lines *lines)
{
    mh_free(lines->text);
    *lines = (mh_lines){0};
}
