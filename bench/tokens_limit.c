/* tokens_limit.c - the most that token windows can come at: copies from the page cache
 * SPDX-License-Identifier: Apache-2.0
 *
 *     tokens_limit FILE THREADS u16|i64 WINDOW BATCH SECONDS
 *
 * Every thread copies random windows of WINDOW + 1 uint16 tokens from the mapped file into one of
 * four batches in turn, as they are or as int64 x and y. Prints windows per second and CPU
 * microseconds of one.
 */
#include "clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { RING = 4, THREADS_MOST = 64 };

static const uint16_t *tokens;
static size_t count, window, batch;
static int wide;
static double seconds;

static void copy(const uint16_t *from, uint8_t *into, size_t sample)
{
    if (!wide) {
        memcpy(into + sample * (window + 1) * 2, from, (window + 1) * 2);
        return;
    }
    int64_t *x = (int64_t *)(void *)into + sample * window;
    int64_t *y = (int64_t *)(void *)into + (batch + sample) * window;
    for (size_t i = 0; i < window; i++)
        x[i] = from[i];
    for (size_t i = 0; i < window; i++)
        y[i] = from[i + 1];
}

static void *run(void *number)
{
    uint64_t random = UINT64_C(88172645463325252) + (uintptr_t)number * 7919;
    const size_t bytes = wide ? batch * 2 * window * 8 : batch * (window + 1) * 2;
    uint8_t *ring[RING];
    uintptr_t done = 0;
    for (int i = 0; i < RING; i++)
        ring[i] = memset(malloc(bytes), 1, bytes);
    for (double end = now_s() + seconds; now_s() < end; done += batch)
        for (size_t i = 0; i < batch; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            copy(tokens + random % (count - window), ring[done / batch % RING], i);
        }
    return (void *)done;
}

int main(int argc, char **argv)
{
    struct stat about;
    pthread_t threads[THREADS_MOST];
    if (argc != 7)
        return 2;
    const int file = open(argv[1], O_RDONLY), thread_count = atoi(argv[2]);
    if (file < 0 || fstat(file, &about) != 0 || thread_count > THREADS_MOST)
        return 1;
    tokens = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    if (tokens == MAP_FAILED)
        return 1;
    count = (size_t)about.st_size / 2;
    wide = strcmp(argv[3], "i64") == 0;
    window = strtoull(argv[4], NULL, 10);
    batch = strtoull(argv[5], NULL, 10);
    seconds = atof(argv[6]);
    const double began = now_s(), used = cpu_s();
    uintptr_t done = 0;
    for (intptr_t i = 0; i < thread_count; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)i) != 0)
            return 1;
    for (int i = 0; i < thread_count; i++) {
        void *own;
        pthread_join(threads[i], &own);
        done += (uintptr_t)own;
    }
    printf("%.0f %.4f\n", (double)done / (now_s() - began), (cpu_s() - used) / (double)done * 1e6);
    return 0;
}
