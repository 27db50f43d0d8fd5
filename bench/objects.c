/* objects.c - whole objects from a server as fast as they come: rate and CPU of the source alone
 * SPDX-License-Identifier: Apache-2.0
 *
 *     objects PREFIX COUNT BYTES IN_FLIGHT [STORAGE [CACHE]]
 *
 * Reads PREFIX000000.jpg and on, again and again COUNT times in all, BYTES at most each, and prints
 * one JSON object. Built from the core: cc -Isrc -Iinclude -Ibuild/src bench/objects.c
 * build/src/libmillhead-core.a -lm -lpthread; libmillhead-net.so must lie beside it.
 */
#include "clock.h"
#include "source/source.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS 2000u
#define SLOTS_MOST 4096u
#define BATCH 32u /* as a training loop does, the reader wakes for so many at a time */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t came;
    uint64_t count, over, bytes, failed;
    uint32_t free[SLOTS_MOST], free_count;
    char message[512];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};

static void describe(const void *prefix, uint32_t number, mh_object *out, char *name)
{
    (void)snprintf(name, MH_NAME_MOST, "%s%06u.jpg", (const char *)prefix, number);
    *out = (mh_object){.name = name, .size = MH_SIZE_UNKNOWN};
}

static void done(void *context, void *tag, uint64_t got, const mh_error *err)
{
    (void)context;
    pthread_mutex_lock(&state.lock);
    state.over++;
    state.bytes += got;
    state.failed += err != NULL;
    if (err)
        (void)snprintf(state.message, sizeof state.message, "%s", err->message);
    state.free[state.free_count++] = (uint32_t)(uintptr_t)tag;
    if (state.free_count >= BATCH || state.over == state.count)
        pthread_cond_signal(&state.came);
    pthread_mutex_unlock(&state.lock);
}

static mh_status read_all(mh_source *source, uint64_t count, uint64_t bytes, uint8_t *memory,
                          mh_error *err)
{
    mh_read reads[BATCH];
    for (uint64_t i = 0; i < count;) {
        uint64_t left = count - i;
        size_t taken = left < BATCH ? (size_t)left : BATCH;
        pthread_mutex_lock(&state.lock);
        while (state.free_count < taken)
            pthread_cond_wait(&state.came, &state.lock);
        for (size_t k = 0; k < taken; k++, i++) {
            uint32_t slot = state.free[--state.free_count];
            reads[k] = (mh_read){.object = (uint32_t)(i % KEYS),
                                 .whole = 1,
                                 .size = bytes,
                                 .into = memory + slot * bytes,
                                 .tag = (void *)(uintptr_t)slot};
        }
        pthread_mutex_unlock(&state.lock);
        mh_status status = mh_source_submit(source, reads, taken, done, NULL, err);
        if (status != MH_OK)
            return status;
    }
    pthread_mutex_lock(&state.lock);
    while (state.over < count)
        pthread_cond_wait(&state.came, &state.lock);
    pthread_mutex_unlock(&state.lock);
    return MH_OK;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        (void)fprintf(stderr, "usage: objects PREFIX COUNT BYTES IN_FLIGHT [STORAGE [CACHE]]\n");
        return 2;
    }
    mh_error err = {0};
    const mh_source_type *type = NULL;
    mh_source *source = NULL;
    uint64_t count = strtoull(argv[2], NULL, 10), bytes = strtoull(argv[3], NULL, 10);
    const mh_source_options options = {.in_flight = (uint32_t)atoi(argv[4]),
                                       .storage = argc > 5 ? argv[5] : NULL,
                                       .cache = argc > 6 ? argv[6] : NULL};
    const mh_objects objects = {.count = KEYS, .describe = describe, .context = argv[1]};
    uint32_t slots = options.in_flight + 2 * BATCH; /* one is always ready to be begun */
    slots = slots < SLOTS_MOST ? slots : SLOTS_MOST;
    uint8_t *memory = malloc(slots * bytes);
    if (memory) /* a loader's pool is touched before it is timed, too */
        memset(memory, 1, slots * bytes);
    for (uint32_t i = 0; i < slots; i++)
        state.free[state.free_count++] = i;
    state.count = count;
    if (!memory || mh_source_of(&type, argv[1], &err) != MH_OK ||
        mh_source_open(&source, type, &objects, &options, &err) != MH_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    double began = now_s(), cpu = cpu_s();
    mh_status status = read_all(source, count, bytes, memory, &err);
    double took = now_s() - began, used = cpu_s() - cpu;
    (void)printf("{\"rate\": %.1f, \"cpu_us\": %.2f, \"bytes\": %llu, \"failed\": %llu, "
                 "\"seconds\": %.3f}\n",
                 (double)count / took, used / (double)count * 1e6, (unsigned long long)state.bytes,
                 (unsigned long long)state.failed, took);
    if (state.failed)
        (void)fprintf(stderr, "%s\n", state.message);
    mh_source_close(source);
    free(memory);
    return status == MH_OK && !state.failed ? 0 : 1;
}
