/* own_memory.c - how much memory this process has for itself, looked at cheaply
 * SPDX-License-Identifier: Apache-2.0
 */
#include "sys/own_memory.h"

#include "base/alloc.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/parse.h"
#include "sys/span.h"

#include <stdio.h>
#include <unistd.h>

/* So many times as long as a look took of this thread's CPU time pass before the next. A first look
 * at what the kernel counts anyway is cheap, whatever the clock says. */
#define REST 500u
#define LONGEST_REST_NS UINT64_C(50000000)

#define OURS "/memfd:millhead"

int mh_parse_anonymous(const char *text, size_t length, uint64_t *out_pages)
{
    mh_span rest = {text, length}, word;
    uint64_t size, resident, shared;
    if (!mh_span_word(&rest, &word) || !mh_span_number(word, &size) ||
        !mh_span_word(&rest, &word) || !mh_span_number(word, &resident) ||
        !mh_span_word(&rest, &word) || !mh_span_number(word, &shared))
        return 0;
    *out_pages = resident > shared ? resident - shared : 0;
    return 1;
}

int mh_parse_own(const char *text, size_t length, uint64_t *out_bytes)
{
    mh_span rest = {text, length}, line, word;
    uint64_t sum = 0, bytes;
    bool found = false, ours = false;
    while (mh_span_next(&rest, '\n', &line)) {
        mh_span words = line;
        if (!mh_span_word(&words, &word))
            continue;
        /* "Private_Dirty:  8 kB" below "BEGIN-END rw-p OFFSET DEVICE INODE NAME" */
        if (word.data[word.size - 1] != ':')
            ours = memmem(line.data, line.size, OURS, sizeof OURS - 1) != NULL;
        else if (mh_span_is(word, "Private_Dirty:") &&
                 mh_parse_field(line.data, line.size, "Private_Dirty", &bytes)) {
            found = true;
            if (!ours && __builtin_add_overflow(sum, bytes, &sum))
                sum = UINT64_MAX;
        }
    }
    if (found)
        *out_bytes = sum;
    return found;
}

static char *self_text(const char *file, const char *root, size_t *length)
{
    char path[MH_PARSE_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/proc/self/%s", root, file) >= (int)sizeof path)
        return NULL;
    return mh_file_read_text(path, length);
}

static bool read_anonymous(uint64_t *out, const char *root)
{
    size_t length;
    uint64_t pages = 0;
    char *text = self_text("statm", root, &length);
    bool found = text && mh_parse_anonymous(text, length, &pages);
    mh_free(text);
    return found && !__builtin_mul_overflow(pages, (uint64_t)sysconf(_SC_PAGESIZE), out);
}

/* From a walk over all pages; `anonymous` where there is none to be had. */
static uint64_t read_own(uint64_t anonymous, uint64_t most, const char *root)
{
    size_t length;
    uint64_t own = anonymous;
    /* One sum for all mappings is cheaper than each by itself, and never less. */
    char *text = self_text("smaps_rollup", root, &length);
    bool known = text && mh_parse_field(text, length, "Private_Dirty", &own);
    mh_free(text);
    if (known && own <= most)
        return own;
    if ((text = self_text("smaps", root, &length)))
        (void)mh_parse_own(text, length, &own);
    mh_free(text);
    return own;
}

static uint64_t cpu_ns(void)
{
    struct timespec spent = {0};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * UINT64_C(1000000000) + (uint64_t)spent.tv_nsec;
}

uint64_t mh_own_memory_over(mh_own_memory *look, uint64_t most, bool at_once, const char *root)
{
    uint64_t now = mh_clock_ns(), anonymous;
    if (!at_once && now < look->look_ns)
        return 0;
    uint64_t began = cpu_ns();
    bool read = read_anonymous(&anonymous, root);
    uint64_t rest = REST * (cpu_ns() - began);
    look->look_ns = now + (rest < LONGEST_REST_NS ? rest : LONGEST_REST_NS);
    if (!read || anonymous <= most)
        return 0;
    /* Until the next walk is due only growth tells, and new pages are the process's own. */
    uint64_t grown = anonymous > look->anon_bytes ? anonymous - look->anon_bytes : 0;
    if (!at_once && now < look->walk_ns && look->own_bytes + grown <= most)
        return 0;
    look->own_bytes = read_own(anonymous, most, root);
    look->anon_bytes = anonymous;
    look->walk_ns = now + REST * (cpu_ns() - began);
    return look->own_bytes > most ? look->own_bytes : 0;
}
