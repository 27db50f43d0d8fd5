/* read_queue.c - a list of reads, and one of entries to use again
 * SPDX-License-Identifier: Apache-2.0
 */
#include "source/read_queue.h"

#include "base/alloc.h"

void mh_read_queue_over(mh_read_queue *queue, mh_queued_read *read)
{
    read->next = queue->spare;
    queue->spare = read;
}

/* At least so many spare entries. */
static bool reserve(mh_read_queue *queue, size_t count)
{
    const mh_queued_read *there = queue->spare;
    for (; count && there; count--)
        there = there->next;
    for (; count; count--) {
        mh_queued_read *made = mh_calloc(1, sizeof *made);
        if (!made)
            return false;
        mh_read_queue_over(queue, made);
    }
    return true;
}

bool mh_read_queue_add(mh_read_queue *queue, const mh_read *reads, size_t count, mh_read_done *done,
                       void *context)
{
    if (!reserve(queue, count))
        return false;
    for (size_t i = 0; i < count; i++) {
        mh_queued_read *read = queue->spare;
        queue->spare = read->next;
        *read = (mh_queued_read){.read = reads[i], .done = done, .context = context};
        if (queue->first)
            queue->last->next = read;
        else
            queue->first = read;
        queue->last = read;
    }
    return true;
}

mh_queued_read *mh_read_queue_take(mh_read_queue *queue)
{
    mh_queued_read *read = queue->first;
    if (read)
        queue->first = read->next;
    return read;
}

static void free_list(mh_queued_read *read)
{
    while (read) {
        mh_queued_read *next = read->next;
        mh_free(read);
        read = next;
    }
}

void mh_read_queue_free(mh_read_queue *queue)
{
    free_list(queue->first);
    free_list(queue->spare);
    *queue = (mh_read_queue){0};
}
