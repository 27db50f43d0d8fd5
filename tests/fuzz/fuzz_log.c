/* fuzz_log.c - fuzz target: a log reads the same in pieces of any size
 * SPDX-License-Identifier: Apache-2.0
 */
#include "metrics/log.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What holds for every answer, whatever the input. */
static void require(int truth)
{
    if (!truth)
        abort();
}

typedef struct digest {
    uint64_t events, sum;
} digest;

static mh_status digest_event(void *argument, const mh_log_event *event, mh_error *err)
{
    digest *all = argument;
    char text[32];
    (void)err;
    require(event->is > MH_LOG_OTHER && event->is < MH_LOG_KINDS);
    all->events++;
    all->sum = all->sum * 31 + (uint64_t)event->is + (uint64_t)event->t + (uint64_t)event->ns * 3 +
               (uint64_t)event->workers * 7 + mh_json_text(&event->name, text, sizeof text);
    return MH_OK;
}

static mh_status read_in_pieces(const char *data, size_t size, size_t piece, digest *all,
                                mh_log_counts *counts)
{
    mh_log *log = NULL;
    mh_status status = MH_OK;
    require(mh_log_open(&log, digest_event, all, NULL) == MH_OK);
    for (size_t at = 0; at < size && status == MH_OK; at += piece)
        status = mh_log_feed(log, data + at, size - at < piece ? size - at : piece, NULL);
    if (status == MH_OK)
        status = mh_log_finish(log, NULL);
    *counts = *mh_log_counted(log);
    mh_log_close(log);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    digest whole = {0}, pieces = {0};
    mh_log_counts counts, again;
    mh_status status = read_in_pieces(text, size, size ? size : 1, &whole, &counts);
    require(read_in_pieces(text, size, size % 7 + 1, &pieces, &again) == status);
    require(whole.events == pieces.events && whole.sum == pieces.sum);
    require(counts.lines == again.lines && counts.bad_lines == again.bad_lines);
    require(counts.bad_lines <= counts.lines && (counts.bad_lines > 0) == (counts.first_bad > 0));
    return 0;
}
