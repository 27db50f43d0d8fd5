/* rows.c - the limit of reading rows: preads of the same bytes into the same places, and nothing
 * else SPDX-License-Identifier: Apache-2.0
 *
 *     rows FILE DATA_OFFSET ROW_BYTES ROWS BATCH THREADS
 *
 * Each thread takes whole batches in turn and reads their rows, in random order, into one of a few
 * buffers that are used again. Prints the seconds that the reading took.
 */
#define _GNU_SOURCE
#include "../clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFERS 4u

static int file;
static uint64_t data_offset, row_bytes, rows, batch;
static uint64_t *order;
static _Atomic uint64_t next_batch;

static void shuffle_rows(void)
{
    uint64_t state = 88172645463325252u;
    for (uint64_t i = 0; i < rows; i++)
        order[i] = i;
    for (uint64_t i = rows - 1; i > 0; i--) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        uint64_t other = state % (i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

static void *read_batches(void *memory)
{
    for (uint64_t number; (number = atomic_fetch_add(&next_batch, 1)) * batch < rows;) {
        char *into = (char *)memory + number % BUFFERS * batch * row_bytes;
        for (uint64_t i = number * batch; i < (number + 1) * batch && i < rows;
             i++, into += row_bytes)
            if (pread(file, into, row_bytes, (off_t)(data_offset + order[i] * row_bytes)) !=
                (ssize_t)row_bytes)
                abort();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[64];
    if (argc != 7)
        return 2;
    file = open(argv[1], O_RDONLY | O_CLOEXEC);
    data_offset = strtoull(argv[2], NULL, 10);
    row_bytes = strtoull(argv[3], NULL, 10);
    rows = strtoull(argv[4], NULL, 10);
    batch = strtoull(argv[5], NULL, 10);
    unsigned long count = strtoul(argv[6], NULL, 10);
    order = malloc(rows * sizeof *order);
    if (file < 0 || !order || count < 1 || count > 64)
        return 1;
    shuffle_rows();
    char *memory[64];
    for (unsigned long i = 0; i < count; i++) {
        memory[i] = malloc(BUFFERS * batch * row_bytes);
        if (!memory[i])
            return 1;
        memset(memory[i], 1, BUFFERS * batch * row_bytes); /* fresh pages are dear */
    }
    double began = now_s();
    for (unsigned long i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, read_batches, memory[i]) != 0)
            return 1;
    for (unsigned long i = 0; i < count; i++)
        (void)pthread_join(threads[i], NULL);
    (void)printf("%.6f\n", now_s() - began);
    return 0;
}
