/* arrays.c - the limit of windows over chunked arrays: chunks decoded, windows copied, nothing else
 * SPDX-License-Identifier: Apache-2.0
 *
 *     arrays CHUNKS WORK blosc|zstd THREADS BATCH CT CY CX WT WY WX NY NX     (cc ... -lblosc
 * -lzstd)
 *
 * CHUNKS: a line "PATH OFFSET SIZE" for each chunk of float32, in C order; their bytes are read
 * before the clock starts. WORK: four uint64 for each step: 0, chunk, -, -: decode it to its place
 * in memory; 1, t, y, x: copy the window that begins there into one of four batches. Threads take
 * steps in turn and wait for nothing. NY, NX: the array's size. Prints seconds and CPU seconds.
 */
#include "../clock.h"

#include <blosc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { THREADS_MOST = 64, RING = 4 };

typedef struct chunk {
    uint8_t *encoded, *decoded;
    size_t size;
} chunk;

static chunk *chunks;
static uint64_t (*work)[4];
static uint64_t steps, chunk_bytes, batch;
static uint64_t shape[3], window[3], along[3]; /* of a chunk; of a window; chunks in the array */
static int is_blosc;
static float *ring;
static _Atomic uint64_t next_step;

static void decode(const chunk *it, ZSTD_DCtx *state)
{
    size_t got = is_blosc
                     ? (size_t)blosc_decompress_ctx(it->encoded, it->decoded, chunk_bytes, 1)
                     : ZSTD_decompressDCtx(state, it->decoded, chunk_bytes, it->encoded, it->size);
    if (got != chunk_bytes)
        abort();
}

/* Row by row; a row may lie in several chunks. */
static void copy(const uint64_t *origin, float *into)
{
    for (uint64_t t = origin[0]; t < origin[0] + window[0]; t++)
        for (uint64_t y = origin[1]; y < origin[1] + window[1]; y++)
            for (uint64_t x = origin[2], end = x + window[2], run; x < end; x += run) {
                uint64_t number =
                    (t / shape[0] * along[1] + y / shape[1]) * along[2] + x / shape[2];
                uint64_t at = (t % shape[0] * shape[1] + y % shape[1]) * shape[2] + x % shape[2];
                run = shape[2] - x % shape[2] < end - x ? shape[2] - x % shape[2] : end - x;
                memcpy(into, chunks[number].decoded + at * sizeof(float), run * sizeof(float));
                into += run;
            }
}

static void *run(void *unused)
{
    const uint64_t values = window[0] * window[1] * window[2];
    ZSTD_DCtx *state = ZSTD_createDCtx();
    for (uint64_t at; (at = atomic_fetch_add(&next_step, 1)) < steps;)
        if (work[at][0])
            copy(work[at] + 1, ring + at % (RING * batch) * values);
        else
            decode(&chunks[work[at][1]], state);
    ZSTD_freeDCtx(state);
    return unused;
}

static void read_chunks(const char *path)
{
    char name[4096];
    size_t offset, size, count = 0;
    FILE *list = fopen(path, "r");
    while (list && fscanf(list, "%4095s %zu %zu", name, &offset, &size) == 3) {
        chunk it = {malloc(size), calloc(1, chunk_bytes), size};
        FILE *file = fopen(name, "rb");
        if (!file || fseek(file, (long)offset, SEEK_SET) ||
            fread(it.encoded, 1, size, file) != size)
            abort();
        fclose(file);
        memset(it.decoded, 1, chunk_bytes);
        chunks = realloc(chunks, (count + 1) * sizeof *chunks);
        chunks[count++] = it;
    }
    if (!count)
        abort();
    fclose(list);
}

static void read_work(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        abort();
    const size_t bytes = (size_t)ftell(file);
    work = malloc(bytes);
    steps = bytes / sizeof *work;
    rewind(file);
    if (fread(work, 1, bytes, file) != bytes)
        abort();
    fclose(file);
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS_MOST];
    if (argc != 14)
        return 2;
    const int count = atoi(argv[4]);
    is_blosc = strcmp(argv[3], "blosc") == 0;
    batch = strtoull(argv[5], NULL, 10);
    for (int k = 0; k < 3; k++) {
        shape[k] = strtoull(argv[6 + k], NULL, 10);
        window[k] = strtoull(argv[9 + k], NULL, 10);
    }
    for (int k = 1; k < 3; k++)
        along[k] = (strtoull(argv[11 + k], NULL, 10) + shape[k] - 1) / shape[k];
    chunk_bytes = shape[0] * shape[1] * shape[2] * sizeof(float);
    read_chunks(argv[1]);
    read_work(argv[2]);
    const size_t bytes = RING * batch * window[0] * window[1] * window[2] * sizeof(float);
    ring = memset(malloc(bytes), 1, bytes);
    const double began = now_s(), used = cpu_s();
    for (int i = 0; i < count && i < THREADS_MOST; i++)
        if (pthread_create(&threads[i], NULL, run, NULL) != 0)
            return 1;
    for (int i = 0; i < count && i < THREADS_MOST; i++)
        pthread_join(threads[i], NULL);
    printf("%.6f %.6f\n", now_s() - began, cpu_s() - used);
    return 0;
}
