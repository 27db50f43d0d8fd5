/* files.c - the limit of many small files: open, read, close, in a bare loop
 * SPDX-License-Identifier: Apache-2.0
 *
 * usage: files LIST THREADS SECONDS
 *
 * Reads the files that LIST names in random order, each thread into one buffer of its own. Prints
 * files per second as JSON.
 */
#include "../clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES_MOST = 1 << 20, THREADS_MOST = 64 };

typedef struct worker {
    pthread_t thread;
    uint64_t state; /* of its random numbers */
    long done;
} worker;

static char **names;
static size_t name_count;
static double end_s;

static uint64_t drawn(worker *self)
{
    self->state ^= self->state << 13;
    self->state ^= self->state >> 7;
    self->state ^= self->state << 17;
    return self->state;
}

static void *work(void *argument)
{
    worker *self = argument;
    char *buffer = malloc(BYTES_MOST);
    while (buffer && now_s() < end_s)
        for (int i = 0; i < 64; i++, self->done++) {
            int fd = open(names[drawn(self) % name_count], O_RDONLY | O_CLOEXEC);
            if (fd < 0 || read(fd, buffer, BYTES_MOST) <= 0)
                exit(1);
            close(fd);
        }
    free(buffer);
    return NULL;
}

static int read_list(const char *path)
{
    char name[4096];
    size_t room = 0;
    FILE *list = fopen(path, "r");
    while (list && fgets(name, sizeof name, list)) {
        name[strcspn(name, "\n")] = '\0';
        if (name_count == room)
            names = realloc(names, (room = room ? 2 * room : 1024) * sizeof *names);
        if (!names || !(names[name_count++] = strdup(name)))
            return 0;
    }
    return name_count > 0;
}

int main(int argc, char **argv)
{
    worker workers[THREADS_MOST] = {0};
    int threads = argc == 4 ? atoi(argv[2]) : 0;
    if (threads < 1 || threads > THREADS_MOST || !read_list(argv[1])) {
        (void)fprintf(stderr, "usage: files LIST THREADS SECONDS\n");
        return 2;
    }
    double began = now_s(), cpu = cpu_s();
    long done = 0;
    end_s = began + atof(argv[3]);
    for (int i = 0; i < threads; i++) {
        workers[i].state = UINT64_C(88172645463325252) + (uint64_t)i * 7919;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 1;
    }
    for (int i = 0; i < threads; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        done += workers[i].done;
    }
    (void)printf("{\"samples\": %ld, \"seconds\": %.6f, \"cpu_s\": %.6f}\n", done, now_s() - began,
                 cpu_s() - cpu);
    return 0;
}
