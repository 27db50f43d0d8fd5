/* replay.c - main for a fuzz target in the ordinary tests: every file of the named directories,
 * whole and cut short at every byte
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A block of exactly the input's size each time, so that a sanitizer sees one byte too far. */
static int replay_prefix(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact)
        return 1;
    memcpy(exact, data, size);
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return 0;
}

static int replay_file(const char *path)
{
    static uint8_t data[1 << 16]; /* the corpus is small on purpose */
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    size_t size = fread(data, 1, sizeof data, file);
    int failed = ferror(file) || size == sizeof data;
    (void)fclose(file);
    for (size_t cut = 0; cut <= size && !failed; cut++)
        failed = replay_prefix(data, cut);
    if (failed)
        (void)fprintf(stderr, "%s: could not be replayed\n", path);
    return failed;
}

static int replay_directory(const char *path, int *count)
{
    char name[4096];
    int failed = 0;
    DIR *directory = opendir(path);
    if (!directory) {
        perror(path);
        return 1;
    }
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(name, sizeof name, "%s/%s", path, entry->d_name) >= (int)sizeof name)
            failed = 1;
        else
            failed |= replay_file(name);
        ++*count;
    }
    (void)closedir(directory);
    return failed;
}

int main(int argc, char **argv)
{
    int count = 0, failed = 0;
    for (int at = 1; at < argc; at++)
        failed |= replay_directory(argv[at], &count);
    (void)printf("%d inputs replayed\n", count);
    return failed || count == 0; /* an empty corpus tests nothing */
}
